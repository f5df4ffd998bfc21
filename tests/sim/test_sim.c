/* SPDX-License-Identifier: MIT */
/*
 * Self-test of the stand-ins, by their exported functions only. The directory that holds them is
 * argv[1] or GDRSIM_DIR. Every test runs in a process of its own, whatever CK_FORK says, so that
 * each begins before cuInit.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "common/maps.h"
#include "test_sim.h"

void *sim_cuda, *sim_nvml;

void *sim_symbol(void *lib, const char *name)
{
	void *symbol = dlsym(lib, name);

	ck_assert_msg(symbol != NULL, "%s is not exported", name);
	return symbol;
}

static void *load(const char *dir, const char *name)
{
	char path[4096];
	void *lib;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "test_sim: %s\n", dlerror());
		exit(1);
	}
	return lib;
}

CUcontext sim_start(void)
{
	CUcontext ctx;

	ck_cu(CU(cuInit)(0));
	ck_cu(CU(cuDevicePrimaryCtxRetain)(&ctx, 0));
	ck_cu(CU(cuCtxSetCurrent)(ctx));
	return ctx;
}

CUdeviceptr sim_vmm(size_t chunk, unsigned int n, CUmemGenericAllocationHandle *handles,
		    int exportable)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };
	CUmemAccessDesc access = { .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr ptr;

	prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	if (exportable)
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ck_cu(CU(cuMemAddressReserve)(&ptr, n * chunk, 0, 0, 0));
	for (unsigned int i = 0; i < n; i++) {
		ck_cu(CU(cuMemCreate)(&handles[i], chunk, &prop, 0));
		ck_cu(CU(cuMemMap)(ptr + i * chunk, chunk, 0, handles[i], 0));
	}
	ck_cu(CU(cuMemSetAccess)(ptr, n * chunk, &access, 1));
	return ptr;
}

void sim_vmm_end(CUdeviceptr ptr, size_t chunk, unsigned int n,
		 CUmemGenericAllocationHandle *handles)
{
	ck_cu(CU(cuMemUnmap)(ptr, n * chunk));
	for (unsigned int i = 0; i < n; i++)
		ck_cu(CU(cuMemRelease)(handles[i]));
	ck_cu(CU(cuMemAddressFree)(ptr, n * chunk));
}

/* Told from the kernel's list, so that a memory checker has nothing to complain of. */
int sim_faults(const void *address)
{
	return maps_at(address)[0] != 'r';
}

int main(int argc, char **argv)
{
	const char *dir = argc > 1 ? argv[1] : getenv("GDRSIM_DIR");
	SRunner *runner;
	int failed;

	if (!dir) {
		fprintf(stderr, "usage: test_sim DIRECTORY (or GDRSIM_DIR)\n");
		return 1;
	}
	sim_cuda = load(dir, "libcuda.so.1");
	sim_nvml = load(dir, "libnvidia-ml.so.1");
	runner = srunner_create(suite_cuda_base());
	srunner_add_suite(runner, suite_cuda_memory());
	srunner_add_suite(runner, suite_cuda_vmm());
	srunner_add_suite(runner, suite_cuda_work());
	srunner_add_suite(runner, suite_nvml());
	srunner_set_fork_status(runner, CK_FORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
