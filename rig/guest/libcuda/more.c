/* SPDX-License-Identifier: MIT */
/*
 * What GDRCopy's own tools call beyond cuda.c, made of what is there.
 */
#include <stdlib.h>
#include <string.h>

#include "abi/cuda.h"

#define API __attribute__((visibility("default")))

CUresult cuMemAllocHost_v2(void **ptr, size_t size);
CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t size);

API CUresult cuMemAllocHost_v2(void **ptr, size_t size)
{
	return cuMemHostAlloc(ptr, size, 0);
}

static int is_device(CUdeviceptr ptr)
{
	unsigned int type = 0;

	return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr) ==
		       CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_DEVICE;
}

API CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	if (is_device(dst) && is_device(src))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (is_device(dst))
		return cuMemcpyHtoD_v2(dst, (const void *)(uintptr_t)src, size);
	if (is_device(src))
		return cuMemcpyDtoH_v2((void *)(uintptr_t)dst, src, size);
	memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, size);
	return CUDA_SUCCESS;
}

API CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	void *bytes = malloc(count);

	if (bytes) {
		memset(bytes, value, count);
		r = cuMemcpyHtoD_v2(dst, bytes, count);
	}
	free(bytes);
	return r;
}

API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
					   CUmemAllocationGranularity_flags option)
{
	(void)granularity;
	(void)prop;
	(void)option;
	return CUDA_ERROR_NOT_SUPPORTED;
}

API CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	(void)ptr;
	(void)size;
	return CUDA_ERROR_NOT_SUPPORTED;
}

API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	(void)ptr;
	(void)size;
	return CUDA_ERROR_NOT_SUPPORTED;
}
