/* SPDX-License-Identifier: MIT */
/* The life of caches, and their statistics. See cache.h. */
#include "cache/cache.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/process.h"
#include "core/ctx.h"

static void init_cache(struct gdri_slot *slot)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;

	pthread_mutex_init(&cache->lock, NULL);
	/* In a forked child these are the parent's hits. */
	for (int i = 0; i < GDRI_CACHE_SHARDS; i++)
		atomic_store_explicit(&cache->shard[i].hits, 0, memory_order_relaxed);
	atomic_store_explicit(&cache->invalidating, 0, memory_order_relaxed);
	atomic_store_explicit(&cache->doomed, NULL, memory_order_relaxed);
}

/* Half of the mappings that a process may have. */
static uint64_t default_max_regions(void)
{
	char text[32];
	uint64_t maps;

	gdri_read_line("/proc/sys/vm/max_map_count", text, sizeof(text));
	maps = strtoull(text, NULL, 10);
	return maps ? maps / 2 : 32765;
}

static struct gdri_slots *table_of(bool keeps)
{
	return keeps ? &gdri_caches : &gdri_ranges;
}

static void set_options(struct gdri_cache *cache, const barcopy_cache_options_t *options,
			uint32_t flags)
{
	const barcopy_cache_options_t o = options ? *options : (barcopy_cache_options_t){ 0 };

	atomic_store_explicit(&cache->notified, o.validity == BARCOPY_CACHE_NOTIFIED,
			      memory_order_relaxed);
	atomic_store_explicit(&cache->keeps, options != NULL, memory_order_relaxed);
	if (o.flags & BARCOPY_CACHE_NO_SYNC_MEMOPS)
		flags |= GDRI_REGION_NO_SYNC;
	cache->flags = flags | GDRI_REGION_MAPPED | GDRI_REGION_VERIFIED;
	cache->whole_max = o.whole_max ? o.whole_max : GDRI_WHOLE_MAX;
	cache->max_regions = options ? o.max_regions : UINT64_MAX;
	if (!cache->max_regions)
		cache->max_regions = default_max_regions();
	cache->max_bytes = options ? o.max_bytes : UINT64_MAX;
	cache->copy = (barcopy_copy_options_t){ .struct_size = sizeof(cache->copy),
						.engine_read_min = o.engine_read_min,
						.engine_write_min = o.engine_write_min };
}

GDRI_SLOTS(, gdri_caches);
GDRI_SLOTS(, gdri_ranges);

int gdri_cache_new(struct gdri_ctx *ctx, const barcopy_cache_options_t *options, uint32_t flags,
		   struct gdri_cache **out)
{
	struct gdri_slots *table = table_of(options != NULL);
	struct gdri_cache *cache =
		(struct gdri_cache *)gdri_slots_new(table, sizeof(*cache), init_cache);
	gdr_t g = (gdr_t)(uintptr_t)gdri_slot_name(&ctx->slot);
	int rc;

	if (!cache)
		return gdri_fail(ENOMEM, "no memory for a cache");
	rc = cache->pages.root ? 0 : gdri_pages_init(&cache->pages);
	if (rc) {
		gdri_slots_free(table, &cache->slot);
		return rc;
	}
	pthread_mutex_lock(&cache->lock);
	cache->ctx = ctx;
	atomic_store_explicit(&cache->g, g, memory_order_release);
	set_options(cache, options, flags);
	memset((char *)cache + offsetof(struct gdri_cache, live), 0,
	       sizeof(*cache) - offsetof(struct gdri_cache, live));
	TAILQ_INIT(&cache->live);
	TAILQ_INIT(&cache->detached);
	atomic_store_explicit(&cache->reach, 0, memory_order_relaxed);
	pthread_mutex_unlock(&cache->lock);

	pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->caches, cache, link);
	pthread_mutex_unlock(&ctx->lock);
	*out = cache;
	return 0;
}

int gdri_cache_create(struct gdri_ctx *ctx, const barcopy_cache_options_t *options,
		      barcopy_cache_t *out)
{
	struct gdri_cache *cache;
	int rc = gdri_cache_new(ctx, options, 0, &cache);

	if (rc)
		return rc;
	*out = (barcopy_cache_t)(uintptr_t)gdri_slot_publish(&cache->slot);
	return 0;
}

/* ---- statistics ----------------------------------------------------------------------------- */

