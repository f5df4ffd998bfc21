/* SPDX-License-Identifier: MIT */
/* The life of an entry: its pages in the table, its end, invalidation. See cache.h. */
#include "cache/cache.h"

#include <sched.h>

#include "base/inside.h"
#include "core/ctx.h"
#include "core/handle.h"

GDRI_SLOTS(, gdri_caches);
GDRI_SLOTS(, gdri_ranges);
GDRI_SLOTS(, gdri_entries);

static uint64_t entry_end(const struct gdri_entry *e)
{
	return gdri_entry_start(e) + gdri_entry_size(e);
}

/* So many bytes of its pages may name other entries: invalidations look for it that far away. */
static void set_need_locked(struct gdri_cache *cache, struct gdri_entry *e, uint64_t others)
{
	unsigned int need = others ? 64 - (unsigned int)__builtin_clzll(others) : 0, most = 63;

	cache->needs[e->need]--;
	cache->needs[need]++;
	e->need = need;
	while (most && !cache->needs[most])
		most--;
	atomic_store(&cache->reach, most ? (uint64_t)1 << most : 0);
}

/* Enters those of its pages that belong to no entry. */
static int enter_free_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	uint64_t at = gdri_entry_start(e), end = entry_end(e);

	while (at < end) {
		uint64_t next = at, stop = end;
		bool taken = gdri_pages_next(&cache->pages, &next, end, &stop);

		if (!taken)
			next = end;
		if (next > at) {
			int rc = gdri_pages_enter(&cache->pages, at, next, e);

			if (rc)
				return rc;
			e->owned += next - at;
		}
		at = taken ? stop : end;
	}
	return 0;
}

int gdri_cache_place_locked(struct gdri_cache *cache, struct gdri_entry *e, uint64_t low,
			    uint64_t high)
{
	int rc;

	atomic_store_explicit(&e->start, low & GPU_PAGE_MASK, memory_order_relaxed);
	atomic_store_explicit(&e->size, gdri_touched(low, high - low), memory_order_relaxed);
	e->owned = 0;
	rc = enter_free_locked(cache, e);
	if (rc)
		gdri_cache_unplace_locked(cache, e);
	else
		set_need_locked(cache, e, gdri_entry_size(e) - e->owned);
	return rc;
}

void gdri_cache_unplace_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	gdri_pages_erase(&cache->pages, gdri_entry_start(e), entry_end(e), e);
	e->owned = 0;
	set_need_locked(cache, e, 0);
}

/* Gives e one page of another entry, which is killed when it loses its last page. */
static void take_page_locked(struct gdri_cache *cache, struct gdri_entry *e,
			     struct gdri_entry *former, uint64_t at)
{
	set_need_locked(cache, former, gdri_entry_size(former) - former->owned + GPU_PAGE_SIZE);
	if (gdri_pages_enter(&cache->pages, at, at + GPU_PAGE_SIZE, e)) {
		set_need_locked(cache, former, gdri_entry_size(former) - former->owned);
		return;
	}
	e->owned += GPU_PAGE_SIZE;
	former->owned -= GPU_PAGE_SIZE;
	if (!former->owned)
		gdri_cache_kill_locked(cache, former, GDRI_KILL_ANY);
}

/* An allocation that is pinned whole: the bytes of its pages. */
static uint64_t whole(const struct gdri_part *part)
{
	return part && part->end - part->start <= GDRI_WHOLE_MAX
		       ? gdri_touched(part->start, part->end - part->start)
		       : 0;
}

bool gdri_entry_serves_part(const struct gdri_entry *e, uint64_t addr, size_t size)
{
	const struct gdri_part *first, *last;

	if (e->region.host || (e->cache->keeps && addr >= e->low && addr + size <= e->high))
		return true;
	first = gdri_region_part(&e->region, addr);
	last = gdri_region_part(&e->region, addr + size - 1);
	return gdri_entry_size(e) <= 2 * gdri_touched(addr, size) + whole(first) +
					     (last == first ? 0 : whole(last));
}

