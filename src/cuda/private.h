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

/* Which calls came together. */
enum gdri_cuda_group {
	GDRI_CUDA_NEEDED, /* libcuda without one of these is not taken at all */
	GDRI_CUDA_ALONE, /* each may be missing */
	GDRI_CUDA_VMM, /* CUDA 10.2 */
	GDRI_CUDA_STREAMS
};

/* Every call in use. */
#define CUDA_CALLS(X)                                  \
	X(cuDriverGetVersion, NEEDED)                  \
	X(cuGetErrorName, NEEDED)                      \
	X(cuPointerGetAttribute, NEEDED)               \
	X(cuPointerGetAttributes, NEEDED)              \
	X(cuPointerSetAttribute, NEEDED)               \
	X(cuMemGetAddressRange_v2, NEEDED)             \
	X(cuMemHostGetFlags, NEEDED)                   \
	X(cuDeviceGet, NEEDED)                         \
	X(cuDeviceGetAttribute, NEEDED)                \
	X(cuCtxGetCurrent, NEEDED)                     \
	X(cuCtxGetDevice, NEEDED)                      \
	X(cuCtxPushCurrent_v2, NEEDED)                 \
	X(cuCtxPopCurrent_v2, NEEDED)                  \
	X(cuDevicePrimaryCtxRetain, NEEDED)            \
	X(cuDevicePrimaryCtxRelease_v2, NEEDED)        \
	X(cuDeviceGetPCIBusId, ALONE)                  \
	X(cuDeviceTotalMem_v2, ALONE)                  \
	X(cuThreadExchangeStreamCaptureMode, ALONE)    \
	X(cuMemGetHandleForAddressRange, ALONE)        \
	X(cuMemRetainAllocationHandle, VMM)            \
	X(cuMemGetAllocationPropertiesFromHandle, VMM) \
	X(cuMemExportToShareableHandle, VMM)           \
	X(cuMemRelease, VMM)                           \
	X(cuMemImportFromShareableHandle, VMM)         \
	X(cuMemGetAllocationGranularity, VMM)          \
	X(cuMemCreate, VMM)                            \
	X(cuMemAddressReserve, VMM)                    \
	X(cuMemAddressFree, VMM)                       \
	X(cuMemMap, VMM)                               \
	X(cuMemUnmap, VMM)                             \
	X(cuMemSetAccess, VMM)                         \
	X(cuInit, NEEDED)                              \
	X(cuDeviceGetCount, NEEDED)                    \
	X(cuMemAlloc_v2, NEEDED)                       \
	X(cuMemFree_v2, NEEDED)                        \
	X(cuMemHostAlloc, NEEDED)                      \
	X(cuMemFreeHost, NEEDED)                       \
	X(cuMemHostGetDevicePointer_v2, NEEDED)        \
	X(cuStreamCreate, STREAMS)                     \
	X(cuStreamDestroy_v2, STREAMS)                 \
	X(cuStreamSynchronize, STREAMS)                \
	X(cuStreamQuery, ALONE)                        \
	X(cuMemHostRegister_v2, ALONE)                 \
	X(cuMemHostUnregister, ALONE)                  \
	X(cuMemcpyHtoDAsync_v2, STREAMS)               \
	X(cuMemcpyDtoHAsync_v2, STREAMS)               \
	X(cuStreamWriteValue32_v2, ALONE)              \
	X(cuMemFreeAsync, ALONE)

/* Filled once by gdri_cuda_load(); calls that are missing are NULL. */
struct gdri_cuda_calls {
#define X(name, group) __typeof__(&(name)) name;
	CUDA_CALLS(X)
#undef X
};

extern struct gdri_cuda_calls gdri_cu;

/* The handle of libcuda.so.1; constant once gdri_cuda_load() has succeeded. */
extern void *gdri_cuda_library;

/* 0, or -errno with "call: CUDA_ERROR_NAME (number)" as its text, without the call's _v2. */
int gdri_cuda_result(CUresult r, const char *call);

/* Makes a call: likewise; -ENOTSUP where this driver is too old to have it. */
#define GDRI_CU(name, ...)                                                 \
	(gdri_cu.name ? gdri_cuda_result(gdri_cu.name(__VA_ARGS__), #name) \
		      : gdri_fail(ENOTSUP, "this CUDA driver has no " #name))

/* Are all calls of a group there? 0 or -ENOTSUP. */
int gdri_cuda_need(enum gdri_cuda_group group);

/* The device of an ordinal, CUDA initialised if need be: 0 or -errno. */
int gdri_cuda_find_device(int ordinal, CUdevice *dev);

/* A boolean attribute; false where this driver does not know it. */
bool gdri_cuda_device_has(CUdevice dev, CUdevice_attribute attribute);

/* The name of a result; static storage. */
const char *gdri_cuda_result_name(CUresult r);

/*
 * A stretch of calls in the context of one allocation. The thread's capture mode is relaxed
 * meanwhile, so that a stream capture of the user's is not broken by calls that synchronise.
 */
struct gdri_cuda_scope {
	CUstreamCaptureMode mode;
	bool mode_changed;
	bool pushed;
};

/* Relaxes the mode, and nothing else so far; nothing to be undone but by gdri_cuda_leave(). */
void gdri_cuda_relax(struct gdri_cuda_scope *s);

/* context: of the allocation; NULL: the current one if it is on that device, else its primary. */
int gdri_cuda_enter(struct gdri_cuda_scope *s, void *context, int device);
/* The device's primary one, whichever is current; see gdri_cuda_hold(). */
int gdri_cuda_enter_primary(struct gdri_cuda_scope *s, CUdevice dev, CUcontext *ctx);
void gdri_cuda_leave(struct gdri_cuda_scope *s);

/*
 * cuMemGetAddressRange in whatever context there is, else in the allocation's own: it wants one,
 * and a thread that has never used CUDA has none.
 */
CUresult gdri_cuda_address_range(CUdeviceptr *base, size_t *size, uint64_t addr, void *context,
				 int device);

#endif
