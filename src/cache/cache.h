/* SPDX-License-Identifier: MIT */
/*
 * The registration cache: regions that stay pinned and mapped after their use, found again by
 * address without a lock. It knows regions (memory/region.h) and who uses them; not backends.
 *
 * An entry's state is one atomic word: the number of users, and LIVE while it may be found. A user
 * is added only while LIVE is set, and looks at the rest of the entry only then; so an entry that
 * is not LIVE and has no users is nobody's but the lock holder's, and entries are never given back
 * while the cache exists. Whoever takes the word from "not LIVE, one user" to 0 releases the entry.
 *
 * Lock order: cache->lock, then handle->lock, ctx->lock and the backends' locks.
 */
#ifndef GDRI_CACHE_H
#define GDRI_CACHE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/lru.h"
#include "cache/pool.h"
#include "barcopy.h"
#include "core/pages.h"
#include "core/region.h"
#include "base/process.h"
#include "base/slots.h"

struct gdri_ctx;

#define GDRI_CACHE_LIVE ((uint64_t)1 << 63)

enum { GDRI_CACHE_SHARDS = 16 };

struct gdri_cache;

/* What a hit does not look at, save for its tags. */
struct gdri_entry_rest {
	struct gdri_region region;
	struct gdri_entry *entry;
	struct gdri_lru_node lru; /* while LIVE; under the lock */
	struct gdri_entry_rest *aside; /* while eviction passes it over; under the lock */
};

/* One cache line: a hit among many regions costs little more than that line. */
struct gdri_entry {
	struct gdri_slot slot;

	/* Set before the entry becomes LIVE, constant until it is released; but state and stamp. */
	uint32_t pages; /* GPU pages from start on */
	_Atomic uint64_t state;
	_Atomic uint64_t stamp; /* gdri_lru_now() of the last put */
	uint64_t start;
	char *cpu; /* stands for start */
	gdr_mh_t handle;
	struct gdri_entry_rest *rest;
};

_Static_assert(sizeof(struct gdri_entry) == GDRI_POOL_OBJECT, "a cache line");

struct gdri_cache {
	struct gdri_slot slot;
	_Atomic uint32_t owner; /* gdri_process_tag() of the create */

	/* Set before publication, constant until the cache ends. */
	struct gdri_ctx *ctx;
	gdr_t g;
	uint32_t validity;
	size_t whole_max;
	uint64_t max_regions; /* UINT64_MAX: no limit */
	bool limit_by_bar; /* max_bytes follows the BARs of the GPUs seen */

	struct gdri_pages pages; /* read without the lock */
	struct gdri_pool entries; /* found in without the lock, changed with it */

	struct {
		_Alignas(64) _Atomic uint64_t hits;
	} shard[GDRI_CACHE_SHARDS];

	pthread_mutex_t lock; /* guards what follows and every change of pages */
	struct gdri_lru lru; /* the LIVE entries */
	size_t detached; /* entries not LIVE any more that still have users */
	uint64_t bytes, max_bytes;
	uint64_t devices_seen; /* a bit per ordinal, for max_bytes */
	uint64_t misses, evictions, invalidations;
	_Atomic bool over; /* beyond a limit because all was in use; read without the lock */
	struct gdri_cache *next; /* of the context; under ctx->lock */
};

extern struct gdri_slots gdri_caches;

/* Below, all int functions return 0 or -errno with its text. */

int gdri_cache_create(struct gdri_ctx *ctx, gdr_t g, const barcopy_cache_options_t *options,
		      barcopy_cache_t *cache);

/* -EBUSY while a region is in use, unless forced. */
int gdri_cache_destroy(struct gdri_cache *cache, bool force);

/* A used entry for [addr, addr + size), which gdri_cache_hit() did not find. */
int gdri_cache_miss(struct gdri_cache *cache, uint64_t addr, size_t size, struct gdri_entry **out);

/* After a put: releases what is not LIVE any more, or evicts down to the limits. */
void gdri_cache_settle(struct gdri_cache *cache, struct gdri_entry *entry, bool last);

void gdri_cache_invalidate(struct gdri_cache *cache, uint64_t addr, uint64_t end);
void gdri_cache_stats(struct gdri_cache *cache, barcopy_cache_stats_t *stats);

/* Hits of one cache, and of all caches there are. Need no lock; in them until a cache ends. */
uint64_t gdri_cache_hits(const struct gdri_cache *cache);
uint64_t gdri_cache_hits_of_all(void);

/* Internal to src/cache: called with the lock held. */
bool gdri_cache_is_valid(const struct gdri_cache *cache, struct gdri_entry *e, uint64_t addr,
			 size_t size);
void gdri_cache_kill_locked(struct gdri_cache *cache, struct gdri_entry *e);
void gdri_cache_end_handle(struct gdri_cache *cache, struct gdri_entry *e);
void gdri_cache_release_locked(struct gdri_cache *cache, struct gdri_entry *e);
bool gdri_cache_evict_locked(struct gdri_cache *cache, int device, uint64_t bytes);
void gdri_cache_trim_locked(struct gdri_cache *cache, uint64_t bytes, uint64_t regions);
void gdri_cache_limit_locked(struct gdri_cache *cache, int device);

static inline uint64_t gdri_entry_size(const struct gdri_entry *e)
{
	return (uint64_t)e->pages << GPU_PAGE_SHIFT;
}

static inline uint64_t gdri_entry_end(const struct gdri_entry *e)
{
	return e->start + gdri_entry_size(e);
}

/* The entry of a node in cache->lru. */
static inline struct gdri_entry *gdri_entry_of(struct gdri_lru_node *node)
{
	return ((struct gdri_entry_rest *)(void *)((char *)node -
						   offsetof(struct gdri_entry_rest, lru)))
		->entry;
}

/* The cost of an entry against max_bytes: what it takes of a BAR. */
static inline uint64_t gdri_entry_bytes(const struct gdri_entry *e)
{
	return e->rest->region.pin.backend->id == BARCOPY_BACKEND_HOST ? 0 : gdri_entry_size(e);
}

/* Adds a user; false if the entry is not LIVE. */
static inline bool gdri_entry_use(struct gdri_entry *e)
{
	uint64_t s = atomic_load_explicit(&e->state, memory_order_relaxed);

	do {
		if (!(s & GDRI_CACHE_LIVE))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&e->state, &s, s + 1, memory_order_acquire,
							memory_order_relaxed));
	return true;
}

/* Takes a user away; *last: it was the last of an entry that is not LIVE. False if there is none. */
static inline bool gdri_entry_unuse(struct gdri_entry *e, bool *last)
{
	uint64_t s = atomic_load_explicit(&e->state, memory_order_relaxed);

	do {
		if (!(s & ~GDRI_CACHE_LIVE))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&e->state, &s, s - 1, memory_order_acq_rel,
							memory_order_relaxed));
	*last = s == 1;
	return true;
}

static inline bool gdri_entry_has(const struct gdri_entry *e, uint64_t addr, size_t size)
{
	uint64_t offset = addr - e->start, length = gdri_entry_size(e);

	return offset < length && size && size <= length - offset;
}

#endif
