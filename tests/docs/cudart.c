/* SPDX-License-Identifier: MIT */
/* The CUDA runtime's calls of the README's program, on libcuda.so.1: see cuda_runtime_api.h. */
#include "cuda_runtime_api.h"

#include <cuda.h>

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
	return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
	CUresult r = make_current();

	if (r == CUDA_SUCCESS)
		r = kind == cudaMemcpyDeviceToHost ? cuMemcpyDtoH_v2(to, (CUdeviceptr)from, size)
						   : cuMemcpyHtoD_v2((CUdeviceptr)to, from, size);
	return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

cudaError_t cudaFree(void *ptr)
{
	CUresult r = make_current();

	if (r == CUDA_SUCCESS && ptr)
		r = cuMemFree_v2((CUdeviceptr)ptr);
	return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}
