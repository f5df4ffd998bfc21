/* SPDX-License-Identifier: MIT */
/* A miss: look again under the lock, choose what to pin, enter it, pin. See cache.h. */
#include "cache/cache.h"
#include "core/ctx.h"
#include "core/handle.h"

/* How many idle regions, and parts of them, a miss verifies: stale ones hold freed memory. */
enum { LOOKS = 4, LOOK_PARTS = 16 };

/* Where a region that has the range may be found: its pages, and those beyond its ends. */
#define PLACES(addr, size)                                                              \
	{                                                                               \
		(addr) + (size) / 2, addr, (addr) + (size)-1, (addr)-GPU_PAGE_SIZE,     \
			(addr) + (size)-1 + GPU_PAGE_SIZE                               \
	}
enum { MIDDLE, PLACE_COUNT = 5 };

struct gdri_entry *gdri_cache_hit_ends(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	const uint64_t places[PLACE_COUNT] = PLACES(addr, size);
	struct gdri_entry *e = NULL;

	for (int i = MIDDLE + 1; !e && i < PLACE_COUNT; i++)
		if ((places[i] ^ places[MIDDLE]) & GPU_PAGE_MASK)
			e = gdri_cache_hit_at(cache, places[i], addr, size);
	return e;
}

/* Uses an entry that covers the range, if its memory is still the same. Kills a stale one. */
static bool use_locked(struct gdri_cache *cache, struct gdri_entry *e, uint64_t addr, size_t size)
{
	enum gdri_validity validity = GDRI_VALID;

	if (!gdri_cache_is_notified(cache) || !gdri_entry_has(e, addr, size))
		validity = gdri_region_verify(&e->region, &e->region, addr, size);
	if (validity == GDRI_STALE)
		cache->invalidations += gdri_cache_kill_locked(cache, e, GDRI_KILL_ANY);
	return validity == GDRI_VALID && gdri_entry_use(e);
}

/* The entry whose region has the range, used; or NULL. */
static struct gdri_entry *find_locked(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	const uint64_t places[PLACE_COUNT] = PLACES(addr, size);

	for (int i = MIDDLE; i < PLACE_COUNT; i++) {
		struct gdri_entry *e = gdri_pages_find(&cache->pages, places[i]);

		if (e && gdri_entry_covers(e, addr, size) &&
		    gdri_entry_serves(cache, e, addr, size) &&
		    use_locked(cache, e, addr, size))
			return e;
	}
	return NULL;
}

struct gdri_entry *gdri_cache_cover(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	struct gdri_entry *e, *next, *found = NULL;

	gdri_cache_lock(cache);
	/* All regions: a newer one, which may have ended, has taken pages from the table. */
	for (e = TAILQ_FIRST(&cache->regions); e && !found; e = next) {
		next = TAILQ_NEXT(e, link);
		if (gdri_entry_covers(e, addr, size) && use_locked(cache, e, addr, size))
			found = e;
	}
	gdri_cache_unlock(cache);
	return found;
}

/*
 * Can this entry not stay beside a new region of the pages [start, end)? It has more of them than
 * one at the border, or would have no page left in the table.
 */
static bool is_replaced(const struct gdri_cache *cache, const struct gdri_entry *e, uint64_t start,
			uint64_t end)
{
	uint64_t from = gdri_entry_start(e), to = from + gdri_entry_size(e);

	return (from < end - GPU_PAGE_SIZE && to > start + GPU_PAGE_SIZE) ||
	       (from >= start && to <= end) ||
	       (to - from == 2 * GPU_PAGE_SIZE &&
		gdri_pages_find(&cache->pages, from < start ? from : to - 1) != e);
}

static uint64_t page_end(uint64_t addr)
{
	return (addr + GPU_PAGE_OFFSET) & GPU_PAGE_MASK;
}

/*
 * Widens [*low, *high), within the allocations [first, last) at its ends, over the regions that it
 * replaces in a registration cache, and beyond them by as many bytes, at most by its own length, up
 * to `most` bytes in all and to the next region. Kills stale regions on the way.
 */
