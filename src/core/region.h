/* SPDX-License-Identifier: MIT */
/*
 * A region: GPU pages that are pinned, and for each allocation in them what belongs to that
 * allocation alone. Every handle holds a region. One of a plain pin has one handle, which maps it;
 * the others are mapped as long as they live, and handles show parts of them. It knows nothing of
 * handles, nor of who keeps regions or why.
 *
 * Are these addresses still the memory that was pinned? CUDA gives each allocation an ID that is
 * never used again (GPUDirect RDMA guide, section 12.5); a region notes the IDs in its range before
 * it is pinned, and whoever finds it by an address compares.
 */
#ifndef GDRI_REGION_H
#define GDRI_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "cuda/cuda.h"
#include "gdrapi.h"

struct gdri_region;

/* An allocation, or VMM chunk, that a region reaches into. Constant once it can be found. */
struct gdri_part {
	uint64_t start, end, id;
	bool sync_memops; /* SYNC_MEMOPS is in force */
	struct gdri_part *next; /* of those found later */
};

/* Whose a region is: by which calls a handle of it comes and goes, and what the end of one does. */
struct gdri_region_kind {
	const char *made_by, *ended_by;
	bool shares_handle; /* among its users */
	int (*put)(struct gdri_region *region); /* 0 or -errno */
};

struct gdri_region {
	/* Set by gdri_region_open(), constant until gdri_region_close(), but the map of a plain pin. */
	struct gdri_pin pin; /* pin.va and pin.mapped_size: whole GPU pages */
	uint64_t low, high; /* as asked for, not rounded */
	bool mapped; /* as long as it lives */
	bool sync; /* SYNC_MEMOPS is set on its allocations */
	bool host; /* the CPU's own memory: one allocation, never shared with another */
	size_t part_count; /* 0: CUDA does not know the memory */
	struct gdri_part *parts; /* in order of address; cover [low, high) save for gaps */

	_Atomic(struct gdri_part *) late; /* found later in its pages; only ever added to */
	_Atomic bool revoked; /* seen so */

	const struct gdri_region_kind *kind; /* the owner's to set */
};

enum gdri_region_flags {
	GDRI_REGION_MAPPED = 1, /* as long as it lives */
	GDRI_REGION_READ_ONLY = 2, /* enforced by page protection */
	GDRI_REGION_PROVEN = 4, /* its parts hold after the pin: they are what is pinned */
	GDRI_REGION_NO_SYNC = 8 /* SYNC_MEMOPS of its allocations is left as it is */
};

enum gdri_proof {
	GDRI_PROVEN, /* every byte is the memory that was pinned */
	GDRI_UNKNOWN, /* some byte belongs to an allocation that is not noted, or lies outside */
	GDRI_STALE /* some byte is another allocation's by now, or nobody's */
};

/*
 * The allocations at the ends of [*low, *high) reach from *first to *last, which are its own ends where CUDA
 * does not say; the range is widened to those of up to whole_max bytes.
 */
void gdri_region_bounds(uint64_t *low, uint64_t *high, size_t whole_max, uint64_t *first,
			uint64_t *last);

/*
 * Pins what the request names, maps it if flags say so, and sets SYNC_MEMOPS on every allocation of
 * the range. 0 or -errno.
 */
int gdri_region_open(struct gdri_region *region, struct gdri_backends *backends,
		     struct gdri_pin_request *request, uint32_t flags);

/* Unmaps and unpins; no handle may hold it. Returns the first failure, always closes. */
int gdri_region_close(struct gdri_region *region);

/* The latter without giving back the parts, which another thread may be looking at. */
int gdri_region_unpin(struct gdri_region *region);
void gdri_region_free_parts(struct gdri_region *region);

static inline uint64_t gdri_region_end(const struct gdri_region *region)
{
	return region->pin.va + region->pin.mapped_size;
}

static inline bool gdri_region_has(const struct gdri_region *region, uint64_t addr, size_t size)
{
	return addr >= region->pin.va && addr - region->pin.va < region->pin.mapped_size &&
	       size <= region->pin.mapped_size - (addr - region->pin.va);
}

/* The CPU's pointer to a device address of a mapped region. */
static inline void *gdri_region_pointer(const struct gdri_region *region, uint64_t addr)
{
	return (char *)region->pin.map + (addr - region->pin.va);
}

/*
 * Maps for a handle, by its view of the region's pin (va, mapped_size, map_length): a plain pin
 * itself, else what lies in [low, high). Unmaps likewise.
 */
int gdri_region_map(struct gdri_region *region, struct gdri_pin *view, uint64_t low, uint64_t high,
		    gdr_mapping_type_t wish);
int gdri_region_unmap(struct gdri_region *region, struct gdri_pin *view);

/* Asks the driver, and counts the first time that it says so. 0 or -errno. */
int gdri_region_is_revoked(struct gdri_region *region, bool *revoked);

/* Is SYNC_MEMOPS in force for every allocation in [low, high)? Needs no lock. */
bool gdri_region_sync_memops(const struct gdri_region *region, uint64_t low, uint64_t high);

/* Asks CUDA about [addr, addr + size). Needs no lock while the region is open. */
enum gdri_proof gdri_region_prove(const struct gdri_region *region, uint64_t addr, size_t size);

/* Is all of [addr, addr + size) of one noted allocation? Asks nothing. Likewise. */
bool gdri_region_notes(const struct gdri_region *region, uint64_t addr, size_t size);

/* Are all the allocations that it was opened for still there? Likewise. */
bool gdri_region_holds(const struct gdri_region *region);

/* The same from part *part on, for *budget of them, of which it takes: *part is 0 where it came to the end. */
bool gdri_region_holds_on(const struct gdri_region *region, size_t *part, size_t *budget);

/*
 * Tries to turn GDRI_UNKNOWN into a proof: an allocation that lies in one GPU page together with a
 * noted one that is still there is backed by that very page. Notes it. Under the owner's lock.
 */
enum gdri_proof gdri_region_prove_late(struct gdri_region *region, uint64_t addr, size_t size);

/* Of region.c alone: notes every allocation in [low, high). 0 or -errno; none is no failure. */
int gdri_parts_take(struct gdri_region *region, uint64_t low, uint64_t high);
void gdri_parts_set_sync_memops(struct gdri_region *region);

#endif
