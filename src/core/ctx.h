/* SPDX-License-Identifier: MIT */
/*
 * Contexts: what a gdr_t names. A context knows which backends may serve its pins, in which
 * order, and which handles are its own.
 */
#ifndef GDRI_CTX_H
#define GDRI_CTX_H

#include <pthread.h>
#include <stdint.h>
#include <sys/queue.h>

#include "barcopy.h"
#include "base/slots.h"
#include "backend/backend.h"
#include "base/counters.h"

struct gdri_cache;
struct gdri_handle;
struct gdri_queue;

struct gdri_ctx {
	struct gdri_slot slot;

	struct gdri_backends backends; /* constant from the open to the close */

	pthread_mutex_t lock; /* guards what follows; after handle->lock */
	pthread_cond_t idle; /* signalled when calls becomes 0 */
	unsigned int calls; /* entry points at work on this context */
	LIST_HEAD(, gdri_handle) handles;
	LIST_HEAD(, gdri_cache) caches;
	LIST_HEAD(, gdri_queue) queues;

	struct gdri_counters counters;

	/* What ranges of the same flags share: made when first used, among the caches. */
	pthread_mutex_t ranges_lock;
	struct gdri_cache *ranges[4];
};

/* Opens; see barcopy_open(). Returns 0 or -errno. */
int gdri_ctx_open(uint32_t flags, gdr_t *g);

/* Finds a context and counts a call on it: 0, -EINVAL, or -EACCES in a forked child. */
int gdri_ctx_get(gdr_t g, struct gdri_ctx **ctx);
void gdri_ctx_put(struct gdri_ctx *ctx);

/*
 * The two halves of a close, between which its handles and caches are to be ended: makes it unfindable
 * and waits for calls in flight (fails as gdri_ctx_get() does); closes the backends.
 */
int gdri_ctx_retire(gdr_t g, struct gdri_ctx **ctx);
void gdri_ctx_free(struct gdri_ctx *ctx);

#endif
