/* SPDX-License-Identifier: MIT */
/* A miss: look again under the lock, choose what to pin, enter it, pin. See cache.h. */
#include <errno.h>

#include "base/error.h"
#include "cache/cache.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "cuda/cuda.h"

/* Idle regions, and allocations in them, that a miss looks at: a stale one holds memory that its owner
 * has freed. */
enum { LOOKS = 4, LOOK_PARTS = 16 };

static void found_stale_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	cache->invalidations += gdri_cache_kill_locked(cache, e);
}

/* ---- what is there already ------------------------------------------------------------------ */

/* The entry in that page if all of the range lies in it, used; kills it instead if it is stale. */
static struct gdri_entry *find_at_locked(struct gdri_cache *cache, uint64_t at, uint64_t addr,
					 size_t size)
{
	struct gdri_entry *e = gdri_pages_find(&cache->pages, at);
	enum gdri_validity proof;

	if (!e || !gdri_entry_covers(e, addr, size) || gdri_range_declines(e, addr, size))
		return NULL;
	proof = gdri_cache_is_notified(cache) && gdri_entry_has(e, addr, size)
			? GDRI_VALID
			: gdri_region_verify_or_learn(&e->region, addr, size);
	if (proof == GDRI_VALID && gdri_entry_use(e))
		return e;
	if (proof == GDRI_STALE)
		found_stale_locked(cache, e);
	return NULL;
}

static struct gdri_entry *find_locked(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	const uint64_t places[] = { addr + size / 2, addr, addr + size - 1 };
	struct gdri_entry *e = NULL;

	for (int i = 0; i < 3 && !e; i++)
		e = find_at_locked(cache, places[i], addr, size);
	return e;
}

/* ---- what to pin ---------------------------------------------------------------------------- */

static bool is_pinned(const struct gdri_cache *cache, uint64_t at)
{
	return gdri_pages_find(&cache->pages, at) != NULL;
}

/* Kills what is stale in the pages of [low, high); bytes of them that are another's otherwise. */
static uint64_t others_locked(struct gdri_cache *cache, uint64_t low, uint64_t high)
{
	uint64_t at = low & GPU_PAGE_MASK, stop, bytes = 0;
	struct gdri_entry *e;

	for (; (e = gdri_pages_next(&cache->pages, &at, high, &stop)); at = stop) {
		uint64_t from = at > low ? at : low, to = stop < high ? stop : high;

		if (gdri_region_verify(&e->region, from, to - from) == GDRI_STALE)
			found_stale_locked(cache, e);
		else if (!e->region.host)
			bytes += stop - at;
	}
	return bytes;
}

/*
 * Widens [*low, *high), whose first byte m describes, to the allocations of up to whole_max bytes at its
 * ends. The allocations at its ends, of any size, reach from *first to *last.
 */
static void take_whole(struct gdri_memory m, size_t whole_max, uint64_t *low, uint64_t *high,
		       uint64_t *first, uint64_t *last)
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
		if (m.size <= whole_max) {
			*low = m.base < *low ? m.base : *low;
			*high = end > *high ? end : *high;
		}
	}
}

/* Widens [*low, *high), within [first, last), by a page beside a neighbour's or by what it overlaps of others. */
static void widen_locked(struct gdri_cache *cache, uint64_t first, uint64_t last, uint64_t *low,
			 uint64_t *high)
{
	uint64_t start = *low & GPU_PAGE_MASK, end = (*high + GPU_PAGE_OFFSET) & GPU_PAGE_MASK;
	uint64_t others = others_locked(cache, *low, *high), more;
	bool down = !is_pinned(cache, start), up = !is_pinned(cache, end - 1);

	if (others > 2 * GPU_PAGE_SIZE) {
		/* Ranges that do not overlap share two pages at most. */
		more = down && up ? others / 2 : others;
		start = down ? start - (more < start ? more : start) : *low;
		end = up ? end + more : *high;
	} else {
		down = down && *low > start && is_pinned(cache, start - 1);
		up = up && *high < end && is_pinned(cache, end);
		start = down ? start - GPU_PAGE_SIZE : *low;
		end = up ? end + GPU_PAGE_SIZE : *high;
	}
	start = start > first ? start : first;
	end = end < last ? end : last;
	*low = start < *low ? start : *low;
	*high = end > *high ? end : *high;
}

