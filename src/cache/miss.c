/* SPDX-License-Identifier: MIT */
/* A miss: look again under the lock, choose what to pin, enter it, pin. See cache.h. */
#include <sys/param.h>

#include "cache/cache.h"
#include "core/handle.h"

enum { PLACES = 5 };

/* Where a region that has the range may be found: its pages, the middle first, and those beyond. */
static uint64_t place(int i, uint64_t addr, size_t size)
{
	const uint64_t places[PLACES] = { addr + size / 2, addr, addr + size - 1,
					  addr - GPU_PAGE_SIZE, addr + size - 1 + GPU_PAGE_SIZE };

	return places[i];
}

struct gdri_entry *gdri_cache_hit_ends(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	struct gdri_entry *e = NULL;

	for (int i = 1; !e && i < PLACES; i++)
		if ((place(i, addr, size) ^ place(0, addr, size)) & GPU_PAGE_MASK)
			e = gdri_cache_hit_at(cache, place(i, addr, size), addr, size);
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
	for (int i = 0; i < PLACES; i++) {
		struct gdri_entry *e = gdri_pages_find(&cache->pages, place(i, addr, size));

		if (e && gdri_entry_covers(e, addr, size) &&
		    gdri_entry_serves(cache, e, addr, size) && use_locked(cache, e, addr, size))
			return e;
	}
	return NULL;
}

struct gdri_entry *gdri_cache_cover(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	struct gdri_entry *e, *next;

	gdri_cache_lock(cache);
	/* All regions: a newer one, which may have ended, has taken pages from the table. */
	for (e = TAILQ_FIRST(&cache->regions); e; e = next) {
		next = TAILQ_NEXT(e, link);
		if (gdri_entry_covers(e, addr, size) && use_locked(cache, e, addr, size))
			break;
	}
	gdri_cache_unlock(cache);
	return e;
}

/*
 * Returns whether a new region of the pages [start, end) ends this entry: it has more of them than
 * one at the border, or would have no page left in the table.
 */
static bool is_replaced(const struct gdri_cache *cache, const struct gdri_entry *e, uint64_t start,
			uint64_t end)
{
	uint64_t from = gdri_entry_start(e), to = gdri_entry_end(e);

	return (from < end - GPU_PAGE_SIZE && to > start + GPU_PAGE_SIZE) ||
	       (from >= start && to <= end) ||
	       (to - from == 2 * GPU_PAGE_SIZE &&
		gdri_pages_find(&cache->pages, from < start ? from : to - 1) != e);
}

static uint64_t page_end(uint64_t addr)
{
	return (addr + GPU_PAGE_OFFSET) & GPU_PAGE_MASK;
}

struct bytes {
	uint64_t low, high;
};

/*
 * Widens b over the regions that it replaces in a registration cache, and beyond them by as many
 * bytes, at most by its own length, up to `most` bytes in all, to the next region, and to the ends of
 * the allocations at its ends. Kills stale regions on the way.
 */
static void join_locked(struct gdri_cache *cache, const struct bytes *allocations, uint64_t most,
			struct bytes *b)
{
	uint64_t start = b->low & GPU_PAGE_MASK, end = page_end(b->high), at = start, stop;
	struct bytes own = *b;
	struct gdri_entry *e, *former = NULL;
	bool up = false, down = false;
	uint64_t more = 0;

	for (; (e = gdri_pages_next(&cache->pages, &at, end, &stop)); at = stop, former = e) {
		uint64_t low = MAX(own.low, gdri_entry_start(e));
		uint64_t high = MIN(own.high, gdri_entry_end(e));

		if (e == former)
			continue;
		if (gdri_region_verify(&e->region, NULL, low, high - low) == GDRI_STALE) {
			cache->invalidations += gdri_cache_kill_locked(cache, e, GDRI_KILL_ANY);
		} else if (!e->region.host && is_replaced(cache, e, start, end) &&
			   atomic_load(&e->state) & GDRI_CACHE_LIVE) {
			down |= start < gdri_entry_start(e);
			up |= end > gdri_entry_end(e);
			more += gdri_entry_size(e);
			b->low = cache->keeps ? MIN(b->low, e->region.low) : b->low;
			b->high = cache->keeps ? MAX(b->high, e->region.high) : b->high;
		}
	}
	start = b->low & GPU_PAGE_MASK;
	end = page_end(b->high);
	most = most > end - start ? (most - (end - start)) & GPU_PAGE_MASK : 0;
	more = MIN(MIN(more, end - start), most);
	more = up && down ? more / 2 & GPU_PAGE_MASK : more;
	/* Not over a part of another region: that would end, and its next get end this one. */
	if (down) {
		at = MAX(allocations->low, start - MIN(start, more));
		e = gdri_pages_find(&cache->pages, at);
		if (e && gdri_entry_start(e) < (at & GPU_PAGE_MASK))
			at = gdri_entry_end(e);
		b->low = MIN(b->low, at);
	}
	if (up) {
		at = MIN(allocations->high, end + more);
		e = gdri_pages_find(&cache->pages, at - 1);
		if (e && gdri_entry_end(e) > page_end(at))
			at = gdri_entry_start(e);
		b->high = MAX(b->high, at);
	}
}

/*
 * Widens b, whose first byte m describes, to the allocations of up to 2 MiB at its ends, and *all,
 * which is b, to those of any size. False: CUDA does not know its last byte.
 */
