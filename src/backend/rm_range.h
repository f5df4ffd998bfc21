/* SPDX-License-Identifier: MIT */
/* Ranges of the rm backend: duplicates of memory objects, and CPU mappings of them. */
#ifndef GDRI_RM_RANGE_H
#define GDRI_RM_RANGE_H

#include "backend/rm_client.h"

struct gdri_rm_range {
	const struct gdri_rm_gpu *gpu;
	size_t count, room;
	/* Duplicates of memory objects, and the part of each that the range takes, side by side. */
	struct gdri_rm_object {
		rm_handle object;
		uint64_t offset, size;
		uint64_t address; /* RM's name of the mapping, while mapped */
	} * objects;
	size_t mapped; /* the first so many are mapped */
};

/*
 * Finds and duplicates the objects behind the request's range; exportable: by descriptors, for VMM
 * memory that was made exportable. *lasting is set if no later export can be observed either.
 */
int gdri_rm_range_open(const struct gdri_rm_gpu *gpu, const struct gdri_pin_request *request,
		       bool exportable, struct gdri_rm_range **range, bool *lasting);
/* Frees all duplicates; returns the first failure. */
int gdri_rm_range_close(struct gdri_rm_range *range);

/* Maps the first `length` bytes, in no child. */
int gdri_rm_map(struct gdri_rm_range *range, size_t length, bool read_only, void **map);
int gdri_rm_unmap(struct gdri_rm_range *range, void *map, size_t length);

#endif
