/* SPDX-License-Identifier: MIT */
/*
 * The allocations in a region, and whether its pages still show them.
 *
 * An address outlives its memory: a program frees a buffer, allocates another, and CUDA
 * gives it the same address, while the pin still shows the old pages. So a region notes the
 * allocations behind it as "parts", each with its buffer ID. "Subsequent allocations do not
 * reuse IDs" (CUDA driver API, cuPointerGetAttribute). A look-up by address verifies it: CUDA's ID
 * there must be the part's.
 *  - Parts are noted before the pin and verified after it, so they are what is pinned.
 *  - An address in no part is "unknown". Say that A and B, 4 KiB each, share a GPU page of a region
 *    made for A. While A is intact B is pinned too: the region learns it as a late part, found by
 *    its address in one step: 128 allocations of 256 bytes in a page are common.
 *  - A region is stale, and never found again, once one of its parts has another ID, or none.
 */
#ifndef GDRI_PARTS_H
#define GDRI_PARTS_H

#include "core/region.h"

/* An allocation, or VMM chunk, that a region reaches into. Constant once it can be found. */
struct gdri_part {
	uint64_t start, end, id;
	void *context; /* CUcontext and device of the allocation */
	int device;
	bool sync_memops; /* SYNC_MEMOPS is in force */
};

enum gdri_validity {
	GDRI_VALID, /* every byte is the memory that was pinned */
	GDRI_UNKNOWN, /* some byte is in no part, or outside */
	GDRI_STALE /* some byte belongs to another allocation by now, or to none */
};

/* Below, no lock is needed while the region is open, unless noted. */

/* Is SYNC_MEMOPS in force for every allocation in [low, high)? */
bool gdri_region_sync_memops(const struct gdri_region *region, uint64_t low, uint64_t high);

/*
 * Asks CUDA about [addr, addr + size): one call for each part. learner: the same region, which
 * learns late parts (its cache's lock is held); or NULL.
 */
enum gdri_validity gdri_region_verify(const struct gdri_region *region, struct gdri_region *learner,
				      uint64_t addr, size_t size);

/* Returns the noted allocation around addr, or NULL. Neither this nor the next function calls CUDA. */
const struct gdri_part *gdri_region_part(const struct gdri_region *region, uint64_t addr);
/* Is all of [addr, addr + size) in one part? */
bool gdri_region_in_one_part(const struct gdri_region *region, uint64_t addr, size_t size);

/* Do all its parts in [low, high) exist? */
bool gdri_region_is_intact(const struct gdri_region *region, uint64_t low, uint64_t high);
/*
 * Of the parts that it was opened for: begins at *part, verifies at most *budget, which it counts
 * down, and sets *part to 0 at the end.
 */
bool gdri_region_is_intact_from(const struct gdri_region *region, size_t *part, size_t *budget);

/* Notes all allocations in [low, high). *m describes a byte of it, or is zero. 0 or -errno. */
int gdri_parts_note(struct gdri_region *region, uint64_t low, uint64_t high, struct gdri_memory *m);
/* verified: since the pin. Otherwise each part is compared by its ID: it may have been freed. */
void gdri_parts_set_sync_memops(struct gdri_region *region, bool verified);
void gdri_region_free_parts(struct gdri_region *region);

#endif
