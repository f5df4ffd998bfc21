/* SPDX-License-Identifier: MIT */
/*
 * The flags and data that the CPU and a running kernel share, and the CPU's operations on them. It must not
 * know the order of the operations in a round.
 */
#ifndef PERF_PPLAT_FLAGS_H
#define PERF_PPLAT_FLAGS_H

#include "common/bench.h"

enum place { GPU, CPU };

#define PPLAT_MAX_BLOCKS  1024
#define PPLAT_MAX_THREADS 1024

/*
 * Flags and data share no cache line. GPU memory and host memory have the same layout. Each thread block
 * has its own pong, status word (the last round that it finished) and two times.
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
	long rounds, blocks, threads, timeout_s; /* threads 0: as many as the data need; timeout_s 0: none */
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

/* Allocates and maps the memory, and loads the kernels. */
void pplat_open(struct pplat *p);
void pplat_close(struct pplat *p);

/* Ends the tool if a call of the library failed. */
void pplat_check(int rc, const char *call);

CUdeviceptr pplat_address(const struct pplat *p, int place, size_t at);
uint64_t pplat_timeout_ns(const struct pplat *p);

/* Zeroes the flags in both memories; they are zero before a kernel starts. */
void pplat_clear(struct pplat *p);

/* Starts a kernel of pplat_ptx with p->blocks blocks of p->threads threads. */
void pplat_launch(struct pplat *p, const char *name, void **params);

/*
 * Waits for the kernel's end. Returns rc, the result of the rounds; if that is 0, returns 1 unless every
 * block has finished `rounds` rounds.
 */
int pplat_finish(struct pplat *p, int rc, uint32_t rounds);

/* Copies the message to where the kernel reads it; it is complete before a later ping. */
void pplat_write_message(struct pplat *p);
/* Copies what the kernel has written to p->answer. */
void pplat_read_answer(struct pplat *p);
/* Call before a ping that lets the kernel overwrite what was read. */
void pplat_after_read(struct pplat *p);

void pplat_set_ping(struct pplat *p, uint32_t value);
/* Waits for every block's pong. If one does not come in time, ends the kernel and the tool. */
void pplat_wait_pongs(struct pplat *p, uint32_t round);

/* One of a block's two times, in ns of the GPU's clock; after pplat_finish(). */
uint64_t pplat_time(const struct pplat *p, long block, int which);

#endif
