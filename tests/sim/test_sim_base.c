/* SPDX-License-Identifier: MIT */
/*
 * Self-test: initialisation, devices, contexts, call names and injected faults.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_sim.h"

START_TEST(nothing_before_init)
{
	CUdeviceptr ptr;
	int n;

	ck_cu(CU(cuDriverGetVersion)(&n));
	ck_assert_int_eq(n, 13000);
	ck_cu_is(CU(cuDeviceGetCount)(&n), CUDA_ERROR_NOT_INITIALIZED);
	ck_cu_is(CU(cuMemAlloc_v2)(&ptr, 64), CUDA_ERROR_NOT_INITIALIZED);
	ck_cu_is(CU(cuInit)(1), CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuInit)(0));
	ck_cu(CU(cuInit)(0));
	ck_cu(CU(cuDeviceGetCount)(&n));
	ck_assert_int_eq(n, 1);
}
END_TEST

START_TEST(no_device)
{
	setenv("GDRSIM_DEVICES", "0", 1);
	ck_cu_is(CU(cuInit)(0), CUDA_ERROR_NO_DEVICE);
}
END_TEST

START_TEST(devices)
{
	CUuuid uuid[2], instance;
	char id[2][32];
	int n, major;

	setenv("GDRSIM_DEVICES", "2", 1);
	ck_cu(CU(cuInit)(0));
	ck_cu(CU(cuDeviceGetCount)(&n));
	ck_assert_int_eq(n, 2);
	for (int i = 0; i < 2; i++) {
		ck_cu(CU(cuDeviceGetUuid)(&uuid[i], i));
		ck_cu(CU(cuDeviceGetPCIBusId)(id[i], sizeof(id[i]), i));
	}
	ck_assert_mem_ne(&uuid[0], &uuid[1], sizeof(uuid[0]));
	ck_assert_str_ne(id[0], id[1]);
	ck_assert_uint_eq(strlen(id[0]), 12);
	ck_cu_is(CU(cuDeviceGetUuid)(&uuid[0], 2), CUDA_ERROR_INVALID_DEVICE);
	ck_cu(CU(cuDeviceGetUuid_v2)(&instance, 1));
	ck_assert_mem_eq(&instance, &uuid[1], sizeof(instance));
	setenv("GDRSIM_MIG", "1", 1);
	ck_cu(CU(cuDeviceGetUuid_v2)(&instance, 1));
	ck_assert_mem_ne(&instance, &uuid[1], sizeof(instance));
	ck_cu(CU(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	ck_assert_int_eq(major, 9);
}
END_TEST

START_TEST(contexts)
{
	CUcontext primary, again, made, current;
	CUdeviceptr ptr;
	CUdevice dev;

	ck_cu(CU(cuInit)(0));
	ck_cu_is(CU(cuMemAlloc_v2)(&ptr, 64), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu_is(CU(cuCtxGetDevice)(&dev), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(CU(cuDevicePrimaryCtxRetain)(&primary, 0));
	ck_cu(CU(cuDevicePrimaryCtxRetain)(&again, 0));
	ck_assert_ptr_eq(primary, again);
	ck_cu(CU(cuCtxPushCurrent_v2)(primary));
	ck_cu(CU(cuCtxCreate_v2)(&made, 0, 0));
	ck_cu(CU(cuCtxGetCurrent)(&current));
	ck_assert_ptr_eq(current, made);
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 64));
	ck_cu(CU(cuCtxPopCurrent_v2)(&current));
	ck_assert_ptr_eq(current, made);
	ck_cu(CU(cuCtxGetCurrent)(&current));
	ck_assert_ptr_eq(current, primary);
	ck_cu(CU(cuCtxDestroy_v2)(made)); /* and its memory with it */
	ck_cu_is(CU(cuMemFree_v2)(ptr), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(CU(cuCtxSetCurrent)(made), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(CU(cuDevicePrimaryCtxRelease_v2)(0));
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 64));
	ck_cu(CU(cuDevicePrimaryCtxRelease_v2)(0));
	ck_cu_is(CU(cuMemAlloc_v2)(&ptr, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}
END_TEST

START_TEST(context_flags)
{
	unsigned int flags;

	sim_start();
	ck_cu(CU(cuCtxGetFlags)(&flags));
	ck_cu(CU(cuCtxSetFlags)(flags | CU_CTX_SYNC_MEMOPS));
	ck_cu(CU(cuCtxGetFlags)(&flags));
	ck_assert_uint_eq(flags & CU_CTX_SYNC_MEMOPS, CU_CTX_SYNC_MEMOPS);
	setenv("GDRSIM_DRIVER_VERSION", "12000", 1);
	ck_cu_is(CU(cuCtxSetFlags)(0), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

START_TEST(forked_child)
{
	CUdeviceptr ptr;
	int status;
	pid_t pid;

	sim_start();
	pid = fork();
	if (pid == 0)
		_exit(CU(cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED &&
				      CU(cuMemAlloc_v2)(&ptr, 64) == CUDA_ERROR_NOT_INITIALIZED
			      ? 0
			      : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 64));
}
END_TEST

START_TEST(proc_address)
{
	void *fn;
	int status;

	ck_cu(CU(cuGetProcAddress_v2)("cuMemAlloc", &fn, 13000, 0, &status));
	ck_assert_ptr_eq(fn, sim_symbol(sim_cuda, "cuMemAlloc_v2"));
	ck_assert_int_eq(status, 0);
	ck_cu(CU(cuGetProcAddress_v2)("cuDeviceGetUuid", &fn, 11030, 0, &status));
	ck_assert_ptr_eq(fn, sim_symbol(sim_cuda, "cuDeviceGetUuid"));
	CU(cuGetProcAddress_v2)("cuCtxSetFlags", &fn, 12000, 0, &status);
	ck_assert_ptr_null(fn);
	ck_assert_int_eq(status, 2);
	CU(cuGetProcAddress_v2)("cuNothing", &fn, 13000, 0, &status);
	ck_assert_ptr_null(fn);
	ck_assert_int_eq(status, 1);
}
END_TEST

START_TEST(error_names)
{
	const char *text;

	ck_cu(CU(cuGetErrorName)(CUDA_ERROR_NOT_SUPPORTED, &text));
	ck_assert_str_eq(text, "CUDA_ERROR_NOT_SUPPORTED");
	ck_cu_is(CU(cuGetErrorName)((CUresult)54321, &text), CUDA_ERROR_INVALID_VALUE);
	ck_assert_ptr_null(text);
}
END_TEST

START_TEST(faults)
{
	sim_fail_fn set_faults = (sim_fail_fn)sim_symbol(sim_cuda, "gdrsim_fail");
	sim_calls_fn calls = (sim_calls_fn)sim_symbol(sim_cuda, "gdrsim_calls");
	sim_fail_nth_fn nth = (sim_fail_nth_fn)sim_symbol(sim_cuda, "gdrsim_fail_nth");
	unsigned long before;
	CUdeviceptr ptr;
	int n;

	sim_start();
	set_faults("cuMemAlloc:2=999,cuDeviceGetCount:*=3");
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 64));
	ck_cu_is(CU(cuMemAlloc_v2)(&ptr, 64), CUDA_ERROR_UNKNOWN);
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 64));
	ck_cu_is(CU(cuDeviceGetCount)(&n), CUDA_ERROR_NOT_INITIALIZED);
	ck_cu_is(CU(cuDeviceGetCount)(&n), CUDA_ERROR_NOT_INITIALIZED);
	set_faults(NULL);
	ck_cu(CU(cuDeviceGetCount)(&n));
	ck_assert_uint_eq(calls("cuMemAlloc"), 3);
	before = calls(NULL);
	nth(2, CUDA_ERROR_OUT_OF_MEMORY);
	ck_cu(CU(cuDeviceGetCount)(&n));
	ck_cu_is(CU(cuMemFree_v2)(ptr), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cu(CU(cuMemFree_v2)(ptr));
	ck_assert_uint_eq(calls(NULL), before + 3);
}
END_TEST

START_TEST(faults_from_environment)
{
	setenv("GDRSIM_FAIL", "cuInit:1=100", 1);
	ck_cu_is(CU(cuInit)(0), CUDA_ERROR_NO_DEVICE);
	ck_cu(CU(cuInit)(0));
}
END_TEST

Suite *suite_cuda_base(void)
{
	Suite *suite = suite_create("sim cuda base");
	TCase *tc = tcase_create("base");

	tcase_add_test(tc, nothing_before_init);
	tcase_add_test(tc, no_device);
	tcase_add_test(tc, devices);
	tcase_add_test(tc, contexts);
	tcase_add_test(tc, context_flags);
	tcase_add_test(tc, forked_child);
	tcase_add_test(tc, proc_address);
	tcase_add_test(tc, error_names);
	tcase_add_test(tc, faults);
	tcase_add_test(tc, faults_from_environment);
	suite_add_tcase(suite, tc);
	return suite;
}
