/* SPDX-License-Identifier: MIT */
/* A miss: look again under the lock, choose what to pin, enter it, pin. See cache.h. */
#include "cache/cache.h"
#include "core/ctx.h"
#include "core/handle.h"

/* How many idle regions, and parts of them, a miss verifies: stale ones hold freed memory. */
enum { LOOKS = 4, LOOK_PARTS = 16 };

struct gdri_entry *gdri_cache_hit_ends(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	struct gdri_entry *e = gdri_cache_hit_at(cache, addr, addr, size);

	return e ? e : gdri_cache_hit_at(cache, addr + size - 1, addr, size);
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
	const uint64_t places[] = { addr + size / 2, addr, addr + size - 1 };

	for (int i = 0; i < 3; i++) {
		struct gdri_entry *e = gdri_pages_find(&cache->pages, places[i]);

		if (e && gdri_entry_covers(e, addr, size) && gdri_entry_serves(e, addr, size) &&
		    use_locked(cache, e, addr, size))
			return e;
	}
	return NULL;
}

struct gdri_entry *gdri_cache_cover(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	struct gdri_entry *e, *found = NULL;
	uint64_t at = addr, stop;

	gdri_cache_lock(cache);
	for (; !found && (e = gdri_pages_next(&cache->pages, &at, addr + size, &stop)); at = stop)
		if (gdri_entry_covers(e, addr, size) && use_locked(cache, e, addr, size))
			found = e;
	gdri_cache_unlock(cache);
	return found;
}

static bool is_pinned(const struct gdri_cache *cache, uint64_t at)
{
	return gdri_pages_find(&cache->pages, at) != NULL;
}

/* Kills stale entries in the pages of [low, high). Returns the bytes that other entries have. */
static uint64_t others_locked(struct gdri_cache *cache, uint64_t low, uint64_t high)
{
	uint64_t at = low & GPU_PAGE_MASK, stop, bytes = 0;
	struct gdri_entry *e;

	for (; (e = gdri_pages_next(&cache->pages, &at, high, &stop)); at = stop) {
		uint64_t from = at > low ? at : low, to = stop < high ? stop : high;

		if (gdri_region_verify(&e->region, NULL, from, to - from) == GDRI_STALE)
			cache->invalidations += gdri_cache_kill_locked(cache, e, GDRI_KILL_ANY);
		else if (!e->region.host)
			bytes += stop - at;
	}
	return bytes;
}

/*
 * Widens [*low, *high), whose first byte m describes, to the allocations of up to 2 MiB
 * at its ends. The allocations at its ends, of any size, reach from *first to *last.
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

/*
 * Widens [*low, *high), within [first, last), for a range of `size` bytes beside a neighbour or
 * where it overlaps others; at most to twice the pages that the range touches.
 */
static void widen_locked(struct gdri_cache *cache, uint64_t first, uint64_t last, uint64_t touched,
			 size_t size, uint64_t *low, uint64_t *high)
{
	uint64_t start = *low & GPU_PAGE_MASK, end = (*high + GPU_PAGE_OFFSET) & GPU_PAGE_MASK;
	uint64_t others = others_locked(cache, *low, *high), more = GPU_PAGE_SIZE;
	bool down = !is_pinned(cache, start), up = !is_pinned(cache, end - 1);

	/* Ranges that do not overlap share two pages at most. */
	if (others > 2 * GPU_PAGE_SIZE) {
		/* A range of that size elsewhere may touch a page less, and is to share it. */
		uint64_t most = 2 * gdri_touched(0, size) - touched;

		more = others < most ? others : most;
		more = down && up ? more / 2 & GPU_PAGE_MASK : more;
	} else {
		up = up && *high < end && is_pinned(cache, end);
		down = down && *low > start && is_pinned(cache, start - 1) &&
		       (!up || touched > GPU_PAGE_SIZE);
	}
	start = down ? start - (more < start ? more : start) : *low;
	end = up ? end + more : *high;
	start = start > first ? start : first;
	end = end < last ? end : last;
	*low = start < *low ? start : *low;
	*high = end > *high ? end : *high;
}

/* Widens [*low, *high) of the memory m to what is to be pinned for it; see cache.h. */
static void choose_locked(struct gdri_cache *cache, const struct gdri_memory *m, uint64_t *low,
			  uint64_t *high)
{
	uint64_t limit = gdri_cache_gpu(cache, m->device)->max_bytes ?: cache->options.max_bytes;
	uint64_t first, last, wide_low = *low, wide_high = *high;

	take_whole(*m, &wide_low, &wide_high, &first, &last);
	if (m->kind == GDRI_MEMORY_HOST)
		limit = 0; /* nothing is pinned there */
	else
		widen_locked(cache, first, last, gdri_touched(*low, *high - *low), *high - *low,
			     &wide_low, &wide_high);
	if (!limit || wide_high - wide_low <= limit) {
		*low = wide_low;
		*high = wide_high;
	}
}

