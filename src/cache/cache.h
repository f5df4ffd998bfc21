/* SPDX-License-Identifier: MIT */
/*
 * Regions that are found by address without a lock. Two kinds of caches use this: a registration
 * cache (barcopy_cache_*()) keeps regions that nobody uses; a cache of ranges (barcopy_map_range())
 * shares a region only while it is used. Both are a struct gdri_cache.
 *
 * Entries. An entry is a region that can be found. Its word `state` counts its users. While it has
 * the bit LIVE, threads may become users. The other fields are read under cache->lock or by a user;
 * only the atomic addresses are read by others. An entry that is neither LIVE nor used is released
 * under the lock: by the thread that ended it, or by its last put. The memory of entries and of the
 * table is never freed, because a hit may read it during gdr_close().
 *
 * A hit takes no lock. It looks the address up, becomes a user, and then reads the entry's
 * addresses again, because the entry may have become another region's meanwhile. It then asks CUDA
 * whether its bytes still have the buffer IDs that they had at the pin; if not, it is no hit. With
 * BARCOPY_CACHE_NOTIFIED it does not ask about bytes that were pinned or verified before.
 *
 * The table has one entry for each GPU page: that of the newest region. In a registration cache
 * two regions share at most the page at their border, and each has a page of its own. So a look-up
 * and an invalidation also look at the page before and the page behind their bytes. Ranges may
 * overlap. They are not invalidated.
 *
 * A miss holds cache->lock. It pins
 *   1. the range that was asked for;
 *   2. the allocations at its two ends, each if it has at most 2 MiB, within the limit;
 *   3. in a registration cache, the regions that it overlaps by more than the page at the border;
 *   4. where the range goes beyond the regions that it overlaps, as many bytes as they have, up to
 *      the next region, and up to half of the limit in all.
 * If 1 to 3 have more than half of the limit, 3 and 4 are left out. The regions of 3 end either
 * way: the new one takes their place. So a range that slides or grows pins at most four times the
 * bytes of its path, or eight times if it grows now at one end, now at the other. The limit of a
 * range of barcopy_map_range() is 2 MiB or twice its own pages, also for a region that it shares.
 * One that is short of space shares any region that has its bytes.
 *
 * The limits of a registration cache are bytes of each GPU, and a number of regions. A miss that
 * exceeds one evicts idle regions afterwards. If all are in use, their last puts do it. Besides, each
 * miss looks at a few regions, and a trim at all, and releases idle ones whose memory was freed.
 *
 * An invalidation takes no lock, waits for nobody and allocates nothing: a hook of CUDA or of
 * munmap() may call it inside a call of this library. It turns LIVE into DOOMED and puts the entry
 * on cache->doomed. The thread that holds the lock works that list off, or else the invalidation
 * itself. A miss publishes which bytes it is pinning. An invalidation that overlaps them sets
 * cache->pinning_hit. The miss reads that after it has entered its pages into the table, and if it
 * is set, no get finds the new entry.
 *
 * The end of an entry has two steps. Under cache->lock it leaves the table; without users, it goes
 * on cache->released. Under cache->ending a drain unpins what is on that list. A thread that finds
 * `ending` taken goes on, because its holder looks at the list again before it leaves. A call that
 * needs the regions unpinned, or their space, waits for it. gdr_close() also unpins regions in use.
 *
 * The order of locks: cache->lock, cache->ending, handle->lock, ctx->lock, the backends' locks. A
 * miss, a trim, gdr_close() and a barcopy_mem_alloc() that is short of memory call CUDA and the
 * driver under cache->lock, which may call the program's hooks of munmap().
 */
#ifndef GDRI_CACHE_H
#define GDRI_CACHE_H

#include <sys/queue.h>

#include "base/slots.h"
#include "cache/pages.h"
#include "core/ctx.h"
#include "core/parts.h"

#define GDRI_CACHE_LIVE	  ((uint32_t)1 << 31)
#define GDRI_CACHE_USED	  ((uint32_t)1 << 30) /* since an eviction last looked at it */
#define GDRI_CACHE_DOOMED ((uint32_t)1 << 29) /* no longer LIVE: on the list of doomed entries */
#define GDRI_CACHE_FULL	  ((uint32_t)1 << 28) /* takes no more users: it has so many, or is new */
#define GDRI_CACHE_USERS  (2 * GDRI_CACHE_FULL - 1)

