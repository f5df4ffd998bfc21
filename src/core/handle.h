/* SPDX-License-Identifier: MIT */
/*
 * Handles: each holds a region, and shows it or a part of it. The first cache line is all that a copy
 * reads, without a lock; the rest is under the handle's lock.
 *
 * Lock order: handle->lock, then ctx->lock, then the locks of slots, backends and log. The lock of a
 * cache comes before the locks of its own handles, and behind those of handles of ranges.
 */
#ifndef GDRI_HANDLE_H
#define GDRI_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "barcopy.h"
#include "core/offload.h"
#include "core/region.h"
#include "base/process.h"
#include "base/slots.h"
#include "backend/backend.h"
#include "copy/copy.h"

struct gdri_ctx;

struct gdri_handle {
	struct gdri_slot slot;

	/* Read by copies; written under the lock while the handle is new, mapped or unmapped. */
	_Atomic(const struct gdri_copy_plan *) plan; /* NULL while not mapped, or counted */
	_Atomic uintptr_t copy_start, copy_end; /* bytes that copies may read */
	_Atomic uintptr_t write_end; /* the end for copies to: copy_end, or 0 in a read-only map */
	/* Where copies are counted (counters.h) it is here that the plan is. */
	_Atomic(const struct gdri_copy_plan *) counted;

	pthread_mutex_t lock;
	struct gdri_ctx *ctx; /* set before publication, constant after */
	struct gdri_region *region; /* likewise; given back when the handle ends */
	uint64_t low, high; /* likewise: the bytes that it stands for */
	struct gdri_pin pin; /* under lock: the region's, as this handle shows it */
	bool reported; /* under lock: by barcopy_next_revoked() */
	struct gdri_offload *offload; /* under lock; NULL: none */
	LIST_ENTRY(gdri_handle) link; /* the context's list; under ctx->lock */
};

extern struct gdri_slots gdri_handles;
extern const struct gdri_region_kind gdri_kind_pin, gdri_kind_mem;

/* Where a copy may go, and where it is counted if it is. */
struct gdri_window {
	const struct gdri_copy_plan *plan;
	uintptr_t start, end;
	struct gdri_counters *counters; /* of the handle's context; NULL: not counted */
};

enum gdri_access { GDRI_READS, GDRI_WRITES };

/* Behind the load of the plan. */
static inline __attribute__((always_inline)) void
gdri_window_bounds(struct gdri_window *w, const struct gdri_handle *handle, enum gdri_access access)
{
	w->start = atomic_load_explicit(&handle->copy_start, memory_order_relaxed);
	w->end =
		atomic_load_explicit(access == GDRI_WRITES ? &handle->write_end : &handle->copy_end,
				     memory_order_relaxed);
}

/*
 * True and the window of a handle that copies may go through and that are not counted. No lock, no
 * system call; and nothing more to be compared for the counting, or for maps that are read-only.
 */
static inline __attribute__((always_inline)) bool
gdri_handle_for_copy(gdr_mh_t h, enum gdri_access access, struct gdri_window *w)
{
	struct gdri_slot *slot = gdri_slots_find(&gdri_handles, h.h);
	struct gdri_handle *handle = (struct gdri_handle *)slot;

	if (__builtin_expect(!handle, 0))
		return false;
	w->plan = atomic_load_explicit(&handle->plan, memory_order_acquire);
	gdri_window_bounds(w, handle, access);
	w->counters = NULL;
	return __builtin_expect(w->plan && gdri_slot_is_own(slot), 1);
}

/* Every other one: 0 and the window where copies are counted; -errno with its text. */
int gdri_handle_for_counted(gdr_mh_t h, enum gdri_access access, struct gdri_window *w);

/* Both, for calls that take longer than a small copy: 0 or -errno. */
static inline int gdri_handle_window(gdr_mh_t h, enum gdri_access access, struct gdri_window *w)
{
	return gdri_handle_for_copy(h, access, w) ? 0 : gdri_handle_for_counted(h, access, w);
}

static inline bool gdri_window_has(const struct gdri_window *w, const void *ptr, size_t size)
{
	uintptr_t p = (uintptr_t)ptr;

	return p >= w->start && p <= w->end && size <= w->end - p;
}

/*
 * A published handle of ctx for [low, high) of an open region, which it holds from now on; mapped where
 * the region is. 0 or -errno, and nothing is held.
 */
int gdri_handle_new(struct gdri_ctx *ctx, struct gdri_region *region, uint64_t low, uint64_t high,
		    gdr_mh_t *h);

/* A plain pin: a region of its own and a handle of it. */
int gdri_handle_pin(struct gdri_ctx *ctx, struct gdri_pin_request *request, gdr_mh_t *h);

/* Memory of our own (mem.c), mapped: see barcopy_mem_alloc() and the others; flags have been checked. */
int gdri_mem_alloc(struct gdri_ctx *ctx, int device, size_t size, uint32_t flags,
		   barcopy_mem_t *mem);
int gdri_mem_import(struct gdri_ctx *ctx, const struct gdri_imported *imported, size_t size,
		    barcopy_mem_t *mem);
int gdri_mem_export(gdr_t g, gdr_mh_t h, int *fd);

/*
 * The handle h of ctx (NULL: of any context) with its lock held, which the caller releases: 0,
 * -EINVAL, or -EACCES for the parent process's.
 */
int gdri_handle_lock(struct gdri_ctx *ctx, gdr_mh_t h, struct gdri_handle **out);

/*
 * The handle h of g, both held until the leave. kind: -EINVAL and a text that names the right call for a
 * handle of any other; NULL: it may be of each. Otherwise as gdri_ctx_get() and gdri_handle_lock().
 */
int gdri_handle_enter(gdr_t g, gdr_mh_t h, const struct gdri_region_kind *kind,
		      struct gdri_handle **out);
void gdri_handle_leave(struct gdri_handle *handle);

/* Enters, releases and leaves. */
int gdri_handle_end(gdr_t g, gdr_mh_t h, const struct gdri_region_kind *kind);

/* Releases all handles of a context that is nobody else's any more; returns the first failure. */
int gdri_handles_end(struct gdri_ctx *ctx);

/*
 * See barcopy_set_copy_options(): of a handle of ctx, or of any context (NULL) but not of a cache, whose
 * users share the handle.
 */
int gdri_handle_set_copy_options(struct gdri_ctx *ctx, gdr_mh_t h,
				 const barcopy_copy_options_t *options);

/* Called with the lock held. Returns 0 or -errno. */
int gdri_handle_map_locked(struct gdri_handle *handle, size_t size, gdr_mapping_type_t wish);
int gdri_handle_unmap_locked(struct gdri_handle *handle);
bool gdri_handle_length_matches(const struct gdri_handle *handle, size_t size);

/*
 * Called with the lock held, which it releases: unmaps, gives the region back and frees the handle,
 * whatever fails on the way; returns the first failure.
 */
int gdri_handle_release_locked(struct gdri_handle *handle);

#endif
