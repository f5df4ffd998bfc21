/* SPDX-License-Identifier: MIT */
/*
 * libcuda.so.1, loaded at run time: a table of the driver API calls that the tools use, with the types
 * of abi/cuda.h. It must not know libgdrapi.
 */
#ifndef PERF_CUDA_DL_H
#define PERF_CUDA_DL_H

#include <stdbool.h>

#include "abi/cuda.h"

/* field, exported name; every driver that runs here has these */
#define CUDA_DL_REQUIRED(X)                                      \
	X(Init, cuInit)                                          \
	X(DriverGetVersion, cuDriverGetVersion)                  \
	X(GetErrorName, cuGetErrorName)                          \
	X(GetErrorString, cuGetErrorString)                      \
	X(DeviceGet, cuDeviceGet)                                \
	X(DeviceGetCount, cuDeviceGetCount)                      \
	X(DeviceGetName, cuDeviceGetName)                        \
	X(DeviceGetPCIBusId, cuDeviceGetPCIBusId)                \
	X(DeviceGetAttribute, cuDeviceGetAttribute)              \
	X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)      \
	X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2) \
	X(CtxSetCurrent, cuCtxSetCurrent)                        \
	X(CtxGetCurrent, cuCtxGetCurrent)                        \
	X(CtxSynchronize, cuCtxSynchronize)                      \
	X(MemAlloc, cuMemAlloc_v2)                               \
	X(MemFree, cuMemFree_v2)                                 \
	X(MemHostAlloc, cuMemHostAlloc)                          \
	X(MemFreeHost, cuMemFreeHost)                            \
	X(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2) \
	X(MemcpyHtoD, cuMemcpyHtoD_v2)                           \
	X(MemcpyDtoH, cuMemcpyDtoH_v2)

/* NULL in older drivers and in stand-ins that lack them: check before use */
#define CUDA_DL_OPTIONAL(X)                                           \
	X(PointerGetAttribute, cuPointerGetAttribute)                 \
	X(MemsetD8, cuMemsetD8_v2)                                    \
	X(MemGetAllocationGranularity, cuMemGetAllocationGranularity) \
	X(MemCreate, cuMemCreate)                                     \
	X(MemRelease, cuMemRelease)                                   \
	X(MemAddressReserve, cuMemAddressReserve)                     \
	X(MemAddressFree, cuMemAddressFree)                           \
	X(MemMap, cuMemMap)                                           \
	X(MemUnmap, cuMemUnmap)                                       \
	X(MemSetAccess, cuMemSetAccess)                               \
	X(MemGetHandleForAddressRange, cuMemGetHandleForAddressRange) \
	X(StreamCreate, cuStreamCreate)                               \
	X(StreamDestroy, cuStreamDestroy_v2)                          \
	X(StreamSynchronize, cuStreamSynchronize)                     \
	X(StreamQuery, cuStreamQuery)                                 \
	X(ModuleLoadData, cuModuleLoadData)                           \
	X(ModuleUnload, cuModuleUnload)                               \
	X(ModuleGetFunction, cuModuleGetFunction)                     \
	X(LaunchKernel, cuLaunchKernel)                               \
	X(StreamBeginCapture, cuStreamBeginCapture_v2)                \
	X(StreamEndCapture, cuStreamEndCapture)                       \
	X(GraphInstantiate, cuGraphInstantiateWithFlags)              \
	X(GraphLaunch, cuGraphLaunch)                                 \
	X(GraphExecDestroy, cuGraphExecDestroy)                       \
	X(GraphDestroy, cuGraphDestroy)

struct cuda_dl {
#define CUDA_DL_FIELD(field, symbol) __typeof__(&symbol) field;
	CUDA_DL_REQUIRED(CUDA_DL_FIELD)
	CUDA_DL_OPTIONAL(CUDA_DL_FIELD)
#undef CUDA_DL_FIELD
};

/* The table: filled by cuda_dl_load(), constant afterwards. */
extern struct cuda_dl cu;

/* Loads libcuda.so.1 and fills the table; without it the tool ends with exit 2. */
void cuda_dl_load(void);

/* The file that libcuda.so.1 came from; valid after cuda_dl_load(). */
const char *cuda_dl_path(void);

/* For messages: ", or run on the stand-in ..." if the program is in a build directory that has one; else "". */
const char *cuda_dl_advice(void);

/* libcuda is the stand-in of sim/: it exports the hooks of one. */
bool cuda_dl_is_stand_in(void);

/* "CUDA_ERROR_NO_DEVICE (100: no CUDA-capable device is detected)", in static storage. */
const char *cuda_error_text(CUresult error);

/* The positive errno nearest to a CUresult. */
int cuda_errno(CUresult error);

/* Ends the tool with exit 1 if a call that must work failed. */
void cuda_must(CUresult error, const char *call);

#endif
