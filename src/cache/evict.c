/* SPDX-License-Identifier: MIT */
/*
 * What goes: idle regions, by second chance or because they are stale; the limits; and what a put leaves
 * to do. See cache.h.
 */
#include "cache/cache.h"

#include <errno.h>

#include "base/error.h"
#include "base/log.h"
#include "core/ctx.h"
#include "cuda/cuda.h"

/*
 * Evicts idle regions: at least one, and until `bytes` of BAR are given back. device: only what takes
 * of that one's BAR; -1: any. False if none was idle.
 */
bool gdri_cache_evict_locked(struct gdri_cache *cache, int device, uint64_t bytes)
{
	size_t looks = 2 * cache->count; /* the second time round nobody has another chance */
	uint64_t freed = 0;
	bool any = false;

	while (looks-- && !TAILQ_EMPTY(&cache->live) && (!any || freed < bytes)) {
		struct gdri_entry *e = TAILQ_FIRST(&cache->live);
		uint64_t size = gdri_entry_bytes(e);

		if ((device < 0 || (e->region.pin.device == device && size)) &&
		    !(atomic_fetch_and_explicit(&e->state, ~GDRI_CACHE_USED, memory_order_relaxed) &
		      GDRI_CACHE_USED) &&
		    gdri_cache_take_idle_locked(cache, e)) {
			freed += size;
			any = true;
			cache->evictions++;
			gdri_count(&cache->ctx->counters, GDRI_COUNT_CACHE_EVICTION, 1);
		} else {
			TAILQ_REMOVE(&cache->live, e, link);
			TAILQ_INSERT_TAIL(&cache->live, e, link);
		}
	}
	return any;
}

/*
 * Looks at so many regions, each time at the next ones: what is idle and not the memory any more that
 * was pinned is released. Nobody would ask for it, and a persistent pin holds the memory.
 */
bool gdri_cache_sweep_locked(struct gdri_cache *cache, size_t looks)
{
	bool any = false;

	for (looks = looks < cache->count ? looks : cache->count; looks; looks--) {
		struct gdri_entry *e = cache->look ? cache->look : TAILQ_FIRST(&cache->live);

		cache->look = TAILQ_NEXT(e, link);
		if (!gdri_entry_has_users(e) && !gdri_region_holds(&e->region) &&
		    gdri_cache_take_idle_locked(cache, e)) {
			cache->invalidations++;
			any = true;
		}
	}
	return any;
}

void gdri_cache_trim(struct gdri_cache *cache, uint64_t max_idle_bytes)
{
	const struct gdri_entry *e;
	uint64_t idle = 0;

	pthread_mutex_lock(&cache->lock);
	(void)gdri_cache_sweep_locked(cache, cache->count);
	TAILQ_FOREACH(e, &cache->live, link)
		if (!gdri_entry_has_users(e))
			idle += gdri_entry_bytes(e);
	if (idle > max_idle_bytes)
		(void)gdri_cache_evict_locked(cache, -1, idle - max_idle_bytes);
	while (!max_idle_bytes && gdri_cache_evict_locked(cache, -1, 0))
		; /* what takes nothing of a BAR */
	pthread_mutex_unlock(&cache->lock);
}

struct sweep {
	struct gdri_ctx *ctx;
	bool any;
};

static void sweep(struct gdri_slot *slot, void *arg)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;
	struct sweep *s = arg;

	pthread_mutex_lock(&cache->lock);
	if (cache->ctx == s->ctx)
		s->any |= gdri_cache_sweep_locked(cache, cache->count);
	pthread_mutex_unlock(&cache->lock);
}

bool gdri_caches_sweep(struct gdri_ctx *ctx)
{
	struct sweep s = { ctx, false };

	gdri_slots_each(&gdri_caches, sweep, &s);
	return s.any;
}

