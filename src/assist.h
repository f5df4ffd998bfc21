/* SPDX-License-Identifier: MIT */
/*
 * What a handle may be given beyond the calling thread's own copies: workers, and the GPU's copy
 * engine. It stands behind a plan of its own around the mapping's common one, so a handle without
 * it has nothing to ask. It knows pins, not handles or contexts; only src/cuda/ knows CUDA.
 */
#ifndef GDRI_ASSIST_H
#define GDRI_ASSIST_H

#include "gdrapi.h"
#include "backend/backend.h"
#include "copy/copy.h"

struct gdri_assist;

/*
 * As the options say, for copies through that pin's mappings; *assist is NULL if they ask for
 * nothing. options NULL: what the environment says, and no failure. 0 or -errno with its text.
 */
int gdri_assist_new(const struct gdri_pin *pin, const gdr_copy_options_t *options,
		    struct gdri_assist **assist);

/* No copy may be under way on its plan. NULL is nothing. */
void gdri_assist_free(struct gdri_assist *assist);

/* The plan for the pin's mapping as it is now, counted in the pin; valid until the next call, or the free. */
const struct gdri_copy_plan *gdri_assist_plan(struct gdri_assist *assist, struct gdri_pin *pin);

/* Copies that the copy engine has done, and those that came back to the mapping. */
uint64_t gdri_assist_engine_copies(const struct gdri_assist *assist);
uint64_t gdri_assist_engine_fallbacks(const struct gdri_assist *assist);

/* In a forked child: the parent's workers are not there. */
void gdri_assist_after_fork(void);

#endif
