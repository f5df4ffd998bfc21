/* SPDX-License-Identifier: MIT */
/*
 * Names: of the calls, for cuGetProcAddress, and of the errors. It knows nothing of what the
 * calls do.
 */
#include <string.h>

#include "fault.h"
#include "sim.h"

#define STATUS_SUCCESS		      0
#define STATUS_NOT_FOUND	      1
#define STATUS_VERSION_NOT_SUFFICIENT 2

struct proc {
	const char *name;
	int version; /* of CUDA that brought it */
	void (*fn)(void);
};

#define PROC(name, version)                          \
	{                                            \
#name, version, (void (*)(void))name \
	}

/* The casts are what the table is for; the caller casts back. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-function-type"
static const struct proc procs[] = {
	PROC(cuInit, 2000),
	PROC(cuDriverGetVersion, 2020),
	PROC(cuGetErrorName, 6000),
	PROC(cuGetErrorString, 6000),
	PROC(cuGetProcAddress, 11030),
	PROC(cuGetProcAddress_v2, 12000),
	PROC(cuDeviceGet, 2000),
	PROC(cuDeviceGetCount, 2000),
	PROC(cuDeviceGetName, 2000),
	PROC(cuDeviceGetUuid, 9020),
	PROC(cuDeviceGetUuid_v2, 11040),
	PROC(cuDeviceGetPCIBusId, 4010),
	PROC(cuDeviceGetAttribute, 2000),
	PROC(cuDeviceTotalMem_v2, 3020),
	PROC(cuDevicePrimaryCtxRetain, 7000),
	PROC(cuDevicePrimaryCtxRelease_v2, 11000),
	PROC(cuDevicePrimaryCtxReset_v2, 11000),
	PROC(cuCtxCreate_v2, 3020),
	PROC(cuCtxDestroy_v2, 4000),
	PROC(cuCtxPushCurrent_v2, 4000),
	PROC(cuCtxPopCurrent_v2, 4000),
	PROC(cuCtxSetCurrent, 4000),
	PROC(cuCtxGetCurrent, 4000),
	PROC(cuCtxGetDevice, 2000),
	PROC(cuCtxGetFlags, 7000),
	PROC(cuCtxSetFlags, 12010),
	PROC(cuCtxSynchronize, 2000),
	PROC(cuMemGetInfo_v2, 3020),
	PROC(cuMemAlloc_v2, 3020),
	PROC(cuMemFree_v2, 3020),
	PROC(cuMemAllocManaged, 6000),
	PROC(cuMemAllocAsync, 11020),
	PROC(cuMemFreeAsync, 11020),
	PROC(cuMemGetAddressRange_v2, 3020),
	PROC(cuMemGetHandleForAddressRange, 11070),
	PROC(cuMemHostAlloc, 2020),
	PROC(cuMemFreeHost, 2000),
	PROC(cuMemHostRegister_v2, 6050),
	PROC(cuMemHostUnregister, 4000),
	PROC(cuMemHostGetDevicePointer_v2, 3020),
	PROC(cuMemHostGetFlags, 2030),
	PROC(cuMemcpyHtoD_v2, 3020),
	PROC(cuMemcpyDtoH_v2, 3020),
	PROC(cuMemcpyDtoD_v2, 3020),
	PROC(cuMemcpyHtoDAsync_v2, 3020),
	PROC(cuMemcpyDtoHAsync_v2, 3020),
	PROC(cuMemsetD8_v2, 3020),
	PROC(cuMemsetD32_v2, 3020),
	PROC(cuMemsetD8Async, 3020),
	PROC(cuPointerGetAttribute, 4000),
	PROC(cuPointerGetAttributes, 7000),
	PROC(cuPointerSetAttribute, 6000),
	PROC(cuMemGetAllocationGranularity, 10020),
	PROC(cuMemCreate, 10020),
	PROC(cuMemRelease, 10020),
	PROC(cuMemAddressReserve, 10020),
	PROC(cuMemAddressFree, 10020),
	PROC(cuMemMap, 10020),
	PROC(cuMemUnmap, 10020),
	PROC(cuMemSetAccess, 10020),
	PROC(cuMemRetainAllocationHandle, 11000),
	PROC(cuMemGetAllocationPropertiesFromHandle, 10020),
	PROC(cuMemExportToShareableHandle, 10020),
	PROC(cuMemImportFromShareableHandle, 10020),
	PROC(cuThreadExchangeStreamCaptureMode, 10010),
	PROC(cuStreamCreate, 2000),
	PROC(cuStreamDestroy_v2, 4000),
	PROC(cuStreamSynchronize, 2000),
	PROC(cuStreamQuery, 2000),
	PROC(cuModuleLoadData, 2000),
	PROC(cuModuleUnload, 2000),
	PROC(cuModuleGetFunction, 2000),
	PROC(cuLaunchKernel, 4000),
};
#pragma GCC diagnostic pop

/* The newest form of the call that the asked version has: "cuMemAlloc" is cuMemAlloc_v2. */
static const struct proc *find(const char *symbol, int version, int *status)
{
	size_t len = strlen(symbol);
	const struct proc *best = NULL;
	bool named = false;

	for (size_t i = 0; i < sizeof(procs) / sizeof(procs[0]); i++) {
		const struct proc *p = &procs[i];

		if (strncmp(p->name, symbol, len) != 0)
			continue;
		if (p->name[len] != '\0' && strcmp(p->name + len, "_v2") != 0)
			continue;
		named = true;
		if (p->version <= version && p->version <= sim_driver_version() &&
		    (!best || p->version > best->version))
			best = p;
	}
	*status = best ? STATUS_SUCCESS : named ? STATUS_VERSION_NOT_SUFFICIENT : STATUS_NOT_FOUND;
	return best;
}

