/* SPDX-License-Identifier: MIT */
/*
 * A miss: look again under the lock, choose what to pin, make room, pin, enter. Also what makes an
 * entry valid. See cache.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "core/ctx.h"
#include "cuda/cuda.h"
#include "base/error.h"

/* Is the entry, which is LIVE, still the memory at these addresses? */
bool gdri_cache_is_valid(const struct gdri_cache *cache, struct gdri_entry *e, uint64_t addr,
			 size_t size)
{
	struct gdri_region *r = &e->rest->region;
	int flag;

	switch (cache->validity) {
	case BARCOPY_CACHE_CHECK_TAG:
		return gdri_region_prove(r, addr, size) == GDRI_PROVEN;
	case BARCOPY_CACHE_CHECK_CALLBACK:
		return !r->pin.backend->callback_flag(&r->pin, &flag) && !flag;
	default:
		return true;
	}
}

/* The same with the lock held, where more can be found out. */
static bool is_valid_locked(const struct gdri_cache *cache, struct gdri_entry *e, uint64_t addr,
			    size_t size)
{
	if (cache->validity == BARCOPY_CACHE_CHECK_TAG)
		return gdri_region_prove_late(&e->rest->region, addr, size) == GDRI_PROVEN;
	return gdri_cache_is_valid(cache, e, addr, size);
}

/* The entry that all of the range lies in, used; kills it instead if it is not valid any more. */
static struct gdri_entry *find_locked(struct gdri_cache *cache, uint64_t addr, size_t size)
{
	struct gdri_entry *e = gdri_pages_find(&cache->pages, addr);

	if (!e || !gdri_entry_has(e, addr, size))
		return NULL;
	if (is_valid_locked(cache, e, addr, size) && gdri_entry_use(e))
		return e;
	gdri_cache_kill_locked(cache, e);
	cache->invalidations++;
	return NULL;
}

/* Widens [*low, *high) by valid entries that touch it; kills those that are not valid. */
static void join_locked(struct gdri_cache *cache, uint64_t *low, uint64_t *high)
{
	uint64_t at = *low & GPU_PAGE_MASK;
	struct gdri_entry *e;

	while ((e = gdri_pages_next(&cache->pages, at, *high))) {
		const struct gdri_region *r = &e->rest->region;

		at = gdri_entry_end(e);
		if (!is_valid_locked(cache, e, r->low, r->high - r->low)) {
			gdri_cache_kill_locked(cache, e);
			cache->invalidations++;
			continue;
		}
		if (r->low < *low)
			*low = r->low;
		if (r->high > *high)
			*high = r->high;
	}
}

/* Pins and maps; while there is no room, evicts what is idle and tries again. */
static int open_region(struct gdri_cache *cache, struct gdri_entry *e, const struct gdri_memory *m,
		       uint64_t low, uint64_t high)
{
	uint32_t flags = cache->validity == BARCOPY_CACHE_CHECK_TAG ? GDRI_REGION_TAGGED : 0;
	struct gdri_region *r = &e->rest->region;
	int rc;

	gdri_cache_trim_locked(cache, m->kind == GDRI_MEMORY_HOST ? 0 : high - low, 1);
	do {
		rc = gdri_region_open(r, cache->ctx, low, high, flags, NULL);
	} while (rc == -ENOMEM && gdri_cache_evict_locked(cache, m->device, high - low));
	if (rc || cache->validity != BARCOPY_CACHE_CHECK_CALLBACK)
		return rc;
	if (r->pin.persistent || r->pin.backend->callback_flag == gdri_default_callback_flag)
		rc = gdri_fail(ENOTSUP,
			       "a pin of the %s backend is not revoked when its memory is "
			       "freed, so that there is no callback flag to look at",
			       r->pin.backend->name);
	if (rc)
		gdri_region_close(r);
	return rc;
}

