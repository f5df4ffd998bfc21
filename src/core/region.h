/* SPDX-License-Identifier: MIT */
/*
 * A region: GPU pages that are pinned, and the allocations in them. Every handle holds one. A plain
 * pin's region has one handle, which maps it; others stay mapped, and their handles show parts.
 */
#ifndef GDRI_REGION_H
#define GDRI_REGION_H

#include "backend/backend.h"

struct gdri_part;
struct gdri_late_page;

struct gdri_region {
	/* Set by gdri_region_open() and constant from then on, save the map of a plain pin. */
	struct gdri_pin pin; /* pin.va and pin.mapped_size: whole GPU pages */
	uint64_t low, high; /* as asked for, not rounded */
	bool mapped; /* as long as it lives */
	bool sync; /* SYNC_MEMOPS is set on its allocations */
	bool host; /* the CPU's own memory: one allocation */
	size_t part_count; /* 0: CUDA does not know the memory */
	struct gdri_part *parts; /* in order of address; cover [low, high) save for gaps */

	_Atomic(struct gdri_late_page *) late; /* a list that only grows */
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

/* Pins and maps. 0 or -errno. If VERIFIED, request->memory may describe an address of the range. */
int gdri_region_open(struct gdri_region *region, struct gdri_backends *backends,
		     struct gdri_pin_request *request, uint32_t flags);

/* Unmaps and unpins; no handle may hold it. Returns the first failure, always closes. */
int gdri_region_close(struct gdri_region *region);

/* A close without gdri_region_free_parts(): another thread may still read the parts. */
int gdri_region_unpin(struct gdri_region *region);

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

#endif
