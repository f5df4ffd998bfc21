/* SPDX-License-Identifier: MIT */
/*
 * The parts of litmus: the copies under test, and the other side, a kernel on the GPU or, without a GPU,
 * a thread that runs the same protocols on host memory.
 *
 * Every 8-byte word of a block holds the round's number twice: a word with an older number is
 * stale, with a newer one too new, with two numbers torn.
 */
#ifndef DEV_LITMUS_H
#define DEV_LITMUS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cuda.h"
#include "impls/impls.h"

/* ---- copies.c: libgdrapi's public calls on a handle, or a plan of this tool's ---- */

struct copies {
	gdr_mh_t handle; /* 0: the plan, with another implementation or without fences, is used */
	struct gdri_copy_plan plan;
};

/* Each ends the tool if the call fails. */
void copies_must(int rc, const char *call);
void copies_from(const struct copies *c, void *host, const void *map, size_t size);
void copies_to(const struct copies *c, void *map, const void *host, size_t size);
void copies_v_from(const struct copies *c, const barcopy_copy_seg_t *seg, size_t count);
void copies_v_to(const struct copies *c, const barcopy_copy_seg_t *seg, size_t count);
uint32_t copies_get(const struct copies *c, const void *map);
void copies_post(const struct copies *c, void *map, uint32_t value);
void copies_line(const struct copies *c, void *map, const void *line);

/* ---- peer.c: the other side ---- */

enum protocol {
	/* Writes the block, then the flag; continues when ack has reached the round. */
	PRODUCE,
	/* Waits for the flag, checks the block, reports, acks. */
	CONSUME,
	/* Sequence lock: stores odd, the block, even, then pauses; until ack is not 0. */
	SEQLOCK,
	/* Counts up in the block's last word, as fast as it can. */
	COUNT_UP,
	PROTOCOLS
};

/* Addresses of a protocol's words: device addresses or, for a thread, pointers. */
struct litmus_work {
	enum protocol protocol;
	uint64_t data, flag;
	uint64_t ack, report; /* report: two words, rounds with a wrong and with a torn word */
	uint32_t words; /* of 8 bytes */
	uint32_t rounds;
};

struct litmus_peer {
	/* for a GPU */
	CUmodule module;
	CUfunction kernel[PROTOCOLS];
	CUstream stream;
	/* for a thread */
	pthread_t thread;
	struct litmus_work work;
};

/* Loads the kernels, or ends the tool. Not for a thread. */
void litmus_load(struct litmus_peer *peer);

/* Start one protocol on the GPU or in a thread; wait for its end. */
void litmus_start(struct litmus_peer *peer, const struct litmus_work *work);
void litmus_finish(struct litmus_peer *peer);

#endif