/* Kills what the new entry takes the place of, and makes it LIVE with one user. */
static int enter_locked(struct gdri_cache *cache, struct gdri_entry *e)
{
	struct gdri_region *r = &e->rest->region;
	struct gdri_entry *old;
	uint64_t now;
	int rc;

	e->start = r->pin.va;
	e->pages = (uint32_t)(r->pin.mapped_size >> GPU_PAGE_SHIFT);
	e->cpu = r->pin.map;
	rc = gdri_region_lend(r, cache->ctx, e->start, gdri_entry_end(e) - e->start, &e->handle);
	if (rc)
		return rc;
	while ((old = gdri_pages_next(&cache->pages, e->start, gdri_entry_end(e))))
		gdri_cache_kill_locked(cache, old);
	now = gdri_lru_now();
	atomic_store_explicit(&e->stamp, now, memory_order_relaxed);
	rc = gdri_lru_add(&cache->lru, &e->rest->lru, now);
	if (rc)
		goto err_handle;
	rc = gdri_pages_enter(&cache->pages, e->start, gdri_entry_end(e), e);
	if (rc)
		goto err_lru;
	cache->bytes += gdri_entry_bytes(e);
	(void)gdri_slot_publish(&e->slot);
	atomic_store_explicit(&e->state, GDRI_CACHE_LIVE | 1, memory_order_release);
	gdri_cache_trim_locked(cache, 0, 0);
	return 0;

err_lru:
	gdri_lru_remove(&cache->lru, &e->rest->lru);
err_handle:
	gdri_cache_end_handle(cache, e);
	return rc;
}

static int insert_locked(struct gdri_cache *cache, uint64_t addr, size_t size,
			 struct gdri_entry **out)
{
	uint64_t low = addr, high = addr + size;
	struct gdri_memory m;
	struct gdri_entry *e;
	int rc;

	rc = gdri_cuda_describe(addr, size, &m);
	if (!rc)
		rc = gdri_region_bounds(&low, &high, cache->whole_max);
	if (rc)
		return rc;
	if (m.kind != GDRI_MEMORY_HOST)
		gdri_cache_limit_locked(cache, m.device);
	join_locked(cache, &low, &high);
	if (m.kind != GDRI_MEMORY_HOST && high - low > cache->max_bytes) {
		low = addr;
		high = addr + size;
	}
	e = (struct gdri_entry *)gdri_pool_new(&cache->entries);
	if (!e)
		return gdri_fail(ENOMEM, "no memory for a cache entry");
	e->rest = calloc(1, sizeof(*e->rest));
	if (!e->rest) {
		rc = gdri_fail(ENOMEM, "no memory for a cache entry");
		goto err_free;
	}
	e->rest->entry = e;
	rc = open_region(cache, e, &m, low, high);
	/* What is around the range may not be mappable together with it, or be too much. */
	if (rc && (low < addr || high > addr + size))
		rc = open_region(cache, e, &m, addr, addr + size);
	if (rc)
		goto err_free;
	rc = enter_locked(cache, e);
	if (rc) {
		gdri_region_close(&e->rest->region);
		goto err_free;
	}
	*out = e;
	return 0;

err_free:
	free(e->rest);
	e->rest = NULL;
	gdri_pool_free(&cache->entries, &e->slot);
	return rc;
}

int gdri_cache_miss(struct gdri_cache *cache, uint64_t addr, size_t size, struct gdri_entry **out)
{
	struct gdri_entry *e;
	int rc = 0;

	pthread_mutex_lock(&cache->lock);
	e = find_locked(cache, addr, size);
	if (e) {
		atomic_fetch_add_explicit(&cache->shard[0].hits, 1, memory_order_relaxed);
	} else {
		cache->misses++;
		gdri_count(&cache->ctx->counters, GDRI_COUNT_CACHE_MISS, 1);
		rc = insert_locked(cache, addr, size, &e);
	}
	pthread_mutex_unlock(&cache->lock);
	if (!rc)
		*out = e;
	return rc;
}
