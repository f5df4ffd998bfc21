/* SPDX-License-Identifier: MIT */
/*
 * A table from GPU pages (64 KiB) to items: a radix tree in which an item that fills a whole node
 * takes one slot, as a huge page does. Looking up takes no lock and at most four loads, however
 * many items there are; nodes are never given back, so a reader never meets freed memory.
 * Changes are made under the caller's lock. It knows nothing of what the items are.
 */
#ifndef GDRI_PAGES_H
#define GDRI_PAGES_H

#include <stdatomic.h>
#include <stdint.h>

#include "gdrapi.h"

/* 57-bit addresses: what x86-64 and arm64 can have at most. */
enum {
	GDRI_PAGES_NODE_BITS = 9,
	GDRI_PAGES_ROOT_BITS = 57 - GPU_PAGE_SHIFT - 3 * GDRI_PAGES_NODE_BITS,
	GDRI_PAGES_ROOT_SHIFT = 3 * GDRI_PAGES_NODE_BITS
};

#define GDRI_PAGES_LIMIT ((uint64_t)1 << 57)

/* A slot is 0, a node's address, or an item's address + 1. */
typedef _Atomic uintptr_t gdri_pages_slot;

struct gdri_pages {
	gdri_pages_slot *root; /* NULL until the first gdri_pages_init() */
};

/* 0 or -ENOMEM. */
int gdri_pages_init(struct gdri_pages *pages);

/*
 * Enters or erases an item for the pages [start, end), both multiples of the page size. What is
 * erased must be exactly what was entered; a range entered must be empty. Entering fails with
 * -ENOMEM, leaving nothing, or with -EINVAL beyond GDRI_PAGES_LIMIT.
 */
int gdri_pages_enter(struct gdri_pages *pages, uint64_t start, uint64_t end, void *item);
void gdri_pages_erase(struct gdri_pages *pages, uint64_t start, uint64_t end);

/* The first item at or behind `start` that begins before `end`, or NULL. Under the lock. */
void *gdri_pages_next(const struct gdri_pages *pages, uint64_t start, uint64_t end);

/* The item of the page around addr, or NULL. No lock. */
static inline void *gdri_pages_find(const struct gdri_pages *pages, uint64_t addr)
{
	unsigned int shift = GDRI_PAGES_ROOT_SHIFT;
	uint64_t page = addr >> GPU_PAGE_SHIFT;
	uintptr_t v;

	if (__builtin_expect(addr >= GDRI_PAGES_LIMIT, 0))
		return NULL;
	v = atomic_load_explicit(&pages->root[page >> shift], memory_order_acquire);
	while (v && !(v & 1)) {
		const gdri_pages_slot *node = (const gdri_pages_slot *)v;

		shift -= GDRI_PAGES_NODE_BITS;
		v = atomic_load_explicit(&node[page >> shift & ((1 << GDRI_PAGES_NODE_BITS) - 1)],
					 memory_order_acquire);
	}
	return (void *)(v & ~(uintptr_t)1);
}

#endif