/* What is to be pinned for [*low, *high) of the memory m; see cache.h. */
static void choose_locked(struct gdri_cache *cache, const struct gdri_memory *m, uint64_t *low,
			  uint64_t *high)
{
	uint64_t limit = gdri_cache_gpu(cache, m->device)->max_bytes;
	uint64_t first, last, wide_low = *low, wide_high = *high;

	take_whole(*m, cache->whole_max, &wide_low, &wide_high, &first, &last);
	/* Of the CPU's own memory each allocation is alone: nothing is pinned there. */
	if (m->kind != GDRI_MEMORY_HOST)
		widen_locked(cache, first, last, &wide_low, &wide_high);
	if (!limit)
		limit = cache->max_bytes ? cache->max_bytes : UINT64_MAX;
	if (m->kind == GDRI_MEMORY_HOST || wide_high - wide_low <= limit) {
		*low = wide_low;
		*high = wide_high;
	}
}

/* ---- pin and enter -------------------------------------------------------------------------- */

static int open_locked(struct gdri_cache *cache, struct gdri_entry *e, const struct gdri_memory *m,
		       uint64_t low, uint64_t high)
{
	struct gdri_pin_request request = { .addr = low, .size = high - low, .memory = *m };
	uint64_t begun = atomic_load(&cache->begun);
	int rc = gdri_cache_place_locked(cache, e, low, high);

	if (rc)
		return rc;
	/* An invalidation that has begun before it was entered may have passed by. */
	e->alone = atomic_fetch_add(&cache->begun, 0) != begun || atomic_load(&cache->invalidating);
	rc = gdri_region_open(&e->region, &cache->ctx->backends, &request, cache->flags);
	if (rc)
		gdri_cache_unplace_locked(cache, e);
	/* Where no page was its own, none has found it during the pin. */
	e->alone |= !e->owned && atomic_load(&cache->begun) != begun;
	return rc;
}

/*
 * Pins [low, high), or the range alone: what is around it may not be mappable together with it, or be too
 * much. Where both are short of room, what is idle gives way.
 */
static int open_any_locked(struct gdri_cache *cache, struct gdri_entry *e,
			   const struct gdri_memory *m, uint64_t low, uint64_t high)
{
	bool wide = low < e->low || high > e->high;
	int rc;

	do {
		rc = open_locked(cache, e, m, low, high);
		if (rc && wide)
			rc = open_locked(cache, e, m, e->low, e->high);
	} while (gdri_is_short(rc) && gdri_may_fit(m->device, e->high - e->low) &&
		 gdri_cache_evict_locked(cache, m->device, e->high - e->low, SIZE_MAX));
	return rc;
}

/* The end of a handle that shows a range. */
static int put_range(struct gdri_region *region)
{
	struct gdri_entry *e = gdri_entry_of(region);

	return gdri_cache_unuse(e->cache, e);
}

const struct gdri_region_kind gdri_kind_range = { "barcopy_map_range", "barcopy_unmap_range", false,
						  put_range };

/* The end of a cache's own handle, which the cache has ended. */
static int put_nothing(struct gdri_region *region)
{
	(void)region;
	return 0;
}

const struct gdri_region_kind gdri_kind_cached = { "barcopy_cache_get", "barcopy_cache_put", true,
						   put_nothing };

/* The allocations that it was pinned for, as far as its pages reach, are known. */
static void set_known(struct gdri_entry *e, const struct gdri_region *r)
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

/* The handle of a cache's entry, with the cache's copy options. */
static int new_handle(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_region *r = &e->region;
	int rc = gdri_handle_new(cache->ctx, r, r->pin.va, gdri_region_end(r), &e->handle);

	/* Where the copy engine cannot be used the mapping is. */
	if (!rc && (cache->copy.engine_read_min || cache->copy.engine_write_min))
		(void)gdri_handle_set_copy_options(cache->ctx, e->handle, &cache->copy);
	return rc;
}

/*
 * Makes it LIVE with one user. Its user's alone: what CUDA does not know, which could never be proven
 * again; and what an invalidation may have missed.
 */