/* The former entry has the page `at` of e: kills it, takes the page, or leaves it. */
static void contest_page_locked(struct gdri_cache *cache, struct gdri_entry *e,
				struct gdri_entry *former, uint64_t at)
{
	uint64_t start = gdri_entry_start(e), end = entry_end(e);
	uint64_t from = gdri_entry_start(former), to = entry_end(former);
	uint64_t common = (to < end ? to : end) - (from > start ? from : start);
	uint64_t middle = (e->low + (e->high - e->low) / 2) & GPU_PAGE_MASK;

	if (from >= start && to <= end)
		gdri_cache_kill_locked(cache, former, GDRI_KILL_ANY);
	else if (common > gdri_entry_size(former) / 2 &&
		 gdri_cache_kill_locked(cache, former, GDRI_KILL_IDLE))
		return;
	/* e needs the page in its middle, and every page of a region too long to be shared. */
	else if (at == middle || to - from > 2 * (end - start) ||
		 (gdri_entry_covers(former, e->low, e->high - e->low) &&
		  !gdri_entry_serves(former, e->low, e->high - e->low)))
		take_page_locked(cache, e, former, at);
}

void gdri_cache_claim_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	uint64_t at = gdri_entry_start(e), end = entry_end(e), stop;
	struct gdri_entry *former;

	for (; (former = gdri_pages_next(&cache->pages, &at, end, &stop)); at = stop) {
		if (former == e)
			continue;
		stop = at + GPU_PAGE_SIZE;
		contest_page_locked(cache, e, former, at);
	}
	/* Without memory for the table fewer of its pages find it. */
	(void)enter_free_locked(cache, e);
	set_need_locked(cache, e, gdri_entry_size(e) - e->owned);
}

static bool unlist_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	if (!e->listed)
		return false;
	if (cache->look == e) {
		cache->look = TAILQ_NEXT(e, link);
		cache->look_part = 0;
	}
	TAILQ_REMOVE(&cache->regions, e, link);
	cache->count--;
	e->listed = false;
	gdri_cache_gpu(cache, e->region.pin.device)->bytes -= gdri_entry_bytes(e);
	return true;
}

static void unpin(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_handle *handle;

	/* gdr_close() may have ended the handle; ranges have handles of their own. */
	if (cache->keeps && !gdri_handle_lock(cache->ctx, e->handle, &handle))
		gdri_handle_release_locked(handle);
	if (gdri_region_unpin(&e->region))
		gdri_log(GDRI_LOG_ERROR, "unpinning a shared region: %s", gdri_error_text());
	if (cache->keeps) /* a range may be what the very call undoes */
		atomic_fetch_add(&cache->ctx->unpinned, 1);
}

void gdri_cache_close_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	if (unlist_locked(cache, e))
		unpin(cache, e);
	/* Its last put may come when the slot has another cache: no user of that one's. */
	atomic_store_explicit(&e->size, 0, memory_order_relaxed);
}

static void free_entry(struct gdri_entry *e)
{
	gdri_region_free_parts(&e->region);
	gdri_slots_free(&gdri_entries, &e->slot);
}

void gdri_cache_release_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	/* Here, not when it is freed, without the lock: last_user_left() looks at the name first. */
	gdri_slot_retire(&e->slot);
	if (unlist_locked(cache, e)) {
		e->next = cache->released;
		cache->released = e;
	} else {
		free_entry(e);
	}
}

void gdri_cache_end_released(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_entry *next;

	for (; e; e = next) {
		next = e->next;
		unpin(cache, e);
		free_entry(e);
	}
}

bool gdri_cache_kill_locked(struct gdri_cache *cache, struct gdri_entry *e,
			    enum gdri_cache_kill which)
{
	uint32_t s = atomic_load_explicit(&e->state, memory_order_relaxed);
	bool live;

	do {
		live = s & GDRI_CACHE_LIVE;
		if (which == GDRI_KILL_IDLE && (!live || s & GDRI_CACHE_USERS))
			return false;
	} while (live && !atomic_compare_exchange_weak(&e->state, &s, s & GDRI_CACHE_USERS));
	gdri_cache_unplace_locked(cache, e);
	if (live && !(s & GDRI_CACHE_USERS))
		gdri_cache_release_locked(cache, e);
	return live;
}