static size_t in_use_locked(const struct gdri_cache *cache)
{
	const struct gdri_entry *e;
	size_t count = cache->detached_count;

	TAILQ_FOREACH(e, &cache->live, link)
		count += gdri_entry_has_users(e);
	return count;
}

uint64_t gdri_cache_hits(const struct gdri_cache *cache)
{
	uint64_t hits = 0;

	for (int i = 0; i < GDRI_CACHE_SHARDS; i++)
		hits += atomic_load_explicit(&cache->shard[i].hits, memory_order_relaxed);
	return hits;
}

static void add_hits(struct gdri_slot *slot, void *sum)
{
	*(uint64_t *)sum += gdri_cache_hits((struct gdri_cache *)slot);
}

uint64_t gdri_cache_hits_of_all(void)
{
	uint64_t sum = 0;

	gdri_slots_each(&gdri_caches, add_hits, &sum);
	return sum;
}

void gdri_cache_stats(struct gdri_cache *cache, barcopy_cache_stats_t *s)
{
	const struct gdri_entry *e;

	s->hits = gdri_cache_hits(cache);
	s->bytes_pinned = s->bytes_detached = 0;
	s->max_bytes = cache->max_bytes ? cache->max_bytes : UINT64_MAX;
	gdri_cache_lock(cache);
	gdri_cache_reap_locked(cache);
	s->misses = cache->misses;
	s->evictions = cache->evictions;
	s->invalidations = cache->invalidations;
	s->regions_in_use = in_use_locked(cache);
	s->regions = cache->count + cache->detached_count;
	for (int i = 0; i < GDRI_CACHE_GPUS; i++) {
		const struct gdri_cache_gpu *gpu = &cache->gpu[i];

		s->bytes_pinned += gpu->bytes;
		if (gpu->max_bytes && gpu->max_bytes < s->max_bytes)
			s->max_bytes = gpu->max_bytes;
	}
	s->regions_detached = cache->detached_count;
	TAILQ_FOREACH(e, &cache->detached, link)
		s->bytes_detached += gdri_entry_bytes(e);
	gdri_cache_unlock(cache);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Takes it off its context's list and adds its hits to the context's counters. */
static void unlink_cache(struct gdri_cache *cache)
{
	pthread_mutex_lock(&cache->ctx->lock);
	for (int i = 0; i < GDRI_CACHE_SHARDS; i++)
		gdri_count(
			&cache->ctx->counters, GDRI_COUNT_CACHE_HIT,
			atomic_exchange_explicit(&cache->shard[i].hits, 0, memory_order_relaxed));
	LIST_REMOVE(cache, link);
	pthread_mutex_unlock(&cache->ctx->lock);
}

int gdri_cache_destroy(struct gdri_cache *cache, uint64_t name, bool force)
{
	bool keeps = gdri_cache_keeps(cache);
	struct gdri_entry *e;
	int rc = 0;

	gdri_cache_lock(cache);
	if (!force && !gdri_slot_is(&cache->slot, name))
		rc = gdri_fail(EINVAL, "the cache has ended");
	else if (!force && in_use_locked(cache))
		rc = gdri_fail(EBUSY, "a region of the cache is in use");
	if (rc) {
		gdri_cache_unlock(cache);
		return rc;
	}
	if (keeps)
		gdri_slot_retire(&cache->slot);
	/* An invalidation at work ends by itself; one that begins now finds the name retired. */
	while (atomic_load(&cache->invalidating))
		sched_yield();
	while ((e = TAILQ_FIRST(&cache->live)))
		gdri_cache_kill_locked(cache, e);
	gdri_cache_reap_locked(cache);
	/* Entries in use are unpinned, and their pointers end. The entry itself stays until its put. */
	TAILQ_FOREACH(e, &cache->detached, link)
		gdri_cache_close_locked(cache, e);
	gdri_cache_unlock(cache);
	unlink_cache(cache);
	gdri_slots_free(table_of(keeps), &cache->slot);
	return 0;
}

void gdri_caches_end(struct gdri_ctx *ctx, bool keeps)
{
	struct gdri_cache *cache = LIST_FIRST(&ctx->caches), *next;

	for (; cache; cache = next) {
		next = LIST_NEXT(cache, link);
		if (gdri_cache_keeps(cache) == keeps)
			(void)gdri_cache_destroy(cache, 0, true);
	}
}
