/* SPDX-License-Identifier: MIT */
/*
 * The stand-ins of sim as the unit tests use them: CUDA's calls in one table, the hooks of libcuda,
 * buffers of every kind. It knows nothing of libgdrapi.
 */
#ifndef TEST_COMMON_STANDIN_H
#define TEST_COMMON_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cuda.h"

#define STANDIN_CALLS(X)                  \
	X(cuInit)                         \
	X(cuDevicePrimaryCtxRetain)       \
	X(cuDevicePrimaryCtxRelease_v2)   \
	X(cuDevicePrimaryCtxReset_v2)     \
	X(cuCtxCreate_v2)                 \
	X(cuCtxDestroy_v2)                \
	X(cuCtxSetCurrent)                \
	X(cuCtxGetCurrent)                \
	X(cuCtxPopCurrent_v2)             \
	X(cuCtxSynchronize)               \
	X(cuMemAlloc_v2)                  \
	X(cuMemFree_v2)                   \
	X(cuMemAllocAsync)                \
	X(cuMemAllocManaged)              \
	X(cuMemHostAlloc)                 \
	X(cuMemFreeHost)                  \
	X(cuMemHostRegister_v2)           \
	X(cuMemHostUnregister)            \
	X(cuMemHostGetDevicePointer_v2)   \
	X(cuMemcpyHtoD_v2)                \
	X(cuMemcpyDtoH_v2)                \
	X(cuPointerGetAttribute)          \
	X(cuPointerSetAttribute)          \
	X(cuMemCreate)                    \
	X(cuMemGetHandleForAddressRange)  \
	X(cuMemExportToShareableHandle)   \
	X(cuMemRelease)                   \
	X(cuMemAddressReserve)            \
	X(cuMemAddressFree)               \
	X(cuMemMap)                       \
	X(cuMemUnmap)                     \
	X(cuMemSetAccess)                 \
	X(cuThreadExchangeStreamCaptureMode) \
	X(cuModuleLoadData)               \
	X(cuModuleGetFunction)            \
	X(cuLaunchKernel)                 \
	X(cuStreamCreate)                 \
	X(cuStreamSynchronize)

struct standin_cuda {
#define X(name) __typeof__(&(name)) name;
	STANDIN_CALLS(X)
#undef X
};
extern struct standin_cuda cuda;

struct standin_hooks {
	void (*set_fail)(const char *spec);
	unsigned long (*calls)(const char *name);
	int (*fail_nth)(unsigned long n, int result);
	const char *(*failed)(void);
};
extern struct standin_hooks cuda_hooks;
extern unsigned long long (*standin_device_bytes)(int device);
/* Each map takes its pages of BAR1: GDRSIM_BAR1_STATIC and GDRSIM_BAR1_REUSE are not set. */
bool standin_bar1_counts(void);
extern unsigned long (*standin_contexts)(void);

/* Set before the next call: libcuda is the GPU driver's; the hooks stay NULL. */
extern bool standin_on_gpu;
/* Loads libcuda, which else must be the stand-in; the table is filled. Not cuInit. */
void standin_load(void);
/* standin_load(), cuInit, and device 0's primary context current in this thread. */
void standin_start(void);
CUcontext standin_primary(int device);
/* Whether there is a stand-in's /dev/gdrdrv: its library has NVIDIA's nodes too (common/rm.h). */
bool standin_gdrdrv(void);

#define STANDIN_GRANULE ((size_t)2 << 20)

/* VMM memory: `count` chunks of `chunk` bytes side by side. */
struct standin_vmm {
	CUdeviceptr ptr;
	size_t chunk, size;
};

void standin_vmm_alloc(struct standin_vmm *v, int device, unsigned int count, size_t chunk,
		       bool exportable);
void standin_vmm_free(struct standin_vmm *v);

/* A chunk that the process may export, and one that gdrdrv may pin: bits of `kind`. */
enum { STANDIN_EXPORTABLE = 1, STANDIN_RDMA = 2 };

/* Maps new memory at `at`, which is reserved and has none. */
CUmemGenericAllocationHandle standin_map_chunk(CUdeviceptr at, size_t chunk, int device,
					       unsigned int kind);
/* Any number of chunks, at `hint` if that is not 0 and free; their handles are released already. */
CUdeviceptr standin_chunks(CUdeviceptr hint, int device, unsigned int count, size_t chunk,
			   unsigned int kind);

/*
 * Whether the library is to call a map of BAR1 Device memory: on arm64, if it reads that the
 * driver is older than 590.
 */
bool standin_device_bar1(void);

CUdeviceptr standin_alloc(size_t size);
/*
 * Bytes that are in the GPU's memory when it returns: CUDA's copy of up to 64 KiB of pageable memory may return before
 * (CUDA driver API, "API synchronization behavior").
 */
void standin_to_gpu(CUdeviceptr to, const void *from, size_t size);
/* The attribute of the allocation at p. */
int standin_sync_memops(CUdeviceptr p);
void *standin_host_alloc(size_t size, unsigned int flags);

#endif