static int enter_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_region *r = &e->region;
	uint32_t s = GDRI_CACHE_NEW | 1;
	bool alone = e->alone || (!r->part_count && !gdri_cache_is_notified(cache));
	int rc = 0;

	set_known(e, r);
	r->kind = gdri_cache_keeps(cache) ? &gdri_kind_cached : &gdri_kind_range;
	if (gdri_cache_keeps(cache))
		rc = new_handle(cache, e);
	if (rc)
		return rc;
	gdri_cache_gpu(cache, r->pin.device)->bytes += gdri_entry_bytes(e);
	gdri_cache_limit_locked(cache, r->pin.device);
	(void)gdri_slot_publish(&e->slot);
	if (alone) {
		gdri_cache_unplace_locked(cache, e);
		if (atomic_compare_exchange_strong(&e->state, &s, 1)) {
			gdri_cache_detach_locked(cache, e);
			cache->invalidations += e->alone;
		}
	} else {
		gdri_cache_list_locked(cache, e);
		/* If it fails the lock's release sees to it. */
		(void)atomic_compare_exchange_strong(&e->state, &s, GDRI_CACHE_LIVE | 1);
	}
	gdri_cache_make_room_locked(cache, r->pin.device);
	return 0;
}

static int check_range(uint64_t addr, size_t size)
{
	uint64_t end;

	if (!size)
		return gdri_fail(EINVAL, "size is 0");
	if (!addr)
		return gdri_fail(EINVAL, "the address is 0");
	if (__builtin_add_overflow(addr, size, &end) || end > UINT64_MAX - GPU_PAGE_OFFSET)
		return gdri_fail(EOVERFLOW, "address 0x%llx + size 0x%zx wraps",
				 (unsigned long long)addr, size);
	if (end > GDRI_PAGES_LIMIT)
		return gdri_fail(EINVAL, "0x%llx is beyond any device address",
				 (unsigned long long)addr);
	return 0;
}

static struct gdri_entry *new_entry(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	struct gdri_entry *e = (struct gdri_entry *)gdri_slots_new(&gdri_entries, sizeof(*e), NULL);

	if (!e)
		return NULL;
	e->cache = cache;
	e->low = addr;
	e->high = addr + size;
	e->listed = e->closed = false;
	atomic_store_explicit(&e->size, 0, memory_order_relaxed);
	atomic_store_explicit(&e->state, GDRI_CACHE_NEW | 1, memory_order_release);
	return e;
}

/* Nothing is pinned for it. An invalidation may have met it: then the lock's release frees it. */
static void drop_entry_locked(struct gdri_entry *e)
{
	uint32_t s = GDRI_CACHE_NEW | 1;

	e->closed = true;
	if (atomic_compare_exchange_strong(&e->state, &s, 0)) {
		gdri_slots_free(&gdri_entries, &e->slot);
	} else {
		(void)gdri_slot_publish(&e->slot);
		atomic_fetch_sub(&e->state, 1);
	}
}

static int insert_locked(struct gdri_cache *cache, uint64_t addr, size_t size,
			 struct gdri_entry **out)
{
	uint64_t low = addr, high = addr + size;
	struct gdri_memory m;
	struct gdri_entry *e;
	int rc;

	(void)gdri_cache_sweep_locked(cache, LOOKS, LOOK_PARTS);
	gdri_cuda_describe(addr, size, &m);
	choose_locked(cache, &m, &low, &high);
	e = new_entry(cache, addr, size);
	if (!e)
		return gdri_fail(ENOMEM, "no memory for a region");
	rc = open_any_locked(cache, e, &m, low, high);
	if (!rc) {
		rc = enter_locked(cache, e);
		if (rc) {
			gdri_cache_unplace_locked(cache, e);
			gdri_region_close(&e->region);
		}
	}
	if (rc)
		drop_entry_locked(e);
	else
		*out = e;
	return rc;
}

int gdri_cache_miss(struct gdri_cache *cache, uint64_t addr, size_t size, struct gdri_entry **out)
{
	struct gdri_entry *e;
	int rc = check_range(addr, size);

	if (rc)
		return rc;
	gdri_cache_lock(cache);
	e = find_locked(cache, addr, size);
	if (e) {
		if (gdri_cache_keeps(cache))
			atomic_fetch_add_explicit(&cache->shard[0].hits, 1, memory_order_relaxed);
	} else {
		cache->misses++;
		if (gdri_cache_keeps(cache))
			gdri_count(&cache->ctx->counters, GDRI_COUNT_CACHE_MISS, 1);
		rc = insert_locked(cache, addr, size, &e);
	}
	gdri_cache_unlock(cache);
	if (!rc)
		*out = e;
	return rc;
}
