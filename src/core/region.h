/* SPDX-License-Identifier: MIT */
/*
 * A region: GPU pages that are pinned, and the allocations in them. Every handle holds one. A plain
 * pin's region has one handle, which maps it; others stay mapped, and their handles show parts.
 *
 * Validity. An address outlives its memory: a program frees a buffer, allocates another, and CUDA
 * gives it the same address, while the pin still shows the old pages. So a region notes the
 * allocations behind it as "parts", each with the buffer ID that CUDA never uses again (GPUDirect
 * RDMA guide, section 12.5). A look-up by address verifies it: CUDA's ID there must be the part's.
 *  - Parts are noted before the pin and verified after it, so they are what is pinned.
 *  - An address in no part is "unknown". Say that A and B, 4 KiB each, share a GPU page of a region
 *    made for A. While A is intact B is pinned too: the region learns it as a late part.
 *  - A region is stale, and never found again, once one of its parts has another ID, or none.
 */
#ifndef GDRI_REGION_H
#define GDRI_REGION_H

#include "backend/backend.h"

/* An allocation, or VMM chunk, that a region reaches into. Constant once it can be found. */
struct gdri_part {
	uint64_t start, end, id;
	bool sync_memops; /* SYNC_MEMOPS is in force */
	struct gdri_part *next; /* of the late ones */
};

struct gdri_region {
	/* Set by gdri_region_open() and constant from then on, save the map of a plain pin. */
	struct gdri_pin pin; /* pin.va and pin.mapped_size: whole GPU pages */
	uint64_t low, high; /* as asked for, not rounded */
	bool mapped; /* as long as it lives */
	bool sync; /* SYNC_MEMOPS is set on its allocations */
	bool host; /* the CPU's own memory: one allocation */
	size_t part_count; /* 0: CUDA does not know the memory */
	struct gdri_part *parts; /* in order of address; cover [low, high) save for gaps */

	_Atomic(struct gdri_part *) late; /* a list that only grows */
	_Atomic bool revoked; /* seen so */
	const struct gdri_region_kind *kind; /* set by the caller */
};

/* The calls that make and end a region's handles, and what a handle's end does with the region. */
struct gdri_region_kind {
	const char *made_by, *ended_by;
	int (*put)(struct gdri_region *region); /* NULL: a cache's, whose users share a handle */
};

enum gdri_region_flags {
	GDRI_REGION_READ_ONLY = BARCOPY_MAP_RANGE_READ_ONLY, /* enforced by page protection */
	GDRI_REGION_NO_SYNC = BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS, /* leaves SYNC_MEMOPS as it is */
	GDRI_REGION_MAPPED = 4, /* as long as it lives */
	GDRI_REGION_VERIFIED = 8 /* parts are noted before the pin and verified after it */
};

enum gdri_validity {
	GDRI_VALID, /* every byte is the memory that was pinned */
	GDRI_UNKNOWN, /* some byte is in no part, or outside */
	GDRI_STALE /* some byte belongs to another allocation by now, or to none */
};

/* Pins and maps. 0 or -errno. If VERIFIED, request->memory may describe an address of the range. */
int gdri_region_open(struct gdri_region *region, struct gdri_backends *backends,
		     struct gdri_pin_request *request, uint32_t flags);

/* Unmaps and unpins; no handle may hold it. Returns the first failure, always closes. */
int gdri_region_close(struct gdri_region *region);

/* The two steps of a close: another thread may still be reading the parts. */
int gdri_region_unpin(struct gdri_region *region);
void gdri_region_free_parts(struct gdri_region *region);

static inline uint64_t gdri_region_end(const struct gdri_region *region)
{
	return region->pin.va + region->pin.mapped_size;
}

/* The CPU's pointer to a device address of a mapped region. */
static inline void *gdri_region_pointer(const struct gdri_region *region, uint64_t addr)
{
	return (char *)region->pin.map + (addr - region->pin.va);
}

/*
 * Maps for a handle: a plain pin itself; of a mapped region the handle's view (va, mapped_size,
 * map_length), whose copies stay in [low, high). The unmap ends the map of a plain pin.
 */
int gdri_region_map(struct gdri_region *region, struct gdri_pin *view, uint64_t low, uint64_t high,
		    gdr_mapping_type_t wish);
int gdri_region_unmap(struct gdri_region *region);

/* Asks the driver, and counts the first "revoked". 0 or -errno. */
int gdri_region_is_revoked(struct gdri_region *region, bool *revoked);

/* Below, no lock is needed while the region is open, unless noted. */

/* Is SYNC_MEMOPS in force for every allocation in [low, high)? */
bool gdri_region_sync_memops(const struct gdri_region *region, uint64_t low, uint64_t high);

/*
 * Asks CUDA about [addr, addr + size): one call for each part. learner: the same region, which
 * learns late parts (its cache's lock is held); or NULL.
 */
enum gdri_validity gdri_region_verify(const struct gdri_region *region, struct gdri_region *learner,
				      uint64_t addr, size_t size);

/* Is all of [addr, addr + size) in one part? Asks nothing. */
bool gdri_region_in_one_part(const struct gdri_region *region, uint64_t addr, size_t size);

/*
 * Do all the parts that it was opened for exist? The second call begins at *part, verifies at most
 * *budget parts, which it counts down, and sets *part to 0 at the end.
 */
bool gdri_region_is_intact(const struct gdri_region *region);
bool gdri_region_is_intact_from(const struct gdri_region *region, size_t *part, size_t *budget);

/*
 * For region.c. Notes every allocation in [low, high): 0 or -errno; none is no failure. *m
 * describes an address of the range, or is all zeroes.
 */
int gdri_parts_note(struct gdri_region *region, uint64_t low, uint64_t high, struct gdri_memory *m);
void gdri_parts_set_sync_memops(struct gdri_region *region);

#endif
