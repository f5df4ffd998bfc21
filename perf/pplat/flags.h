/* SPDX-License-Identifier: MIT */
/*
 * What the CPU and a running kernel share: the flags, the data, and what each side does with them. It
 * must not know in which order a round does that.
 */
#ifndef PERF_PPLAT_FLAGS_H
#define PERF_PPLAT_FLAGS_H

#include "common/bench.h"

enum place { GPU, CPU };

#define PPLAT_MAX_BLOCKS  1024
#define PPLAT_MAX_THREADS 1024

/*
 * Flags and data keep a distance, so that no line is shared. The same layout in both places. Each
 * block has a pong, a status word (the last round that it has finished) and two times of its own.
 */
enum pplat_layout {
	PING_AT = 0,
	PONG_AT = 4096,
	STATUS_AT = PONG_AT + 4 * PPLAT_MAX_BLOCKS,
	TIMES_AT = STATUS_AT + 4 * PPLAT_MAX_BLOCKS,
	MESSAGE_AT = TIMES_AT + 16 * PPLAT_MAX_BLOCKS
};

#define PPLAT_STOP UINT32_MAX /* as a ping: the kernel ends */

struct pplat {
	/* as asked for */
	long rounds, blocks, threads, timeout_s; /* threads 0: by the data; timeout_s 0: none */
	size_t size;
	int ping, pong, data; /* enum place */

	struct bench b;
	uint8_t *host; /* page-locked memory of the CPU */
	CUdeviceptr host_dptr;
	size_t answer_at;
	uint32_t *message, *answer; /* the CPU's own copies */
	CUmodule module;
	CUstream stream;
};

/* All of it, mapped; the kernels are loaded. */
void pplat_open(struct pplat *p);
void pplat_close(struct pplat *p);

/* Ends the tool if a call of the library failed. */
void pplat_check(int rc, const char *call);

CUdeviceptr pplat_address(const struct pplat *p, int place, size_t at);
uint64_t pplat_timeout_ns(const struct pplat *p);

/* Both sides' words to zero, by the CPU, and there before a kernel starts. */
void pplat_clear(struct pplat *p);

/* Starts a kernel of pplat_ptx with as many blocks and threads as asked for. */
void pplat_launch(struct pplat *p, const char *name, void **params);

/*
 * Waits for its end. Returns rc, what the rounds came to; if that is 0, every block must have finished
 * `rounds` of them.
 */
int pplat_finish(struct pplat *p, int rc, uint32_t rounds);

/* The message to where the kernel finds it, complete before a ping that follows. */
void pplat_write_message(struct pplat *p);
/* What the kernel has written, to `answer`. */
void pplat_read_answer(struct pplat *p);
/* Before a ping that lets the kernel overwrite what was read. */
void pplat_after_read(struct pplat *p);

void pplat_set_ping(struct pplat *p, uint32_t value);
/* Every block's pong; a kernel that does not answer in time is ended, and the tool with it. */
void pplat_wait_pongs(struct pplat *p, uint32_t round);

/* One of a block's two times, in ns of the GPU's clock; after pplat_finish(). */
uint64_t pplat_time(const struct pplat *p, long block, int which);

#endif
