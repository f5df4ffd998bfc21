/* SPDX-License-Identifier: MIT */
/* Invalidation, which may be called from anywhere: it takes no lock and allocates nothing. See cache.h. */
#include <errno.h>

#include "base/error.h"
#include "base/inside.h"
#include "cache/cache.h"

/* Dooms an entry that touches [addr, end). False: it does not, or another call was first. */
static bool doom(struct gdri_entry *e, uint64_t addr, uint64_t end)
{
	uint32_t s = atomic_load_explicit(&e->state, memory_order_acquire);
	uint64_t start = gdri_entry_start(e);

	/* The entry may have become another one since the table was read. */
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

/* A doomed entry stays this cache's until it is worked off. */
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
	gdri_inside_enter();
	/* A thread that holds the lock works the list off when it unlocks. */
	if (atomic_load(&cache->doomed) && !pthread_mutex_trylock(&cache->lock))
		gdri_cache_unlock(cache); /* which leaves */
	else
		gdri_inside_leave();
}

static void work_off_all(void)
{
	gdri_slots_each(&gdri_caches, work_off, NULL);
}

/* Dooms the entries that touch [addr, end). False: there were none. */
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
		/* A page has meanwhile gone to another entry. */
	} while (atomic_load(&cache->reach) != reach);
	return any;
}

int gdri_cache_invalidate(struct gdri_cache *cache, uint64_t name, uint64_t addr, uint64_t end)
{
	bool any = false, live;

	/* The end of a cache waits for this count, and retires the name before. */
	atomic_fetch_add(&cache->invalidating, 1);
	live = gdri_slot_is(&cache->slot, name);
	if (live)
		any = doom_range(cache, addr, end);
	atomic_fetch_sub(&cache->invalidating, 1);
	if (any && gdri_is_inside())
		gdri_inside_defer(work_off_all);
	else if (any)
		work_off(&cache->slot, NULL);
	return live ? 0 : gdri_fail(EINVAL, "the cache has ended");
}

void gdri_cache_forget(struct gdri_cache *cache, uint64_t addr, uint64_t end)
{
	gdri_cache_lock(cache);
	(void)doom_range(cache, addr, end);
	gdri_cache_unlock(cache);
}
