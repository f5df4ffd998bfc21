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
	GDRI_QUEUE_RING_MIN = 16, /* a take's eight lines, the stop line and a quarter fit */
	GDRI_QUEUE_RING_MAX = 65536,
	GDRI_QUEUE_RING = 256
};

/* The least time between two questions to CUDA, which take a few microseconds each. */
#define GDRI_ASK_NS UINT64_C(100000000)

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
	bool stopped;

	/* Used by the receiver alone. */
	_Alignas(64) uint64_t received; /* lines read */
	uint64_t credited; /* of those, lines whose reading was reported to the kernel */
	uint64_t receive_asked;

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
void gdri_queue_destroy(struct gdri_queue *queue);

/* Aborts the queues of a retired context; their memory stays: a kernel may use it. */
void gdri_queues_end(struct gdri_ctx *ctx);

/* See the public calls of these names. */
int gdri_queue_send(struct gdri_queue *queue, const void *message, size_t size, uint32_t flags,
		    uint64_t timeout_ns);
int gdri_queue_receive(struct gdri_queue *queue, void *message, size_t capacity, size_t *size,
		       uint64_t timeout_ns);
void gdri_queue_stop(struct gdri_queue *queue, uint32_t flags);

/* Joins the message's bytes of a line's eight words into six words. */
static inline void gdri_queue_join(uint64_t *to, const uint64_t *w)
{
	const uint64_t mask = (UINT64_C(1) << BARCOPY_QUEUE_DATA_BITS) - 1;

	GDRI_UNROLL
	for (unsigned int i = 0; i < 2; i++, to += 3, w += 4) {
		to[0] = (w[0] & mask) | w[1] << 48;
		to[1] = (w[1] & mask) >> 16 | w[2] << 32;
		to[2] = (w[2] & mask) >> 32 | w[3] << 16;
	}
}

static inline __attribute__((always_inline)) struct gdri_queue *
gdri_queue_find(barcopy_queue_t name)
{
	return (struct gdri_queue *)gdri_slots_find_own(&gdri_queues, (uintptr_t)name);
}

static inline int gdri_queue_refuse(barcopy_queue_t name)
{
	return gdri_slots_fail(&gdri_queues, (uintptr_t)name, "a queue");
}

#endif
