/* SPDX-License-Identifier: MIT */
/* Eviction: least recently used first, never what is in use; and the limits. See cache.h. */
#include "cache/cache.h"

#include "core/ctx.h"
#include "cuda/cuda.h"
#include "base/error.h"
#include "base/log.h"
#include "cuda/nvml.h"

/* Takes an entry out if nobody uses it: afterwards nobody can. */
static bool take_idle(struct gdri_entry *e)
{
	uint64_t s = GDRI_CACHE_LIVE;

	return atomic_compare_exchange_strong_explicit(&e->state, &s, 0, memory_order_acq_rel,
						       memory_order_relaxed);
}

/*
 * Evicts idle regions, the least recently used first: at least one, and until `bytes` of BAR are
 * given back. device: only what takes of that one's BAR; -1: any. False if none was idle.
 */
bool gdri_cache_evict_locked(struct gdri_cache *cache, int device, uint64_t bytes)
{
	uint64_t start = gdri_lru_now() + 1, freed = 0; /* behind all that is idle now */
	struct gdri_entry_rest *aside = NULL;
	struct gdri_entry *e;
	struct gdri_lru_node *node;
	bool any = false;

	/* What has a later key was in use since we began, or was passed over. */
	while ((!any || freed < bytes) && (node = gdri_lru_first(&cache->lru)) &&
	       node->key < start) {
		uint64_t stamp;

		e = gdri_entry_of(node);
		stamp = atomic_load_explicit(&e->stamp, memory_order_relaxed);
		if (stamp > node->key) {
			gdri_lru_raise(&cache->lru, node, stamp);
		} else if (device >= 0 &&
			   (e->rest->region.pin.device != device || !gdri_entry_bytes(e))) {
			gdri_lru_remove(&cache->lru, node);
			e->rest->aside = aside;
			aside = e->rest;
		} else if (!take_idle(e)) {
			/* Its put is yet to come, and will stamp it later than this. */
			gdri_lru_raise(&cache->lru, node, start);
		} else {
			gdri_pages_erase(&cache->pages, e->start, gdri_entry_end(e));
			gdri_lru_remove(&cache->lru, node);
			cache->bytes -= gdri_entry_bytes(e);
			freed += gdri_entry_bytes(e);
			gdri_cache_release_locked(cache, e);
			cache->evictions++;
			gdri_count(&cache->ctx->counters, GDRI_COUNT_CACHE_EVICTION, 1);
			any = true;
		}
	}
	for (; aside; aside = aside->aside)
		(void)gdri_lru_add(&cache->lru, &aside->lru, aside->lru.key); /* has room */
	return any;
}

/* Evicts until so many bytes and regions more are within the limits, or all is in use. */
void gdri_cache_trim_locked(struct gdri_cache *cache, uint64_t bytes, uint64_t regions)
{
	bool over;

	while ((over = cache->bytes + bytes > cache->max_bytes ||
		       cache->lru.count + regions > cache->max_regions))
		if (!gdri_cache_evict_locked(cache, -1, 0))
			break;
	atomic_store_explicit(&cache->over, over, memory_order_relaxed);
}

/* The default limit: three quarters of what was free of each GPU's BAR when it was first seen. */
void gdri_cache_limit_locked(struct gdri_cache *cache, int device)
{
	uint64_t bit = device >= 0 && device < 64 ? (uint64_t)1 << device : 0;
	struct gdri_pci_address pci;
	struct gdri_bar bar;

	if (!cache->limit_by_bar || cache->devices_seen & bit)
		return;
	cache->devices_seen |= bit;
	bar.free = UINT64_MAX;
	if (!bit || gdri_cuda_pci_address(device, &pci) || gdri_nvml_bar(&pci, &bar))
		gdri_log(BARCOPY_LOG_INFO, "no limit for a cache but what the BAR holds: %s",
			 bit ? gdri_error_text() : "the device is not known");
	if (__builtin_add_overflow(cache->max_bytes, bar.free / 4 * 3, &cache->max_bytes) ||
	    bar.free == UINT64_MAX) {
		cache->max_bytes = UINT64_MAX;
		cache->limit_by_bar = false;
	}
}
