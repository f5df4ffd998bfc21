/* SPDX-License-Identifier: MIT */
/* A CUDA runtime of four calls on libcuda.so.1: see cuda_runtime_api.h. */
#include "cuda_runtime_api.h"

#include <cuda.h>

static cudaError_t runtime_error(CUresult r)
{
	switch (r) {
	case CUDA_SUCCESS:
		return cudaSuccess;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return cudaErrorMemoryAllocation;
	case CUDA_ERROR_NOT_INITIALIZED:
		return cudaErrorInitializationError;
	default:
		return cudaErrorUnknown;
	}
}

static CUresult make_current(void)
{
	CUcontext ctx = NULL;
	CUdevice device;
	CUresult r = cuInit(0);

	if (r == CUDA_SUCCESS)
		r = cuCtxGetCurrent(&ctx);
	if (r != CUDA_SUCCESS || ctx)
		return r;
	r = cuDeviceGet(&device, 0);
	if (r == CUDA_SUCCESS)
		r = cuDevicePrimaryCtxRetain(&ctx, device);
	return r == CUDA_SUCCESS ? cuCtxSetCurrent(ctx) : r;
}

cudaError_t cudaMalloc(void **ptr, size_t size)
{
	CUdeviceptr address = 0;
	CUresult r = make_current();

	if (r == CUDA_SUCCESS)
		r = cuMemAlloc_v2(&address, size);
	if (r == CUDA_SUCCESS)
		*ptr = (void *)address;
	return runtime_error(r);
}

cudaError_t cudaFree(void *ptr)
{
	CUresult r = make_current();

	if (r == CUDA_SUCCESS && ptr)
		r = cuMemFree_v2((CUdeviceptr)ptr);
	return runtime_error(r);
}

cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned int flags)
{
	CUresult r = make_current();

	if (r == CUDA_SUCCESS)
		r = cuMemHostAlloc(ptr, size, flags);
	return runtime_error(r);
}

cudaError_t cudaFreeHost(void *ptr)
{
	CUresult r = make_current();

	if (r == CUDA_SUCCESS && ptr)
		r = cuMemFreeHost(ptr);
	return runtime_error(r);
}
