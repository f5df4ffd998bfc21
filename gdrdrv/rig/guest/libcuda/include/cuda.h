/* SPDX-License-Identifier: MIT */
/*
 * cuda.h for programs that are written against CUDA's own: the names that its macros give the
 * functions, and what only such programs ask for. Values are those of CUDA 12. The library's own
 * sources include abi/cuda.h instead.
 */
#ifndef RIG_CUDA_H
#define RIG_CUDA_H

#include <stdlib.h> /* as CUDA's own does */

#define CUDA_VERSION 12000

#ifdef __cplusplus
extern "C" {
#endif

#include "abi/cuda.h"

#define CU_DEVICE_ATTRIBUTE_COMPUTE_MODE ((CUdevice_attribute)20)
#define CU_COMPUTEMODE_DEFAULT		 0

#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuMemAlloc		  cuMemAlloc_v2
#define cuMemAllocHost		  cuMemAllocHost_v2
#define cuMemFree		  cuMemFree_v2
#define cuMemcpyDtoH		  cuMemcpyDtoH_v2
#define cuMemsetD8		  cuMemsetD8_v2

CUresult cuMemAllocHost_v2(void **ptr, size_t size);
CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t size);
CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count);

#ifdef __cplusplus
}
#endif
#endif
