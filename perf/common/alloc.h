/* SPDX-License-Identifier: MIT */
/*
 * The three kinds of CUDA memory that the tools measure. It must not know libgdrapi: the caller finds
 * out whether a kind can be pinned.
 */
#ifndef PERF_ALLOC_H
#define PERF_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

#include "gpu.h"

enum mem_kind {
	MEM_ALLOC, /* cuMemAlloc, the driver API's cudaMalloc */
	MEM_CREATE, /* cuMemCreate, exportable as a file descriptor */
	MEM_HOST_ALLOC, /* cuMemHostAlloc, page-locked host memory */
	MEM_KINDS
};

/* The names of the kinds as -a takes them; ends with NULL. */
extern const char *const mem_kind_name[MEM_KINDS + 1];

struct gpu_mem {
	enum mem_kind kind;
	CUdeviceptr dptr;
	size_t size; /* as asked for */
	size_t whole; /* MEM_CREATE: rounded up to the granularity */
	CUmemGenericAllocationHandle handle; /* MEM_CREATE */
	void *host; /* MEM_HOST_ALLOC */
};

/*
 * Allocates `size` bytes on a started device. `write_combined` is for MEM_HOST_ALLOC.
 * 0, or -errno with the cause written to `why`.
 */
int mem_alloc(struct gpu_mem *mem, const struct gpu *gpu, enum mem_kind kind, size_t size,
	      bool write_combined, char *why, size_t why_size);
void mem_free(struct gpu_mem *mem);

/* What cuMemCreate takes for exportable memory of that device. False: this driver lacks the calls. */
bool mem_vmm_properties(CUmemAllocationProp *prop, const struct gpu *gpu);

#endif
