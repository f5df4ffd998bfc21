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

enum { LOOKS_WHEN_OVER = 32 };

bool gdri_may_fit(int device, uint64_t bytes)
{
	struct gdri_pci_address pci;
	struct gdri_bar bar;

	return device < 0 || gdri_cuda_pci_address(device, &pci) || gdri_nvml_bar(&pci, &bar) ||
	       bytes <= bar.total;
}

/*
 * Evicts idle regions: at least one, and until `bytes` of BAR are given back, looking at so many at most.
 * device: only what takes of that one's BAR; -1: any. False if none was idle.
 */
bool gdri_cache_evict_locked(struct gdri_cache *cache, int device, uint64_t bytes, size_t looks)
{
	uint64_t freed = 0;
	bool any = false;

	/* The second time round nothing has another chance. */
	if (looks > 2 * cache->count)
		looks = 2 * cache->count;
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
 * Looks at so many regions, and parts of them, each time at the next ones: what is idle and not the memory
 * any more that was pinned is released. Nobody would ask for it, and a persistent pin holds the memory.
 */
bool gdri_cache_sweep_locked(struct gdri_cache *cache, size_t looks, size_t parts)
{
	bool any = false;

	for (looks = looks < cache->count ? looks : cache->count; looks && parts; looks--) {
		struct gdri_entry *e = cache->look ? cache->look : TAILQ_FIRST(&cache->live);
		bool holds = true;

		if (e != cache->look)
			cache->look_part = 0;
		cache->look = e;
		if (gdri_entry_has_users(e))
			cache->look_part = 0;
		else
			holds = gdri_region_is_intact_from(&e->region, &cache->look_part, &parts);
		if (holds && cache->look_part)
			break; /* there the next one goes on */
		cache->look = TAILQ_NEXT(e, link);
		if (!holds) {
			cache->look_part = 0;
			if (gdri_cache_take_idle_locked(cache, e)) {
				cache->invalidations++;
				any = true;
			}
		}
	}
	return any;
}

void gdri_cache_trim(struct gdri_cache *cache, uint64_t max_idle_bytes)
{
	const struct gdri_entry *e;
	uint64_t idle = 0;

	gdri_cache_lock(cache);
	(void)gdri_cache_sweep_locked(cache, cache->count, SIZE_MAX);
	TAILQ_FOREACH(e, &cache->live, link)
		if (!gdri_entry_has_users(e))
			idle += gdri_entry_bytes(e);
	if (idle > max_idle_bytes)
		(void)gdri_cache_evict_locked(cache, -1, idle - max_idle_bytes, SIZE_MAX);
	while (!max_idle_bytes && gdri_cache_evict_locked(cache, -1, 0, SIZE_MAX))
		; /* what takes nothing of a BAR */
	gdri_cache_unlock(cache);
}

/* What each cache of a context is asked for. */
struct visit {
	struct gdri_ctx *ctx;
	int device;
	uint64_t bytes;
	bool evict; /* what is idle, else only what is stale */
	bool any;
};

static void visit(struct gdri_slot *slot, void *arg)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;
	struct visit *v = arg;

	gdri_cache_lock(cache);
	if (cache->ctx == v->ctx && (!v->evict || !v->any))
		v->any |= v->evict ? gdri_cache_evict_locked(cache, v->device, v->bytes, SIZE_MAX)
				   : gdri_cache_sweep_locked(cache, cache->count, SIZE_MAX);
	gdri_cache_unlock(cache);
}

bool gdri_caches_sweep(struct gdri_ctx *ctx)
{
	struct visit v = { .ctx = ctx };

	gdri_slots_each(&gdri_caches, visit, &v);
	return v.any;
}

bool gdri_caches_give_way(struct gdri_ctx *ctx, int rc, int device, uint64_t bytes)
{
	struct visit v = { .ctx = ctx, .device = device, .bytes = bytes, .evict = true };

	if (!gdri_is_short(rc) || !gdri_may_fit(device, bytes))
		return false;
	gdri_slots_each(&gdri_caches, visit, &v);
	return v.any;
}

/* ---- limits --------------------------------------------------------------------------------- */

static bool is_beyond(struct gdri_cache *cache, const struct gdri_cache_gpu *gpu)
{
	return gpu->bytes > gpu->max_bytes ||
	       cache->count + cache->detached_count > cache->max_regions;
}

/* Puts need not look any more once every GPU is within its limit. */
static void look_if_over_locked(struct gdri_cache *cache)
{
	bool over = cache->count + cache->detached_count > cache->max_regions;

	for (int i = 0; i < GDRI_CACHE_GPUS; i++)
		over |= cache->gpu[i].bytes > cache->gpu[i].max_bytes;
	if (!over)
		atomic_store_explicit(&cache->over, false, memory_order_relaxed);
}