/* Works off the list of doomed entries. */
static void reap_locked(struct gdri_cache *cache)
{
	struct gdri_entry *e = atomic_exchange(&cache->doomed, NULL), *next;

	for (; e; e = next) {
		next = e->next;
		gdri_cache_unplace_locked(cache, e);
		cache->invalidations += e->listed;
		if (!(atomic_fetch_and(&e->state, GDRI_CACHE_USERS) & GDRI_CACHE_USERS))
			gdri_cache_release_locked(cache, e);
	}
}

void gdri_cache_lock(struct gdri_cache *cache)
{
	gdri_inside_enter();
	pthread_mutex_lock(&cache->lock);
	reap_locked(cache);
}

void gdri_cache_unlock(struct gdri_cache *cache)
{
	struct gdri_entry *released;
	_Atomic uint32_t *outside;

	do {
		reap_locked(cache);
		released = cache->released;
		cache->released = NULL;
		outside = &cache->outside[cache->epoch & 1];
		atomic_fetch_add(outside, !!released);
		atomic_fetch_add(&cache->releasing, !!released);
		pthread_mutex_unlock(&cache->lock);
		gdri_cache_end_released(cache, released);
		atomic_fetch_sub(&cache->releasing, !!released);
		atomic_fetch_sub(outside, !!released);
		/* A thread that found the lock taken has left more to be worked off. */
	} while (atomic_load(&cache->doomed) && !pthread_mutex_trylock(&cache->lock));
	gdri_inside_leave();
}

/*
 * An epoch begins when every thread that went outside before the last one has come back. So two
 * epochs after the call all have come back that were outside then. Others may be outside by now: a
 * moment without any need never come beside threads that evict.
 */
bool gdri_cache_lock_quiet(struct gdri_cache *cache)
{
	bool releasing = atomic_load(&cache->releasing);
	uint32_t until;

	gdri_cache_lock(cache);
	releasing |= atomic_load(&cache->releasing); /* what the lock's last holder evicted */
	until = cache->epoch + 2;
	while ((int32_t)(until - cache->epoch) > 0) {
		if (!atomic_load(&cache->outside[~cache->epoch & 1])) {
			cache->epoch++;
			continue;
		}
		gdri_cache_unlock(cache);
		sched_yield();
		gdri_cache_lock(cache);
	}
	return releasing || atomic_load(&cache->releasing);
}

/* Dooms an entry that touches [addr, end). False: it does not, or another call was first. */
static bool doom(struct gdri_entry *e, uint64_t addr, uint64_t end)
{
	uint32_t s = atomic_load(&e->state);
	uint64_t start = gdri_entry_start(e);
	struct gdri_cache *cache;

	/* The entry may have become another one since the table was read. */
	if (start >= end || start + gdri_entry_size(e) <= addr)
		return false;
	do {
		if (!(s & (GDRI_CACHE_LIVE | GDRI_CACHE_NEW)))
			return false;
	} while (!atomic_compare_exchange_weak(&e->state, &s,
					       (s & GDRI_CACHE_USERS) | GDRI_CACHE_DOOMED));
	/* A doomed entry keeps its cache, which may be another than the caller's. */
	cache = e->cache;
	e->next = atomic_load(&cache->doomed);
	while (!atomic_compare_exchange_weak(&cache->doomed, &e->next, e))
		;
	return true;
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
			any |= e != former && doom(e, addr, end);
			former = e;
		}
		/* A page has meanwhile gone to another entry. (If that falls again, it has ended.) */
	} while (atomic_load(&cache->reach) > reach);
	return any;
}

int gdri_cache_invalidate(struct gdri_cache *cache, uint64_t name, uint64_t addr, uint64_t end)
{
	bool any = false, live;

	/* The end of a cache waits for this count, and retires the name before. */
	atomic_fetch_add(&cache->invalidating, 1);
	live = gdri_slot_is(&cache->slot, name);
	if (live && end > addr)
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
	/* Afterwards, so that no thread takes one of them outside once this wait has begun. */
	(void)gdri_cache_lock_quiet(cache);
	gdri_cache_unlock(cache);
}
