/* SPDX-License-Identifier: MIT */
/* libcuda.so.1, loaded at run time, with the types of abi/cuda.h; one device; memory. */
#ifndef PERF_CUDA_H
#define PERF_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/cuda.h"

/* ---- libcuda -------------------------------------------------------------------------- */

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
	X(MemGetInfo, cuMemGetInfo_v2)                                \
	X(MemsetD8, cuMemsetD8_v2)                                    \
	X(MemAllocAsync, cuMemAllocAsync)                             \
	X(MemFreeAsync, cuMemFreeAsync)                               \
	X(MemAllocManaged, cuMemAllocManaged)                         \
	X(MemGetAllocationGranularity, cuMemGetAllocationGranularity) \
	X(MemCreate, cuMemCreate)                                     \
	X(MemRelease, cuMemRelease)                                   \
	X(MemAddressReserve, cuMemAddressReserve)                     \
	X(MemAddressFree, cuMemAddressFree)                           \
	X(MemMap, cuMemMap)                                           \
	X(MemUnmap, cuMemUnmap)                                       \
	X(MemSetAccess, cuMemSetAccess)                               \
	X(MemGetHandleForAddressRange, cuMemGetHandleForAddressRange) \
	X(MemExportToShareableHandle, cuMemExportToShareableHandle)   \
	X(MemImportFromShareableHandle, cuMemImportFromShareableHandle) \
	X(StreamCreate, cuStreamCreate)                               \
	X(StreamDestroy, cuStreamDestroy_v2)                          \
	X(StreamQuery, cuStreamQuery)                                 \
	X(StreamSynchronize, cuStreamSynchronize)                     \
	X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                      \
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
	char path[4096]; /* the file that libcuda.so.1 came from */
	bool is_stand_in; /* of sim/: it exports the hooks of one */
};

/* The table: filled by cuda_dl_load(), constant afterwards. */
extern struct cuda_dl cu;

/* Loads libcuda.so.1 and fills the table; without it the tool ends with exit 2. */
void cuda_dl_load(void);

/* "CUDA_ERROR_NO_DEVICE (100: no CUDA-capable device is detected)", in static storage. */
const char *cuda_error_text(CUresult error);

/* The positive errno nearest to a CUresult. */
int cuda_errno(CUresult error);

/* Ends the tool with exit 1 if a call that must work failed. */
void cuda_must(CUresult error, const char *call);

/* Loads kernels, for GPUs of 5.0 or newer, and makes a stream for them; or the tool ends with exit 2
 * and advice, which `more` continues.
 */
void cuda_load_kernels(const char *ptx, CUmodule *module, CUstream *stream, const char *more);

/* ---- a device; if a call fails, the tool ends with exit 2 and the reason -------------- */

struct gpu {
	int ordinal;
	CUdevice dev;
	CUcontext ctx;
	char name[128];
	char pci[32]; /* "0000:17:00.0", lower case as sysfs has it; "" if not known */
	char cuda_version[16]; /* of the driver: "13.0" */
	char kernel_driver[64]; /* "580.159.04"; "" if not known, and on the stand-in */
};

/* Finds the device; makes no context, so that the caller can first move to its NUMA node. */
void gpu_find(struct gpu *gpu, int ordinal);
/* Retains the primary context and makes it current in this thread. */
void gpu_start(struct gpu *gpu);
void gpu_stop(struct gpu *gpu);
/* A boolean device attribute; false where the driver does not know it. */
bool gpu_has(const struct gpu *gpu, CUdevice_attribute attribute);
/* A line: name, PCI address, versions. */
void gpu_print(const struct gpu *gpu);

/* ---- memory --------------------------------------------------------------------------- */

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

/* 0, or -errno with the cause in `why`. The device is started. `write_combined`: MEM_HOST_ALLOC. */
int mem_alloc(struct gpu_mem *mem, const struct gpu *gpu, enum mem_kind kind, size_t size,
	      bool write_combined, char *why, size_t why_size);
void mem_free(struct gpu_mem *mem);

/* What cuMemCreate takes for exportable memory. Returns false if the driver lacks the calls. */
bool mem_vmm_properties(CUmemAllocationProp *prop, const struct gpu *gpu);

#endif
