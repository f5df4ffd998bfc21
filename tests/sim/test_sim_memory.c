/* SPDX-License-Identifier: MIT */
/*
 * Self-test: cuMemAlloc, host, managed and pool memory, pointer attributes and the dma-buf of
 * memory that is not VMM.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test_sim.h"

static unsigned long long buffer_id(CUdeviceptr ptr)
{
	unsigned long long id = 0;

	ck_cu(CU(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	return id;
}

static unsigned int attribute(CUpointer_attribute which, CUdeviceptr ptr)
{
	unsigned int value = 77;

	ck_cu(CU(cuPointerGetAttribute)(&value, which, ptr));
	return value;
}

static CUresult set_sync(CUdeviceptr ptr)
{
	unsigned int one = 1;

	return CU(cuPointerSetAttribute)(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr);
}

START_TEST(small_allocations)
{
	unsigned long long id;
	CUdeviceptr a, b, again;
	char text[64] = "to the GPU and back";
	char back[64];

	sim_start();
	ck_cu(CU(cuMemAlloc_v2)(&a, 64));
	ck_cu(CU(cuMemAlloc_v2)(&b, 64));
	ck_assert_uint_eq(b - a, 512);
	ck_assert_int_eq(sim_faults((void *)(uintptr_t)a), 1);
	ck_cu(CU(cuMemcpyHtoD_v2)(b, text, sizeof(text)));
	ck_cu(CU(cuMemcpyDtoH_v2)(back, b, sizeof(back)));
	ck_assert_str_eq(back, text);
	ck_cu_is(CU(cuMemcpyHtoD_v2)(b, text, 65), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(CU(cuMemFree_v2)(b + 8), CUDA_ERROR_INVALID_VALUE);
	id = buffer_id(b);
	ck_cu(CU(cuMemFree_v2)(b));
	ck_cu_is(CU(cuMemFree_v2)(b), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(CU(cuMemcpyDtoH_v2)(back, b, 1), CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuMemAlloc_v2)(&again, 64));
	ck_assert_uint_eq(again, b);
	ck_assert_uint_ne(buffer_id(again), id);
}
END_TEST

START_TEST(limit)
{
	unsigned long long (*held)(int) =
		(unsigned long long (*)(int))sim_symbol(sim_cuda, "gdrsim_device_bytes");
	size_t free_bytes, total;
	CUdeviceptr ptr, more;

	setenv("GDRSIM_MEM_MIB", "16", 1);
	sim_start();
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 10 * MIB));
	ck_cu(CU(cuMemGetInfo_v2)(&free_bytes, &total));
	ck_assert_uint_eq(total, 16 * MIB);
	ck_assert_uint_eq(free_bytes, 6 * MIB);
	ck_cu_is(CU(cuMemAlloc_v2)(&more, 8 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	ck_cu(CU(cuMemFree_v2)(ptr));
	ck_assert_uint_eq(held(0), 0);
	ck_cu(CU(cuMemAlloc_v2)(&more, 8 * MIB));
}
END_TEST

START_TEST(attributes)
{
	CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
	CUdeviceptr ptr, base;
	CUcontext ctx = sim_start(), of;
	size_t size;
	void *host;

	ck_cu(CU(cuMemAlloc_v2)(&ptr, 3 * MIB + 5));
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr + 9),
			  CU_MEMORYTYPE_DEVICE);
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr), 0);
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr), 0);
	ck_cu(CU(cuPointerGetAttribute)(&of, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	ck_assert_ptr_eq(of, ctx);
	ck_cu(CU(cuPointerGetAttribute)(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr + 9));
	ck_cu(CU(cuPointerGetAttribute)(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr + 9));
	ck_assert_uint_eq(base, ptr);
	ck_assert_uint_eq(size, 3 * MIB + 5);
	ck_cu_is(CU(cuPointerGetAttribute)(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr),
		 CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuPointerGetAttribute)(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, ptr));
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr), 0);
	ck_cu(set_sync(ptr));
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr), 1);
	ck_cu(CU(cuMemGetAddressRange_v2)(&base, &size, ptr + 100));
	ck_assert_uint_eq(base, ptr);
	ck_cu(CU(cuMemFree_v2)(ptr));
	ck_cu_is(CU(cuPointerGetAttribute)(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr),
		 CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(attributes_of_unknown)
{
	CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_HOST_POINTER };
	unsigned int type = 77;
	void *host = NULL, *data[] = { &type, &host };

	sim_start();
	ck_cu_is(CU(cuPointerGetAttribute)(&type, which[0], (CUdeviceptr)(uintptr_t)&type),
		 CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuPointerGetAttributes)(2, which, data, (CUdeviceptr)(uintptr_t)&type));
	ck_assert_uint_eq(type, 0);
	ck_assert_ptr_eq(host, &type);
}
END_TEST

START_TEST(host_memory)
{
	CUdeviceptr dptr;
	unsigned int flags;
	void *a, *b, *wc;
	char one;

	sim_start();
	ck_cu(CU(cuMemHostAlloc)(&a, 64, 0));
	ck_cu(CU(cuMemHostAlloc)(&b, 64, CU_MEMHOSTALLOC_PORTABLE));
	ck_assert_int_eq((char *)b - (char *)a, 512);
	memset(a, 1, 64);
	ck_cu(CU(cuMemHostGetDevicePointer_v2)(&dptr, (char *)a + 8, 0));
	ck_assert_uint_eq(dptr, (uintptr_t)a + 8);
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dptr), CU_MEMORYTYPE_HOST);
	ck_cu(CU(cuMemHostGetFlags)(&flags, b));
	ck_assert_uint_eq(flags, CU_MEMHOSTALLOC_DEVICEMAP);
	ck_cu(CU(cuMemHostAlloc)(&wc, 4096, CU_MEMHOSTALLOC_WRITECOMBINED));
	ck_cu(CU(cuMemHostGetDevicePointer_v2)(&dptr, wc, 0));
	ck_assert_uint_ne(dptr, (uintptr_t)wc);
	ck_assert_int_eq(sim_faults((void *)(uintptr_t)dptr), 1);
	ck_cu(CU(cuMemsetD8_v2)(dptr + 5, 0x41, 1));
	ck_assert_int_eq(((char *)wc)[5], 0x41);
	ck_cu(CU(cuPointerGetAttribute)(&wc, CU_POINTER_ATTRIBUTE_HOST_POINTER, dptr));
	ck_assert_int_eq(((char *)wc)[5], 0x41);
	ck_cu(CU(cuMemFreeHost)(wc));
	ck_cu_is(CU(cuMemcpyDtoH_v2)(&one, dptr, 1), CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuMemFreeHost)(a));
	ck_cu_is(CU(cuMemFreeHost)(a), CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuMemFreeHost)(b));
	ck_assert_int_eq(sim_faults(b), 1);
}
END_TEST

START_TEST(registered_memory)
{
	char *mem = malloc(8192);
	CUdeviceptr dptr;

	sim_start();
	ck_cu_is(CU(cuMemHostUnregister)(mem), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	ck_cu(CU(cuMemHostRegister_v2)(mem, 8192, 0));
	ck_cu_is(CU(cuMemHostRegister_v2)(mem + 100, 64, 0),
		 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ck_cu(CU(cuMemHostGetDevicePointer_v2)(&dptr, mem, 0));
	ck_assert_uint_eq(dptr, (uintptr_t)mem);
	ck_cu(CU(cuMemHostUnregister)(mem));
	free(mem);
}
END_TEST

START_TEST(managed_and_pool)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr managed, pool;
	unsigned long long mempool = 0;

	sim_start();
	ck_cu(CU(cuMemAllocManaged)(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	*(volatile char *)(uintptr_t)managed = 1;
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed), 1);
	ck_cu(CU(cuMemFree_v2)(managed));
	ck_cu(CU(cuMemAllocAsync)(&pool, 4096, NULL));
	ck_cu(CU(cuPointerGetAttribute)(&mempool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pool));
	ck_assert_uint_ne(mempool, 0);
	ck_cu_is(CU(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)pool),
		 CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuMemFreeAsync)(pool, NULL));
	ck_cu_is(CU(cuMemFreeAsync)(pool, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static CUresult dmabuf(int *fd, CUdeviceptr ptr, size_t size, unsigned long long flags)
{
	return CU(cuMemGetHandleForAddressRange)(fd, ptr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
						 flags);
}

START_TEST(dmabuf_without_mmap)
{
	CUdeviceptr ptr;
	int fd;

	sim_start();
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 4 * MIB));
	ck_cu_is(dmabuf(&fd, ptr + 512, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(dmabuf(&fd, ptr, 100, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(dmabuf(&fd, ptr, 8 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(dmabuf(&fd, ptr, 4096, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE),
		 CUDA_ERROR_NOT_SUPPORTED);
	ck_cu(dmabuf(&fd, ptr, 65536, 0));
	ck_assert_ptr_eq(mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
}
END_TEST

#ifndef MMAP_NOT_HOOKED
START_TEST(dmabuf_with_mmap)
{
	const size_t at[] = { 0, 65536, 3 * 65536 + 4096 };
	CUdeviceptr ptr, small;
	char *map, seen[2];
	int fd;

	setenv("GDRSIM_DRIVER_VERSION", "13030", 1);
	sim_start();
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 4 * MIB));
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		ck_cu(dmabuf(&fd, ptr + at[i], 2 * 65536, 0));
		map = mmap(NULL, 2 * 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
		ck_assert_ptr_ne(map, MAP_FAILED);
		map[0] = (char)(0x10 + i);
		map[65536 + 7] = (char)(0x20 + i);
		ck_cu(CU(cuMemcpyDtoH_v2)(&seen[0], ptr + at[i], 1));
		ck_cu(CU(cuMemcpyDtoH_v2)(&seen[1], ptr + at[i] + 65536 + 7, 1));
		ck_assert_int_eq(seen[0], (char)(0x10 + i));
		ck_assert_int_eq(seen[1], (char)(0x20 + i));
		munmap(map, 2 * 65536);
	}
	for (int i = 0; i < 200; i++)
		ck_cu(CU(cuMemAlloc_v2)(&small, 1000));
	ck_cu(dmabuf(&fd, small & ~0xffffull, 65536, 0));
	map = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_cu(CU(cuMemFree_v2)(ptr));
	ck_cu(CU(cuMemsetD8_v2)(small, 0x5c, 1000));
	ck_assert_int_eq(map[(small & 0xffff) + 999], 0x5c);
	ck_assert_ptr_eq(mmap(NULL, 2 * 65536, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
	munmap(map, 65536);
}
END_TEST
#endif

START_TEST(dmabuf_of_another_device)
{
	CUcontext second;
	CUdeviceptr ptr;
	int fd;

	setenv("GDRSIM_DEVICES", "2", 1);
	sim_start();
	ck_cu(CU(cuMemAlloc_v2)(&ptr, 4 * MIB));
	ck_cu(CU(cuDevicePrimaryCtxRetain)(&second, 1));
	ck_cu(CU(cuCtxSetCurrent)(second));
	ck_cu_is(dmabuf(&fd, ptr, 65536, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuCtxSetCurrent)(NULL));
	ck_cu_is(dmabuf(&fd, ptr, 65536, 0), CUDA_ERROR_INVALID_CONTEXT);
	ck_cu(set_sync(ptr));
	ck_cu(CU(cuMemFree_v2)(ptr));
}
END_TEST

Suite *suite_cuda_memory(void)
{
	Suite *suite = suite_create("sim cuda memory");
	TCase *tc = tcase_create("memory");

	tcase_add_test(tc, small_allocations);
	tcase_add_test(tc, limit);
	tcase_add_test(tc, attributes);
	tcase_add_test(tc, attributes_of_unknown);
	tcase_add_test(tc, host_memory);
	tcase_add_test(tc, registered_memory);
	tcase_add_test(tc, managed_and_pool);
	tcase_add_test(tc, dmabuf_without_mmap);
#ifndef MMAP_NOT_HOOKED
	tcase_add_test(tc, dmabuf_with_mmap);
#endif
	tcase_add_test(tc, dmabuf_of_another_device);
	suite_add_tcase(suite, tc);
	return suite;
}
