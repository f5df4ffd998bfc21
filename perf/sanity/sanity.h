/* SPDX-License-Identifier: MIT */
/*
 * What the tests of gdrcopy_sanity share. A test runs in a process of its own, which has opened CUDA and
 * the library. It returns if it passes; a failure ends the process, so that nothing has to be undone. It
 * must not know which tests exist or how they are run.
 */
#ifndef PERF_SANITY_SANITY_H
#define PERF_SANITY_SANITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/alloc.h"
#include "common/buffer.h"
#include "common/gpu.h"
#include "barcopy.h"
#include "sanity/report.h"

#define KIB ((size_t)1024)

/* The memory under test; the same in every test. */
struct sanity_facts {
	int device;
	enum mem_kind kind; /* of the memory that is pinned */
	uint64_t backend; /* barcopy_backend_t that serves it */
	const char *place; /* where it lies, in words */
	bool persistent; /* a mapping outlives the free of its memory */
	bool sync_memops;
	gdr_mapping_type_t type; /* of a default mapping */
	long kernel_pins; /* of the whole machine before the first test; -1: not readable */
};

struct sanity {
	struct sanity_facts facts;
	struct gpu gpu;
	gdr_t g; /* barcopy_open(BARCOPY_OPEN_ANY) */
};
extern struct sanity sanity;

/* Opens CUDA and the library in this process; a bare test calls it, for others it was called. */
void sanity_open(void);
void sanity_close(void);

/* A call of libgdrapi that must succeed, or must give this errno. */
#define OK(call) EXPECT(call, 0)
#define EXPECT(call, errno_)                                                        \
	do {                                                                        \
		int err_ = (call);                                                  \
		if (err_ != (errno_))                                               \
			sanity_unexpected(__FILE__, __LINE__, #call, err_, errno_); \
	} while (0)
_Noreturn void sanity_unexpected(const char *file, int line, const char *call, int err, int wanted);

/* A call of CUDA that must succeed. */
#define CU(call)                                                                     \
	do {                                                                         \
		CUresult res_ = (call);                                              \
		CHECK(res_ == CUDA_SUCCESS, "%s: %s", #call, cuda_error_text(res_)); \
	} while (0)

/* A buffer of the kind under test, allocated, pinned and mapped; each call must succeed. */
void sanity_make(struct buffer *b, size_t size);
void sanity_unmake(struct buffer *b);
/* Memory of that kind, without a pin; freed by mem_free(). */
void sanity_alloc(struct gpu_mem *mem, size_t size);

/*
 * Pins a range and maps the whole pin, without memory of its own: b->cpu stands for `addr`. The errno
 * of the pin; what follows must succeed. gdr_unpin_buffer() ends both.
 */
int sanity_view(struct buffer *b, uint64_t addr, size_t size, uint32_t flags);
/* Waives the test, with the library's text, if that range cannot be served here. */
void sanity_view_or_waive(struct buffer *b, uint64_t addr, size_t size, uint32_t flags);
/* Maps a buffer again that was unmapped. */
void sanity_remap(struct buffer *b);

/* CUDA's own copies, complete on return. */
void sanity_gpu_write(CUdeviceptr to, const void *from, size_t size);
void sanity_gpu_read(void *to, CUdeviceptr from, size_t size);

/* Fails with the first byte that differs. */
#define SAME(what, expected, seen, size) sanity_same(__FILE__, __LINE__, what, expected, seen, size)
void sanity_same(const char *file, int line, const char *what, const void *expected,
		 const void *seen, size_t size);

/* Writes and reads the range through the mapping; CUDA must see the same. */
void sanity_round_trip(const struct buffer *b, uint64_t sequence);

/* Fails unless a load of that byte faults. For a process of one thread. */
void sanity_must_fault(const void *p, const char *when);

/* The mapping is the CPU's own memory, which is neither mapped, revoked, nor kept from a child. */
static inline bool sanity_is_host(void)
{
	return sanity.facts.backend == BARCOPY_BACKEND_HOST;
}

/* A child that runs fn(arg); its failure is the test's. */
pid_t sanity_fork(void (*fn)(void *), void *arg);
void sanity_join(pid_t pid);

/* A pipe: gate_wait() returns when another process has called gate_open(). */
struct gate {
	int fd[2];
};
void gate_make(struct gate *gate);
void gate_open(const struct gate *gate);
void gate_wait(const struct gate *gate);

/* Pins of the whole machine, as gdrdrv counts them; -1 where that cannot be read. */
long sanity_kernel_pins(void);

#endif
