/* SPDX-License-Identifier: MIT */
/*
 * What the GPU tests share: a small harness, because a machine with a GPU may have no test library;
 * one started GPU; memory of cuMemCreate; ranges that are pinned and mapped. The tests use the
 * public interface only and run on the stand-in as well.
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

/* Unless cond holds, the running test fails with the place and a text, and returns. */
#define CHECK(cond, ...)                                                   \
	do {                                                               \
		if (!(cond)) {                                             \
			test_fail(__FILE__, __LINE__, #cond, __VA_ARGS__); \
			return;                                            \
		}                                                          \
	} while (0)

/* A call of libgdrapi that must succeed. */
#define OK(call)                                                          \
	do {                                                              \
		int err_ = (call);                                        \
		CHECK(!err_, "errno %d: %s", err_, barcopy_last_error()); \
	} while (0)

/* A call of libgdrapi that must fail with this errno; and barcopy_last_error() contains a text. */
#define FAILS(err, call)                                                                     \
	do {                                                                                 \
		int err_ = (call);                                                           \
		CHECK(err_ == (err), "%s: errno %d: %s", #call, err_, barcopy_last_error()); \
	} while (0)
#define FAILS_WITH(err, text, call)                                                    \
	do {                                                                           \
		FAILS(err, call);                                                      \
		CHECK(strstr(barcopy_last_error(), text), "%s", barcopy_last_error()); \
	} while (0)

/* A call of CUDA that must succeed. */
#define CU(call)                                                          \
	do {                                                              \
		CUresult res_ = (call);                                   \
		CHECK(res_ == CUDA_SUCCESS, "%s", cuda_error_text(res_)); \
	} while (0)

void test_fail(const char *file, int line, const char *cond, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The running test is skipped, and returns. */
#define SKIP(...)                       \
	do {                            \
		test_skip(__VA_ARGS__); \
		return;                 \
	} while (0)
void test_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

struct gpu_test {
	const char *name;
	void (*fn)(void);
	const void *arg; /* test_arg while this test runs */
};
extern const void *test_arg;

/* Runs them all. Returns the exit status: 0, 1 (failures) or 77 (no GPU: prints the reason). */
int gpu_test_main(const struct gpu_test *tests, size_t count);

#define GPU_TEST_MAIN(tests)                                                     \
	int main(void)                                                           \
	{                                                                        \
		return gpu_test_main(tests, sizeof(tests) / sizeof((tests)[0])); \
	}

/* Memory of cuMemCreate: `count` chunks side by side. */
struct vmm {
	CUdeviceptr ptr;
	size_t chunk, size;
	unsigned int count;
	bool mapped;
};
enum { EXPORTABLE = 1, RDMA_CAPABLE = 2 };

CUmemAllocationProp vmm_prop(unsigned int flags);
/* New memory at a reserved address: one chunk, without a handle, until cuMemUnmap. */
CUresult vmm_map(CUdeviceptr at, size_t size, unsigned int flags);
/* 0, or -1 with the failure recorded. */
int vmm_alloc(struct vmm *v, size_t size, unsigned int chunks, unsigned int flags);
void vmm_unmap(struct vmm *v); /* keeps the address range */
void vmm_free(struct vmm *v);

/* A range of GPU memory, pinned and mapped. */
struct mapped {
	struct vmm v; /* of mapped_open() */
	CUdeviceptr addr;
	size_t size;
	gdr_mh_t h;
	gdr_info_t info;
	void *map;
	uint8_t *p; /* the byte at addr */
};

/* Both return an errno of libgdrapi. */
int pin_and_map(struct mapped *m, CUdeviceptr addr, size_t size);
int unmap_and_unpin(struct mapped *m);

/* The same with exportable memory of its own. mapped_open(): 0, or -1 with the failure recorded. */
int mapped_open(struct mapped *m, size_t size, unsigned int chunks);
int mapped_close(struct mapped *m);

/*
 * Whether n bytes arrive, from the CPU's pointer into a mapping to CUDA at `addr` and back, and
 * only n. If not, prints what happened.
 */
bool both_ways(gdr_mh_t h, void *cpu, CUdeviceptr addr, size_t n, unsigned int seed);

/* The backend that serves a handle; 0 if the library does not say. */
uint64_t backend_of(gdr_mh_t h);

/* Exit status of a forked child that runs fn(arg) and exits with its value; 128 + signal; -1. */
int in_child(int (*fn)(void *arg), void *arg);

/* Random bytes, different for each seed. */
void pattern(void *buf, size_t size, unsigned int seed);

#endif
