/* SPDX-License-Identifier: MIT */
/*
 * The entries of a cache, named as in slots.h, but in few large blocks, each twice the one before:
 * a hundred thousand of them then lie in a few huge pages, and a hit misses no more than one cache
 * line. Their memory is never given back. Found without a lock; made and
 * freed under the cache's. It knows nothing of what is in an entry but its slot.
 */
#ifndef GDRI_POOL_H
#define GDRI_POOL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/slots.h"

enum { GDRI_POOL_BLOCKS = 20, GDRI_POOL_FIRST = 64, GDRI_POOL_OBJECT = 64 };

struct gdri_pool {
	_Atomic(char *) block[GDRI_POOL_BLOCKS]; /* block i: GDRI_POOL_FIRST << i objects */
	uint32_t blocks, count;
	uint32_t first_free; /* index + 1, or 0 */
};

/* A fresh object, all zeroes but its slot the first time; NULL without memory. */
struct gdri_slot *gdri_pool_new(struct gdri_pool *pool);
/* Gives a retired or never published object back. */
void gdri_pool_free(struct gdri_pool *pool, struct gdri_slot *slot);

/* The object of an index, which has been made; or NULL. */
static inline struct gdri_slot *gdri_pool_at(const struct gdri_pool *pool, uint32_t index)
{
	uint64_t nth = (uint64_t)index / GDRI_POOL_FIRST + 1;
	unsigned int i = 63 - (unsigned int)__builtin_clzll(nth);
	uint64_t first = (((uint64_t)1 << i) - 1) * GDRI_POOL_FIRST;
	char *block;

	if (i >= GDRI_POOL_BLOCKS)
		return NULL;
	block = atomic_load_explicit(&pool->block[i], memory_order_acquire);
	if (!block)
		return NULL;
	return (struct gdri_slot *)(void *)(block + (index - first) * GDRI_POOL_OBJECT);
}

/* The object of that name, or NULL. */
static inline struct gdri_slot *gdri_pool_find(const struct gdri_pool *pool, uint64_t name)
{
	struct gdri_slot *slot = gdri_pool_at(pool, (uint32_t)name - 1);

	return slot && name >> 32 & 1 && gdri_slot_is(slot, name) ? slot : NULL;
}

#endif
