/* SPDX-License-Identifier: MIT */
/*
 * The other side of the litmus tests: a kernel on the GPU, or a thread that plays one over host
 * memory where there is no GPU. It knows the protocols, not how the CPU's side copies.
 *
 * Every 8-byte word of a block holds the round's number twice, so a word of another round is stale
 * (or too new) and a word with two numbers is torn.
 */
#ifndef PERF_LITMUS_PEER_H
#define PERF_LITMUS_PEER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cuda_dl.h"

enum protocol {
	/* Writes the block, then the flag; goes on when ack has reached the round. */
	PRODUCE,
	/* Waits for the flag, checks the block, reports, acks. */
	CONSUME,
	/* Sequence lock: odd, block, even, a pause; until ack is not 0. */
	SEQLOCK,
	/* Counts up in the block's last word, as fast as it can. */
	COUNT_UP,
	PROTOCOLS
};

/* Places of a protocol's words; the peer's own addresses and, for a thread, pointers. */
struct litmus_work {
	enum protocol protocol;
	uint64_t data, flag; /* device addresses */
	uint64_t ack, report; /* report: two words, rounds with a wrong and with a torn word */
	uint32_t words; /* of 8 bytes */
	uint32_t rounds;
};

struct litmus_peer {
	/* the GPU's */
	CUmodule module;
	CUfunction kernel[PROTOCOLS];
	CUstream stream;
	/* the thread's */
	pthread_t thread;
	struct litmus_work work;
};

/* Loads the kernels; ends the tool if that cannot be. Not for a thread. */
void litmus_load(struct litmus_peer *peer);
void litmus_unload(struct litmus_peer *peer);

/* Starts one protocol on the GPU or in a thread, and waits for its end. */
void litmus_start(struct litmus_peer *peer, const struct litmus_work *work);
void litmus_finish(struct litmus_peer *peer);

#endif
