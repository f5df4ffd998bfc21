/* SPDX-License-Identifier: MIT */
/*
 * What queues and ports have in common: two blocks, which are mapped GPU memory and host memory
 * that is registered with CUDA, and a ring of lines in the latter, which kernels write.
 */
#ifndef GDRI_RING_H
#define GDRI_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "barcopy_queue.h"
#include "base/slots.h"
#include "copy/word.h"

struct gdri_ring;

enum {
	GDRI_LINE_WORDS = 8,
	GDRI_RING_MIN = 16, /* lines: a take's eight, the stop line and a quarter fit */
	GDRI_RING_MAX = 65536
};

#define GDRI_DATA_MASK ((UINT64_C(1) << BARCOPY_QUEUE_DATA_BITS) - 1)
#define GDRI_LAP_AT    BARCOPY_QUEUE_DATA_BITS
#define GDRI_LAP_BITS  ((uint64_t)BARCOPY_QUEUE_LAP_MASK << GDRI_LAP_AT)
#define GDRI_HEAD_AT   56

/* A flag of a stop, in addition to BARCOPY_QUEUE_ABORT: receives wait no longer. */
#define GDRI_RING_END UINT32_C(0x80000000)

/* The least time between two questions to CUDA, which take a few microseconds each. */
#define GDRI_ASK_NS UINT64_C(100000000)

/* In what queues and ports differ. */
struct gdri_ring_kind {
	struct gdri_slots *table;
	const char *what; /* such as "a queue" */
	uint32_t lines; /* if the caller asks for 0 */
	size_t object; /* bytes of the object, which begins with the ring */
	size_t control, gpu_line; /* bytes of GPU memory: once, and for each line */
	size_t state; /* bytes of host memory before the lines */
	size_t array; /* bytes of `arrays` for each line */
	/* Completes a ring with both blocks, all of whose other bytes are 0. */
	void (*set_up)(struct gdri_ring *ring, const void *options);
	void (*stop)(struct gdri_ring *ring, uint32_t flags);
};

/* The head of a queue and of a port, constant from publication to destroy but for `link`. */
struct gdri_ring {
	struct gdri_slot slot;
	/* Atomic: a call on a destroyed queue may read the next queue of this slot. */
	_Atomic(gdr_t) g;
	char *control; /* the GPU memory, as the CPU maps it */
	char *incoming; /* the lines from the kernel */
	const struct gdri_copy_plan *plan; /* of the mapping */
	struct gdri_cuda_pages *pages; /* the host memory */
	uint32_t lines, shift; /* lines of the ring, and its base-2 logarithm */

	/* Used by create and destroy. */
	_Alignas(64) const struct gdri_ring_kind *kind;
	struct gdri_ctx *ctx;
	gdr_mh_t handle;
	uint64_t gpu; /* the GPU memory, as kernels address it */
	void *arrays; /* of zeroes, freed with the ring; or NULL */
	LIST_ENTRY(gdri_ring) link; /* in ctx->rings; under ctx->lock */
};

/* All int functions below return 0, or -errno after setting the error's text. */

/*
 * See barcopy_queue_create(), _stop() and _destroy(). Options other than `lines` have been checked.
 * A stop refuses flags that are not in `known`.
 */
int gdri_ring_create(gdr_t g, const struct gdri_ring_kind *kind, int device, uint32_t lines,
		     const void *options, void **name);
int gdri_ring_stop(const struct gdri_ring_kind *kind, const void *name, uint32_t flags,
		   uint32_t known);
int gdri_ring_destroy(const struct gdri_ring_kind *kind, const void *name);

/* Aborts the rings of a retired context; their memory stays: a kernel may use it. */
void gdri_rings_end(struct gdri_ctx *ctx);

/* Why gdri_ring_find() found none. */
__attribute__((cold, noinline)) int gdri_ring_refuse(const void *name,
						     const struct gdri_ring_kind *kind);

static inline __attribute__((always_inline)) void *gdri_ring_find(struct gdri_slots *table,
								  const void *name)
{
	return gdri_slots_find_own(table, (uintptr_t)name);
}

/* ---- lines: docs/internals/queue-protocol.md says why the words' order does not matter ------- */

static inline uint64_t gdri_line_lap(const struct gdri_ring *r, uint64_t line)
{
	return ((line >> r->shift) + 1) << GDRI_LAP_AT & GDRI_LAP_BITS;
}

static inline char *gdri_line_at(const struct gdri_ring *r, char *lines, uint64_t line)
{
	return lines + (line & (r->lines - 1)) * GDRI_LINE;
}

/* Reads a line's 48 bytes. Returns its header; -1 if a word of the line has not arrived. */
static inline __attribute__((always_inline)) int gdri_line_read(const struct gdri_ring *r,
								uint64_t line, uint64_t *to)
{
	const char *from = gdri_line_at(r, r->incoming, line);
	uint64_t w[GDRI_LINE_WORDS], lap = gdri_line_lap(r, line), differs = 0;

	/* The last word first: while no line arrives, a poll reads only this word. */
	w[GDRI_LINE_WORDS - 1] = gdri_load64(from + 8 * (GDRI_LINE_WORDS - 1));
	if ((w[GDRI_LINE_WORDS - 1] ^ lap) & GDRI_LAP_BITS)
		return -1;
	GDRI_UNROLL
	for (unsigned int i = 0; i < GDRI_LINE_WORDS - 1; i++) {
		w[i] = gdri_load64(from + 8 * i);
		differs |= w[i] ^ lap;
	}
	if (differs & GDRI_LAP_BITS)
		return -1;
	/* Each four words have the bytes of three. */
	GDRI_UNROLL
	for (const uint64_t *v = w; v < w + GDRI_LINE_WORDS; v += 4, to += 3) {
		to[0] = (v[0] & GDRI_DATA_MASK) | v[1] << 48;
		to[1] = (v[1] & GDRI_DATA_MASK) >> 16 | v[2] << 32;
		to[2] = (v[2] & GDRI_DATA_MASK) >> 32 | v[3] << 16;
	}
	return (int)(w[0] >> GDRI_HEAD_AT);
}

#endif
