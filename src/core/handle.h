/* SPDX-License-Identifier: MIT */
/*
 * Handles: each holds a region and shows all or a part of it. A copy reads the first cache line of
 * its handle, without a lock; the handle's lock guards the rest. Lock order: handle->lock,
 * ctx->lock, the locks of slots, backends and log; cache/cache.h has that of caches.
 */
#ifndef GDRI_HANDLE_H
#define GDRI_HANDLE_H

#include <sys/queue.h>

#include "base/slots.h"
#include "copy/copy.h"
#include "core/region.h"

struct gdri_handle {
	struct gdri_slot slot;

	/* Read by copies; written under the lock while the handle is new, mapped or unmapped. */
	_Atomic(const struct gdri_copy_plan *) plan; /* NULL while not mapped */
	_Atomic uintptr_t copy_start, copy_end; /* bytes that copies may read */
	_Atomic uintptr_t write_end; /* copy_end; 0 for a read-only map */
	/* Where copies are counted (counters.h) the plan is here, and NULL above. */
	_Atomic(const struct gdri_copy_plan *) counted_plan;

	pthread_mutex_t lock;
	/* Set before publication, constant after. */
	struct gdri_ctx *ctx;
	struct gdri_region *region; /* given back when the handle ends */
	uint64_t low, high; /* the bytes that the handle stands for */
	/* Under the lock. */
	struct gdri_pin pin; /* the region's, as this handle shows it */
	struct gdri_offload *offload; /* NULL: none */
	LIST_ENTRY(gdri_handle) link; /* the context's list; under ctx->lock */
};

extern struct gdri_slots gdri_handles;
extern const struct gdri_region_kind gdri_kind_pin;

/* The addresses that copies in one direction may touch; none for writes through a read-only map. */
struct gdri_window {
	const struct gdri_copy_plan *plan;
	uintptr_t start, end;
	struct gdri_counters *counters; /* of the handle's context; NULL: not counted */
};

enum gdri_access { GDRI_READS, GDRI_WRITES };

/* Called after the load of the plan. */
static inline __attribute__((always_inline)) void
gdri_window_bounds(struct gdri_window *w, const struct gdri_handle *handle, enum gdri_access access)
{
	const _Atomic uintptr_t *end =
		access == GDRI_WRITES ? &handle->write_end : &handle->copy_end;

	w->start = atomic_load_explicit(&handle->copy_start, memory_order_relaxed);
	w->end = atomic_load_explicit(end, memory_order_relaxed);
}

/* Finds the window of a mapped handle whose copies are not counted. No lock and no system call. */
static inline __attribute__((always_inline)) bool
gdri_handle_for_copy(gdr_mh_t h, enum gdri_access access, struct gdri_window *w)
{
	struct gdri_handle *handle = (struct gdri_handle *)gdri_slots_find_own(&gdri_handles, h.h);

	if (__builtin_expect(!handle, 0))
		return false;
	w->plan = atomic_load_explicit(&handle->plan, memory_order_acquire);
	gdri_window_bounds(w, handle, access);
	w->counters = NULL;
	return __builtin_expect(!!w->plan, 1);
}

/* Slow path: also finds a handle whose copies are counted; otherwise -errno, with the reason. */
int gdri_handle_for_copy_slow(gdr_mh_t h, enum gdri_access access, struct gdri_window *w);

/* Fast path, then slow path. */
static inline int gdri_handle_window(gdr_mh_t h, enum gdri_access access, struct gdri_window *w)
{
	struct gdri_window counted; /* of its own, so that *w stays in registers */
	int err;

	if (gdri_handle_for_copy(h, access, w))
		return 0;
	err = gdri_handle_for_copy_slow(h, access, &counted);
	if (!err)
		*w = counted;
	return err;
}

static inline bool gdri_window_has(const struct gdri_window *w, const void *ptr, size_t size)
{
	uintptr_t p = (uintptr_t)ptr;

	return p >= w->start && p <= w->end && size <= w->end - p;
}

/* Makes a handle for [low, high) of an open region. 0, and it holds the region; or -errno. */
int gdri_handle_new(struct gdri_ctx *ctx, struct gdri_region *region, uint64_t low, uint64_t high,
		    gdr_mh_t *h);

/* Makes a plain pin: a region and its one handle. */
int gdri_handle_pin(struct gdri_ctx *ctx, struct gdri_pin_request *request, gdr_mh_t *h);

/* Finds and locks the handle h of ctx (NULL: of any). 0, -EINVAL, -EACCES: the parent process's. */
int gdri_handle_lock(struct gdri_ctx *ctx, gdr_mh_t h, struct gdri_handle **out);

/*
 * Finds the handle h of g and holds both until the leave, which returns rc. A handle of another kind
 * (NULL: any) is -EINVAL, with a text that names the call that ends it.
 */
int gdri_handle_enter(gdr_t g, gdr_mh_t h, const struct gdri_region_kind *kind,
		      struct gdri_handle **out);
int gdri_handle_leave(struct gdri_handle *handle, int rc);

/* Returns the first failure of the end, too. ended: NULL; or set if the handle is gone. */
int gdri_handle_end(gdr_t g, gdr_mh_t h, const struct gdri_region_kind *kind, bool *ended);

/* Releases all handles of a retired context; returns the first failure. */
int gdri_handles_end(struct gdri_ctx *ctx);

/* See barcopy_set_copy_options(). ctx NULL: a handle of any context, but not of a cache. */
int gdri_handle_set_copy_options(struct gdri_ctx *ctx, gdr_mh_t h,
				 const barcopy_copy_options_t *options);

/* Called with the lock held. Returns 0 or -errno. */
int gdri_handle_map_locked(struct gdri_handle *handle, size_t size, gdr_mapping_type_t wish);
int gdri_handle_unmap_locked(struct gdri_handle *handle);
bool gdri_handle_length_matches(const struct gdri_handle *handle, size_t size);

/* Unmaps, gives the region back, frees the handle and its lock. Returns the first failure. */
int gdri_handle_release_locked(struct gdri_handle *handle);

#endif
