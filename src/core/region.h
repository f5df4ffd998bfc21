/* SPDX-License-Identifier: MIT */
/*
 * A region: device memory that is pinned and mapped, with the tags that tell later whether the
 * addresses still mean the memory that was pinned; and handles that borrow its mapping. It knows
 * nothing of who keeps regions, or why; its owner's lock guards all that is not said to need none.
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

struct gdri_ctx;

/* A tag found after the region was opened. */
struct gdri_late_tag {
	struct gdri_late_tag *next;
	struct gdri_cuda_tag tag;
};

struct gdri_region {
	/* Set by gdri_region_open(), constant until gdri_region_close(). */
	struct gdri_pin pin; /* mapped; pin.va and pin.mapped_size: whole GPU pages */
	uint64_t low, high; /* as asked for, not rounded */
	bool read_only;
	size_t tag_count; /* 0: not tagged */
	struct gdri_cuda_tag *tags; /* in order of address; cover [low, high) save for gaps */
	struct gdri_backend lent; /* the operations of handles that borrow the mapping */

	_Atomic(struct gdri_late_tag *) late; /* only ever added to */

	/* Called without a lock of ours when a borrowing handle has ended; may be NULL. */
	void (*returned)(struct gdri_region *region);
};

enum gdri_region_flags {
	GDRI_REGION_READ_ONLY = 1, /* enforced by page protection */
	GDRI_REGION_TAGGED = 2 /* keep tags; without them the region is never proven */
};

enum gdri_proof {
	GDRI_PROVEN, /* every byte is the memory that was pinned */
	GDRI_UNKNOWN, /* some byte belongs to an allocation without a tag */
	GDRI_STALE /* some byte is another allocation's by now, or nobody's */
};

/*
 * Widens [*low, *high) to the whole allocations at its ends where that costs no more: up to
 * whole_max bytes.
 */
int gdri_region_bounds(uint64_t *low, uint64_t *high, size_t whole_max);

/*
 * Pins and maps the GPU pages of [low, high); region->returned is the owner's to set. imported: how
 * it came, if it is another process's memory; else NULL. A dma-buf's addresses begin at 0.
 */
int gdri_region_open(struct gdri_region *region, struct gdri_ctx *ctx, uint64_t low, uint64_t high,
		     uint32_t flags, const struct gdri_imported *imported);

/* Unmaps and unpins; borrowing handles must have ended. Returns the first failure, always closes. */
int gdri_region_close(struct gdri_region *region);

static inline uint64_t gdri_region_end(const struct gdri_region *region)
{
	return region->pin.va + region->pin.mapped_size;
}

static inline bool gdri_region_has(const struct gdri_region *region, uint64_t addr, size_t size)
{
	return addr >= region->pin.va && addr - region->pin.va < region->pin.mapped_size &&
	       size <= region->pin.mapped_size - (addr - region->pin.va);
}

/* The CPU's pointer to a device address of the region. */
static inline void *gdri_region_pointer(const struct gdri_region *region, uint64_t addr)
{
	return (char *)region->pin.map + (addr - region->pin.va);
}

/* Asks CUDA about [addr, addr + size) of the region. Needs no lock while the region is open. */
enum gdri_proof gdri_region_prove(const struct gdri_region *region, uint64_t addr, size_t size);

/*
 * Tries to turn GDRI_UNKNOWN into a proof: an allocation that lies in one GPU page together with a
 * tagged one that is still there is backed by that very page. Adds the tag it has found.
 */
enum gdri_proof gdri_region_prove_late(struct gdri_region *region, uint64_t addr, size_t size);

/* A published, mapped handle that borrows [addr, addr + size) of the region. */
int gdri_region_lend(struct gdri_region *region, struct gdri_ctx *ctx, uint64_t addr, size_t size,
		     gdr_mh_t *handle);

/* Is it a handle's pin that gdri_region_lend() made? */
bool gdri_region_is_lent(const struct gdri_pin *pin);
/* The region it borrows. */
struct gdri_region *gdri_region_of(const struct gdri_pin *pin);

#endif
