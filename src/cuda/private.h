/* SPDX-License-Identifier: MIT */
/*
 * What the files of src/cuda/ share: the private table of the driver API's calls, and the stretch
 * of calls in an allocation's context. Nothing outside this folder includes it: a CUresult never
 * leaves it.
 */
#ifndef GDRI_CUDA_PRIVATE_H
#define GDRI_CUDA_PRIVATE_H

#include <errno.h>
#include <stdbool.h>

#include "abi/cuda.h"
#include "cuda/cuda.h"
#include "base/error.h"

/* Every call in use; X(name, needed): libcuda without a needed one is not taken at all. */
#define CUDA_CALLS(X)                                    \
	X(cuDriverGetVersion, true)                      \
	X(cuGetErrorName, true)                          \
	X(cuPointerGetAttribute, true)                   \
	X(cuPointerGetAttributes, true)                  \
	X(cuPointerSetAttribute, true)                   \
	X(cuMemGetAddressRange_v2, true)                 \
	X(cuMemHostGetFlags, true)                       \
	X(cuDeviceGet, true)                             \
	X(cuDeviceGetAttribute, true)                    \
	X(cuCtxGetCurrent, true)                         \
	X(cuCtxGetDevice, true)                          \
	X(cuCtxPushCurrent_v2, true)                     \
	X(cuCtxPopCurrent_v2, true)                      \
	X(cuDevicePrimaryCtxRetain, true)                \
	X(cuDevicePrimaryCtxRelease_v2, true)            \
	X(cuDeviceGetPCIBusId, false)                    \
	X(cuDeviceTotalMem_v2, false)                    \
	X(cuThreadExchangeStreamCaptureMode, false)      \
	X(cuMemGetHandleForAddressRange, false)          \
	X(cuMemRetainAllocationHandle, false)            \
	X(cuMemGetAllocationPropertiesFromHandle, false) \
	X(cuMemExportToShareableHandle, false)           \
	X(cuMemRelease, false)                           \
	X(cuMemImportFromShareableHandle, false)         \
	X(cuMemGetAllocationGranularity, false)          \
	X(cuMemCreate, false)                            \
	X(cuMemAddressReserve, false)                    \
	X(cuMemAddressFree, false)                       \
	X(cuMemMap, false)                               \
	X(cuMemUnmap, false)                             \
	X(cuMemSetAccess, false)                         \
	X(cuInit, true)                                  \
	X(cuDeviceGetCount, true)                        \
	X(cuMemAlloc_v2, true)                           \
	X(cuMemFree_v2, true)                            \
	X(cuMemHostAlloc, true)                          \
	X(cuMemFreeHost, true)                           \
	X(cuMemHostGetDevicePointer_v2, true)            \
	X(cuStreamCreate, false)                         \
	X(cuStreamDestroy_v2, false)                     \
	X(cuStreamSynchronize, false)                    \
	X(cuMemcpyHtoDAsync_v2, false)                   \
	X(cuMemcpyDtoHAsync_v2, false)                   \
	X(cuMemFreeAsync, false)

/* Filled once by gdri_cuda_load(); calls that are not needed may be NULL. */
struct gdri_cuda_calls {
#define X(name, needed) __typeof__(&(name)) name;
	CUDA_CALLS(X)
#undef X
};

extern struct gdri_cuda_calls gdri_cu;

/* The handle of libcuda.so.1; constant once gdri_cuda_load() has succeeded. */
extern void *gdri_cuda_library;

/* -errno for a result, with "call: CUDA_ERROR_NAME (number)" as its text. */
int gdri_cuda_fail(CUresult r, const char *call);

/* The name of a result; static storage. */
const char *gdri_cuda_result_name(CUresult r);

/* -ENOTSUP: this driver is too old to have the call. */
int gdri_cuda_missing(const char *call);

/*
 * A stretch of calls in the context of one allocation. The thread's capture mode is relaxed
 * meanwhile, so that a stream capture of the user's is not broken by calls that synchronise.
 */
struct gdri_cuda_scope {
	CUstreamCaptureMode mode;
	bool mode_changed;
	bool pushed;
	CUdevice retained; /* primary context to give back, or -1 */
};

/* context: of the allocation; NULL: the current one if it is on that device, else its primary. */
int gdri_cuda_enter(struct gdri_cuda_scope *s, void *context, int device);
void gdri_cuda_leave(struct gdri_cuda_scope *s);

/*
 * cuMemGetAddressRange in whatever context there is, else in the allocation's own: it wants one,
 * and a thread that has never used CUDA has none.
 */
CUresult gdri_cuda_address_range(CUdeviceptr *base, size_t *size, uint64_t addr, void *context,
				 int device);

#endif
