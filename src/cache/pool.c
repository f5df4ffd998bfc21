/* SPDX-License-Identifier: MIT */
/* See pool.h. */
#include "cache/pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALL_PAGE = 4096, HUGE_PAGE = 2 << 20 };

static int add_block(struct gdri_pool *pool)
{
	uint32_t objects = (uint32_t)GDRI_POOL_FIRST << pool->blocks;
	size_t bytes = (size_t)objects * GDRI_POOL_OBJECT;
	char *block;

	if (pool->blocks == GDRI_POOL_BLOCKS)
		return -1;
	block = aligned_alloc(bytes < HUGE_PAGE ? SMALL_PAGE : HUGE_PAGE, bytes);
	if (!block)
		return -1;
	if (bytes >= HUGE_PAGE)
		(void)madvise(block, bytes, MADV_HUGEPAGE); /* a wish */
	memset(block, 0, bytes);
	atomic_store_explicit(&pool->block[pool->blocks++], block, memory_order_release);
	for (uint32_t i = objects; i-- > 0;) {
		struct gdri_slot *slot = gdri_pool_at(pool, pool->count + i);

		slot->index = pool->count + i;
		slot->next_free = pool->first_free;
		pool->first_free = slot->index + 1;
	}
	pool->count += objects;
	return 0;
}

struct gdri_slot *gdri_pool_new(struct gdri_pool *pool)
{
	struct gdri_slot *slot;

	if (!pool->first_free && add_block(pool))
		return NULL;
	slot = gdri_pool_at(pool, pool->first_free - 1);
	pool->first_free = slot->next_free;
	return slot;
}

void gdri_pool_free(struct gdri_pool *pool, struct gdri_slot *slot)
{
	slot->next_free = pool->first_free;
	pool->first_free = slot->index + 1;
}