static CUresult get(const char *call, const char *symbol, void **pfn, int version, uint64_t flags,
		    int *symbol_status)
{
	const struct proc *p;
	int result, status;

	if (sim_fault(call, &result))
		return (CUresult)result;
	if (!symbol || !pfn || flags > 2)
		return CUDA_ERROR_INVALID_VALUE;
	p = find(symbol, version, &status);
	if (symbol_status)
		*symbol_status = status;
	*pfn = NULL;
	if (!p)
		return CUDA_ERROR_NOT_FOUND;
	memcpy(pfn, &p->fn, sizeof(*pfn));
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags,
			     int *symbol_status)
{
	return get(__func__, symbol, pfn, version, flags, symbol_status);
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
	return get(__func__, symbol, pfn, version, flags, NULL);
}

static const char *error_name(CUresult error)
{
	switch (error) {
#define NAME(e) \
	case e: \
		return #e
		NAME(CUDA_SUCCESS);
		NAME(CUDA_ERROR_INVALID_VALUE);
		NAME(CUDA_ERROR_OUT_OF_MEMORY);
		NAME(CUDA_ERROR_NOT_INITIALIZED);
		NAME(CUDA_ERROR_DEINITIALIZED);
		NAME(CUDA_ERROR_STUB_LIBRARY);
		NAME(CUDA_ERROR_NO_DEVICE);
		NAME(CUDA_ERROR_INVALID_DEVICE);
		NAME(CUDA_ERROR_INVALID_IMAGE);
		NAME(CUDA_ERROR_INVALID_CONTEXT);
		NAME(CUDA_ERROR_MAP_FAILED);
		NAME(CUDA_ERROR_UNMAP_FAILED);
		NAME(CUDA_ERROR_ALREADY_MAPPED);
		NAME(CUDA_ERROR_NOT_MAPPED);
		NAME(CUDA_ERROR_OPERATING_SYSTEM);
		NAME(CUDA_ERROR_INVALID_HANDLE);
		NAME(CUDA_ERROR_ILLEGAL_STATE);
		NAME(CUDA_ERROR_NOT_FOUND);
		NAME(CUDA_ERROR_NOT_READY);
		NAME(CUDA_ERROR_ILLEGAL_ADDRESS);
		NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
		NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
		NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
		NAME(CUDA_ERROR_NOT_PERMITTED);
		NAME(CUDA_ERROR_NOT_SUPPORTED);
		NAME(CUDA_ERROR_SYSTEM_NOT_READY);
		NAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
		NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		NAME(CUDA_ERROR_UNKNOWN);
#undef NAME
	}
	return NULL;
}

static CUresult error_text(CUresult error, const char **str)
{
	if (!str)
		return CUDA_ERROR_INVALID_VALUE;
	*str = error_name(error);
	return *str ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **str)
{
	sim_fault(__func__, NULL);
	return error_text(error, str);
}

CUresult cuGetErrorString(CUresult error, const char **str)
{
	sim_fault(__func__, NULL);
	return error_text(error, str);
}