static void join_locked(struct gdri_cache *cache, uint64_t first, uint64_t last, uint64_t most,
			uint64_t *low, uint64_t *high)
{
	uint64_t start = *low & GPU_PAGE_MASK, end = page_end(*high), at = start, stop;
	uint64_t from = *low, to = *high, more = 0;
	struct gdri_entry *e, *former = NULL;
	bool up = false, down = false;

	for (; (e = gdri_pages_next(&cache->pages, &at, end, &stop)); at = stop) {
		uint64_t a = gdri_entry_start(e), b = a + gdri_entry_size(e);

		if (e == former)
			continue;
		former = e;
		a = a > from ? a : from;
		b = b < to ? b : to;
		if (gdri_region_verify(&e->region, NULL, a, b - a) == GDRI_STALE) {
			cache->invalidations += gdri_cache_kill_locked(cache, e, GDRI_KILL_ANY);
			continue;
		}
		if (e->region.host || !is_replaced(cache, e, start, end) ||
		    !(atomic_load(&e->state) & GDRI_CACHE_LIVE))
			continue;
		down |= start < gdri_entry_start(e);
		up |= end > gdri_entry_start(e) + gdri_entry_size(e);
		more += gdri_entry_size(e);
		if (cache->keeps) {
			*low = e->region.low < *low ? e->region.low : *low;
			*high = e->region.high > *high ? e->region.high : *high;
		}
	}
	start = *low & GPU_PAGE_MASK;
	end = page_end(*high);
	most = most > end - start ? most - (end - start) : 0;
	more = more < end - start ? more : end - start;
	more = more < most ? more : most & GPU_PAGE_MASK;
	more = up && down ? more / 2 & GPU_PAGE_MASK : more;
	/* Not over a part of another region: that would end, and its next get end this one. */
	if (down && first < *low) {
		at = start > more && start - more > first ? start - more : first;
		e = gdri_pages_find(&cache->pages, at);
		if (e && gdri_entry_start(e) < (at & GPU_PAGE_MASK))
			at = gdri_entry_start(e) + gdri_entry_size(e);
		*low = at < *low ? at : *low;
	}
	if (up && last > *high) {
		at = end + more < last ? end + more : last;
		e = gdri_pages_find(&cache->pages, at - 1);
		if (e && gdri_entry_start(e) + gdri_entry_size(e) > page_end(at))
			at = gdri_entry_start(e);
		*high = at > *high ? at : *high;
	}
}

/*
 * Widens [*low, *high), whose first byte m describes, to the allocations of up to 2 MiB at its
 * ends. The allocations at its ends, of any size, reach from *first to *last.
 */
static void take_whole(struct gdri_memory m, uint64_t *low, uint64_t *high, uint64_t *first,
		       uint64_t *last)
{
	uint64_t ends[2] = { *low, *high - 1 };

	*first = *low;
	*last = *high;
	for (int i = 0; i < 2; i++) {
		uint64_t end;

		if (ends[i] - m.base >= m.size)
			gdri_cuda_describe(ends[i], 1, &m);
		end = m.base + m.size;
		if (end <= m.base)
			continue;
		*first = m.base < *first ? m.base : *first;
		*last = end > *last ? end : *last;
		if (m.size <= GDRI_WHOLE_MAX) {
			*low = m.base < *low ? m.base : *low;
			*high = end > *high ? end : *high;
		}
	}
}

/* Widens [*low, *high) of the memory m to what is to be pinned for it; see cache.h. */
static void choose_locked(struct gdri_cache *cache, const struct gdri_memory *m, uint64_t *low,
			  uint64_t *high)
{
	uint64_t limit = gdri_cache_gpu(cache, m->device)->max_bytes ?: cache->options.max_bytes;
	uint64_t touched = gdri_touched(*low, *high - *low), first, last;
	uint64_t whole_low = *low, whole_high = *high, wide_low, wide_high;

	take_whole(*m, &whole_low, &whole_high, &first, &last);
	if (m->kind == GDRI_MEMORY_HOST) { /* nothing is pinned there */
		*low = whole_low;
		*high = whole_high;
		return;
	}
	if (!cache->keeps)
		limit = touched > GDRI_WHOLE_MAX / 2 ? 2 * touched : GDRI_WHOLE_MAX;
	else if (!limit)
		limit = UINT64_MAX;
	if (gdri_touched(whole_low, whole_high - whole_low) <= limit) {
		*low = whole_low;
		*high = whole_high;
	}
	wide_low = *low;
	wide_high = *high;
	limit = cache->keeps ? limit / 2 : limit;
	join_locked(cache, first, last, limit, &wide_low, &wide_high);
	if (gdri_touched(wide_low, wide_high - wide_low) <= limit) {
		*low = wide_low;
		*high = wide_high;
	}
}

