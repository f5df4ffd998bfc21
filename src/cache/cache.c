/* SPDX-License-Identifier: MIT */
/*
 * The cache's own state: made and ended, entries killed and released, invalidation, statistics.
 * See cache.h; a miss is in miss.c, eviction in evict.c.
 */
#include "cache/cache.h"

#include <errno.h>
#include <stdlib.h>

#include "core/ctx.h"
#include "base/process.h"
#include "base/error.h"
#include "core/handle.h"
#include "base/log.h"

enum { WHOLE_MAX = 2 << 20 };

static void init_cache(struct gdri_slot *slot)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;

	pthread_mutex_init(&cache->lock, NULL);
	/* In a forked child these are the parent's hits. */
	for (int i = 0; i < GDRI_CACHE_SHARDS; i++)
		atomic_store_explicit(&cache->shard[i].hits, 0, memory_order_relaxed);
}

struct gdri_slots gdri_caches;

static int check_options(const barcopy_cache_options_t *o)
{
	if (o->validity > BARCOPY_CACHE_NOTIFIED)
		return gdri_fail(EINVAL, "unknown validity %u", o->validity);
	if (o->flags)
		return gdri_fail(EINVAL, "unknown bits in flags 0x%x of a cache", o->flags);
	return 0;
}

static void end_caches(struct gdri_ctx *ctx)
{
	while (ctx->caches)
		(void)gdri_cache_destroy(ctx->caches, true);
}

int gdri_cache_create(struct gdri_ctx *ctx, gdr_t g, const barcopy_cache_options_t *o,
		      barcopy_cache_t *out)
{
	struct gdri_cache *cache;
	int rc = check_options(o);

	if (rc)
		return rc;
	cache = (struct gdri_cache *)gdri_slots_new(&gdri_caches, sizeof(*cache), init_cache);
	if (!cache)
		return gdri_fail(ENOMEM, "no memory for a cache");
	rc = gdri_pages_init(&cache->pages);
	if (rc) {
		gdri_slots_free(&gdri_caches, &cache->slot);
		return rc;
	}
	cache->ctx = ctx;
	cache->g = g;
	cache->validity = o->validity;
	cache->whole_max = o->whole_max ? o->whole_max : WHOLE_MAX;
	cache->max_regions = o->max_regions ? o->max_regions : UINT64_MAX;
	cache->limit_by_bar = !o->max_bytes;
	pthread_mutex_lock(&cache->lock);
	cache->detached = 0;
	cache->bytes = 0;
	cache->max_bytes = o->max_bytes;
	cache->devices_seen = 0;
	cache->misses = cache->evictions = cache->invalidations = 0;
	atomic_store_explicit(&cache->over, false, memory_order_relaxed);
	pthread_mutex_unlock(&cache->lock);

	pthread_mutex_lock(&ctx->lock);
	cache->next = ctx->caches;
	ctx->caches = cache;
	ctx->end_caches = end_caches;
	pthread_mutex_unlock(&ctx->lock);
	atomic_store_explicit(&cache->owner, gdri_process_tag(), memory_order_relaxed);
	*out = (barcopy_cache_t)(uintptr_t)gdri_slot_publish(&cache->slot);
	return 0;
}

/* Ends the handle that users of an entry copy with. */
void gdri_cache_end_handle(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_handle *handle;

	/* It is not there if the user has unpinned it, which he must not: nothing is lost. */
	if (!gdri_handle_lock(cache->ctx, e->handle, &handle))
		gdri_handle_release_locked(handle);
}

/* Unmaps and unpins an entry that is not LIVE and has no users, and gives it back. */
void gdri_cache_release_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	gdri_cache_end_handle(cache, e);
	if (gdri_region_close(&e->rest->region))
		gdri_log(BARCOPY_LOG_ERROR, "unpinning a cached region: %s", gdri_error_text());
	free(e->rest);
	e->rest = NULL;
	gdri_slot_retire(&e->slot);
	gdri_pool_free(&cache->entries, &e->slot);
}

