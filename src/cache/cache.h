/* SPDX-License-Identifier: MIT */
/*
 * Regions that are found again by address, without a lock: what a registration cache keeps after its
 * use, and what barcopy_map_range() shares while it is used. They are one thing; ranges are a cache that
 * keeps nothing idle. It knows regions and who uses them; not backends.
 *
 * An entry's state is one atomic word: the number of users, and LIVE while it may be found. A user
 * is added only while LIVE is set, and looks at the rest of the entry only then; so an entry that
 * is not LIVE and has no users is nobody's but the lock holder's. Whoever takes the word from "not
 * LIVE, one user" to 0 releases the entry. The memory of entries and of a cache's table is never given
 * back: a hit beside gdr_close() finds nothing, and no freed memory.
 *
 * Who is evicted is found by second chance: a list, oldest first, and a bit that each further use
 * sets and that keeps the entry once.
 *
 * Lock order: cache->lock, then handle->lock, ctx->lock and the backends' locks; handles of ranges,
 * which end under their own lock, come before the lock of their cache.
 */
#ifndef GDRI_CACHE_H
#define GDRI_CACHE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "barcopy.h"
#include "base/slots.h"
#include "cache/pages.h"
#include "core/region.h"

struct gdri_ctx;

#define GDRI_CACHE_LIVE	 ((uint32_t)1 << 31)
#define GDRI_CACHE_USED	 ((uint32_t)1 << 30) /* again, since the list was last looked through */
#define GDRI_CACHE_FULL	 ((uint32_t)1 << 29) /* so many users that it takes no more */
#define GDRI_CACHE_USERS (GDRI_CACHE_USED - 1)

enum { GDRI_CACHE_SHARDS = 16, GDRI_WHOLE_MAX = 2 << 20 };

struct gdri_cache;

/* The first cache line is all that a hit reads where it has nothing to ask. */
struct gdri_entry {
	struct gdri_slot slot;
	_Atomic uint32_t state;

	/* Set before the entry becomes LIVE, constant until it is released. */
	uint64_t start; /* what is known to be the pinned memory without asking CUDA: */
	size_t size; /* the allocations that it was pinned for, in its pages */
	char *cpu; /* stands for start */
	gdr_mh_t handle; /* a cache's users'; ranges have their own */
	struct gdri_cache *cache;

	_Alignas(64) struct gdri_region region;
	bool closed; /* with the context, under its users' hands; under the lock */
	TAILQ_ENTRY(gdri_entry) link; /* of those that live, or not; under the lock */
};

_Static_assert(offsetof(struct gdri_entry, region) == 64, "what a hit reads is one cache line");

struct gdri_cache {
	struct gdri_slot slot;
	_Atomic uint32_t owner; /* gdri_process_tag() of the create */

	/* Set before publication, constant until the cache ends. */
	struct gdri_ctx *ctx;
	/* Atomic for a call that comes too late, and meets the next cache in this slot. */
	_Atomic(gdr_t) g;
	_Atomic bool notified; /* BARCOPY_CACHE_NOTIFIED */
	_Atomic bool keeps; /* what is idle; false: ranges */
	bool limit_by_gpu; /* max_bytes follows the GPUs seen */
	uint32_t flags; /* of its regions */
	size_t whole_max;
	uint64_t max_regions; /* UINT64_MAX: no limit */

	struct gdri_pages pages; /* read without the lock */

	struct {
		_Alignas(64) _Atomic uint64_t hits;
	} shard[GDRI_CACHE_SHARDS];

	pthread_mutex_t lock; /* guards what follows and every change of pages */
	TAILQ_HEAD(gdri_entries, gdri_entry) live; /* in the order of the next eviction */
	struct gdri_entry *look; /* the next one that a miss looks at */
	size_t count; /* of the LIVE ones */
	struct gdri_entries detached; /* those not LIVE any more that still have users */
	uint64_t bytes, max_bytes;
	uint64_t devices_seen; /* a bit per ordinal, for max_bytes */
	uint64_t misses, evictions, invalidations;
	_Atomic bool over; /* beyond a limit because all was in use; read without the lock */
	LIST_ENTRY(gdri_cache) link; /* of the context's; under ctx->lock */
};

extern struct gdri_slots gdri_caches, gdri_entries;
extern const struct gdri_region_kind gdri_kind_range, gdri_kind_cached;

/* Below, all int functions return 0 or -errno with its text. */

/* See barcopy_map_range(). */
int gdri_range_map(struct gdri_ctx *ctx, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		   gdr_mh_t *handle);

/* As the options say; NULL: for ranges, whose regions have these flags. Not to be found by name. */
int gdri_cache_new(struct gdri_ctx *ctx, const barcopy_cache_options_t *options, uint32_t flags,
		   struct gdri_cache **cache);

/* The same with a name, for a caller. */
int gdri_cache_create(struct gdri_ctx *ctx, const barcopy_cache_options_t *options,
		      barcopy_cache_t *cache);

