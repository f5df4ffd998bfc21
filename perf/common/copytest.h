/* SPDX-License-Identifier: MIT */
/*
 * The data around a timed loop: random bytes before it, a comparison of every byte after it. CUDA's
 * own copies are the independent path. It must not know how the loop copies or is timed.
 */
#ifndef PERF_COPYTEST_H
#define PERF_COPYTEST_H

#include <stddef.h>
#include <stdint.h>

#include "alloc.h"

struct copytest {
	const struct gpu_mem *mem;
	uint8_t *host; /* the copies' host side: max bytes and a guard behind them */
	uint8_t *expect; /* what the GPU buffer, or the host side, must hold afterwards */
	uint8_t *seen; /* what it holds */
	size_t max; /* largest copy */
	uint64_t sequence; /* of the random bytes */
};

void copytest_init(struct copytest *t, const struct gpu_mem *mem, size_t max);
void copytest_free(struct copytest *t);

/* Bytes that a host side for copies of `max` bytes must have. */
size_t copytest_host_size(size_t max);

/*
 * Around a loop that copies host[0, size) to byte `offset` of the GPU buffer, or the reverse. The
 * checks look at the whole GPU buffer, or at the guard too: a byte outside the range counts. They
 * return 0, or -EIO with the first wrong byte told on stderr.
 */
void copytest_before_write(struct copytest *t, uint8_t *host, size_t offset, size_t size);
int copytest_after_write(struct copytest *t);
void copytest_before_read(struct copytest *t, uint8_t *host, size_t offset, size_t size);
int copytest_after_read(struct copytest *t, const uint8_t *host, size_t offset, size_t size);

/* n random bytes, the same for the same sequence number. */
void copytest_random(void *p, size_t n, uint64_t sequence);

/* 0, or -EIO with the first difference told: `what`, its offset from `base`, both values. */
int copytest_compare(const char *what, size_t base, const uint8_t *expect, const uint8_t *seen,
		     size_t n);

#endif
