/* SPDX-License-Identifier: MIT */
/*
 * The CPU's side of queues (barcopy_queue.h, docs/queue.md). A queue owns a block of GPU memory, mapped,
 * with the ring of requests, and a block of host memory, registered with CUDA, with the ring of replies.
 * It knows the layout of lines; it knows nothing of kernels.
 */
#ifndef GDRI_QUEUE_H
#define GDRI_QUEUE_H

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
	GDRI_QUEUE_WORDS = 8, /* of a line */
	GDRI_QUEUE_LINES_MAX = BARCOPY_QUEUE_MESSAGE_MAX / BARCOPY_QUEUE_LINE,
	GDRI_QUEUE_RING_MIN = 16, /* the largest message, the line that stops, and what is not yet told */
	GDRI_QUEUE_RING_MAX = 65536,
	GDRI_QUEUE_RING = 256
};

/* A user in more than one thread at a time is found in builds with a sanitizer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(GDRI_TSAN)
#define GDRI_QUEUE_CHECK 1
#else
#define GDRI_QUEUE_CHECK 0
#endif

struct gdri_queue {
	struct gdri_slot slot;

	/* Set before publication, constant until the queue ends. */
	_Atomic(gdr_t) g; /* atomic for a call that comes too late, and meets the next queue in this slot */
	char *control, *requests; /* in the mapping of GPU memory */
	char *state, *replies; /* in host memory */
	const struct gdri_copy_plan *plan; /* of the mapping */
	uint32_t lines, shift; /* of each ring, and the power of two that it is */
	bool direct; /* a line is one store that leaves by itself */

	/* The sender's. */
	_Alignas(64) uint64_t sent; /* lines written */
	uint64_t freed; /* of them, lines that the kernel is known to have taken */
	bool stopped;
	_Atomic bool sending;

	/* The receiver's. */
	_Alignas(64) uint64_t received; /* lines read */
	uint64_t credited; /* of them, lines that the kernel was told of */
	_Atomic bool receiving;

	/* The owner's. */
	_Alignas(64) struct gdri_ctx *ctx;
	barcopy_mem_t mem;
	struct gdri_cuda_pages *pages; /* of host memory */
	barcopy_queue_view_t view;
	LIST_ENTRY(gdri_queue) link; /* of the context's; under ctx->lock */
};

extern struct gdri_slots gdri_queues;

/* Below, all int functions return 0 or -errno with its text. */

/* See barcopy_queue_create(); lines has been checked. */
int gdri_queue_create(struct gdri_ctx *ctx, int device, uint32_t lines, barcopy_queue_t *queue);

/* See barcopy_queue_destroy(). */
int gdri_queue_destroy(struct gdri_queue *queue, uint64_t timeout_ns);

/* Ends all queues of a context that was retired; a kernel that does not stop keeps its memory. */
void gdri_queues_end(struct gdri_ctx *ctx);

/* See the calls of these names; `wait_error` is what a full or empty ring is called. */
int gdri_queue_send(struct gdri_queue *queue, const void *message, size_t size, uint64_t timeout_ns,
		    int wait_error);
int gdri_queue_receive(struct gdri_queue *queue, void *message, size_t capacity, size_t *size,
		       uint64_t timeout_ns);
void gdri_queue_stop(struct gdri_queue *queue);

#endif
