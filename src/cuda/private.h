/* SPDX-License-Identifier: MIT */
/* Of src/cuda/ alone: the driver API's calls, and scopes in an allocation's context. */
#ifndef GDRI_CUDA_PRIVATE_H
#define GDRI_CUDA_PRIVATE_H

#include <errno.h>

#include "abi/cuda.h"
#include "cuda/cuda.h"
#include "base/error.h"

/* Calls of STREAMS, and of VMM (CUDA 10.2), exist or are NULL together. */
enum gdri_cuda_group {
	GDRI_CUDA_NEEDED, /* a libcuda without one of these is refused */
	GDRI_CUDA_STREAMS,
	GDRI_CUDA_VMM,
	GDRI_CUDA_ALONE /* each may be missing by itself */
};

/* clang-format off */
#define CUDA_CALLS(X) \
	X(cuDriverGetVersion, NEEDED) X(cuGetErrorName, NEEDED) X(cuPointerGetAttribute, NEEDED) \
	X(cuPointerGetAttributes, NEEDED) X(cuPointerSetAttribute, NEEDED) \
	X(cuMemGetAddressRange_v2, NEEDED) X(cuMemHostGetFlags, NEEDED) X(cuDeviceGet, NEEDED) \
	X(cuDeviceGetAttribute, NEEDED) X(cuCtxGetCurrent, NEEDED) X(cuCtxGetDevice, NEEDED) \
	X(cuCtxPushCurrent_v2, NEEDED) X(cuCtxPopCurrent_v2, NEEDED) \
	X(cuDevicePrimaryCtxRetain, NEEDED) X(cuDevicePrimaryCtxRelease_v2, NEEDED) \
	X(cuDevicePrimaryCtxGetState, NEEDED) X(cuCtxGetFlags, NEEDED) \
	X(cuInit, NEEDED) X(cuDeviceGetCount, NEEDED) X(cuMemAlloc_v2, NEEDED) \
	X(cuMemFree_v2, NEEDED) X(cuMemHostAlloc, NEEDED) X(cuMemFreeHost, NEEDED) \
	X(cuMemHostGetDevicePointer_v2, NEEDED) \
	X(cuStreamCreate, STREAMS) X(cuStreamDestroy_v2, STREAMS) X(cuStreamSynchronize, STREAMS) \
	X(cuMemcpyHtoDAsync_v2, STREAMS) X(cuMemcpyDtoHAsync_v2, STREAMS) \
	X(cuMemRetainAllocationHandle, VMM) X(cuMemGetAllocationPropertiesFromHandle, VMM) \
	X(cuMemExportToShareableHandle, VMM) X(cuMemRelease, VMM) \
	X(cuMemImportFromShareableHandle, VMM) X(cuMemGetAllocationGranularity, VMM) \
	X(cuMemCreate, VMM) X(cuMemAddressReserve, VMM) X(cuMemAddressFree, VMM) X(cuMemMap, VMM) \
	X(cuMemUnmap, VMM) X(cuMemSetAccess, VMM) \
	X(cuDeviceGetPCIBusId, ALONE) X(cuDeviceTotalMem_v2, ALONE) \
	X(cuThreadExchangeStreamCaptureMode, ALONE) X(cuMemGetHandleForAddressRange, ALONE) \
	X(cuStreamIsCapturing, ALONE) \
	X(cuMemHostRegister_v2, ALONE) X(cuMemHostUnregister, ALONE) \
	X(cuStreamWriteValue32_v2, ALONE) X(cuMemFreeAsync, ALONE)
/* clang-format on */

/* Filled once by gdri_cuda_load(); missing calls are NULL. */
struct gdri_cuda_calls {
#define X(name, group) __typeof__(&(name)) name;
	CUDA_CALLS(X)
#undef X
};
extern struct gdri_cuda_calls gdri_cu;
extern void *gdri_cuda_library; /* the handle of libcuda.so.1, from the same load on */

/* 0, or -errno with "call: CUDA_ERROR_NAME (number)" as its text, without the call's _v2. */
int gdri_cuda_result(CUresult r, const char *call);

/* Makes a call, likewise; -ENOTSUP if this driver lacks it. */
#define GDRI_CU(name, ...)                                                 \
	(gdri_cu.name ? gdri_cuda_result(gdri_cu.name(__VA_ARGS__), #name) \
		      : gdri_fail(ENOTSUP, "this CUDA driver has no " #name))

const char *gdri_cuda_result_name(CUresult r); /* static storage */

/*
 * Releases a handle of VMM memory; one that stays would keep the memory for ever. 0 or -EIO: no
 * shortage, so no caller makes the call again.
 */
static inline int gdri_cuda_release(CUmemGenericAllocationHandle handle)
{
	return GDRI_CU(cuMemRelease, handle) ? -EIO : 0;
}

/* The device of an ordinal; initialises CUDA. 0 or -errno. */
int gdri_cuda_find_device(int ordinal, CUdevice *dev);
/* A boolean attribute; false if this driver does not know it. 0 or -errno. */
int gdri_cuda_device_has(CUdevice dev, CUdevice_attribute attribute, bool *has);

/* Calls in an allocation's context; capture mode is relaxed: synchronising breaks no capture. */
struct gdri_cuda_scope {
	CUstreamCaptureMode mode;
	bool mode_changed;
	bool pushed;
};
void gdri_cuda_relax(struct gdri_cuda_scope *s); /* begins one without a context */
/* context: the allocation's; NULL: the current one if on that device, else the primary one. */
int gdri_cuda_enter(struct gdri_cuda_scope *s, void *context, int device);
int gdri_cuda_enter_primary(struct gdri_cuda_scope *s, CUdevice dev, CUcontext *ctx);
void gdri_cuda_leave(struct gdri_cuda_scope *s);

/* Releases a primary context that the caller has retained; if that fails, the last drop does. */
void gdri_cuda_unretain(CUdevice dev);

#endif
