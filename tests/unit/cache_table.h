/* SPDX-License-Identifier: MIT */
/*
 * The tables of all caches, those of ranges too, while no call is under way: a call that failed may
 * have left neither an entry nor a page behind.
 */
#ifndef UNIT_CACHE_TABLE_H
#define UNIT_CACHE_TABLE_H

#include <check.h>
#include <sys/param.h>

#include "cache/cache.h"

static inline void cache_table_has(const struct gdri_cache *cache, const struct gdri_entry *e)
{
	uint64_t start = gdri_entry_start(e), end = start + gdri_entry_size(e), own = 0;

	for (uint64_t at = start; at < end; at += GPU_PAGE_SIZE) {
		bool mine = gdri_pages_find(&cache->pages, at) == e;

		own += mine;
		ck_assert_msg(mine || at == start || at == end - GPU_PAGE_SIZE,
			      "0x%lx, inside an entry, is another's", at);
	}
	ck_assert_uint_gt(own, 0);
}

static inline void cache_table_check_one(struct gdri_slot *slot, void *arg)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;
	uint64_t bytes[GDRI_CACHE_GPUS] = { 0 }, at = 0, stop;
	struct gdri_entry *e;
	size_t count = 0;

	(void)arg;
	if (!cache->pages.root) /* it could not be made */
		return;
	TAILQ_FOREACH(e, &cache->regions, link) {
		ck_assert(e->listed && e->cache == cache);
		count++;
		bytes[gdri_cache_gpu(cache, e->region.pin.device) - cache->gpu] +=
			gdri_entry_bytes(e);
	}
	ck_assert_uint_eq(count, cache->count);
	ck_assert_uint_eq(atomic_load(&cache->leaving), 0);
	for (int i = 0; i < GDRI_CACHE_GPUS; i++)
		ck_assert_uint_eq(bytes[i], cache->gpu[i].bytes);
	for (; (e = gdri_pages_next(&cache->pages, &at, UINT64_MAX, &stop)); at = stop) {
		ck_assert_msg(e->listed && e->cache == cache &&
				      atomic_load(&e->state) & GDRI_CACHE_LIVE,
			      "0x%lx has an entry that nobody may find", at);
		ck_assert(gdri_entry_covers(e, at, stop - at));
	}
	/* In a registration cache a region has its pages in the table, save those at its ends. */
	TAILQ_FOREACH(e, &cache->regions, link)
		if (cache->keeps && atomic_load(&e->state) & GDRI_CACHE_LIVE)
			cache_table_has(cache, e);
}

/* Each page of a region whose memory exists is hit without the lock, whichever one has it in the table. */
static inline void cache_table_hit(struct gdri_cache *cache)
{
	struct gdri_entry *e, *found;

	TAILQ_FOREACH(e, &cache->regions, link)
		for (uint64_t at = gdri_entry_start(e); at < gdri_entry_end(e); at += GPU_PAGE_SIZE) {
			uint64_t low = MAX(at, gdri_entry_start(e) + e->head);
			uint64_t high = MIN(at + GPU_PAGE_SIZE, gdri_entry_end(e) - e->tail);

			if (!(atomic_load(&e->state) & GDRI_CACHE_LIVE) ||
			    !gdri_region_is_intact(&e->region, low, high))
				continue;
			found = gdri_cache_hit(cache, low, high - low);
			ck_assert_msg(found != NULL, "0x%lx is not hit", low);
			ck_assert_int_eq(gdri_cache_unuse(cache, found), 0);
		}
}

static inline void cache_table_check(void)
{
	gdri_slots_each(&gdri_caches, cache_table_check_one, NULL);
	gdri_slots_each(&gdri_ranges, cache_table_check_one, NULL);
}

#endif