static void say_pinning(struct gdri_cache *cache, uint64_t low, uint64_t high)
{
	atomic_store(&cache->pinning_low, low);
	atomic_store(&cache->pinning_high, high);
}

/*
 * Pins [low, high), or else the range alone: the memory around it may be too much, or of another
 * kind. If both fail for lack of space, evicts idle regions and tries again.
 */
static int open_locked(struct gdri_cache *cache, struct gdri_entry *e, const struct gdri_memory *m,
		       uint64_t addr, size_t size)
{
	struct gdri_pin_request wide, own;
	uint64_t low = addr, high = addr + size;
	bool again;
	int rc;

	choose_locked(cache, m, &low, &high);
	say_pinning(cache, low & GPU_PAGE_MASK, page_end(high));
	do {
		wide = (struct gdri_pin_request){ .addr = low, .size = high - low, .memory = *m };
		own = (struct gdri_pin_request){ .addr = addr, .size = size, .memory = *m };
		rc = gdri_region_open(&e->region, &cache->ctx->backends, &wide, cache->flags);
		if (rc && wide.size > size)
			rc = gdri_region_open(&e->region, &cache->ctx->backends, &own,
					      cache->flags);
		again = false;
		if (gdri_is_short(rc) && gdri_may_fit(m->device, size)) {
			again = gdri_cache_evict_locked(cache, m->device, size, SIZE_MAX);
			/* What was evicted makes space only when it is unpinned. */
			again |= gdri_cache_drain(cache, true);
		}
	} while (again);
	return rc;
}

static int put_range(struct gdri_region *region)
{
	struct gdri_entry *e = gdri_entry_of(region);

	return gdri_cache_unuse(e->cache, e);
}

const struct gdri_region_kind gdri_kind_range = { "barcopy_map_range", "barcopy_unmap_range",
						  put_range };
const struct gdri_region_kind gdri_kind_cached = { "barcopy_cache_get", "barcopy_cache_put", NULL };

/* Sets what a hit reads: the bytes at the ends that are in no part, and the CPU's pointer. */
static void set_for_hits(struct gdri_entry *e, const struct gdri_region *r)
{
	uint64_t low = r->low, high = r->high, start = r->pin.va, end = gdri_region_end(r);

	if (r->part_count) {
		low = r->parts[0].start < low ? r->parts[0].start : low;
		high = r->parts[r->part_count - 1].end > high ? r->parts[r->part_count - 1].end
							      : high;
	}
	e->head = (uint16_t)(low > start ? low - start : 0);
	e->tail = (uint16_t)(high < end ? end - high : 0);
	e->cpu = gdri_region_pointer(r, start);
}

static int new_handle(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_region *r = &e->region;
	const barcopy_cache_options_t *o = &cache->options;
	const barcopy_copy_options_t copy = { .engine_read_min = o->engine_read_min,
					      .engine_write_min = o->engine_write_min };
	int rc = gdri_handle_new(cache->ctx, r, r->pin.va, gdri_region_end(r), &e->handle);

	/* Without the copy engine copies go through the mapping. */
	if (!rc)
		(void)gdri_handle_set_copy_options(cache->ctx, e->handle, &copy);
	return rc;
}

/* Enters the pages of a LIVE entry into the table, and ends those that cannot stay beside it. */
static int replace_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	uint64_t start = gdri_entry_start(e), end = start + gdri_entry_size(e), at = start, stop;
	struct gdri_entry *former;

	for (; cache->keeps && (former = gdri_pages_next(&cache->pages, &at, end, &stop));
	     at = stop)
		if (is_replaced(cache, former, start, end))
			gdri_cache_kill_locked(cache, former, GDRI_KILL_ANY);
	return gdri_pages_enter(&cache->pages, start, end, e);
}

/*
 * Makes the entry LIVE with one user; or its caller's alone, where CUDA gave no buffer ID, by which
 * a later hit is verified, the table has no memory, or an invalidation overlapped the pin.
 */
