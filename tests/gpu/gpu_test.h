/* SPDX-License-Identifier: MIT */
/*
 * What the GPU tests share: a tiny harness that needs no test library (the machine with the GPU
 * may have none), one started GPU, and VMM buffers of one or more chunks. The tests use the public
 * interface only and run on the stand-in as well.
 */
#ifndef GPU_TEST_H
#define GPU_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cuda.h"
#include "barcopy.h"

extern struct gpu test_gpu;
extern gdr_t test_g; /* barcopy_open(BARCOPY_OPEN_ANY) */

/* Fails the running test with the place and a text, and returns from it. */
#define EXPECT(cond, ...)                                                  \
	do {                                                               \
		if (!(cond)) {                                             \
			test_fail(__FILE__, __LINE__, #cond, __VA_ARGS__); \
			return;                                            \
		}                                                          \
	} while (0)

/* A call of libgdrapi that must succeed. */
#define OK(call)                                                           \
	do {                                                               \
		int err_ = (call);                                         \
		EXPECT(!err_, "errno %d: %s", err_, barcopy_last_error()); \
	} while (0)

/* A call of CUDA that must succeed. */
#define CU(call)                                                           \
	do {                                                               \
		CUresult res_ = (call);                                    \
		EXPECT(res_ == CUDA_SUCCESS, "%s", cuda_error_text(res_)); \
	} while (0)

void test_fail(const char *file, int line, const char *cond, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Ends the running test as skipped. */
#define SKIP(...)                       \
	do {                            \
		test_skip(__VA_ARGS__); \
		return;                 \
	} while (0)
void test_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

struct gpu_test {
	const char *name;
	void (*fn)(void);
	const void *arg; /* test_arg of the row */
};
extern const void *test_arg;

/* Runs them all; exit status: 0, 1 with failures, 77 without a GPU (the reason printed last). */
int gpu_test_main(const struct gpu_test *tests, size_t count);

#define GPU_TEST_MAIN(tests)                                                     \
	int main(void)                                                           \
	{                                                                        \
		return gpu_test_main(tests, sizeof(tests) / sizeof((tests)[0])); \
	}

/* Exportable VMM memory of `count` chunks side by side. */
struct vmm {
	CUdeviceptr ptr;
	size_t chunk, size;
	unsigned int count;
	CUmemGenericAllocationHandle handles[8];
	bool mapped;
};

/* 0, or -1 with the failure recorded. */
int vmm_alloc(struct vmm *v, size_t size, unsigned int chunks, bool exportable);
void vmm_unmap(struct vmm *v); /* unmaps and releases, keeps the address range */
void vmm_free(struct vmm *v);

/* Such memory, pinned and mapped, at most 8 chunks. */
struct mapped {
	struct vmm v;
	gdr_mh_t h;
	uint8_t *p;
};

int mapped_open(struct mapped *m, size_t size, unsigned int chunks);
int mapped_close(struct mapped *m); /* the first error */

/* Bytes that differ from one offset and seed to the next. */
void pattern(void *buf, size_t size, unsigned int seed);

#endif