/* -EBUSY while a region is in use, unless forced. */
int gdri_cache_destroy(struct gdri_cache *cache, bool force);

/* Ends the caches, and what the ranges share, of a context that is nobody else's any more. */
void gdri_caches_end(struct gdri_ctx *ctx);

/* A used entry for [addr, addr + size), which gdri_cache_hit() did not find; -EOVERFLOW: it wraps. */
int gdri_cache_miss(struct gdri_cache *cache, uint64_t addr, size_t size, struct gdri_entry **out);

/* Takes a user away: what that leaves to do is done. -EINVAL: there is none. */
int gdri_cache_unuse(struct gdri_cache *cache, struct gdri_entry *e);

void gdri_cache_invalidate(struct gdri_cache *cache, uint64_t addr, uint64_t end);

/* Releases what is idle and stale, then what is idle until its bytes are at most so many. */
void gdri_cache_trim(struct gdri_cache *cache, uint64_t max_idle_bytes);

/* Releases what is idle and stale in all caches of a context; false: there was nothing. */
bool gdri_caches_sweep(struct gdri_ctx *ctx);

void gdri_cache_stats(struct gdri_cache *cache, barcopy_cache_stats_t *stats);

/* Hits of one cache, and of all caches there are. Need no lock; in them until a cache ends. */
uint64_t gdri_cache_hits(const struct gdri_cache *cache);
uint64_t gdri_cache_hits_of_all(void);

/* Internal to src/cache: called with the lock held. */
void gdri_cache_kill_locked(struct gdri_cache *cache, struct gdri_entry *e);
void gdri_cache_end_handle(struct gdri_cache *cache, struct gdri_entry *e);
/* Unmaps and unpins an entry that is not LIVE and has no users, and gives it back. */
void gdri_cache_release_locked(struct gdri_cache *cache, struct gdri_entry *e);
bool gdri_cache_take_idle_locked(struct gdri_cache *cache, struct gdri_entry *e);
bool gdri_cache_evict_locked(struct gdri_cache *cache, int device, uint64_t bytes);
bool gdri_cache_sweep_locked(struct gdri_cache *cache, size_t looks);
void gdri_cache_limit_locked(struct gdri_cache *cache, int device);
void gdri_cache_make_room_locked(struct gdri_cache *cache, uint64_t bytes, uint64_t regions);

static inline bool gdri_cache_keeps(const struct gdri_cache *cache)
{
	return atomic_load_explicit(&cache->keeps, memory_order_relaxed);
}

static inline bool gdri_cache_is_notified(const struct gdri_cache *cache)
{
	return atomic_load_explicit(&cache->notified, memory_order_relaxed);
}

/* The cost of a region against max_bytes: what it takes of a BAR. */
static inline uint64_t gdri_entry_bytes(const struct gdri_entry *e)
{
	return e->region.host ? 0 : e->region.pin.mapped_size;
}

/* The entry of a region of gdri_kind_range or gdri_kind_cached. */
static inline struct gdri_entry *gdri_entry_of(struct gdri_region *region)
{
	return (struct gdri_entry *)((char *)region - offsetof(struct gdri_entry, region));
}

static inline bool gdri_entry_has_users(const struct gdri_entry *e)
{
	return atomic_load_explicit(&e->state, memory_order_relaxed) & GDRI_CACHE_USERS;
}

/* Adds a user; false if the entry is not LIVE. */
static inline bool gdri_entry_use(struct gdri_entry *e)
{
	uint32_t s = atomic_load_explicit(&e->state, memory_order_relaxed);

	do {
		if ((s & (GDRI_CACHE_LIVE | GDRI_CACHE_FULL)) != GDRI_CACHE_LIVE)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&e->state, &s, (s | GDRI_CACHE_USED) + 1,
							memory_order_acquire,
							memory_order_relaxed));
	return true;
}

/* Does [addr, addr + size) lie where nothing has to be asked? The entry is used. */
static inline bool gdri_entry_has(const struct gdri_entry *e, uint64_t addr, size_t size)
{
	uint64_t offset = addr - e->start;

	return offset < e->size && size && size <= e->size - offset;
}

/* The entry of a hit, used; or NULL. Takes no lock. */
static inline struct gdri_entry *gdri_cache_hit(struct gdri_cache *cache, uint64_t addr,
						size_t size)
{
	struct gdri_entry *e = gdri_pages_find(&cache->pages, addr);

	if (!e || !gdri_entry_use(e))
		return NULL;
	/* Looked at only now: until it is used an entry may become another's, another cache's too. */
	if (e->cache == cache &&
	    ((gdri_cache_is_notified(cache) && gdri_entry_has(e, addr, size)) ||
	     (size && gdri_region_prove(&e->region, addr, size) == GDRI_PROVEN)))
		return e;
	(void)gdri_cache_unuse(e->cache, e);
	return NULL;
}

#endif