static int enter_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_region *r = &e->region;
	int rc = 0;

	set_for_hits(e, r);
	r->kind = cache->keeps ? &gdri_kind_cached : &gdri_kind_range;
	if (cache->keeps)
		rc = new_handle(cache, e);
	if (rc)
		return rc;
	atomic_store_explicit(&e->start, r->pin.va, memory_order_relaxed);
	atomic_store_explicit(&e->size, gdri_region_end(r) - r->pin.va, memory_order_relaxed);
	gdri_cache_gpu(cache, r->pin.device)->bytes += gdri_entry_bytes(e);
	gdri_cache_limit_locked(cache, r->pin.device);
	(void)gdri_slot_publish(&e->slot);
	TAILQ_INSERT_TAIL(&cache->regions, e, link);
	cache->count++;
	e->listed = true;
	if (r->part_count || gdri_cache_is_notified(cache)) {
		/*
		 * From here on an invalidation finds it; one that came before has left a mark. Gets
		 * find it after the look at the mark: FULL keeps them out.
		 */
		atomic_store(&e->state, GDRI_CACHE_LIVE | GDRI_CACHE_FULL | 1);
		rc = replace_locked(cache, e);
		if (atomic_load(&cache->pinning_hit))
			cache->invalidations += gdri_cache_kill_locked(cache, e, GDRI_KILL_ANY);
		else if (rc)
			gdri_cache_kill_locked(cache, e, GDRI_KILL_ANY);
		atomic_fetch_and(&e->state, ~GDRI_CACHE_FULL);
	}
	gdri_cache_make_room_locked(cache, r->pin.device);
	return 0;
}

static int insert_locked(struct gdri_cache *cache, uint64_t addr, size_t size,
			 struct gdri_entry **out)
{
	struct gdri_entry *e = (struct gdri_entry *)gdri_slots_new(&gdri_entries, sizeof(*e), NULL);
	struct gdri_memory m;
	int rc;

	if (!e)
		return gdri_fail(ENOMEM, "no memory for a region");
	e->cache = cache;
	atomic_store(&e->size, 0);
	atomic_store(&e->state, 1);
	gdri_cache_sweep_locked(cache, LOOKS, LOOK_PARTS);
	/* Anything, before the memory is looked at; one that is at work may have passed. */
	atomic_store(&cache->pinning_hit, false);
	say_pinning(cache, 0, UINT64_MAX);
	if (atomic_load(&cache->invalidating))
		atomic_store(&cache->pinning_hit, true);
	gdri_cuda_describe(addr, size, &m);
	rc = open_locked(cache, e, &m, addr, size);
	if (!rc) {
		rc = enter_locked(cache, e);
		if (rc)
			gdri_region_close(&e->region);
	}
	say_pinning(cache, 0, 0);
	if (rc)
		gdri_slots_free(&gdri_entries, &e->slot);
	else
		*out = e;
	return rc;
}

/*
 * With the regions that a thread is still unpinning, is that GPU's limit reached? Then a miss waits
 * for that thread: other threads' evictions are faster than the one that unpins for all of them.
 */
static bool is_full_locked(struct gdri_cache *cache, int device)
{
	const struct gdri_cache_gpu *gpu = gdri_cache_gpu(cache, device);

	return gpu->bytes + atomic_load(&cache->leaving) > gpu->max_bytes ||
	       cache->count >= cache->options.max_regions;
}

int gdri_cache_miss(struct gdri_cache *cache, uint64_t addr, size_t size, struct gdri_entry **out)
{
	int rc = gdri_check_range(addr, size);
	bool beyond = false;

	/* The table cannot hold it. */
	if (!rc && addr + size > GDRI_PAGES_LIMIT)
		rc = gdri_fail(EINVAL, "0x%llx is beyond any device address",
			       (unsigned long long)(addr + size));
	if (rc)
		return rc;
	gdri_cache_lock(cache);
	*out = find_locked(cache, addr, size);
	if (*out) {
		if (cache->keeps)
			atomic_fetch_add_explicit(&cache->shard[0].hits, 1, memory_order_relaxed);
	} else {
		cache->misses++;
		if (cache->keeps)
			gdri_count(&cache->ctx->counters, GDRI_COUNT_CACHE_MISS, 1);
		rc = insert_locked(cache, addr, size, out);
		beyond = !rc && is_full_locked(cache, (*out)->region.pin.device);
	}
	if (beyond)
		gdri_cache_unlock_and_wait(cache);
	else
		gdri_cache_unlock(cache);
	return rc;
}
