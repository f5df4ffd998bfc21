/* SPDX-License-Identifier: MIT */
/*
 * What the examples share: a call that fails ends them, with the call and its cause in words; and a
 * clock. A program that has another way than this library, such as cuMemcpy, goes on with that.
 */
#ifndef MUST_H
#define MUST_H

#include <barcopy.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline void fail(const char *call, const char *why)
{
	fprintf(stderr, "%s failed: %s\n", call, why);
	exit(1);
}

/* A call of this library, which returns 0 if it succeeded. */
#define GDR(call)                                          \
	do {                                               \
		if (call)                                  \
			fail(#call, barcopy_last_error()); \
	} while (0)

/* A condition that holds if the system's call succeeded. */
#define SYSTEM(condition)                                  \
	do {                                               \
		if (!(condition))                          \
			fail(#condition, strerror(errno)); \
	} while (0)

#ifdef __CUDACC__ /* the files for nvcc use CUDA's runtime */
#define CUDA(call)                                                           \
	do {                                                                 \
		if ((call) != cudaSuccess)                                   \
			fail(#call, cudaGetErrorString(cudaGetLastError())); \
	} while (0)
#endif

/* A context for every kind of memory that can be mapped on this machine. */
static inline gdr_t open_any(void)
{
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);

	if (!g)
		fail("barcopy_open()", barcopy_last_error());
	return g;
}

static inline double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

#endif
