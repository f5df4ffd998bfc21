/* SPDX-License-Identifier: MIT */
/*
 * The cache's own state: made and ended, entries listed, killed and released, invalidation,
 * statistics. See cache.h; a miss is in miss.c, eviction in evict.c.
 */
#include "cache/cache.h"

#include <errno.h>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "core/ctx.h"
#include "core/handle.h"

static void init_cache(struct gdri_slot *slot)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;

	pthread_mutex_init(&cache->lock, NULL);
	/* In a forked child these are the parent's hits. */
	for (int i = 0; i < GDRI_CACHE_SHARDS; i++)
		atomic_store_explicit(&cache->shard[i].hits, 0, memory_order_relaxed);
}

struct gdri_slots gdri_caches, gdri_entries;

int gdri_cache_new(struct gdri_ctx *ctx, const barcopy_cache_options_t *options, uint32_t flags,
		   struct gdri_cache **out)
{
	const barcopy_cache_options_t o = options ? *options : (barcopy_cache_options_t){ 0 };
	struct gdri_cache *cache =
		(struct gdri_cache *)gdri_slots_new(&gdri_caches, sizeof(*cache), init_cache);
	gdr_t g = (gdr_t)(uintptr_t)gdri_slot_name(&ctx->slot);
	int rc;

	if (!cache)
		return gdri_fail(ENOMEM, "no memory for a cache");
	rc = cache->pages.root ? 0 : gdri_pages_init(&cache->pages);
	if (rc) {
		gdri_slots_free(&gdri_caches, &cache->slot);
		return rc;
	}
	pthread_mutex_lock(&cache->lock);
	cache->ctx = ctx;
	atomic_store_explicit(&cache->g, g, memory_order_release);
	atomic_store_explicit(&cache->notified, o.validity == BARCOPY_CACHE_NOTIFIED,
			      memory_order_relaxed);
	atomic_store_explicit(&cache->keeps, options != NULL, memory_order_relaxed);
	cache->flags = flags | GDRI_REGION_MAPPED | GDRI_REGION_PROVEN;
	cache->whole_max = o.whole_max ? o.whole_max : GDRI_WHOLE_MAX;
	cache->max_regions = o.max_regions ? o.max_regions : UINT64_MAX;
	cache->limit_by_gpu = options && !o.max_bytes;
	cache->max_bytes = options ? o.max_bytes : UINT64_MAX;
	TAILQ_INIT(&cache->live);
	TAILQ_INIT(&cache->detached);
	cache->look = NULL;
	cache->count = 0;
	cache->bytes = 0;
	cache->devices_seen = 0;
	cache->misses = cache->evictions = cache->invalidations = 0;
	atomic_store_explicit(&cache->over, false, memory_order_relaxed);
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
	atomic_store_explicit(&cache->owner, gdri_process_tag(), memory_order_relaxed);
	*out = (barcopy_cache_t)(uintptr_t)gdri_slot_publish(&cache->slot);
	return 0;
}

/* ---- entries -------------------------------------------------------------------------------- */

/* Takes it out of the list and the table: nobody finds it any more. */
static void unlist_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	gdri_pages_erase(&cache->pages, e->region.pin.va, gdri_region_end(&e->region));
	if (cache->look == e)
		cache->look = TAILQ_NEXT(e, link);
	TAILQ_REMOVE(&cache->live, e, link);
	cache->count--;
	cache->bytes -= gdri_entry_bytes(e);
}

/* Ends the handle that users of an entry copy with. */
void gdri_cache_end_handle(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_handle *handle;

	/* It is not there where gdr_close() has ended it, or ranges have handles of their own. */
	if (gdri_cache_keeps(cache) && !gdri_handle_lock(cache->ctx, e->handle, &handle))
		gdri_handle_release_locked(handle);
}

static void close_region(struct gdri_cache *cache, struct gdri_entry *e)
{
	gdri_cache_end_handle(cache, e);
	if (gdri_region_unpin(&e->region))
		gdri_log(BARCOPY_LOG_ERROR, "unpinning a shared region: %s", gdri_error_text());
}

void gdri_cache_release_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	if (!e->closed)
		close_region(cache, e);
	gdri_region_free_parts(&e->region);
	gdri_slot_retire(&e->slot);
	gdri_slots_free(&gdri_entries, &e->slot);
}

void gdri_cache_kill_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	unlist_locked(cache, e);
	if (atomic_fetch_and_explicit(&e->state, GDRI_CACHE_USERS, memory_order_acq_rel) &
	    GDRI_CACHE_USERS)
		TAILQ_INSERT_HEAD(&cache->detached, e, link);
	else
		gdri_cache_release_locked(cache, e);
}

/* Releases an entry if nobody uses it. */
bool gdri_cache_take_idle_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	uint32_t s = atomic_load_explicit(&e->state, memory_order_relaxed);

	do {
		if (!(s & GDRI_CACHE_LIVE) || s & GDRI_CACHE_USERS)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&e->state, &s, 0, memory_order_acq_rel,
							memory_order_relaxed));
	unlist_locked(cache, e);
	gdri_cache_release_locked(cache, e);
	return true;
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

/* ---- statistics ----------------------------------------------------------------------------- */

/* Entries that have users; not_live: how many of them are not LIVE any more. */
static size_t in_use_locked(const struct gdri_cache *cache, size_t *not_live)
{
	const struct gdri_entry *e;
	size_t count = 0;

	*not_live = 0;
	TAILQ_FOREACH(e, &cache->detached, link)
		++*not_live;
	TAILQ_FOREACH(e, &cache->live, link)
		count += gdri_entry_has_users(e);
	return count + *not_live;
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
	size_t not_live;

	s->hits = gdri_cache_hits(cache);
	pthread_mutex_lock(&cache->lock);
	s->misses = cache->misses;
	s->evictions = cache->evictions;
	s->invalidations = cache->invalidations;
	s->regions_in_use = in_use_locked(cache, &not_live);
	s->regions = cache->count + not_live;
	s->bytes_pinned = cache->bytes;
	s->max_bytes = cache->max_bytes;
	pthread_mutex_unlock(&cache->lock);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Takes it off its context's list, which counts its hits from now on. */
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

int gdri_cache_destroy(struct gdri_cache *cache, bool force)
{
	struct gdri_entry *e;
	size_t not_live;

	pthread_mutex_lock(&cache->lock);
	if (!force && in_use_locked(cache, &not_live)) {
		pthread_mutex_unlock(&cache->lock);
		return gdri_fail(EBUSY, "a region of the cache is in use");
	}
	if (gdri_cache_keeps(cache))
		gdri_slot_retire(&cache->slot);
	while ((e = TAILQ_FIRST(&cache->live)))
		gdri_cache_kill_locked(cache, e);
	/*
	 * What users have not given back is closed: their pointers are gone with it. The rest of it
	 * stays until their put, which may be under way, or for ever.
	 */
	TAILQ_FOREACH(e, &cache->detached, link) {
		close_region(cache, e);
		e->closed = true;
	}
	pthread_mutex_unlock(&cache->lock);
	unlink_cache(cache);
	gdri_slots_free(&gdri_caches, &cache->slot);
	return 0;
}

void gdri_caches_end(struct gdri_ctx *ctx)
{
	while (!LIST_EMPTY(&ctx->caches))
		(void)gdri_cache_destroy(LIST_FIRST(&ctx->caches), true);
}

static void after_fork(void)
{
	gdri_slots_after_fork(&gdri_caches);
	gdri_slots_after_fork(&gdri_entries);
}

GDRI_IN_CHILD(after_fork);
