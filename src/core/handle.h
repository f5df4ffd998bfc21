/* SPDX-License-Identifier: MIT */
/*
 * Handles: each holds a region, and shows it or a part of it. The first cache line is all that a copy reads, without a
 * lock; the rest is under the handle's lock.
 *
 * Lock order: handle->lock, then ctx->lock, then the locks of slots, backends and log. The lock of a
 * cache comes before the locks of its own handles, and behind those of handles of ranges.
 */
#ifndef GDRI_HANDLE_H
#define GDRI_HANDLE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "barcopy.h"
#include "core/offload.h"
#include "core/region.h"
#include "base/process.h"
#include "base/slots.h"
#include "backend/backend.h"
#include "copy/copy.h"

struct gdri_ctx;

/* What barcopy_next_revoked() has to do with a handle. */
enum gdri_notice {
	GDRI_NOTICE_NONE, /* not seen revoked yet */
	GDRI_NOTICE_PENDING, /* seen revoked, the caller has not been told */
	GDRI_NOTICE_TOLD
};

struct gdri_handle {
	struct gdri_slot slot;

	/*
	 * Read by copies: written under lock while the handle is new, mapped or unmapped. The owner
	 * is the gdri_process_tag() of the pin, with GDRI_HANDLE_COUNTED beside it while copies are
	 * counted: that bit is the memory's, whichever handle is in it.
	 */
	_Atomic uint64_t owner;
	_Atomic(const struct gdri_copy_plan *) plan; /* NULL while not mapped */
	_Atomic uintptr_t copy_start, copy_end; /* bytes that copies may touch */

	pthread_mutex_t lock;
	struct gdri_ctx *ctx; /* set before publication, constant after */
	struct gdri_region *region; /* likewise; given back when the handle ends */
	uint64_t low, high; /* likewise: the bytes that it stands for */
	struct gdri_pin pin; /* under lock: the region's, as this handle shows it */
	enum gdri_notice notice; /* under lock; barcopy_next_revoked()'s */
	struct gdri_offload *assist; /* under lock; NULL: none */
	bool assist_set; /* under lock: by a call, so that the environment is not asked */
	struct gdri_handle *prev, *next; /* the context's list; under ctx->lock */
};

extern struct gdri_slots gdri_handles;

#define GDRI_HANDLE_COUNTED ((uint64_t)1 << 32)

/* Is it this process's? */
static inline bool gdri_handle_is_own(const struct gdri_handle *handle)
{
	return (uint32_t)atomic_load_explicit(&handle->owner, memory_order_relaxed) ==
	       gdri_process_tag();
}

/* Where a copy may go; filled by gdri_handle_for_copy(). */
struct gdri_window {
	const struct gdri_copy_plan *plan;
	uintptr_t start, end;
};

/* Says why a copy on h cannot be: EINVAL or EACCES. */
int gdri_handle_copy_errno(gdr_mh_t h);

/* What gdri_handle_for_copy() returns where the copy has to be counted (stats/tally.h). */
enum { GDRI_COUNTED = 1 };

/*
 * 0 and the window, or GDRI_COUNTED and the window, or -errno with its text. No lock, no system
 * call; and nothing more to be compared for the counting.
 */
static inline __attribute__((always_inline)) int gdri_handle_for_copy(gdr_mh_t h,
								      struct gdri_window *w)
{
	struct gdri_slot *slot = gdri_slots_find(&gdri_handles, h.h);
	struct gdri_handle *handle = (struct gdri_handle *)slot;
	uint64_t owner, tag = gdri_process_tag();

	if (__builtin_expect(!handle, 0))
		goto refuse;
	w->plan = atomic_load_explicit(&handle->plan, memory_order_acquire);
	w->start = atomic_load_explicit(&handle->copy_start, memory_order_relaxed);
	w->end = atomic_load_explicit(&handle->copy_end, memory_order_relaxed);
	owner = atomic_load_explicit(&handle->owner, memory_order_relaxed);
	if (__builtin_expect(!w->plan || owner != tag, 0)) {
		if (w->plan && owner == (tag | GDRI_HANDLE_COUNTED))
			return GDRI_COUNTED;
		goto refuse;
	}
	return 0;
refuse:
	return gdri_handle_copy_errno(h) == EACCES ? -EACCES : -EINVAL;
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

/* The handle h of ctx with its lock held: 0, -EINVAL, or -EACCES for the parent process's. */
int gdri_handle_lock(struct gdri_ctx *ctx, gdr_mh_t h, struct gdri_handle **out);
void gdri_handle_unlock(struct gdri_handle *handle);

/* The same without a context: NULL for what is no handle, or not of this process; see copy_errno. */
struct gdri_handle *gdri_handle_lock_any(gdr_mh_t h);

/* Called with the lock held. Returns 0 or -errno. */
int gdri_handle_map_locked(struct gdri_handle *handle, size_t size, gdr_mapping_type_t wish);
int gdri_handle_unmap_locked(struct gdri_handle *handle);
int gdri_handle_set_copy_options_locked(struct gdri_handle *handle,
					const barcopy_copy_options_t *options);
bool gdri_handle_length_matches(const struct gdri_handle *handle, size_t size);

/*
 * Called with the lock held, which it releases: unmaps, gives the region back and frees the handle,
 * whatever fails on the way; returns the first failure.
 */
int gdri_handle_release_locked(struct gdri_handle *handle);

/* Copies on every handle, those to come among them, are counted or not. */
void gdri_handles_count(bool count);

void gdri_handle_after_fork(void);

#endif
