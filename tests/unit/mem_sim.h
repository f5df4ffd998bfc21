/* SPDX-License-Identifier: MIT */
/*
 * What the tests of memory and cache share: the stand-in's calls, a context, device memory of each
 * kind, and checks that a CPU pointer and a device address are the same memory.
 */
#ifndef MEM_SIM_H
#define MEM_SIM_H

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/cuda.h"
#include "barcopy.h"

#define SIM_CALLS(X)                                                                              \
	X(cuInit)                                                                                 \
	X(cuDeviceGet)                                                                            \
	X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuCtxSetCurrent) X(         \
		cuCtxGetCurrent) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemHostAlloc)               \
		X(cuMemFreeHost) X(cuMemHostGetDevicePointer_v2) X(cuMemcpyHtoD_v2) X(            \
			cuMemcpyDtoH_v2) X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve)    \
			X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)           \
				X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle) \
					X(cuMemGetAddressRange_v2) X(cuPointerGetAttribute)       \
						X(cuMemGetHandleForAddressRange)

__attribute__((unused)) static struct {
#define X(name) __typeof__(&(name)) name;
	SIM_CALLS(X)
#undef X
	unsigned long (*calls)(const char *name);
	void (*inject)(const char *spec);
	unsigned long long (*device_bytes)(int device);
	CUcontext ctx;
} sim;

#define OK(call)                                                                             \
	do {                                                                                 \
		int err_ = (call);                                                           \
		ck_assert_msg(!err_, "%s: errno %d: %s", #call, err_, barcopy_last_error()); \
	} while (0)
#define FAILS(err, call)                                                                          \
	do {                                                                                      \
		int err_ = (call);                                                                \
		ck_assert_msg(err_ == (err), "%s: errno %d instead of %s: %s", #call, err_, #err, \
			      barcopy_last_error());                                              \
	} while (0)
#define CU(call) ck_assert_int_eq((call), CUDA_SUCCESS)

enum { CHUNK = 2 << 20, PAGE = 65536 };

__attribute__((unused)) static void sim_load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

	ck_assert_msg(lib != NULL, "%s", dlerror());
#define X(name)                                             \
	sim.name = (__typeof__(sim.name))dlsym(lib, #name); \
	ck_assert_ptr_nonnull(sim.name);
	SIM_CALLS(X)
#undef X
	*(void **)&sim.calls = dlsym(lib, "gdrsim_calls");
	*(void **)&sim.inject = dlsym(lib, "gdrsim_fail");
	*(void **)&sim.device_bytes = dlsym(lib, "gdrsim_device_bytes");
}

/* Makes device 0's context current in this thread. */
__attribute__((unused)) static void sim_start(void)
{
	CUdevice dev;

	sim_load();
	CU(sim.cuInit(0));
	CU(sim.cuDeviceGet(&dev, 0));
	CU(sim.cuDevicePrimaryCtxRetain(&sim.ctx, dev));
	CU(sim.cuCtxSetCurrent(sim.ctx));
}

/* Exportable VMM memory of `count` chunks, at `hint` if that is free. */
__attribute__((unused)) static CUdeviceptr vmm_new(CUdeviceptr hint, unsigned int count)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
	};
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	CU(sim.cuMemAddressReserve(&ptr, (size_t)count * CHUNK, 0, hint, 0));
	for (unsigned int i = 0; i < count; i++) {
		CU(sim.cuMemCreate(&handle, CHUNK, &prop, 0));
		CU(sim.cuMemMap(ptr + (size_t)i * CHUNK, CHUNK, 0, handle, 0));
		CU(sim.cuMemRelease(handle));
	}
	CU(sim.cuMemSetAccess(ptr, (size_t)count * CHUNK, &access, 1));
	return ptr;
}

__attribute__((unused)) static void vmm_delete(CUdeviceptr ptr, unsigned int count)
{
	CU(sim.cuMemUnmap(ptr, (size_t)count * CHUNK));
	CU(sim.cuMemAddressFree(ptr, (size_t)count * CHUNK));
}

/* cpu must be where the GPU has dptr: a word written on either side is read on the other. */
__attribute__((unused)) static bool same_memory(gdr_mh_t mh, void *cpu, CUdeviceptr dptr)
{
	static _Atomic uint64_t next = 0x1234567800000000;
	uint64_t a = ++next, b = 0, c = ++next, d = 0;

	if (gdr_copy_to_mapping(mh, cpu, &a, 8) || sim.cuMemcpyDtoH_v2(&b, dptr, 8) || a != b)
		return false;
	return !sim.cuMemcpyHtoD_v2(dptr, &c, 8) && !gdr_copy_from_mapping(mh, &d, cpu, 8) &&
	       c == d;
}

__attribute__((unused)) static int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	/* The stand-in's machine is made once a process: each test has its own. */
	srunner_set_fork_status(runner, CK_FORK);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

#endif
