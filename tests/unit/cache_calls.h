/* SPDX-License-Identifier: MIT */
/* What the tests of the registration cache do with it again and again. */
#ifndef UNIT_CACHE_CALLS_H
#define UNIT_CACHE_CALLS_H

#include "cache/cache.h"
#include "fixture.h"

static inline bool is_same(const barcopy_region_t *r)
{
	return same_memory(r->handle, r->cpu_ptr, r->device_ptr);
}

/* Gets 8 bytes, which must be those of the memory, and puts them back; true: it was a hit. */
static inline bool touch(barcopy_cache_t cache, uint64_t addr)
{
	uint64_t hits = cache_stats(cache).hits;
	barcopy_region_t r;

	OK(barcopy_cache_get(cache, addr, 8, &r));
	ck_assert(is_same(&r));
	OK(barcopy_cache_put(cache, &r));
	return cache_stats(cache).hits != hits;
}

/* Touches chunks in this order: a letter is a chunk, a capital must miss, a small one hit. */
static inline void touch_all(barcopy_cache_t cache, CUdeviceptr d, const char *order)
{
	for (const char *c = order; *c; c++)
		ck_assert_msg(touch(cache, d + (uint64_t)((*c | 32) - 'a') * CHUNK) == (*c >= 'a'),
			      "%s, at %s: hit or miss?", order, c);
}

static inline void has(barcopy_cache_t cache, uint64_t evictions, uint64_t regions, uint64_t chunks)
{
	barcopy_cache_stats_t s = cache_stats(cache);

	ck_assert_uint_eq(s.evictions, evictions);
	ck_assert_uint_eq(s.regions, regions);
	ck_assert_uint_eq(s.bytes_pinned, chunks * CHUNK);
}

static inline struct gdri_cache *found(barcopy_cache_t cache)
{
	struct gdri_cache *c = (struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)cache);

	ck_assert_ptr_nonnull(c);
	return c;
}

static inline struct gdri_entry *entry_of(const barcopy_region_t *r)
{
	return (struct gdri_entry *)gdri_slots_find(&gdri_entries, r->entry);
}

static inline uint64_t pinned(void)
{
	barcopy_stats_t s = stats_of(NULL);

	return s.pins - s.unpins;
}

#define BY_NOTICE(...) new_cache(OPTIONS(.validity = BARCOPY_CACHE_NOTIFIED, __VA_ARGS__))

#define DMABUF "GDRCOPY_BACKEND=dmabuf,host GDRSIM_DRIVER_VERSION=13030"

#endif
