/* SPDX-License-Identifier: MIT */
/* The entry points of the registration cache. A hit takes no lock and logs nothing. */
#include <string.h>

#include "base/struct_size.h"
#include "calls/calls.h"

static inline struct gdri_cache *find(barcopy_cache_t c)
{
	return (struct gdri_cache *)gdri_slots_find_own(&gdri_caches, (uintptr_t)c);
}

static __attribute__((cold, noinline)) int refuse(barcopy_cache_t c)
{
	return gdri_slots_fail(&gdri_caches, (uintptr_t)c, "a cache");
}

/* Holds the context of a cache that was found, unless the cache has ended since. */
static int hold(barcopy_cache_t c, struct gdri_cache *cache, struct gdri_ctx **ctx)
{
	int rc = gdri_ctx_get(atomic_load_explicit(&cache->g, memory_order_acquire), ctx);

	if (rc || gdri_slot_is(&cache->slot, (uintptr_t)c))
		return rc;
	return gdri_ctx_put(*ctx, refuse(c));
}

static int enter(barcopy_cache_t c, struct gdri_cache **cache, struct gdri_ctx **ctx)
{
	*cache = find(c);
	return *cache ? hold(c, *cache, ctx) : refuse(c);
}

/* Threads share the counters out, so that their hits do not share a cache line. */
static inline _Atomic uint64_t *hit_counter(struct gdri_cache *cache)
{
	static _Atomic unsigned int threads;
	static _Thread_local unsigned int mine __attribute__((tls_model("initial-exec")));

	if (__builtin_expect(!mine, 0))
		mine = 1 + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) %
				   GDRI_CACHE_SHARDS;
	return &cache->shard[mine - 1].hits;
}

static inline void describe(barcopy_region_t *region, struct gdri_entry *e, uint64_t addr,
			    size_t size)
{
	region->cpu_ptr = e->cpu + (ptrdiff_t)(addr - gdri_entry_start(e));
	region->device_ptr = addr;
	region->size = size;
	region->handle = e->handle;
	region->entry = gdri_slot_name(&e->slot);
}

/* No part of get(): its variables would bring a stack protector's test into each hit. */
static __attribute__((noinline)) int miss(barcopy_cache_t c, struct gdri_cache *cache,
					  uint64_t addr, size_t size, barcopy_region_t *region)
{
	struct gdri_attempts attempts;
	struct gdri_entry *e;
	struct gdri_ctx *ctx;
	int rc = hold(c, cache, &ctx);

	if (rc)
		return rc;
	attempts = gdri_attempts_begin(ctx);
	do
		rc = gdri_cache_miss(cache, addr, size, attempts.failed, &e);
	while (gdri_is_short(rc) &&
	       gdri_caches_give_way(ctx, rc, gdri_cuda_device_of(addr, size), size, &attempts));
	if (!rc)
		describe(region, e, addr, size);
	return gdri_ctx_put(ctx, rc);
}

static inline __attribute__((always_inline)) int get(barcopy_cache_t c, uint64_t addr, size_t size,
						     barcopy_region_t *region)
{
	struct gdri_cache *cache = find(c);
	struct gdri_entry *e;

	if (__builtin_expect(!cache, 0))
		return refuse(c);
	if (!region)
		return gdri_null("region");
	e = gdri_cache_hit(cache, addr, size);
	if (__builtin_expect(!e, 0))
		return miss(c, cache, addr, size, region);
	/* During gdr_close() it may be a later cache's of the same slot. */
	if (__builtin_expect(!gdri_slot_is(&cache->slot, (uintptr_t)c), 0)) {
		(void)gdri_cache_unuse(cache, e);
		return refuse(c);
	}
	atomic_fetch_add_explicit(hit_counter(cache), 1, memory_order_relaxed);
	describe(region, e, addr, size);
	return 0;
}

int barcopy_cache_get(barcopy_cache_t c, uint64_t addr, size_t size, barcopy_region_t *region)
{
	return gdri_out(get(c, addr, size, region));
}

/*
 * gdr_close() ends the cache, or has ended it: then the entry has no pages, and its users end here.
 * *r is zeroed: a second put would take the user of another thread, whose entry may be another one.
 */