_Static_assert((GDRI_CACHE_LIVE ^ GDRI_CACHE_USED ^ GDRI_CACHE_DOOMED ^ GDRI_CACHE_USERS) ==
		       UINT32_MAX,
	       "a bit of the state has one meaning");

enum {
	GDRI_CACHE_SHARDS = 16,
	GDRI_CACHE_GPUS = 64, /* the last one: of no or another number */
	GDRI_WHOLE_MAX = 2 << 20 /* bytes of an allocation that is pinned whole */
};

enum gdri_cache_kill { GDRI_KILL_IDLE, GDRI_KILL_ANY };

/*
 * A hit that does not ask CUDA reads two cache lines that other regions' hits do not: the slot of
 * its page in the table, which 8 neighbouring pages share, and the first line of its entry, which
 * is also all that its put reads. perf/copybench/cache.c measures that among many regions.
 */
struct gdri_entry {
	struct gdri_slot slot;
	_Atomic uint32_t state;

	/* From here on set before the entry becomes LIVE, constant until it is released. */
	uint16_t head, tail; /* bytes at its ends that it was not pinned for */
	/* Its GPU pages. Atomic: a reader of the table may find an entry that is reused by now. */
	_Atomic uint64_t start, size;
	char *cpu; /* the CPU's pointer to start */
	gdr_mh_t handle; /* a cache's users'; ranges have their own */
	_Atomic(struct gdri_cache *) cache;

	_Alignas(64) struct gdri_region region;

	/* Under the lock. */
	bool listed; /* pinned, and in cache->regions */
	TAILQ_ENTRY(gdri_entry) link;
	struct gdri_entry *next; /* on the list of doomed entries, and then of released ones */
};

_Static_assert(offsetof(struct gdri_entry, region) == 64, "what a hit reads is one cache line");

struct gdri_cache_gpu {
	uint64_t bytes; /* pinned, also by entries in use that are not LIVE */
	uint64_t max_bytes; /* 0: not known yet */
};

struct gdri_cache {
	struct gdri_slot slot;

	/* Set before publication, constant until the cache ends. */
	struct gdri_ctx *ctx;
	/* Atomic: a call that comes too late may read those of the next cache in this slot. */
	_Atomic(gdr_t) g;
	_Atomic bool notified; /* BARCOPY_CACHE_NOTIFIED */
	bool keeps; /* idle regions: in gdri_caches; false: in gdri_ranges */
	uint32_t flags; /* enum gdri_region_flags of its regions */
	barcopy_cache_options_t options; /* with the defaults; max_bytes 0: by the GPU */

	struct gdri_pages pages; /* read without the lock */

	/* Invalidations at work, and the entries to be worked off. */
	_Atomic uint32_t invalidating;
	_Atomic(struct gdri_entry *) doomed;
	/* What a miss may be pinning, high 0: nothing; an invalidation has overlapped it. */
	_Atomic uint64_t pinning_low, pinning_high;
	_Atomic bool pinning_hit;
	_Atomic(struct gdri_entry *) released; /* taken out, to be unpinned by a drain */
	_Atomic uint64_t leaving; /* bytes of those not unpinned yet */
	pthread_mutex_t ending; /* of the thread that drains */
	pthread_mutex_t lost_lock; /* the innermost lock; guards the next */
	struct gdri_first lost; /* an unpin that failed and that no call has returned yet */
	_Atomic bool any_lost;

	struct {
		_Alignas(64) _Atomic uint64_t hits;
	} shard[GDRI_CACHE_SHARDS];

	pthread_mutex_t lock; /* guards writes to pages, and all fields below; they start as zero */
	TAILQ_HEAD(, gdri_entry) regions; /* the next to be evicted first */
	size_t count; /* of regions */
	struct gdri_entry *look; /* where the next sweep begins, and at which part */
	size_t look_part;
	struct gdri_cache_gpu gpu[GDRI_CACHE_GPUS];
	uint64_t misses, evictions, invalidations;
	_Atomic bool over; /* the limit, because every region was in use; read without the lock */
	LIST_ENTRY(gdri_cache) link; /* of the context's; under ctx->lock */
};

/* Registration caches, the caches of ranges, and the entries of both. */
extern struct gdri_slots gdri_caches, gdri_ranges, gdri_entries;
extern const struct gdri_region_kind gdri_kind_range, gdri_kind_cached;

/* The int functions return 0 or -errno with its text. barcopy.h has what is not explained here. */

/* keeps: a registration cache; false: for ranges. Its regions have these enum gdri_region_flags. */
int gdri_cache_create(struct gdri_ctx *ctx, bool keeps, const barcopy_cache_options_t *options,
		      uint32_t flags, struct gdri_cache **out);

