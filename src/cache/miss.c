/* SPDX-License-Identifier: MIT */
/* A miss: look again under the lock, choose what to pin, make room, pin, enter. See cache.h. */
#include <errno.h>

#include "base/error.h"
#include "cache/cache.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "cuda/cuda.h"

/* Idle regions that a miss looks at: a stale one holds memory that its owner has freed. */
enum { LOOKS = 4 };

static void found_stale_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	gdri_cache_kill_locked(cache, e);
	cache->invalidations++;
}

/* The entry that all of the range lies in, used; kills it instead if it is stale. */
static struct gdri_entry *find_locked(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	struct gdri_entry *e = gdri_pages_find(&cache->pages, addr);
	enum gdri_proof proof;

	if (!e || !gdri_region_has(&e->region, addr, size))
		return NULL;
	proof = gdri_cache_is_notified(cache) && gdri_entry_has(e, addr, size)
			? GDRI_PROVEN
			: gdri_region_prove_late(&e->region, addr, size);
	if (proof == GDRI_PROVEN && gdri_entry_use(e))
		return e;
	if (proof == GDRI_STALE)
		found_stale_locked(cache, e);
	return NULL;
}

/*
 * May the region and the memory m lie in one region? Of the CPU's own memory each allocation has its
 * own: nothing is pinned there, and another one in the page has another place.
 */
static bool may_join(const struct gdri_region *r, const struct gdri_memory *m)
{
	bool host = m->kind == GDRI_MEMORY_HOST;

	return r->host == host && (!host || r->parts[0].id == m->buffer_id);
}

/* Widens [*low, *high) by regions that touch it; kills those that are stale. */
static void join_locked(struct gdri_cache *cache, const struct gdri_memory *m, uint64_t *low,
			uint64_t *high)
{
	uint64_t at = *low & GPU_PAGE_MASK;
	struct gdri_entry *e;

	while ((e = gdri_pages_next(&cache->pages, at, *high))) {
		const struct gdri_region *r = &e->region;

		at = gdri_region_end(r);
		if (!gdri_region_holds(r)) {
			found_stale_locked(cache, e);
		} else if (may_join(r, m)) {
			*low = r->low < *low ? r->low : *low;
			*high = r->high > *high ? r->high : *high;
		}
	}
}

/* Pins and maps; while there is no room, evicts what is idle and tries again. */
static int open_region(struct gdri_cache *cache, struct gdri_entry *e, const struct gdri_memory *m,
		       uint64_t low, uint64_t high)
{
	struct gdri_pin_request request = { .addr = low, .size = high - low };
	int rc;

	gdri_cache_make_room_locked(cache, m->kind == GDRI_MEMORY_HOST ? 0 : high - low, 1);
	do {
		rc = gdri_region_open(&e->region, &cache->ctx->backends, &request, cache->flags);
	} while (rc == -ENOMEM && gdri_cache_evict_locked(cache, m->device, high - low));
	return rc;
}

/* The end of a handle that shows a range. */
static int put_range(struct gdri_region *region)
{
	struct gdri_entry *e = gdri_entry_of(region);

	return gdri_cache_unuse(e->cache, e);
}

const struct gdri_region_kind gdri_kind_range = { "barcopy_map_range", "barcopy_unmap_range",
						  put_range };

/* The end of a cache's own handle, which the cache has ended. */
static int put_nothing(struct gdri_region *region)
{
	(void)region;
	return 0;
}

const struct gdri_region_kind gdri_kind_cached = { "barcopy_cache_get", "barcopy_cache_put",
						   put_nothing };

/* The allocations that it was pinned for, as far as its pages reach. */
static void set_known(struct gdri_entry *e, const struct gdri_region *r)
{
	uint64_t low = r->low, high = r->high;

	if (r->part_count) {
		low = r->parts[0].start < low ? r->parts[0].start : low;
		high = r->parts[r->part_count - 1].end > high ? r->parts[r->part_count - 1].end
							      : high;
	}
	low = low > r->pin.va ? low : r->pin.va;
	high = high < gdri_region_end(r) ? high : gdri_region_end(r);
	e->start = low;
	e->size = high - low;
	e->cpu = gdri_region_pointer(r, low);
}

/* Kills what the new entry takes the place of, and makes it LIVE with one user. */
static int enter_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_region *r = &e->region;
	uint64_t start = r->pin.va, end = gdri_region_end(r);
	struct gdri_entry *old;
	int rc;

	set_known(e, r);
	r->kind = gdri_cache_keeps(cache) ? &gdri_kind_cached : &gdri_kind_range;
	if (gdri_cache_keeps(cache)) {
		rc = gdri_handle_new(cache->ctx, r, start, end, &e->handle);
		if (rc)
			return rc;
	}
	/* What CUDA does not know could never be proven again: its user has it alone. */
	if (!r->part_count && !gdri_cache_is_notified(cache)) {
		TAILQ_INSERT_HEAD(&cache->detached, e, link);
		(void)gdri_slot_publish(&e->slot);
		atomic_store_explicit(&e->state, 1, memory_order_release);
		return 0;
	}
	while ((old = gdri_pages_next(&cache->pages, start, end)))
		gdri_cache_kill_locked(cache, old);
	rc = gdri_pages_enter(&cache->pages, start, end, e);
	if (rc) {
		gdri_cache_end_handle(cache, e);
		return rc;
	}
	TAILQ_INSERT_TAIL(&cache->live, e, link);
	cache->count++;
	cache->bytes += gdri_entry_bytes(e);
	(void)gdri_slot_publish(&e->slot);
	atomic_store_explicit(&e->state, GDRI_CACHE_LIVE | 1, memory_order_release);
	gdri_cache_make_room_locked(cache, 0, 0);
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

static void init_entry(struct gdri_slot *slot)
{
	(void)slot;
}

static int insert_locked(struct gdri_cache *cache, uint64_t addr, size_t size,
			 struct gdri_entry **out)
{
	uint64_t low = addr, high = addr + size;
	struct gdri_memory m;
	struct gdri_entry *e;
	int rc;

	(void)gdri_cache_sweep_locked(cache, LOOKS);
	rc = gdri_cuda_describe(addr, size, &m);
	if (!rc)
		rc = gdri_region_bounds(&low, &high, cache->whole_max);
	if (rc)
		return rc;
	if (m.kind != GDRI_MEMORY_HOST)
		gdri_cache_limit_locked(cache, m.device);
	join_locked(cache, &m, &low, &high);
	if (m.kind != GDRI_MEMORY_HOST && high - low > cache->max_bytes) {
		low = addr;
		high = addr + size;
	}
	e = (struct gdri_entry *)gdri_slots_new(&gdri_entries, sizeof(*e), init_entry);
	if (!e)
		return gdri_fail(ENOMEM, "no memory for a region");
	e->cache = cache;
	e->closed = false;
	rc = open_region(cache, e, &m, low, high);
	/* What is around the range may not be mappable together with it, or be too much. */
	if (rc && (low < addr || high > addr + size))
		rc = open_region(cache, e, &m, addr, addr + size);
	if (!rc) {
		rc = enter_locked(cache, e);
		if (rc)
			gdri_region_close(&e->region);
	}
	if (rc)
		gdri_slots_free(&gdri_entries, &e->slot);
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
	pthread_mutex_lock(&cache->lock);
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
	pthread_mutex_unlock(&cache->lock);
	if (!rc)
		*out = e;
	return rc;
}