/* Takes a LIVE entry out of the cache; it is released now, or by its last user. */
void gdri_cache_kill_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	gdri_pages_erase(&cache->pages, e->start, gdri_entry_end(e));
	gdri_lru_remove(&cache->lru, &e->rest->lru);
	cache->bytes -= gdri_entry_bytes(e);
	if (atomic_fetch_and_explicit(&e->state, ~GDRI_CACHE_LIVE, memory_order_acq_rel) ==
	    GDRI_CACHE_LIVE)
		gdri_cache_release_locked(cache, e);
	else
		cache->detached++;
}

void gdri_cache_settle(struct gdri_cache *cache, struct gdri_entry *e, bool last)
{
	pthread_mutex_lock(&cache->lock);
	if (last) {
		cache->detached--;
		gdri_cache_release_locked(cache, e);
	}
	if (atomic_load_explicit(&cache->over, memory_order_relaxed))
		gdri_cache_trim_locked(cache, 0, 0);
	pthread_mutex_unlock(&cache->lock);
}

void gdri_cache_invalidate(struct gdri_cache *cache, uint64_t addr, uint64_t end)
{
	struct gdri_entry *e;

	pthread_mutex_lock(&cache->lock);
	while ((e = gdri_pages_next(&cache->pages, addr, end))) {
		gdri_cache_kill_locked(cache, e);
		cache->invalidations++;
	}
	pthread_mutex_unlock(&cache->lock);
}

/* Entries that have users. */
static size_t in_use_locked(const struct gdri_cache *cache)
{
	size_t count = cache->detached;

	for (size_t i = 0; i < cache->lru.count; i++) {
		const struct gdri_entry *e = gdri_entry_of(cache->lru.heap[i]);

		count += atomic_load_explicit(&e->state, memory_order_relaxed) != GDRI_CACHE_LIVE;
	}
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
	s->hits = gdri_cache_hits(cache);
	pthread_mutex_lock(&cache->lock);
	s->misses = cache->misses;
	s->evictions = cache->evictions;
	s->invalidations = cache->invalidations;
	s->regions = cache->lru.count + cache->detached;
	s->regions_in_use = in_use_locked(cache);
	s->bytes_pinned = cache->bytes;
	s->max_bytes = cache->max_bytes;
	pthread_mutex_unlock(&cache->lock);
}

/* Takes it off its context's list, which counts its hits from now on. */
static void unlink_cache(struct gdri_cache *cache)
{
	struct gdri_cache **link;

	pthread_mutex_lock(&cache->ctx->lock);
	for (int i = 0; i < GDRI_CACHE_SHARDS; i++)
		gdri_count(
			&cache->ctx->counters, GDRI_COUNT_CACHE_HIT,
			atomic_exchange_explicit(&cache->shard[i].hits, 0, memory_order_relaxed));
	for (link = &cache->ctx->caches; *link != cache; link = &(*link)->next)
		;
	*link = cache->next;
	pthread_mutex_unlock(&cache->ctx->lock);
}

/* Releases what users have not given back: their pointers are gone with it. */
static void release_detached_locked(struct gdri_cache *cache)
{
	for (uint32_t i = 0; cache->detached && i < cache->entries.count; i++) {
		struct gdri_entry *e = (struct gdri_entry *)gdri_pool_at(&cache->entries, i);

		if (!atomic_load_explicit(&e->state, memory_order_relaxed))
			continue;
		atomic_store_explicit(&e->state, 0, memory_order_relaxed);
		cache->detached--;
		gdri_cache_release_locked(cache, e);
	}
}

int gdri_cache_destroy(struct gdri_cache *cache, bool force)
{
	struct gdri_lru_node *node;

	pthread_mutex_lock(&cache->lock);
	if (!force && in_use_locked(cache)) {
		pthread_mutex_unlock(&cache->lock);
		return gdri_fail(EBUSY, "a region of the cache is in use");
	}
	gdri_slot_retire(&cache->slot);
	while ((node = gdri_lru_first(&cache->lru)))
		gdri_cache_kill_locked(cache, gdri_entry_of(node));
	release_detached_locked(cache);
	gdri_lru_destroy(&cache->lru);
	gdri_pages_destroy(&cache->pages);
	gdri_pool_destroy(&cache->entries);
	pthread_mutex_unlock(&cache->lock);
	unlink_cache(cache);
	gdri_slots_free(&gdri_caches, &cache->slot);
	return 0;
}

static void after_fork(void)
{
	gdri_slots_after_fork(&gdri_caches);
}

GDRI_IN_CHILD(after_fork);
