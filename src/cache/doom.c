/* SPDX-License-Identifier: MIT */
/* Invalidation, from wherever it is called: takes no lock and allocates nothing. See cache.h. */
#include <errno.h>

#include "base/error.h"
#include "base/inside.h"
#include "cache/cache.h"

/* Does it touch [addr, end), and is it this call that dooms it? */
static bool doom(struct gdri_entry *e, uint64_t addr, uint64_t end)
{
	uint32_t s = atomic_load_explicit(&e->state, memory_order_acquire);
	uint64_t start = gdri_entry_start(e);

	/* In place of a region that has gone meanwhile it may be another one. */
	if (start >= end || start + gdri_entry_size(e) <= addr)
		return false;
	do {
		if (!(s & (GDRI_CACHE_LIVE | GDRI_CACHE_NEW)))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&e->state, &s, (s & GDRI_CACHE_USERS) | GDRI_CACHE_DOOMED, memory_order_acq_rel,
		memory_order_acquire));
	return true;
}

/* From now on until it has been worked off the entry stays this cache's. */
static void push(struct gdri_entry *e)
{
	struct gdri_cache *cache = e->cache;

	e->next_doomed = atomic_load(&cache->doomed);
	while (!atomic_compare_exchange_weak(&cache->doomed, &e->next_doomed, e))
		;
}

static void work_off(struct gdri_slot *slot, void *arg)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;

	(void)arg;
	/* A holder of the lock works it off when it unlocks. */
	if (atomic_load(&cache->doomed) && !pthread_mutex_trylock(&cache->lock)) {
		gdri_inside_enter();
		gdri_cache_unlock(cache);
	}
}

static void work_off_all(void)
{
	gdri_slots_each(&gdri_caches, work_off, NULL);
}

/* Dooms what touches [addr, end): false if there was nothing. */
static bool doom_range(struct gdri_cache *cache, uint64_t addr, uint64_t end)
{
	uint64_t reach, at, to, stop;
	struct gdri_entry *e, *former;
	bool any = false;

	atomic_fetch_add(&cache->begun, 1);
	do {
		reach = atomic_load(&cache->reach);
		former = NULL;
		at = addr > reach ? addr - reach : 0;
		to = end < UINT64_MAX - reach ? end + reach : UINT64_MAX;
		for (; (e = gdri_pages_next(&cache->pages, &at, to, &stop)); at = stop) {
			if (e != former && doom(e, addr, end)) {
				push(e);
				any = true;
			}
			former = e;
		}
		/* A page has changed hands meanwhile. */
	} while (atomic_load(&cache->reach) != reach);
	return any;
}

int gdri_cache_invalidate(struct gdri_cache *cache, uint64_t name, uint64_t addr, uint64_t end)
{
	bool any;

	/* A cache that ends waits for this count; behind it the name says whether it has. */
	atomic_fetch_add(&cache->invalidating, 1);
	if (!gdri_slot_is(&cache->slot, name)) {
		atomic_fetch_sub(&cache->invalidating, 1);
		return gdri_fail(EINVAL, "the cache has ended");
	}
	any = doom_range(cache, addr, end);
	atomic_fetch_sub(&cache->invalidating, 1);
	if (!any)
		return 0;
	if (gdri_is_inside()) {
		gdri_inside_defer(work_off_all);
	} else {
		gdri_inside_enter();
		work_off(&cache->slot, NULL);
		gdri_inside_leave();
	}
	return 0;
}

void gdri_cache_forget(struct gdri_cache *cache, uint64_t addr, uint64_t end)
{
	gdri_cache_lock(cache);
	(void)doom_range(cache, addr, end);
	gdri_cache_unlock(cache);
}
