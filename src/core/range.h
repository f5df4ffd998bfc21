/* SPDX-License-Identifier: MIT */
/*
 * barcopy_map_range(): regions that are shared by all ranges of a context that lie in them. It knows
 * nothing of the registration cache.
 *
 * Lock order: handle->lock, then the lock of a gdri_ranges, then ctx->lock and the backends' locks.
 */
#ifndef GDRI_RANGE_H
#define GDRI_RANGE_H

#include <pthread.h>

#include "barcopy.h"
#include "core/pages.h"

struct gdri_ctx;

/* The ranges of one context. */
struct gdri_ranges {
	pthread_mutex_t lock; /* guards what follows */
	struct gdri_pages pages[2]; /* [1]: read-only; made when first used */
};

/* Once for the lock, again in a forked child. */
void gdri_ranges_init_lock(struct gdri_ranges *ranges);

/* Frees the tables, when every handle has ended. */
void gdri_ranges_destroy(struct gdri_ranges *ranges);

/* See barcopy_map_range(); the range has been checked. Returns 0 or -errno. */
int gdri_range_map(struct gdri_ctx *ctx, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		   gdr_mh_t *handle);

/* 0, or -EINVAL where the handle is not one of gdri_range_map(). */
int gdri_range_unmap(struct gdri_ctx *ctx, gdr_mh_t handle);

/* Rounds [addr, addr + size) to GPU pages after checking it: 0, -EINVAL or -EOVERFLOW. */
int gdri_range_check(uint64_t addr, size_t size);

#endif
