/* SPDX-License-Identifier: MIT */
/* The flags and data that the CPU and a running kernel share, and the rounds. */
#ifndef PERF_PPLAT_PPLAT_H
#define PERF_PPLAT_PPLAT_H

#include "bench/bench.h"

enum place { GPU, CPU };

#define PPLAT_MAX_BLOCKS  1024
#define PPLAT_MAX_THREADS 1024

/*
 * Flags and data share no cache line. GPU and host memory have one layout. A thread block has its
 * own pong, status word (the last round that it finished) and two times.
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
	/* the options */
	long rounds, blocks, threads,
		timeout_s; /* threads 0: as many as the data need; timeout_s 0: none */
	size_t size;
	int ping, pong, data; /* enum place */

	struct bench b;
	uint8_t *host; /* page-locked memory of the CPU */
	CUdeviceptr host_dptr;
	size_t answer_at;
	uint32_t *message, *answer; /* the CPU's own copies; kept to the end of the tool */
	CUmodule module;
	CUstream stream;
};

/* Allocates and maps the memory, and loads the kernels. */
void pplat_open(struct pplat *p);
void pplat_close(struct pplat *p);

CUdeviceptr pplat_address(const struct pplat *p, int place, size_t at);
uint64_t pplat_timeout_ns(const struct pplat *p);

/* The CPU begins, and times each round, in us. 0; else not 0, with the reason on stderr. */
int pplat_cpu_first(struct pplat *p, struct stats *st);

/* The GPU begins, and times all rounds together: the mean is all there is. */
int pplat_gpu_first(struct pplat *p, struct stats *st);

/* queue.c: compares queues (barcopy_queue.h) with their alternatives. Prints, or adds to `j`. */
void pplat_queue(struct pplat *p, struct json *j);

#endif
