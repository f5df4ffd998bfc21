/* SPDX-License-Identifier: MIT */
/* Which regions a cache gives up: idle ones, stale ones, and those beyond a limit. See cache.h. */
#include <sys/param.h>

#include "cache/cache.h"
#include "core/mem.h"

enum { LOOKS = 4, LOOK_PARTS = 16, LOOKS_WHEN_OVER = 32, MOST_ATTEMPTS = 64 };

static bool evict(struct gdri_cache *cache, struct gdri_entry *e)
{
	if (!gdri_cache_kill_locked(cache, e, GDRI_KILL_IDLE))
		return false;
	cache->evictions++;
	gdri_count(&cache->ctx->counters, GDRI_COUNT_CACHE_EVICTION, 1);
	return true;
}

/*
 * Evicts idle regions: at least one, and until they give back `bytes` of BAR or `looks` regions
 * have been looked at. device: only regions in that GPU's BAR; -1: any. False: none was idle.
 */
bool gdri_cache_evict_locked(struct gdri_cache *cache, int device, uint64_t bytes, size_t looks)
{
	uint64_t freed = 0;
	bool any = false;

	/* In the second round no region has another chance. */
	looks = MIN(looks, 2 * cache->count);
	for (; looks && !TAILQ_EMPTY(&cache->regions) && (!any || freed < bytes); looks--) {
		struct gdri_entry *e = TAILQ_FIRST(&cache->regions);
		uint64_t size = gdri_entry_bytes(e);
		bool meant = device < 0 || (e->region.pin.device == device && size);

		if (meant && !(atomic_fetch_and(&e->state, ~GDRI_CACHE_USED) & GDRI_CACHE_USED) &&
		    evict(cache, e)) {
			freed += size;
			any = true;
		} else {
			TAILQ_REMOVE(&cache->regions, e, link);
			TAILQ_INSERT_TAIL(&cache->regions, e, link);
		}
	}
	return any;
}

/*
 * Releases idle regions that are stale: no get would find them, and a persistent pin holds their
 * freed memory. Verifies all, or a few regions and parts, and goes on there the next time.
 */
void gdri_cache_sweep_locked(struct gdri_cache *cache, bool all)
{
	size_t parts = all ? SIZE_MAX : LOOK_PARTS;

	if (all)
		cache->look_part = 0;
	for (size_t n = all ? cache->count : MIN(LOOKS, cache->count); n && parts; n--) {
		struct gdri_entry *e = cache->look ? cache->look : TAILQ_FIRST(&cache->regions);
		bool intact = gdri_region_is_intact_from(&e->region, &cache->look_part, &parts);

		cache->look = intact && cache->look_part ? e : TAILQ_NEXT(e, link);
		if (!intact) {
			cache->look_part = 0;
			cache->invalidations += gdri_cache_kill_locked(cache, e, GDRI_KILL_IDLE);
		}
	}
}

void gdri_cache_trim(struct gdri_cache *cache, uint64_t max_idle_bytes)
{
	const struct gdri_entry *e;
	uint64_t idle = 0;

	gdri_cache_lock(cache);
	gdri_cache_sweep_locked(cache, true);
	TAILQ_FOREACH(e, &cache->regions, link)
		if (!gdri_entry_has_users(e))
			idle += gdri_entry_bytes(e);
	if (!max_idle_bytes)
		idle = UINT64_MAX; /* regions that take no BAR go too */
	if (idle > max_idle_bytes)
		(void)gdri_cache_evict_locked(cache, -1, idle - max_idle_bytes, SIZE_MAX);
	gdri_cache_unlock_and_wait(cache);
}

/* What visit() needs to evict regions of a context's caches. */
struct visit {
	gdr_t g; /* the context's name */
	int device;
	uint64_t bytes;
	bool evicted;
	bool waited; /* for an unpin, or has unpinned something itself */
};

static void visit(struct gdri_slot *slot, void *arg)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;
	struct visit *v = arg;

	/* The lock of another context's cache may be held for long, by a pin or an unmap there. */
	if (atomic_load_explicit(&cache->g, memory_order_acquire) != v->g)
		return;
	gdri_cache_lock(cache);
	if (!v->bytes)
		gdri_cache_sweep_locked(cache, true);
	else if (!v->evicted && cache->g == v->g) /* no other context's by now */
		v->evicted = gdri_cache_evict_locked(cache, v->device, v->bytes, SIZE_MAX);
	/* What other threads are unpinning is space too. */
	gdri_cache_unlock_and_wait(cache);
}

static void wait_for_unpins(struct gdri_slot *slot, void *arg)
{
	struct gdri_cache *ranges = (struct gdri_cache *)slot;
	struct visit *v = arg;

	if (atomic_load_explicit(&ranges->g, memory_order_acquire) == v->g)
		v->waited |= gdri_cache_drain(ranges, true);
}

bool gdri_caches_give_way(struct gdri_ctx *ctx, int rc, int device, uint64_t bytes,
			  struct gdri_attempts *attempts)
{
	struct visit v = { .g = (gdr_t)(uintptr_t)gdri_slot_name(&ctx->slot),
			   .device = device,
			   .bytes = bytes };
	uint64_t before = attempts->unpinned;

	if (!gdri_is_short(rc) || ++attempts->failed >= MOST_ATTEMPTS ||
	    !gdri_may_fit(device, bytes))
		return false;
	gdri_slots_each(&gdri_caches, visit, &v);
	attempts->unpinned = atomic_load(&ctx->unpinned);
	/* Another thread may still be unpinning a range whose end has been counted. */
	gdri_slots_each(&gdri_ranges, wait_for_unpins, &v);
	return attempts->unpinned != before || v.waited;
}

