/* SPDX-License-Identifier: MIT */
/* The life of an entry: its pages in the table, its end, invalidation. See cache.h. */
#include "cache/cache.h"

#include "base/inside.h"
#include "core/handle.h"

GDRI_SLOTS(, gdri_caches);
GDRI_SLOTS(, gdri_ranges);
GDRI_SLOTS(, gdri_entries);

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

static void keep_lost(struct gdri_cache *cache, const struct gdri_first *first)
{
	pthread_mutex_lock(&cache->lost_lock);
	if (!cache->lost.rc)
		cache->lost = *first;
	atomic_store(&cache->any_lost, true);
	pthread_mutex_unlock(&cache->lost_lock);
	gdri_log(GDRI_LOG_ERROR, "unpinning a shared region: %s", first->text.s);
}

int gdri_cache_lost(struct gdri_cache *cache)
{
	struct gdri_first first;

	/* Before the failure is taken: one that comes meanwhile sets it again. */
	if (!atomic_load(&cache->any_lost) || !atomic_exchange(&cache->any_lost, false))
		return 0;
	pthread_mutex_lock(&cache->lost_lock);
	first = cache->lost;
	cache->lost.rc = 0;
	pthread_mutex_unlock(&cache->lost_lock);
	return gdri_first_failure(&first);
}

static void unpin(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_first first = { 0 };
	struct gdri_handle *handle;

	/* gdr_close() may have ended the handle; ranges have handles of their own. */
	if (cache->keeps && !gdri_handle_lock(cache->ctx, e->handle, &handle))
		gdri_first_note(&first, gdri_handle_release_locked(handle));
	gdri_first_note(&first, gdri_region_unpin(&e->region));
	if (first.rc)
		keep_lost(cache, &first);
	/* Not a range: a call may undo its own. gdri_handle_end() counts those that callers end. */
	if (cache->keeps)
		atomic_fetch_add(&cache->ctx->unpinned, 1);
}

void gdri_cache_close_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	(void)unlist_locked(cache, e);
	unpin(cache, e);
	/* Its last put may come when the slot has another cache: no user of that one's. */
	atomic_store_explicit(&e->size, 0, memory_order_relaxed);
}

static void free_entry(struct gdri_entry *e)
{
	gdri_region_free_parts(&e->region);
	gdri_slots_free(&gdri_entries, &e->slot);
}

static void push(_Atomic(struct gdri_entry *) *list, struct gdri_entry *e)
{
	e->next = atomic_load(list);
	while (!atomic_compare_exchange_weak(list, &e->next, e))
		;
}

void gdri_cache_release_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	/* Here, not when it is freed, without the lock: last_user_left() looks at the name first. */
	gdri_slot_retire(&e->slot);
	if (unlist_locked(cache, e)) {
		atomic_fetch_add(&cache->leaving, gdri_entry_bytes(e));
		push(&cache->released, e);
	} else {
		free_entry(e);
	}
}

bool gdri_cache_drain(struct gdri_cache *cache, bool wait)
{
	struct gdri_entry *e, *next;
	bool any = false;

	/* Behind the caller's push, before the look at the lock: its holder looks again after it. */
	atomic_thread_fence(memory_order_seq_cst);
	while (wait || atomic_load(&cache->released)) {
		if (pthread_mutex_trylock(&cache->ending)) {
			if (!wait)
				break;
			pthread_mutex_lock(&cache->ending);
			any = true;
		}
		wait = false;
		for (e = atomic_exchange(&cache->released, NULL); e; e = next) {
			uint64_t bytes = gdri_entry_bytes(e);

			next = e->next;
			unpin(cache, e);
			atomic_fetch_sub(&cache->leaving, bytes);
			free_entry(e);
			any = true;
		}
		pthread_mutex_unlock(&cache->ending);
		atomic_thread_fence(memory_order_seq_cst);
	}
	return any;
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
	gdri_pages_erase(&cache->pages, gdri_entry_start(e), gdri_entry_end(e), e);
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
		gdri_pages_erase(&cache->pages, gdri_entry_start(e), gdri_entry_end(e), e);
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
	do {
		reap_locked(cache);
		pthread_mutex_unlock(&cache->lock);
		(void)gdri_cache_drain(cache, false);
		/* A thread that found the lock taken has left more to be worked off. */
	} while (atomic_load(&cache->doomed) && !pthread_mutex_trylock(&cache->lock));
	gdri_inside_leave();
}

void gdri_cache_unlock_and_wait(struct gdri_cache *cache)
{
	gdri_inside_enter();
	gdri_cache_unlock(cache);
	(void)gdri_cache_drain(cache, true);
	gdri_inside_leave();
}

/* Dooms an entry that touches [addr, end). False: it does not, or had ended before. */
static bool doom(struct gdri_entry *e, uint64_t addr, uint64_t end)
{
	uint32_t s = atomic_load(&e->state);

	/* The entry may have become another one since the table was read. */
	if (gdri_entry_start(e) >= end || gdri_entry_end(e) <= addr)
		return false;
	do {
		if (!(s & GDRI_CACHE_LIVE))
			return s & GDRI_CACHE_DOOMED;
	} while (!atomic_compare_exchange_weak(&e->state, &s,
					       (s & GDRI_CACHE_USERS) | GDRI_CACHE_DOOMED));
	/* A doomed entry keeps its cache, which may be another than the caller's. */
	push(&e->cache->doomed, e);
	return true;
}

static void work_off(struct gdri_slot *slot, void *arg)
{
	struct gdri_cache *cache = (struct gdri_cache *)slot;

	(void)arg;
	if (!atomic_load(&cache->doomed))
		return;
	gdri_inside_enter();
	/* A thread that holds the lock works the list off when it unlocks. */
	if (!pthread_mutex_trylock(&cache->lock))
		gdri_cache_unlock(cache); /* which leaves */
	else
		gdri_inside_leave();
}

/* What a call dooms may be another cache's by then, or a range: each has its list. */
static void work_off_all(void)
{
	gdri_slots_each(&gdri_caches, work_off, NULL);
	gdri_slots_each(&gdri_ranges, work_off, NULL);
}

/* Dooms the entries that touch [addr, end), and marks a miss that pins there. False: none is left. */
static bool doom_range(struct gdri_cache *cache, uint64_t addr, uint64_t end)
{
	/* A region may have its first or last page in the table under its neighbour's name. */
	uint64_t at = addr > GPU_PAGE_SIZE ? addr - GPU_PAGE_SIZE : 0, stop;
	uint64_t to = end < GDRI_PAGES_LIMIT ? end + GPU_PAGE_SIZE : end;
	struct gdri_entry *e, *former = NULL;
	bool any = false;

	/* Before the table is read: the miss enters its pages, and then looks at the mark. */
	if (addr < atomic_load(&cache->pinning_high) && end > atomic_load(&cache->pinning_low))
		atomic_store(&cache->pinning_hit, true);
	for (; (e = gdri_pages_next(&cache->pages, &at, to, &stop)); at = stop, former = e)
		any |= e != former && doom(e, addr, end);
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
		work_off_all();
	return live ? 0 : gdri_fail(EINVAL, "the cache has ended");
}
