/* SPDX-License-Identifier: MIT */
/*
 * Self-test: streams, what is asynchronous, kernels, and many threads at once.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "test_sim.h"

static unsigned char byte_at(CUdeviceptr ptr)
{
	unsigned char byte = 0xee;

	ck_cu(CU(cuMemcpyDtoH_v2)(&byte, ptr, 1));
	return byte;
}

START_TEST(immediate)
{
	CUdeviceptr ptr;
	CUstream stream;

	sim_start();
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 4096));
	ck_cu(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	ck_cu(CU(cuMemsetD8Async)(ptr, 7, 4096, stream));
	ck_cu(CU(cuStreamQuery)(stream));
	ck_assert_int_eq(byte_at(ptr + 4095), 7);
	ck_cu(CU(cuMemsetD32_v2)(ptr, 0x01020304, 2));
	ck_assert_int_eq(byte_at(ptr + 7), 1);
	ck_cu_is(CU(cuMemsetD32_v2)(ptr + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuStreamDestroy_v2)(stream));
	ck_cu_is(CU(cuStreamQuery)(stream), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

/* The host memory is the GPU's own too: it shows without a call when something has happened. */
START_TEST(delayed)
{
	char source[64], *host;
	CUdeviceptr ptr;
	CUstream stream;
	unsigned int one = 1;

	setenv("GDRSIM_ASYNC_DELAY_US", "200000", 1);
	sim_start();
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 4096));
	ck_cu(CU(cuMemHostAlloc)((void **)&host, 64, 0));
	ck_cu(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	memset(source, 5, sizeof(source));
	ck_cu(CU(cuMemcpyHtoDAsync_v2)(ptr, source, sizeof(source), stream));
	memset(source, 6, sizeof(source)); /* pageable: was staged */
	ck_cu(CU(cuMemcpyDtoHAsync_v2)(host, ptr, 64, stream));
	ck_cu_is(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
	ck_cu(CU(cuStreamSynchronize)(stream));
	ck_assert_int_eq(host[63], 5);
	ck_cu(CU(cuStreamQuery)(stream));
	/* a memset returns early, until SYNC_MEMOPS is set */
	ck_cu(CU(cuMemsetD8_v2)(ptr, 9, 64));
	ck_cu_is(CU(cuStreamQuery)(NULL), CUDA_ERROR_NOT_READY);
	ck_cu(CU(cuPointerSetAttribute)(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	ck_cu(CU(cuStreamQuery)(NULL));
	ck_cu(CU(cuMemsetD8_v2)(ptr, 10, 64));
	ck_cu(CU(cuStreamQuery)(NULL));
	ck_assert_int_eq(byte_at(ptr), 10);
	ck_cu(CU(cuMemsetD8Async)(ptr, 11, 64, stream));
	ck_cu(CU(cuMemFree_v2)(ptr)); /* waits */
	ck_cu(CU(cuStreamQuery)(stream));
}
END_TEST

START_TEST(kernel)
{
	static const char ptx[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
				  ".visible .entry gdrsim_store32(\n.param .u64 a, .param .u32 v)\n"
				  "{\nret;\n}\n";
	uint32_t value = 0x600d, back = 0;
	void *params[2];
	CUfunction function;
	CUdeviceptr ptr;
	CUmodule module;

	sim_start();
	ck_cu_is(CU(cuModuleLoadData)(&module, ".version 7.0\n.entry other(\n"),
		 CUDA_ERROR_NOT_SUPPORTED);
	ck_cu(CU(cuModuleLoadData)(&module, ptx));
	ck_cu_is(CU(cuModuleGetFunction)(&function, module, "other"), CUDA_ERROR_NOT_FOUND);
	ck_cu(CU(cuModuleGetFunction)(&function, module, "gdrsim_store32"));
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 64));
	params[0] = &ptr;
	params[1] = &value;
	ck_cu(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	value = 0;
	ck_cu(CU(cuCtxSynchronize)());
	ck_cu(CU(cuMemcpyDtoH_v2)(&back, ptr, 4));
	ck_assert_uint_eq(back, 0x600d);
	ck_cu(CU(cuModuleUnload)(module));
	ck_cu_is(CU(cuModuleGetFunction)(&function, module, "gdrsim_store32"),
		 CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

/* Not Check's assertions: they are for the main thread. */
static void *thread(void *arg)
{
	uintptr_t wrong = 0;
	unsigned char tag = (unsigned char)(uintptr_t)arg;
	CUcontext ctx;

	wrong += CU(cuDevicePrimaryCtxRetain)(&ctx, 0) != CUDA_SUCCESS;
	wrong += CU(cuCtxSetCurrent)(ctx) != CUDA_SUCCESS;
	for (int i = 0; i < 200; i++) {
		unsigned char buf[300];
		CUdeviceptr ptr;
		size_t size = 1 + (size_t)(i % 300);
		CUstream stream;

		wrong += CU(cuMemAlloc_v2)(&ptr, size) != CUDA_SUCCESS;
		wrong += CU(cuStreamCreate)(&stream, 0) != CUDA_SUCCESS;
		wrong += CU(cuMemsetD8Async)(ptr, tag, size, stream) != CUDA_SUCCESS;
		wrong += CU(cuStreamSynchronize)(stream) != CUDA_SUCCESS;
		wrong += CU(cuMemcpyDtoH_v2)(buf, ptr, size) != CUDA_SUCCESS;
		wrong += buf[0] != tag || buf[size - 1] != tag;
		wrong += CU(cuStreamDestroy_v2)(stream) != CUDA_SUCCESS;
		wrong += CU(cuMemFree_v2)(ptr) != CUDA_SUCCESS;
	}
	return (void *)wrong;
}

static void run_threads(void)
{
	pthread_t threads[4];
	void *wrong;

	sim_start();
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, thread, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
		ck_assert_ptr_null(wrong);
	}
}

START_TEST(threads)
{
	run_threads();
}
END_TEST

START_TEST(threads_delayed)
{
	setenv("GDRSIM_ASYNC_DELAY_US", "50", 1);
	run_threads();
}
END_TEST

Suite *suite_cuda_work(void)
{
	Suite *suite = suite_create("sim cuda work");
	TCase *tc = tcase_create("work");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, immediate);
	tcase_add_test(tc, delayed);
	tcase_add_test(tc, kernel);
	tcase_add_test(tc, threads);
	tcase_add_test(tc, threads_delayed);
	suite_add_tcase(suite, tc);
	return suite;
}