static bool take_whole(struct gdri_memory m, struct bytes *b, struct bytes *all)
{
	const uint64_t ends[2] = { b->low, b->high - 1 };
	bool known = false;

	for (int i = 0; i < 2; i++) {
		if (ends[i] - m.base >= m.size)
			gdri_cuda_describe(ends[i], 1, &m);
		known = m.base + m.size > m.base;
		if (!known) /* the first: a range may begin in a hole */
			continue;
		all->low = MIN(all->low, m.base);
		all->high = MAX(all->high, m.base + m.size);
		if (m.size <= GDRI_WHOLE_MAX) {
			b->low = MIN(b->low, m.base);
			b->high = MAX(b->high, m.base + m.size);
		}
	}
	return known;
}

/* Widens b, of the memory m, to what is to be pinned for it; see cache.h. */
static void choose_locked(struct gdri_cache *cache, const struct gdri_memory *m, struct bytes *b)
{
	uint64_t known = gdri_cache_gpu(cache, m->device)->max_bytes ?: cache->options.max_bytes;
	uint64_t limit = known ?: UINT64_MAX;
	struct bytes wide = *b, all = *b;

	if (!cache->keeps)
		limit = MAX(GDRI_WHOLE_MAX, 2 * gdri_touched(b->low, b->high));
	/* The range alone then fails by its end, which a wider region would hide. */
	if (!take_whole(*m, &wide, &all))
		return;
	if (m->kind == GDRI_MEMORY_HOST || gdri_touched(wide.low, wide.high) <= limit)
		*b = wide;
	wide = *b;
	limit = cache->keeps ? limit / 2 : limit;
	join_locked(cache, &all, limit, &wide);
	if (gdri_touched(wide.low, wide.high) <= limit)
		*b = wide;
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
	struct bytes b = { addr, addr + size };
	struct gdri_pin_request wide, own;
	bool again;
	int rc;

	choose_locked(cache, m, &b);
	say_pinning(cache, b.low & GPU_PAGE_MASK, page_end(b.high));
	do {
		wide = (struct gdri_pin_request){ .addr = b.low,
						  .size = b.high - b.low,
						  .memory = *m };
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
	struct gdri_cache *cache = e->cache; /* the entry may end */

	return gdri_cache_unuse(cache, e) ?: gdri_cache_lost(cache);
}

const struct gdri_region_kind gdri_kind_range = { "barcopy_map_range", "barcopy_unmap_range",
						  put_range };
const struct gdri_region_kind gdri_kind_cached = { "barcopy_cache_get", "barcopy_cache_put", NULL };

/* Sets what a hit reads: the bytes at the ends that are in no part, and the CPU's pointer. */
static void set_for_hits(struct gdri_entry *e, const struct gdri_region *r)
{
	uint64_t low = r->low, high = r->high, start = r->pin.va, end = gdri_region_end(r);

	if (r->part_count) {
		low = MIN(low, r->parts[0].start);
		high = MAX(high, r->parts[r->part_count - 1].end);
	}
	e->head = (uint16_t)(MAX(low, start) - start);
	e->tail = (uint16_t)(end - MIN(high, end));
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

/* Enters the pages of a LIVE entry into the table, and ends the entries that it replaces. */
static int replace_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	uint64_t start = gdri_entry_start(e), end = gdri_entry_end(e), at = start, stop;
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
	int rc;

	/* Before the handle has a name. */
	r->kind = cache->keeps ? &gdri_kind_cached : &gdri_kind_range;
	rc = cache->keeps ? new_handle(cache, e) : 0;
	if (rc)
		return rc;
	set_for_hits(e, r);
	atomic_store_explicit(&e->start, r->pin.va, memory_order_relaxed);
	atomic_store_explicit(&e->size, gdri_region_end(r) - r->pin.va, memory_order_relaxed);
	gdri_cache_gpu(cache, r->pin.device)->bytes += gdri_entry_bytes(e);
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
	gdri_cache_sweep_locked(cache, false);
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

int gdri_cache_miss(struct gdri_cache *cache, uint64_t addr, size_t size, bool again,
		    struct gdri_entry **out)
{
	const struct gdri_cache_gpu *gpu;
	int rc = gdri_check_range(addr, size);
	bool full = false;

	/* The table cannot hold it. */
	if (!rc && addr + size > GDRI_PAGES_LIMIT)
		rc = gdri_fail(EINVAL, "0x%llx is beyond any device address",
			       (unsigned long long)(addr + size));
	if (rc)
		return rc;
	gdri_cache_lock(cache);
	*out = find_locked(cache, addr, size);
	if (*out) {
		if (cache->keeps && !again)
			atomic_fetch_add_explicit(&cache->shard[0].hits, 1, memory_order_relaxed);
	} else {
		cache->misses += !again;
		if (cache->keeps && !again)
			gdri_count(&cache->ctx->counters, GDRI_COUNT_CACHE_MISS, 1);
		rc = insert_locked(cache, addr, size, out);
		gpu = gdri_cache_gpu(cache, rc ? -1 : (*out)->region.pin.device);
		full = !rc && (gpu->bytes + atomic_load(&cache->leaving) > gpu->max_bytes ||
			       cache->count >= cache->options.max_regions);
	}
	/* Other threads' evictions are faster than the one that unpins for all of them. */
	if (full)
		gdri_cache_unlock_and_wait(cache);
	else
		gdri_cache_unlock(cache);
	return rc;
}