static int open_locked(struct gdri_cache *cache, struct gdri_entry *e, const struct gdri_memory *m,
		       uint64_t low, uint64_t high)
{
	struct gdri_pin_request request = { .addr = low, .size = high - low, .memory = *m };
	uint64_t begun = atomic_load(&cache->begun);
	int rc = gdri_cache_place_locked(cache, e, low, high);

	if (rc)
		return rc;
	/* An invalidation that began before the pages were in the table may not have seen them. */
	e->alone = atomic_fetch_add(&cache->begun, 0) != begun || atomic_load(&cache->invalidating);
	rc = gdri_region_open(&e->region, &cache->ctx->backends, &request, cache->flags);
	if (rc)
		gdri_cache_unplace_locked(cache, e);
	/* An entry without a page of its own cannot be found during the pin. */
	e->alone |= !e->owned && atomic_load(&cache->begun) != begun;
	return rc;
}

/*
 * Pins [low, high), or else the range alone: the memory around it may be too much, or of another
 * kind. If both fail for lack of room, evict idle regions and retry.
 */
static int open_any_locked(struct gdri_cache *cache, struct gdri_entry *e,
			   const struct gdri_memory *m, uint64_t low, uint64_t high)
{
	bool wide = low < e->low || high > e->high;
	int rc;

	do {
		/* What was evicted makes room only when it is unpinned. */
		gdri_cache_end_released(cache, cache->released);
		cache->released = NULL;
		rc = open_locked(cache, e, m, low, high);
		if (rc && wide)
			rc = open_locked(cache, e, m, e->low, e->high);
	} while (gdri_is_short(rc) && gdri_may_fit(m->device, e->high - e->low) &&
		 gdri_cache_evict_locked(cache, m->device, e->high - e->low, SIZE_MAX));
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

/*
 * Makes the entry LIVE with one user; or its caller's alone, where CUDA gave no buffer ID, by which
 * a later hit is verified, or an invalidation may have missed the entry.
 */
static int enter_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_region *r = &e->region;
	uint32_t s = GDRI_CACHE_NEW | 1, live = GDRI_CACHE_LIVE | 1;
	bool alone = e->alone || (!r->part_count && !gdri_cache_is_notified(cache));
	int rc = 0;

	set_for_hits(e, r);
	r->kind = cache->keeps ? &gdri_kind_cached : &gdri_kind_range;
	if (cache->keeps)
		rc = new_handle(cache, e);
	if (rc)
		return rc;
	gdri_cache_gpu(cache, r->pin.device)->bytes += gdri_entry_bytes(e);
	gdri_cache_limit_locked(cache, r->pin.device);
	(void)gdri_slot_publish(&e->slot);
	TAILQ_INSERT_TAIL(&cache->regions, e, link);
	cache->count++;
	e->listed = true;
	if (alone)
		gdri_cache_unplace_locked(cache, e);
	else
		gdri_cache_claim_locked(cache, e);
	/* Fails if the entry is DOOMED: gdri_cache_unlock() then releases and counts it. */
	if (r->part_count == 1 && r->parts->end - r->parts->start <= GDRI_WHOLE_MAX)
		live |= GDRI_CACHE_WHOLE;
	if (atomic_compare_exchange_strong(&e->state, &s, alone ? 1 : live))
		cache->invalidations += e->alone;
	gdri_cache_make_room_locked(cache, r->pin.device);
	return 0;
}

/* Frees an entry that was never pinned; if it is DOOMED, gdri_cache_unlock() frees it. */
static void drop_entry_locked(struct gdri_entry *e)
{
	uint32_t s = GDRI_CACHE_NEW | 1;

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
	struct gdri_entry *e = (struct gdri_entry *)gdri_slots_new(&gdri_entries, sizeof(*e), NULL);
	int rc;

	if (!e)
		return gdri_fail(ENOMEM, "no memory for a region");
	e->cache = cache;
	e->low = low;
	e->high = high;
	e->listed = false;
	e->need = 0;
	atomic_store(&e->size, 0);
	atomic_store(&e->state, GDRI_CACHE_NEW | 1);
	(void)gdri_cache_sweep_locked(cache, LOOKS, LOOK_PARTS);
	gdri_cuda_describe(addr, size, &m);
	choose_locked(cache, &m, &low, &high);
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
	int rc = gdri_check_range(addr, size);

	/* Before any page is entered: an entry that the table cannot hold as a whole stays in it. */
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
	}
	gdri_cache_unlock(cache);
	return rc;
}
