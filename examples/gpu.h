/* SPDX-License-Identifier: MIT */
/*
 * The CUDA of the examples that allocate by themselves: the first GPU's context, and memory of the
 * kind that the CPU can map on that GPU.
 */
#ifndef GPU_H
#define GPU_H

#include <cuda.h>
#include <stdint.h>
#include "must.h"

#define CUDA(call) cuda_must(call, #call)

static inline void cuda_must(CUresult result, const char *call)
{
	const char *why = NULL;

	if (result != CUDA_SUCCESS) {
		cuGetErrorString(result, &why);
		fail(call, why ? why : "an error that this libcuda does not name");
	}
}

/* Makes the first GPU's primary context current. Returns 1 if the GPU is integrated, else 0. */
static inline int gpu_begin(void)
{
	int integrated = 0;
	CUcontext ctx;

	CUDA(cuInit(0));
	CUDA(cuDevicePrimaryCtxRetain(&ctx, 0));
	CUDA(cuCtxSetCurrent(ctx));
	CUDA(cuDeviceGetAttribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0));
	return integrated;
}

/* On an integrated GPU the CPU can map memory of cuMemHostAlloc only. */
static inline CUdeviceptr gpu_alloc(size_t size, int integrated)
{
	CUdeviceptr memory = 0;
	void *host = NULL;

	if (!integrated) {
		CUDA(cuMemAlloc(&memory, size));
		return memory;
	}
	CUDA(cuMemHostAlloc(&host, size, 0));
	return (CUdeviceptr)(uintptr_t)host;
}

static inline void gpu_free(CUdeviceptr memory, int integrated)
{
	if (integrated)
		CUDA(cuMemFreeHost((void *)(uintptr_t)memory));
	else
		CUDA(cuMemFree(memory));
}

#endif
