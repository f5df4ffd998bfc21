/* SPDX-License-Identifier: MIT */
/* Caches, those of ranges too: how they begin and end, and their statistics. See cache.h. */
#include "cache/cache.h"

#include <sched.h>

#include "base/env.h"

static void init_cache(struct gdri_slot *slot)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;

	/* The slot may be one that the parent process used. */
	memset((char *)cache + offsetof(struct gdri_cache, invalidating), 0,
	       offsetof(struct gdri_cache, lock) - offsetof(struct gdri_cache, invalidating));
	pthread_mutex_init(&cache->lock, NULL);
	pthread_mutex_init(&cache->ending, NULL);
	pthread_mutex_init(&cache->lost_lock, NULL);
}

static void set_options(struct gdri_cache *cache, const barcopy_cache_options_t *options,
			uint32_t flags)
{
	barcopy_cache_options_t *o = &cache->options;
	char maps[32];

	*o = *options;
	if (!o->max_regions) {
		(void)gdri_read_line("/proc/sys/vm/max_map_count", maps, sizeof(maps));
		o->max_regions = strtoull(maps, NULL, 10) / 2 ?: 32765;
	}
	cache->flags = flags | GDRI_REGION_MAPPED | GDRI_REGION_VERIFIED;
	atomic_store(&cache->notified, o->validity == BARCOPY_CACHE_NOTIFIED);
}

int gdri_cache_create(struct gdri_ctx *ctx, bool keeps, const barcopy_cache_options_t *options,
		      uint32_t flags, struct gdri_cache **out)
{
	struct gdri_slots *table = keeps ? &gdri_caches : &gdri_ranges;
	struct gdri_cache *cache =
		(struct gdri_cache *)gdri_slots_new(table, sizeof(*cache), init_cache);

	if (!cache)
		return gdri_fail(ENOMEM, "no memory for a cache");
	if (!cache->pages.root) {
		cache->keeps = keeps; /* of every cache in this slot */
		/* Zero pages of the kernel's until they are used. */
		cache->pages.root = calloc(GDRI_PAGES_ROOT_SLOTS, sizeof(gdri_pages_slot));
	}
	if (!cache->pages.root) {
		gdri_slots_free(table, &cache->slot);
		return gdri_fail(ENOMEM, "no memory for a table of pages");
	}
	pthread_mutex_lock(&cache->lock);
	cache->ctx = ctx;
	atomic_store(&cache->g, (gdr_t)(uintptr_t)gdri_slot_name(&ctx->slot));
	set_options(cache, options, flags);
	memset((char *)cache + offsetof(struct gdri_cache, regions), 0,
	       sizeof(*cache) - offsetof(struct gdri_cache, regions));
	TAILQ_INIT(&cache->regions);
	pthread_mutex_unlock(&cache->lock);

	pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->caches, cache, link);
	pthread_mutex_unlock(&ctx->lock);
	(void)gdri_slot_publish(&cache->slot);
	*out = cache;
	return 0;
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

	*s = (barcopy_cache_stats_t){ .hits = gdri_cache_hits(cache) };
	gdri_cache_lock(cache);
	s->misses = cache->misses;
	s->evictions = cache->evictions;
	s->invalidations = cache->invalidations;
	s->regions = cache->count;
	s->max_bytes = cache->options.max_bytes ? cache->options.max_bytes : UINT64_MAX;
	for (int i = 0; i < GDRI_CACHE_GPUS; i++) {
		const struct gdri_cache_gpu *gpu = &cache->gpu[i];

		s->bytes_pinned += gpu->bytes;
		if (gpu->max_bytes && gpu->max_bytes < s->max_bytes)
			s->max_bytes = gpu->max_bytes;
	}
	/* Not counted by gets and puts, which would cost each of them an atomic addition. */
	TAILQ_FOREACH(e, &cache->regions, link)
		s->regions_in_use += gdri_entry_has_users(e);
	gdri_cache_unlock(cache);
}

/* Called with the lock held, which it releases. Returns the first failure. */
static int end_locked(struct gdri_cache *cache)
{
	struct gdri_entry *e;
	int rc;

	gdri_slot_retire(&cache->slot);
	/* An invalidation at work ends by itself; one that begins now finds the name retired. */
	while (atomic_load(&cache->invalidating))
		sched_yield();
	/* Regions in use are unpinned too. Their entries stay until the last put. */
	while ((e = TAILQ_FIRST(&cache->regions))) {
		gdri_cache_kill_locked(cache, e, GDRI_KILL_ANY);
		/* What the kill has released a put that drains may have freed by now. */
		if (e == TAILQ_FIRST(&cache->regions))
			gdri_cache_close_locked(cache, e);
	}
	gdri_cache_unlock_and_wait(cache);
	rc = gdri_cache_lost(cache);
	pthread_mutex_lock(&cache->ctx->lock);
	for (int i = 0; i < GDRI_CACHE_SHARDS; i++)
		gdri_count(&cache->ctx->counters, GDRI_COUNT_CACHE_HIT,
			   atomic_exchange(&cache->shard[i].hits, 0));
	LIST_REMOVE(cache, link);
	pthread_mutex_unlock(&cache->ctx->lock);
	gdri_slots_free(cache->keeps ? &gdri_caches : &gdri_ranges, &cache->slot);
	return rc;
}

int gdri_cache_destroy(struct gdri_cache *cache)
{
	const struct gdri_entry *e;

	gdri_cache_lock(cache);
	TAILQ_FOREACH(e, &cache->regions, link)
		if (gdri_entry_has_users(e)) {
			gdri_cache_unlock(cache);
			return gdri_fail(EBUSY, "a region of the cache is in use");
		}
	return end_locked(cache);
}

int gdri_caches_end(struct gdri_ctx *ctx, bool keeps)
{
	struct gdri_cache *cache = LIST_FIRST(&ctx->caches), *next;
	struct gdri_first first = { 0 };

	for (; cache; cache = next) {
		next = LIST_NEXT(cache, link);
		if (cache->keeps == keeps) {
			gdri_cache_lock(cache);
			gdri_first_note(&first, end_locked(cache));
		}
	}
	return gdri_first_failure(&first);
}
