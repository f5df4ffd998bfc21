/* SPDX-License-Identifier: MIT */
/* The trial of a backend on the library's own memory: see trial.c. */
#ifndef GDRI_TRIAL_H
#define GDRI_TRIAL_H

#include "backend/backend.h"

/* What is tried. */
struct gdri_trial_of {
	const struct gdri_backend *backend; /* its map, unmap and unpin are called */
	/* Pins memory of the library. *lasting is set if every later pin of that kind fails too. */
	int (*pin)(const struct gdri_pin_request *request, struct gdri_pin *pin, bool exportable,
		   bool *lasting);
	/* Of its mapping; NULL: the pin's. */
	gdr_mapping_type_t (*type)(const struct gdri_pin *pin);
};

/* The verdict on one GPU, under trial.c's lock. Zeroes: not tried. */
struct gdri_trial {
	enum { GDRI_UNTRIED, GDRI_PASSED, GDRI_FAILED } verdict;
	gdr_mapping_type_t type; /* of the mappings */
	char reason[400]; /* of a failure */
	bool wrong; /* the failure: mappings were wrong, which a new trial might not see */
	uint64_t again_ns; /* a failure stands until then; 0: for good */
};

/*
 * Runs the trial, with memory of `context` (or NULL) and pins with these flags, if there is no
 * verdict for the GPU or the verdict has expired: a failure that says nothing about the backend
 * expires after a second. exportable: the memory is VMM memory that can be exported. Returns 0 and
 * the mappings' type, -ENOTSUP with the reason, or a shortage.
 */
int gdri_trial(struct gdri_trial *trial, const struct gdri_trial_of *of, bool exportable,
	       int device, void *context, uint32_t flags, gdr_mapping_type_t *type);

#endif