/* Evicts until what is on a GPU is within the limits, or all is in use. */
void gdri_cache_make_room_locked(struct gdri_cache *cache, int device)
{
	const struct gdri_cache_gpu *gpu = gdri_cache_gpu(cache, device);
	bool was = atomic_load_explicit(&cache->over, memory_order_relaxed);
	bool known = gpu != &cache->gpu[GDRI_CACHE_GPUS - 1];

	/* While all is in use a put takes what it leaves idle: there is little to be found. */
	for (int round = 0; round < 2; round++) {
		while (is_beyond(cache, gpu))
			if (!gdri_cache_evict_locked(
				    cache, known && gpu->bytes > gpu->max_bytes ? device : -1, 0,
				    was ? LOOKS_WHEN_OVER : SIZE_MAX))
				break;
		if (was || !is_beyond(cache, gpu))
			break;
		/* A put that came before this is seen by a second look. */
		atomic_store(&cache->over, true);
	}
	look_if_over_locked(cache);
}

/*
 * The limit of a GPU, when the first region of it has been pinned: by default three quarters of what was
 * free of its BAR, but no more than a quarter of its memory, since what is idle may be memory that its owner
 * has freed.
 */
void gdri_cache_limit_locked(struct gdri_cache *cache, int device)
{
	struct gdri_cache_gpu *gpu = gdri_cache_gpu(cache, device);
	uint64_t limit = UINT64_MAX, memory;
	struct gdri_pci_address pci;
	struct gdri_bar bar;

	if (gpu->max_bytes)
		return;
	gpu->max_bytes = cache->max_bytes;
	if (gpu->max_bytes)
		return;
	if (device >= 0 && !gdri_cuda_pci_address(device, &pci) && !gdri_nvml_bar(&pci, &bar))
		limit = (bar.free + gpu->bytes) / 4 * 3;
	if (device >= 0 && !gdri_cuda_total_memory(device, &memory) && memory / 4 < limit)
		limit = memory / 4;
	if (limit == UINT64_MAX)
		gdri_log(GDRI_LOG_INFO, "no limit for a cache but what the BAR holds: %s",
			 device >= 0 ? gdri_error_text() : "the device is not known");
	gpu->max_bytes = limit ? limit : 1;
}

/* ---- puts ----------------------------------------------------------------------------------- */

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
	if (!e->closed) {
		TAILQ_REMOVE(&cache->detached, e, link);
		cache->detached_count--;
	}
	gdri_cache_release_locked(cache, e);
}

static __attribute__((noinline, cold)) void settle_last(struct gdri_cache *cache,
							struct gdri_entry *e)
{
	gdri_cache_lock(cache);
	end_locked(cache, e);
	gdri_cache_unlock(cache);
}

/* Beyond a limit the entry that a put leaves idle goes, if it is still that one. */
static __attribute__((noinline, cold)) void settle_idle(struct gdri_cache *cache,
							struct gdri_entry *e, uint64_t name)
{
	gdri_cache_lock(cache);
	if (gdri_slot_is(&e->slot, name) && e->cache == cache && !e->closed) {
		const struct gdri_cache_gpu *gpu = gdri_cache_gpu(cache, e->region.pin.device);

		if (is_beyond(cache, gpu) && gdri_cache_take_idle_locked(cache, e)) {
			cache->evictions++;
			gdri_count(&cache->ctx->counters, GDRI_COUNT_CACHE_EVICTION, 1);
		}
		look_if_over_locked(cache);
	}
	gdri_cache_unlock(cache);
}

/* Ranges end with their last user, which therefore goes under the lock. */
static uint32_t drop_range(struct gdri_cache *cache, struct gdri_entry *e)
{
	uint32_t s;

	gdri_cache_lock(cache);
	s = drop_user(e);
	if (s == 1)
		end_locked(cache, e);
	else if (s)
		(void)gdri_cache_take_idle_locked(cache, e);
	gdri_cache_unlock(cache);
	return s;
}

int gdri_cache_unuse(struct gdri_cache *cache, struct gdri_entry *e)
{
	bool keeps = gdri_cache_keeps(cache);
	uint64_t name = gdri_slot_name(&e->slot);
	uint32_t s = __builtin_expect(keeps, 1) ? drop_user(e) : drop_range(cache, e);

	if (__builtin_expect(!s, 0))
		return gdri_fail(EINVAL, "the region has been put already");
	if (__builtin_expect(keeps && s == 1, 0))
		settle_last(cache, e);
	else if (__builtin_expect(
			 keeps && atomic_load_explicit(&cache->over, memory_order_seq_cst) &&
				 (s & (GDRI_CACHE_LIVE | GDRI_CACHE_USERS)) ==
					 (GDRI_CACHE_LIVE | 1),
			 0))
		settle_idle(cache, e, name);
	return 0;
}