int gdri_caches_alloc(struct gdri_ctx *ctx, int device, size_t size, uint32_t flags,
		      barcopy_mem_t *mem)
{
	struct gdri_attempts attempts = gdri_attempts_begin(ctx);
	bool allocated;
	int rc;

	/*
	 * An idle region can keep freed GPU memory allocated, so stale regions are evicted first.
	 * The other idle regions are evicted for the pin and the map of memory that was allocated.
	 */
	do {
		allocated = false;
		rc = gdri_mem_alloc(ctx, device, size, flags, mem, &allocated);
	} while ((rc == -ENOMEM && gdri_caches_give_way(ctx, rc, device, 0, &attempts)) ||
		 (allocated && gdri_caches_give_way(ctx, rc, device, size, &attempts)));
	return rc;
}

static bool is_beyond(const struct gdri_cache *cache, const struct gdri_cache_gpu *gpu)
{
	return gpu->bytes > gpu->max_bytes || cache->count > cache->options.max_regions;
}

/* Puts need not look any more once every GPU is within its limit. */
static void clear_over_locked(struct gdri_cache *cache)
{
	for (int i = 0; i < GDRI_CACHE_GPUS; i++)
		if (is_beyond(cache, &cache->gpu[i]))
			return;
	atomic_store_explicit(&cache->over, false, memory_order_relaxed);
}

/*
 * The limit of a GPU when its first region has been pinned: by default three quarters of what
 * was free of its BAR, but at most a quarter of its memory, as idle regions may be freed memory.
 */
static void set_limit_locked(struct gdri_cache *cache, struct gdri_cache_gpu *gpu, int device)
{
	uint64_t limit = cache->options.max_bytes, memory;
	struct gdri_bar bar;

	if (!limit) {
		limit = UINT64_MAX;
		if (!gdri_cuda_bar(device, &bar))
			limit = (bar.free + gpu->bytes) / 4 * 3;
		if (device >= 0 && !gdri_cuda_total_memory(device, &memory))
			limit = MIN(limit, memory / 4);
		if (limit == UINT64_MAX)
			gdri_log(GDRI_LOG_INFO, "no limit for a cache but what the BAR holds: %s",
				 gdri_error_text());
	}
	gpu->max_bytes = MAX(limit, 1);
}

/* Evicts until the regions of a GPU are within the limits, or all are in use. */
void gdri_cache_make_room_locked(struct gdri_cache *cache, int device)
{
	struct gdri_cache_gpu *gpu = gdri_cache_gpu(cache, device);
	bool was = atomic_load_explicit(&cache->over, memory_order_relaxed);
	/* While all were in use each put evicts what it leaves idle, so few regions are idle. */
	size_t looks = was ? LOOKS_WHEN_OVER : SIZE_MAX;

	if (!gpu->max_bytes)
		set_limit_locked(cache, gpu, device);
	if (!is_beyond(cache, gpu))
		return;
	/* Before the looks, which see what a put that came before this store has left idle. */
	atomic_store(&cache->over, true);
	while ((gpu->bytes > gpu->max_bytes && gdri_cache_evict_locked(cache, device, 0, looks)) ||
	       (cache->count > cache->options.max_regions &&
		gdri_cache_evict_locked(cache, -1, 0, looks)))
		;
	clear_over_locked(cache);
}

/* Takes a user away. Returns the state before, or 0 where there was no user. */
static inline uint32_t drop_user(struct gdri_entry *e)
{
	uint32_t s = atomic_load_explicit(&e->state, memory_order_relaxed);

	do {
		if (!(s & GDRI_CACHE_USERS))
			return 0;
	} while (!atomic_compare_exchange_weak(&e->state, &s, s - 1));
	return s;
}

/*
 * Called when the last user has left. A dead entry, neither LIVE nor doomed, belongs to this thread
 * alone and is released. A LIVE entry ends only if it still has this name: a range always, a region
 * of a registration cache if the cache is beyond a limit.
 */
static __attribute__((noinline, cold)) void
last_user_left(struct gdri_cache *cache, struct gdri_entry *e, uint64_t name, bool dead)
{
	gdri_cache_lock(cache);
	if (dead) {
		gdri_cache_release_locked(cache, e);
	} else if (gdri_slot_is(&e->slot, name) && e->cache == cache) {
		if (!cache->keeps)
			gdri_cache_kill_locked(cache, e, GDRI_KILL_IDLE);
		else if (is_beyond(cache, gdri_cache_gpu(cache, e->region.pin.device)))
			(void)evict(cache, e);
		clear_over_locked(cache);
	}
	gdri_cache_unlock(cache);
}

int gdri_cache_unuse(struct gdri_cache *cache, struct gdri_entry *e)
{
	uint64_t name = gdri_slot_name(&e->slot);
	uint32_t s = drop_user(e);
	bool idle = (s & (GDRI_CACHE_LIVE | GDRI_CACHE_USERS)) == (GDRI_CACHE_LIVE | 1);

	if (__builtin_expect(!s, 0))
		return gdri_fail(EINVAL, "the region has been put already");
	if (__builtin_expect(s == 1 || (idle && (!cache->keeps || atomic_load(&cache->over))), 0))
		last_user_left(cache, e, name, s == 1);
	return 0;
}
