/* SPDX-License-Identifier: MIT */
/*
 * A table from GPU pages (64 KiB) to items: a radix tree in which an item that fills a whole node
 * takes one slot, as a huge page does. A page has the item that was entered last. A lookup takes no
 * lock and at most four loads. Nodes are never given back, so a reader never meets freed memory: 4
 * KiB for each 32 MiB of addresses that were ever in use. The caller's lock guards changes.
 */
#ifndef GDRI_PAGES_H
#define GDRI_PAGES_H

#include <stdatomic.h>
#include <stdint.h>

#include "gdrapi.h"

/* 57-bit addresses: what x86-64 and arm64 can have at most. */
enum {
	GDRI_PAGES_NODE_BITS = 9,
	GDRI_PAGES_ROOT_SLOTS = 1 << (57 - GPU_PAGE_SHIFT - 3 * GDRI_PAGES_NODE_BITS),
	GDRI_PAGES_ROOT_SHIFT = 3 * GDRI_PAGES_NODE_BITS
};

#define GDRI_PAGES_LIMIT ((uint64_t)1 << 57)

/* A slot is 0, a node's address, or an item's address + 1. */
typedef _Atomic uintptr_t gdri_pages_slot;

struct gdri_pages {
	gdri_pages_slot *root; /* GDRI_PAGES_ROOT_SLOTS, which begin as zeroes */
};

/*
 * Enters an item for the pages [start, end), both multiples of the page size and at most
 * GDRI_PAGES_LIMIT, replacing any older item. -ENOMEM: for some of them or none.
 */
int gdri_pages_enter(struct gdri_pages *pages, uint64_t start, uint64_t end, void *item);

/* Erases it where it still is. [start, end) is all that it was entered for, so this never fails. */
void gdri_pages_erase(struct gdri_pages *pages, uint64_t start, uint64_t end, const void *item);

/* The first item in [*start, end), or NULL. It has the pages [*start, *stop). No lock. */
void *gdri_pages_next(const struct gdri_pages *pages, uint64_t *start, uint64_t end,
		      uint64_t *stop);

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
