/* SPDX-License-Identifier: MIT */
/* Random data before a timed loop; after it every byte is compared, by CUDA's own copies. */
#ifndef PERF_COPYTEST_H
#define PERF_COPYTEST_H

#include <stddef.h>
#include <stdint.h>

#include "cuda.h"

enum direction { WRITE, READ, DIRECTIONS }; /* host to GPU, GPU to host */
extern const char *const direction_name[DIRECTIONS];

struct copytest {
	const struct gpu_mem *mem;
	uint8_t *host; /* the copies' host side: max bytes and a guard behind them */
	uint8_t *expect; /* what the GPU buffer, or the host side, must hold afterwards */
	uint8_t *seen; /* what it holds */
	uint64_t sequence; /* of the random bytes */
};

/* `max` is the size of the largest copy. The memory is kept to the end of the tool. */
void copytest_init(struct copytest *t, const struct gpu_mem *mem, size_t max);

/* Bytes that a host side for copies of `max` bytes must have. */
size_t copytest_host_size(size_t max);

/*
 * Around a loop that copies host[0, size) to byte `offset` of the GPU buffer (WRITE), or the
 * reverse. The second compares the whole GPU buffer, or the guard too: a byte outside the range
 * counts. It returns 0, or -EIO after a message with the first wrong byte.
 */
void copytest_before(struct copytest *t, enum direction dir, uint8_t *host, size_t offset,
		     size_t size);
int copytest_after(struct copytest *t, enum direction dir, const uint8_t *host, size_t offset,
		   size_t size);

/* n random bytes, the same for the same sequence number. */
void copytest_random(void *p, size_t n, uint64_t sequence);

/* 0, or -EIO after a message: `what`, the first difference's offset from `base`, both values. */
int copytest_compare(const char *what, size_t base, const uint8_t *expect, const uint8_t *seen,
		     size_t n);

#endif
