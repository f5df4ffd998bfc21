/* SPDX-License-Identifier: MIT */
/*
 * The other side of the litmus tests: a kernel on the GPU or, without a GPU, a thread that runs the same
 * protocols on host memory.
 *
 * Every 8-byte word of a block holds the round's number twice: a word with an older number is stale, with
 * a newer one too new, with two numbers torn.
 */
#ifndef PERF_LITMUS_PEER_H
#define PERF_LITMUS_PEER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cuda.h"

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
void litmus_unload(struct litmus_peer *peer);

/* Start one protocol on the GPU or in a thread; wait for its end. */
void litmus_start(struct litmus_peer *peer, const struct litmus_work *work);
void litmus_finish(struct litmus_peer *peer);

#endif
