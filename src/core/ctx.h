/* SPDX-License-Identifier: MIT */
/* Contexts, which a gdr_t names: backends that serve pins, handles, caches and queues. */
#ifndef GDRI_CTX_H
#define GDRI_CTX_H

#include <sys/queue.h>

#include "base/slots.h"
#include "backend/backend.h"

struct gdri_ctx {
	struct gdri_slot slot;

	struct gdri_backends backends; /* constant from the open to the close */

	pthread_cond_t idle; /* signalled when calls becomes 0 */
	pthread_mutex_t ranges_lock; /* guards ranges; before the locks of caches */
	pthread_mutex_t lock; /* guards the next four; after handle->lock */

	/* From here on a context begins as zeroes. */
	unsigned int calls; /* that are at work on this context */
	LIST_HEAD(, gdri_handle) handles;
	LIST_HEAD(, gdri_cache) caches;
	LIST_HEAD(, gdri_ring) rings; /* of queues and ports */
	/* The caches of ranges, by the flags of barcopy_map_range(): made when first used. */
	struct gdri_cache *ranges[4];
	/* Counts ends of cached regions, ranges, handles, queues and ports, and unmaps. */
	_Atomic uint64_t unpinned;
	struct gdri_counters counters;
};

/* See barcopy_open(). 0 or -errno. */
int gdri_ctx_open(uint32_t flags, gdr_t *g);

/* Begins a call on a context, which gdri_ctx_put() ends. 0, -EINVAL, -EACCES in a forked child. */
int gdri_ctx_get(gdr_t g, struct gdri_ctx **ctx);
int gdri_ctx_put(struct gdri_ctx *ctx, int rc); /* returns rc */

/*
 * A close retires the name, and waits for calls at work (it fails as gdri_ctx_get() does); the
 * caller ends handles, caches and queues; the free closes the backends.
 */
int gdri_ctx_retire(gdr_t g, struct gdri_ctx **ctx);
int gdri_ctx_free(struct gdri_ctx *ctx); /* 0 or -errno: it ends in either case */

#endif