static __attribute__((cold, noinline)) int put_late(barcopy_cache_t c, barcopy_region_t *r)
{
	struct gdri_entry *e =
		r ? (struct gdri_entry *)gdri_slots_find_own(&gdri_entries, r->entry) : NULL;

	if (e && (!gdri_entry_size(e) || !(gdri_slot_name(&e->cache->slot) >> 32 & 1)) &&
	    !gdri_cache_unuse(e->cache, e))
		memset(r, 0, sizeof(*r));
	return refuse(c);
}

static inline __attribute__((always_inline)) int put(barcopy_cache_t c, barcopy_region_t *region)
{
	struct gdri_cache *cache = find(c);
	struct gdri_entry *e;
	int rc;

	if (__builtin_expect(!cache, 0))
		return put_late(c, region);
	if (!region)
		return gdri_null("region");
	e = (struct gdri_entry *)gdri_slots_find(&gdri_entries, region->entry);
	if (!e || e->cache != cache)
		return gdri_fail(EINVAL, "not a region of this cache, or put already");
	rc = gdri_cache_unuse(cache, e);
	if (!rc)
		memset(region, 0, sizeof(*region));
	return rc;
}

int barcopy_cache_put(barcopy_cache_t c, barcopy_region_t *region)
{
	return gdri_out(put(c, region));
}

int barcopy_cache_invalidate(barcopy_cache_t c, uint64_t addr, size_t size)
{
	struct gdri_cache *cache = find(c);
	uint64_t end;

	/* The context is not held: a hook may call this inside any other call. */
	if (__builtin_add_overflow(addr, size, &end))
		end = UINT64_MAX;
	return gdri_out(cache ? gdri_cache_invalidate(cache, (uintptr_t)c, addr, end) : refuse(c));
}

int barcopy_cache_trim(barcopy_cache_t c, uint64_t max_idle_bytes)
{
	struct gdri_cache *cache;
	struct gdri_ctx *ctx;
	int rc = enter(c, &cache, &ctx);

	if (!rc) {
		gdri_cache_trim(cache, max_idle_bytes);
		rc = gdri_ctx_put(ctx, 0);
	}
	return gdri_out(rc);
}

int barcopy_cache_create(gdr_t g, const barcopy_cache_options_t *options, barcopy_cache_t *cache)
{
	barcopy_cache_options_t o = { 0 };
	struct gdri_cache *made;
	struct gdri_ctx *ctx;
	int rc = 0;

	if (!cache)
		rc = gdri_null("cache");
	else if (options)
		rc = gdri_struct_in(&o, sizeof(o), FIRST_CACHE_OPTIONS, options);
	if (!rc && o.validity > BARCOPY_CACHE_NOTIFIED)
		rc = gdri_fail(EINVAL, "unknown validity %u", o.validity);
	rc = rc		 ?: gdri_check_flags(o.flags, BARCOPY_CACHE_NO_SYNC_MEMOPS, "a cache")
		 ?: gdri_ctx_get(g, &ctx);
	if (rc)
		return gdri_out(rc);
	rc = gdri_cache_create(ctx, true, &o, o.flags ? GDRI_REGION_NO_SYNC : 0, &made);
	if (!rc)
		*cache = (barcopy_cache_t)(uintptr_t)gdri_slot_name(&made->slot);
	return gdri_out(gdri_ctx_put(ctx, rc));
}

int barcopy_cache_destroy(barcopy_cache_t c)
{
	struct gdri_cache *cache;
	struct gdri_ctx *ctx;
	int rc = enter(c, &cache, &ctx);

	return gdri_out(rc ?: gdri_ctx_put(ctx, gdri_cache_destroy(cache)));
}

int barcopy_cache_get_stats(barcopy_cache_t c, barcopy_cache_stats_t *stats)
{
	barcopy_cache_stats_t now;
	struct gdri_cache *cache;
	struct gdri_ctx *ctx;
	int rc = stats ? enter(c, &cache, &ctx) : gdri_null("stats");

	if (!rc) {
		gdri_cache_stats(cache, &now);
		rc = gdri_ctx_put(ctx,
				  gdri_struct_out(&now, sizeof(now), FIRST_CACHE_STATS, stats));
	}
	return gdri_out(rc);
}