/* Evicts until so many bytes and regions more are within the limits, or all is in use. */
void gdri_cache_make_room_locked(struct gdri_cache *cache, uint64_t bytes, uint64_t regions)
{
	bool over;

	while ((over = cache->bytes + bytes > cache->max_bytes ||
		       cache->count + regions > cache->max_regions))
		if (!gdri_cache_evict_locked(cache, -1, 0))
			break;
	atomic_store_explicit(&cache->over, over, memory_order_relaxed);
}

/*
 * The default limit: of each GPU, when it is first seen, three quarters of what is free of its BAR, but no
 * more than a quarter of its memory, since what is idle may be memory that its owner has freed.
 */
void gdri_cache_limit_locked(struct gdri_cache *cache, int device)
{
	uint64_t bit = device >= 0 && device < 64 ? (uint64_t)1 << device : 0;
	uint64_t limit = UINT64_MAX, memory;
	struct gdri_pci_address pci;
	struct gdri_bar bar;

	if (!cache->limit_by_gpu || cache->devices_seen & bit)
		return;
	cache->devices_seen |= bit;
	if (bit && !gdri_cuda_pci_address(device, &pci) && !gdri_nvml_bar(&pci, &bar))
		limit = bar.free / 4 * 3;
	if (bit && !gdri_cuda_total_memory(device, &memory) && memory / 4 < limit)
		limit = memory / 4;
	if (limit == UINT64_MAX)
		gdri_log(BARCOPY_LOG_INFO, "no limit for a cache but what the BAR holds: %s",
			 bit ? gdri_error_text() : "the device is not known");
	if (__builtin_add_overflow(cache->max_bytes, limit, &cache->max_bytes) ||
	    limit == UINT64_MAX) {
		cache->max_bytes = UINT64_MAX;
		cache->limit_by_gpu = false;
	}
}

/* Takes a user away; what the word was before, or 0 if there is none. */
static inline uint32_t drop_user(struct gdri_entry *e)
{
	uint32_t s = atomic_load_explicit(&e->state, memory_order_relaxed);

	do {
		if (!(s & GDRI_CACHE_USERS))
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(&e->state, &s, s - 1, memory_order_acq_rel,
							memory_order_relaxed));
	return s;
}

/* The last user of an entry that is not LIVE any more has gone. */
static void end_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	/* The list of what is closed has gone with its cache. */
	if (!e->closed)
		TAILQ_REMOVE(&cache->detached, e, link);
	gdri_cache_release_locked(cache, e);
}

/* Of a cache the entry is not looked at without a user unless he was the last: it may be another's. */
static __attribute__((noinline, cold)) void settle(struct gdri_cache *cache, struct gdri_entry *e,
						   bool last)
{
	pthread_mutex_lock(&cache->lock);
	if (last)
		end_locked(cache, e);
	if (atomic_load_explicit(&cache->over, memory_order_relaxed))
		gdri_cache_make_room_locked(cache, 0, 0);
	pthread_mutex_unlock(&cache->lock);
}

/* Ranges end with their last user, so he goes under the lock. */
static uint32_t drop_range(struct gdri_cache *cache, struct gdri_entry *e)
{
	uint32_t s;

	pthread_mutex_lock(&cache->lock);
	s = drop_user(e);
	if (s == 1)
		end_locked(cache, e);
	else if (s)
		(void)gdri_cache_take_idle_locked(cache, e);
	pthread_mutex_unlock(&cache->lock);
	return s;
}

int gdri_cache_unuse(struct gdri_cache *cache, struct gdri_entry *e)
{
	bool keeps = gdri_cache_keeps(cache);
	uint32_t s = __builtin_expect(keeps, 1) ? drop_user(e) : drop_range(cache, e);

	if (__builtin_expect(!s, 0))
		return gdri_fail(EINVAL, "the region has been put already");
	if (__builtin_expect(
		    keeps && (s == 1 || atomic_load_explicit(&cache->over, memory_order_relaxed)),
		    0))
		settle(cache, e, s == 1);
	return 0;
}
