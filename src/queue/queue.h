/* SPDX-License-Identifier: MIT */
/*
 * The CPU's side of queues (barcopy_queue.h, docs/queue.md). A queue owns two blocks: mapped GPU
 * memory with the ring of requests, and host memory, registered with CUDA, with the ring of
 * replies. Kernels are launched by the caller.
 */
#ifndef GDRI_QUEUE_H
#define GDRI_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "barcopy_queue.h"
#include "base/slots.h"
#include "copy/word.h"

struct gdri_copy_plan;
struct gdri_cuda_pages;
struct gdri_ctx;

enum {
	GDRI_QUEUE_WORDS = 8, /* per line */
	GDRI_QUEUE_LINES_MAX = BARCOPY_QUEUE_MESSAGE_MAX / BARCOPY_QUEUE_LINE,
	/* The largest message, the stop line and lines not yet credited fit. */
	GDRI_QUEUE_RING_MIN = 16,
	GDRI_QUEUE_RING_MAX = 65536,
	GDRI_QUEUE_RING = 256
};

/* Builds with a sanitizer detect two threads in the same call on one queue. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(GDRI_TSAN)
#define GDRI_QUEUE_CHECK 1
#else
#define GDRI_QUEUE_CHECK 0
#endif

struct gdri_queue {
	struct gdri_slot slot;

	/* Set before publication, constant until the queue ends. */
	/* Atomic: a call on a destroyed queue may read the next queue of this slot. */
	_Atomic(gdr_t) g;
	char *control, *requests; /* in the mapping of GPU memory */
	char *state, *replies; /* in host memory */
	const struct gdri_copy_plan *plan; /* of the mapping */
	uint32_t lines, shift; /* lines of each ring, and its base-2 logarithm */
	bool direct; /* MOVDIR64B writes a whole line; no fence follows */

	/* Used by the sender alone. */
	_Alignas(64) uint64_t sent; /* lines written */
	uint64_t freed; /* of those, lines that the kernel has taken, as last read */
	uint64_t send_asked; /* when a wait last asked CUDA, in ns */
	_Atomic bool stopped; /* the receiver reads it too */
	_Atomic bool aborted;
	_Atomic bool sending;
	bool push; /* a fence sends the lines; false with `direct`, and within a batch */

	/* Used by the receiver alone. */
	_Alignas(64) uint64_t received; /* lines read */
	uint64_t credited; /* of those, lines whose reading was reported to the kernel */
	uint64_t receive_asked;
	_Atomic bool receiving;

	_Atomic bool dead; /* CUDA's last answer: no kernel runs in the context any more */

	/* Used by create and destroy. */
	_Alignas(64) struct gdri_ctx *ctx;
	barcopy_mem_t mem;
	struct gdri_cuda_pages *pages; /* host memory */
	barcopy_queue_view_t view;
	LIST_ENTRY(gdri_queue) link; /* in ctx->queues; under ctx->lock */
};

extern struct gdri_slots gdri_queues;

/*
 * GPU memory for a queue or a port: all of it is zero when this returns (no lap is 0), unless it fails.
 * Either way unmap frees what mem names. abandon takes it from the context and leaves it allocated:
 * to free what a kernel uses would wait for the kernel or break it.
 */
int gdri_queue_map(struct gdri_ctx *ctx, int device, size_t size, barcopy_mem_t *mem,
		   const struct gdri_copy_plan **plan);
void gdri_queue_unmap(struct gdri_ctx *ctx, const barcopy_mem_t *mem);
void gdri_queue_abandon(struct gdri_ctx *ctx, const barcopy_mem_t *mem);

/* All int functions below return 0, or -errno after setting the error's text. */

/* See barcopy_queue_create(); the options have been checked. */
int gdri_queue_create(struct gdri_ctx *ctx, int device, const barcopy_queue_options_t *options,
		      barcopy_queue_t *queue);

/* See barcopy_queue_destroy(). */
int gdri_queue_destroy(struct gdri_queue *queue, uint64_t timeout_ns);

/* Ends all queues of a retired context. Memory that a kernel still uses stays allocated. */
void gdri_queues_end(struct gdri_ctx *ctx);

/* See the public calls of these names. A full ring gives `wait_error`: ETIMEDOUT or EAGAIN. */
int gdri_queue_send(struct gdri_queue *queue, const void *message, size_t size, uint32_t flags,
		    uint64_t timeout_ns, int wait_error);
int gdri_queue_send_batch(struct gdri_queue *queue, const uint8_t *messages, size_t size,
			  uint32_t count, uint32_t flags, uint64_t timeout_ns);
int gdri_queue_receive(struct gdri_queue *queue, void *message, size_t capacity, size_t *size,
		       uint32_t flags, uint64_t timeout_ns);
void gdri_queue_stop(struct gdri_queue *queue, uint32_t flags);

static inline __attribute__((always_inline)) struct gdri_queue *
gdri_queue_find(barcopy_queue_t name)
{
	return (struct gdri_queue *)gdri_slots_find_own(&gdri_queues, (uintptr_t)name);
}

static inline int gdri_queue_refuse(barcopy_queue_t name)
{
	return gdri_slots_fail(&gdri_queues, (uintptr_t)name, "a queue");
}

/* Asks CUDA whether the context has ended, and notes the answer. */
bool gdri_queue_is_dead(struct gdri_queue *queue);

static inline bool gdri_queue_is_stopped(const struct gdri_queue *q)
{
	return atomic_load_explicit(&q->stopped, memory_order_relaxed);
}

/* What kernels have written: how many have begun, and whether one of them has not ended. */
static inline uint64_t gdri_queue_begun(const struct gdri_queue *q)
{
	return gdri_load64(q->state + BARCOPY_QUEUE_BEGUN_AT);
}

static inline bool gdri_queue_has_kernel(const struct gdri_queue *q)
{
	uint64_t ended = gdri_load64(q->state + BARCOPY_QUEUE_ENDED_AT);

	return gdri_load64(q->state + BARCOPY_QUEUE_ENDED_AT + 8) != ended ||
	       gdri_queue_begun(q) != ended;
}

#endif