/* -EBUSY while a region is in use. Other failures are gdri_cache_lost()'s: the cache has ended. */
int gdri_cache_destroy(struct gdri_cache *cache);

/*
 * Returns the first unpin that has failed since the last call, and its text. The thread that
 * unpins may be in a call that has not failed itself, such as a put, so the failure waits here for
 * the end of a range or of the cache.
 */
int gdri_cache_lost(struct gdri_cache *cache);

/*
 * Ends the registration caches (keeps), or the caches of ranges, of a retired context. Returns the
 * first failure.
 */
int gdri_caches_end(struct gdri_ctx *ctx, bool keeps);

/*
 * A used entry for [addr, addr + size), which gdri_cache_hit() did not find. again: the call has
 * been counted, by an attempt that was short of space.
 */
int gdri_cache_miss(struct gdri_cache *cache, uint64_t addr, size_t size, bool again,
		    struct gdri_entry **out);

/* A used entry that covers the range, whatever it keeps pinned; or NULL. */
struct gdri_entry *gdri_cache_cover(struct gdri_cache *cache, uint64_t addr, size_t size);

/* Takes a user away, and releases or evicts what that leaves. -EINVAL: there is no user. */
int gdri_cache_unuse(struct gdri_cache *cache, struct gdri_entry *e);

/* Takes no lock. -EINVAL: the cache of that name has ended. */
int gdri_cache_invalidate(struct gdri_cache *cache, uint64_t name, uint64_t addr, uint64_t end);

void gdri_cache_trim(struct gdri_cache *cache, uint64_t max_idle_bytes);
void gdri_cache_stats(struct gdri_cache *cache, barcopy_cache_stats_t *stats);

/* What a call of a context that may be short of space keeps between its attempts. */
struct gdri_attempts {
	unsigned int failed; /* bounds the repetitions: other threads may fill all space anew */
	uint64_t unpinned; /* ctx->unpinned before the attempt */
};

/* Before the first attempt. */
static inline struct gdri_attempts gdri_attempts_begin(struct gdri_ctx *ctx)
{
	return (struct gdri_attempts){ .unpinned = atomic_load(&ctx->unpinned) };
}

/*
 * An attempt of a call of the context ended with rc. Returns true if it was short of BAR,
 * descriptors or memory on that GPU (-1: any) and something was unpinned or unmapped since it
 * began, by this thread or another: the caller repeats it. With bytes 0 this thread evicts only
 * stale regions.
 */
bool gdri_caches_give_way(struct gdri_ctx *ctx, int rc, int device, uint64_t bytes,
			  struct gdri_attempts *attempts);

/* gdri_mem_alloc(), repeated as gdri_caches_give_way() says. */
int gdri_caches_alloc(struct gdri_ctx *ctx, int device, size_t size, uint32_t flags,
		      barcopy_mem_t *mem);

/* Hits of one cache, and of all live caches, without a lock. */
uint64_t gdri_cache_hits(const struct gdri_cache *cache);
uint64_t gdri_cache_hits_of_all(void);

/* ---- internal to src/cache ------------------------------------------------------------------ */

/* Both work off what is doomed. The unlock drains, as far as no other thread does. */
void gdri_cache_lock(struct gdri_cache *cache);
void gdri_cache_unlock(struct gdri_cache *cache);
/* And waits until what was released before the call is unpinned, by whichever thread. */
void gdri_cache_unlock_and_wait(struct gdri_cache *cache);
/*
 * Unpins what was released before the call, or, without wait, leaves that to a thread that is
 * draining. Returns true if this thread unpinned a region or waited for one that may have.
 */
bool gdri_cache_drain(struct gdri_cache *cache, bool wait);

/* Called with the lock held. */
/*
 * Takes a LIVE entry out of the cache and releases it, or leaves that to its last user. False: it
 * is not idle (GDRI_KILL_IDLE), or an invalidation, which counts it, was first.
 */
bool gdri_cache_kill_locked(struct gdri_cache *cache, struct gdri_entry *e,
			    enum gdri_cache_kill which);
/* Unpins an entry of the list, at once, and takes it off. */
void gdri_cache_close_locked(struct gdri_cache *cache, struct gdri_entry *e);
/* Takes an entry that is neither LIVE nor used off the list; a drain unpins and frees it. */
void gdri_cache_release_locked(struct gdri_cache *cache, struct gdri_entry *e);
bool gdri_cache_evict_locked(struct gdri_cache *cache, int device, uint64_t bytes, size_t looks);
void gdri_cache_sweep_locked(struct gdri_cache *cache, bool all);
void gdri_cache_make_room_locked(struct gdri_cache *cache, int device);

