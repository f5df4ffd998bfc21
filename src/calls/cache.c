/* SPDX-License-Identifier: MIT */
/*
 * The entry points of the registration cache. On the path of a hit no lock is taken and nothing is
 * logged.
 */
#include <string.h>

#include "base/process.h"
#include "base/sized.h"
#include "cache/cache.h"
#include "calls/calls.h"

static __attribute__((cold, noinline)) int fail_cache(barcopy_cache_t c)
{
	if (gdri_slots_find(&gdri_caches, (uintptr_t)c))
		return gdri_fail(EACCES, "the cache belongs to the parent process");
	return gdri_fail(EINVAL, "%p is not a cache", (void *)c);
}

static inline int find_cache(barcopy_cache_t c, struct gdri_cache **out)
{
	struct gdri_cache *cache = (struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)c);

	if (__builtin_expect(!cache || atomic_load_explicit(&cache->owner, memory_order_relaxed) !=
					       gdri_process_tag(),
			     0))
		return fail_cache(c) == -EACCES ? -EACCES : -EINVAL; /* seen not to be 0 */
	*out = cache;
	return 0;
}

/* Holds the context of a cache that was found, unless it has ended since. */
static int hold(barcopy_cache_t c, struct gdri_cache *cache, struct gdri_ctx **ctx)
{
	int rc = gdri_ctx_get(atomic_load_explicit(&cache->g, memory_order_acquire), ctx);

	if (rc || gdri_slot_is(&cache->slot, (uintptr_t)c))
		return rc;
	gdri_ctx_put(*ctx);
	return fail_cache(c);
}

/* Finds the cache and holds its context, for what is not a hit. */
static int enter(barcopy_cache_t c, struct gdri_cache **cache, struct gdri_ctx **ctx)
{
	int rc = find_cache(c, cache);

	return rc ? rc : hold(c, *cache, ctx);
}

/* Threads are dealt out over the counters, so that hits do not share a cache line. */
static inline _Atomic uint64_t *hit_counter(struct gdri_cache *cache)
{
	static _Atomic unsigned int threads;
	static _Thread_local unsigned int mine __attribute__((tls_model("initial-exec")));

	if (__builtin_expect(!mine, 0))
		mine = 1 + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) %
				   GDRI_CACHE_SHARDS;
	return &cache->shard[mine - 1].hits;
}

static int miss(barcopy_cache_t c, struct gdri_cache *cache, uint64_t addr, size_t size,
		struct gdri_entry **e)
{
	struct gdri_ctx *ctx;
	int rc = hold(c, cache, &ctx);

	if (rc)
		return rc;
	do
		rc = gdri_cache_miss(cache, addr, size, e);
	while (rc && gdri_caches_give_way(ctx, rc, gdri_cuda_device_of(addr, size), size));
	gdri_ctx_put(ctx);
	return rc;
}

int barcopy_cache_get(barcopy_cache_t c, uint64_t addr, size_t size, barcopy_region_t *region)
{
	struct gdri_cache *cache;
	struct gdri_entry *e;
	int rc = find_cache(c, &cache);

	if (rc)
		return -rc;
	if (!region)
		return gdri_null("region");
	e = gdri_cache_hit(cache, addr, size);
	if (__builtin_expect(!!e, 1)) {
		/* Beside gdr_close() it may be a later cache's of the same slot. */
		if (__builtin_expect(!gdri_slot_is(&cache->slot, (uintptr_t)c), 0)) {
			(void)gdri_cache_unuse(cache, e);
			return -fail_cache(c);
		}
		atomic_fetch_add_explicit(hit_counter(cache), 1, memory_order_relaxed);
	} else {
		rc = miss(c, cache, addr, size, &e);
		if (rc)
			return -rc;
	}
	region->cpu_ptr = e->cpu + (ptrdiff_t)(addr - gdri_entry_start(e));
	region->device_ptr = addr;
	region->size = size;
	region->handle = e->handle;
	region->entry = gdri_slot_name(&e->slot);
	return 0;
}

int barcopy_cache_put(barcopy_cache_t c, barcopy_region_t *region)
{
	struct gdri_cache *cache;
	struct gdri_entry *e;
	int rc = find_cache(c, &cache);

	if (rc)
		return -rc;
	if (!region)
		return gdri_null("region");
	e = (struct gdri_entry *)gdri_slots_find(&gdri_entries, region->entry);
	if (!e || e->cache != cache)
		return -gdri_fail(EINVAL, "not a region of this cache, or put already");
	rc = gdri_cache_unuse(cache, e);
	if (rc)
		return -rc;
	memset(region, 0, sizeof(*region));
	return 0;
}

int barcopy_cache_invalidate(barcopy_cache_t c, uint64_t addr, size_t size)
{
	struct gdri_cache *cache;
	uint64_t end;
	int rc = find_cache(c, &cache);

	/* Nothing is held: a hook may call this inside any other call. */
	if (rc)
		return -rc;
	if (__builtin_add_overflow(addr, size, &end))
		end = UINT64_MAX;
	return -gdri_cache_invalidate(cache, (uintptr_t)c, addr, end);
}

int barcopy_cache_trim(barcopy_cache_t c, uint64_t max_idle_bytes)
{
	struct gdri_cache *cache;
	struct gdri_ctx *ctx;
	int rc = enter(c, &cache, &ctx);

	if (rc)
		return -rc;
	gdri_cache_trim(cache, max_idle_bytes);
	gdri_ctx_put(ctx);
	return 0;
}

int barcopy_cache_create(gdr_t g, const barcopy_cache_options_t *options, barcopy_cache_t *cache)
{
	barcopy_cache_options_t o = { 0 };
	int rc;

	if (!cache)
		return gdri_null("cache");
	rc = options ? gdri_sized_in(&o, sizeof(o), FIRST_CACHE_OPTIONS, options) : 0;
	if (rc)
		return -rc;
	if (o.validity > BARCOPY_CACHE_NOTIFIED)
		return -gdri_fail(EINVAL, "unknown validity %u", o.validity);
	if (o.flags & ~(uint32_t)BARCOPY_CACHE_NO_SYNC_MEMOPS)
		return -gdri_fail(EINVAL, "unknown bits in flags 0x%x of a cache", o.flags);
	return GDRI_WITH(g, ctx, gdri_cache_create(ctx, &o, cache));
}

int barcopy_cache_destroy(barcopy_cache_t c)
{
	struct gdri_cache *cache;
	struct gdri_ctx *ctx;
	int rc = enter(c, &cache, &ctx);

	if (rc)
		return -rc;
	rc = gdri_cache_destroy(cache, (uintptr_t)c, false);
	gdri_ctx_put(ctx);
	return -rc;
}

int barcopy_cache_get_stats(barcopy_cache_t c, barcopy_cache_stats_t *stats)
{
	barcopy_cache_stats_t now;
	struct gdri_cache *cache;
	struct gdri_ctx *ctx;
	int rc;

	if (!stats)
		return gdri_null("stats");
	rc = enter(c, &cache, &ctx);
	if (rc)
		return -rc;
	gdri_cache_stats(cache, &now);
	gdri_ctx_put(ctx);
	return -gdri_sized_out(&now, sizeof(now), FIRST_CACHE_STATS, stats);
}