/* The bytes of the GPU pages that [low, high) touches. */
static inline uint64_t gdri_touched(uint64_t low, uint64_t high)
{
	return ((high + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - (low & GPU_PAGE_MASK);
}

static inline struct gdri_cache_gpu *gdri_cache_gpu(struct gdri_cache *cache, int device)
{
	return &cache->gpu[device >= 0 && device < GDRI_CACHE_GPUS - 1 ? device
								       : GDRI_CACHE_GPUS - 1];
}

static inline bool gdri_cache_is_notified(const struct gdri_cache *cache)
{
	return atomic_load_explicit(&cache->notified, memory_order_relaxed);
}

/* What the region takes of a BAR, as max_bytes counts it. */
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

static inline uint64_t gdri_entry_start(const struct gdri_entry *e)
{
	return atomic_load_explicit(&e->start, memory_order_relaxed);
}

static inline uint64_t gdri_entry_size(const struct gdri_entry *e)
{
	return atomic_load_explicit(&e->size, memory_order_relaxed);
}

static inline uint64_t gdri_entry_end(const struct gdri_entry *e)
{
	return gdri_entry_start(e) + gdri_entry_size(e);
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

/* Do all of its bytes, from that offset on, lie in the first `have`? */
static inline bool gdri_is_within(uint64_t offset, size_t size, uint64_t have)
{
	return offset < have && size && size <= have - offset;
}

/* Do all bytes of [addr, addr + size) lie in its pages? */
static inline bool gdri_entry_covers(const struct gdri_entry *e, uint64_t addr, size_t size)
{
	return gdri_is_within(addr - gdri_entry_start(e), size, gdri_entry_size(e));
}

/*
 * Of a used entry that covers the range: was it pinned for these bytes, or do they lie in an
 * allocation that was learnt since? Without CUDA.
 */
static inline bool gdri_entry_has(const struct gdri_entry *e, uint64_t addr, size_t size)
{
	return gdri_is_within(addr - gdri_entry_start(e) - e->head, size,
			      gdri_entry_size(e) - e->head - e->tail) ||
	       gdri_region_in_one_part(&e->region, addr, size);
}

/* May this range, of which the region has every byte, keep it pinned? */
static inline bool gdri_entry_serves(const struct gdri_cache *cache, const struct gdri_entry *e,
				     uint64_t addr, size_t size)
{
	uint64_t have = gdri_entry_size(e);

	return cache->keeps || have <= GDRI_WHOLE_MAX ||
	       have / 2 <= gdri_touched(addr, addr + size) || e->region.host;
}

/* The entry of a hit in the page around `at`, used; or NULL. A call would cost a get 5 %. */
static inline __attribute__((always_inline)) struct gdri_entry *
gdri_cache_hit_at(struct gdri_cache *cache, uint64_t at, uint64_t addr, size_t size)
{
	struct gdri_entry *e = gdri_pages_find(&cache->pages, at);

	if (!e || !gdri_entry_covers(e, addr, size) || !gdri_entry_use(e))
		return NULL;
	/* Until it was used the entry could become another one, of another cache too. */
	if (e->cache == cache && gdri_entry_covers(e, addr, size) &&
	    gdri_entry_serves(cache, e, addr, size) &&
	    ((gdri_cache_is_notified(cache) && gdri_entry_has(e, addr, size)) ||
	     gdri_region_verify(&e->region, NULL, addr, size) == GDRI_VALID))
		return e;
	(void)gdri_cache_unuse(e->cache, e);
	return NULL;
}

/* gdri_cache_hit() where the page in the middle has none: by the pages at and beyond the ends. */
struct gdri_entry *gdri_cache_hit_ends(struct gdri_cache *cache, uint64_t addr, size_t size);

/* The entry of a hit, used; or NULL. Neighbours share the pages at the ends: the middle first. */
static inline struct gdri_entry *gdri_cache_hit(struct gdri_cache *cache, uint64_t addr,
						size_t size)
{
	struct gdri_entry *e = gdri_cache_hit_at(cache, addr + size / 2, addr, size);

	return __builtin_expect(!!e, 1) ? e : gdri_cache_hit_ends(cache, addr, size);
}

#endif
