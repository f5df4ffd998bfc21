/* SPDX-License-Identifier: MIT */
/*
 * Self-test: virtual memory management and the descriptors of its memory, also from another
 * process.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_sim.h"

static CUmemAllocationProp prop_of(int handle_types)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.requestedHandleTypes = (CUmemAllocationHandleType)handle_types;
	return prop;
}

START_TEST(create)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle;
	size_t granularity;

	sim_start();
	ck_cu(CU(cuMemGetAllocationGranularity)(&granularity, &prop,
						CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	ck_assert_uint_eq(granularity, GRANULE);
	ck_cu_is(CU(cuMemCreate)(&handle, 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	prop.location.id = 9;
	ck_cu_is(CU(cuMemCreate)(&handle, GRANULE, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
	prop = prop_of(0);
	prop.type = (CUmemAllocationType)0;
	ck_cu_is(CU(cuMemCreate)(&handle, GRANULE, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(CU(cuMemRelease)(12345), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(map_rules)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemAccessDesc access = { .location.type = CU_MEM_LOCATION_TYPE_DEVICE,
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	unsigned long long id, again;
	CUdeviceptr ptr;
	char byte = 3;

	sim_start();
	ck_cu(CU(cuMemCreate)(&handle, 2 * GRANULE, &prop, 0));
	ck_cu(CU(cuMemAddressReserve)(&ptr, 4 * GRANULE, 0, 0, 0));
	ck_cu_is(CU(cuMemMap)(ptr + 4096, 2 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(CU(cuMemMap)(ptr, 2 * GRANULE, GRANULE, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_cu_is(CU(cuMemMap)(ptr, 3 * GRANULE, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_cu_is(CU(cuMemMap)(ptr + 4 * GRANULE, 2 * GRANULE, 0, handle, 0),
		 CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(CU(cuMemMap)(ptr, GRANULE, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_cu(CU(cuMemMap)(ptr, 2 * GRANULE, 0, handle, 0));
	ck_cu_is(CU(cuMemMap)(ptr, 2 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(CU(cuMemcpyHtoD_v2)(ptr, &byte, 1), CUDA_ERROR_INVALID_VALUE);
	access.location.type = CU_MEM_LOCATION_TYPE_HOST;
	ck_cu_is(CU(cuMemSetAccess)(ptr, 2 * GRANULE, &access, 1), CUDA_ERROR_NOT_SUPPORTED);
	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	ck_cu(CU(cuMemSetAccess)(ptr, 2 * GRANULE, &access, 1));
	ck_cu(CU(cuMemcpyHtoD_v2)(ptr, &byte, 1));
	ck_assert_int_eq(sim_faults((void *)(uintptr_t)ptr), 1);
	ck_cu(CU(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	ck_cu_is(CU(cuMemUnmap)(ptr, GRANULE), CUDA_ERROR_INVALID_VALUE);
	ck_cu_is(CU(cuMemAddressFree)(ptr, 4 * GRANULE), CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuMemUnmap)(ptr, 2 * GRANULE));
	ck_cu(CU(cuMemMap)(ptr, 2 * GRANULE, 0, handle, 0));
	ck_cu(CU(cuPointerGetAttribute)(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	ck_assert_uint_ne(again, id);
	ck_cu(CU(cuMemUnmap)(ptr, 2 * GRANULE));
	ck_cu(CU(cuMemRelease)(handle));
	ck_cu(CU(cuMemAddressFree)(ptr, 4 * GRANULE));
}
END_TEST

START_TEST(chunks)
{
	CUmemGenericAllocationHandle handles[3], handle;
	CUmemAllocationProp prop;
	CUdeviceptr ptr, base;
	CUcontext ctx;
	unsigned int one = 1;
	size_t size;
	char *data = malloc(3 * GRANULE), *back = malloc(3 * GRANULE);

	sim_start();
	ptr = sim_vmm(GRANULE, 3, handles, 1);
	for (size_t i = 0; i < 3 * GRANULE; i++)
		data[i] = (char)(i * 7 + i / 4096);
	ck_cu(CU(cuMemcpyHtoD_v2)(ptr, data, 3 * GRANULE));
	ck_cu(CU(cuMemcpyDtoH_v2)(back, ptr, 3 * GRANULE));
	ck_assert_int_eq(memcmp(data, back, 3 * GRANULE), 0);
	ck_cu(CU(cuMemGetAddressRange_v2)(&base, &size, ptr + GRANULE + 9));
	ck_assert_uint_eq(base, ptr + GRANULE);
	ck_assert_uint_eq(size, GRANULE);
	ck_cu(CU(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)(ptr + GRANULE + 9)));
	ck_assert_uint_eq(handle, handles[1]);
	ck_cu(CU(cuMemGetAllocationPropertiesFromHandle)(&prop, handle));
	ck_assert_int_eq(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	ck_cu(CU(cuMemRelease)(handle));
	ck_cu(CU(cuPointerGetAttribute)(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr));
	ck_assert_uint_eq(size, 3 * GRANULE); /* the reservation */
	ck_cu(CU(cuPointerGetAttribute)(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	ck_assert_ptr_null(ctx);
	ck_cu_is(CU(cuPointerSetAttribute)(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr),
		 CUDA_ERROR_NOT_SUPPORTED);
	sim_vmm_end(ptr, GRANULE, 3, handles);
	ck_cu_is(CU(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)ptr),
		 CUDA_ERROR_INVALID_VALUE);
	free(data);
	free(back);
}
END_TEST

START_TEST(life)
{
	unsigned long long (*held)(int) =
		(unsigned long long (*)(int))sim_symbol(sim_cuda, "gdrsim_device_bytes");
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr ptr;

	sim_start();
	ptr = sim_vmm(GRANULE, 1, &handle, 0);
	ck_cu(CU(cuMemRelease)(handle));
	ck_cu_is(CU(cuMemRelease)(handle), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(held(0), GRANULE);
	ck_cu(CU(cuMemsetD8_v2)(ptr, 1, GRANULE));
	ck_cu(CU(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)ptr));
	ck_assert_uint_eq(again, handle);
	ck_cu(CU(cuMemUnmap)(ptr, GRANULE));
	ck_assert_uint_eq(held(0), GRANULE);
	ck_cu(CU(cuMemRelease)(again));
	ck_assert_uint_eq(held(0), 0);
}
END_TEST

static CUresult export(int *fd, CUmemGenericAllocationHandle handle)
{
	return CU(cuMemExportToShareableHandle)(fd, handle,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult import(CUmemGenericAllocationHandle *handle, int fd)
{
	return CU(cuMemImportFromShareableHandle)(handle, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

START_TEST(export_import)
{
	CUmemAccessDesc access = { .location.type = CU_MEM_LOCATION_TYPE_DEVICE,
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle, closed, imported;
	CUdeviceptr ptr, other;
	unsigned char byte = 0;
	int fd;

	sim_start();
	other = sim_vmm(GRANULE, 1, &closed, 0);
	ck_cu_is(export(&fd, closed), CUDA_ERROR_INVALID_VALUE);
	sim_vmm_end(other, GRANULE, 1, &closed);
	ptr = sim_vmm(GRANULE, 1, &handle, 1);
	ck_cu(export(&fd, handle));
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_cu_is(import(&imported, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cu(import(&imported, fd));
	ck_cu(CU(cuMemAddressReserve)(&other, GRANULE, 0, 0, 0));
	ck_cu(CU(cuMemMap)(other, GRANULE, 0, imported, 0));
	ck_cu(CU(cuMemSetAccess)(other, GRANULE, &access, 1));
	ck_cu(CU(cuMemsetD8_v2)(ptr + 77, 0x9a, 1));
	ck_cu(CU(cuMemcpyDtoH_v2)(&byte, other + 77, 1));
	ck_assert_int_eq(byte, 0x9a);
	close(fd);
}
END_TEST

/* The child is forked before the parent's cuInit: a CUDA process of its own. */
START_TEST(other_process)
{
	CUmemAccessDesc access = { .location.type = CU_MEM_LOCATION_TYPE_DEVICE,
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	unsigned char byte = 0;
	int pipes[2], status, fd;
	char path[64];
	CUdeviceptr ptr;
	pid_t pid, parent = getpid();

	ck_assert_int_eq(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		int ok = read(pipes[0], &fd, sizeof(fd)) == (ssize_t)sizeof(fd);

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)parent, fd);
		fd = open(path, O_RDWR | O_CLOEXEC);
		sim_start();
		ok = ok && import(&handle, fd) == CUDA_SUCCESS &&
		     CU(cuMemAddressReserve)(&ptr, GRANULE, 0, 0, 0) == CUDA_SUCCESS &&
		     CU(cuMemMap)(ptr, GRANULE, 0, handle, 0) == CUDA_SUCCESS &&
		     CU(cuMemSetAccess)(ptr, GRANULE, &access, 1) == CUDA_SUCCESS &&
		     CU(cuMemsetD8_v2)(ptr + 5, 0x3d, 1) == CUDA_SUCCESS;
		_exit(ok ? 0 : 1);
	}
	sim_start();
	ptr = sim_vmm(GRANULE, 1, &handle, 1);
	ck_cu(export(&fd, handle));
	ck_assert_int_eq(write(pipes[1], &fd, sizeof(fd)), sizeof(fd));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_cu(CU(cuMemcpyDtoH_v2)(&byte, ptr + 5, 1));
	ck_assert_int_eq(byte, 0x3d);
}
END_TEST

#ifndef MMAP_NOT_HOOKED
START_TEST(dmabuf_of_chunks)
{
	CUmemGenericAllocationHandle handles[3];
	unsigned char byte;
	CUdeviceptr ptr;
	char *map;
	int fd;

	setenv("GDRSIM_DMABUF_MMAP", "1", 1);
	sim_start();
	ptr = sim_vmm(GRANULE, 3, handles, 0);
	ck_cu_is(CU(cuMemGetHandleForAddressRange)(&fd, ptr, 4 * GRANULE, 1, 0),
		 CUDA_ERROR_INVALID_VALUE);
	ck_cu(CU(cuMemGetHandleForAddressRange)(&fd, ptr + GRANULE / 2, 2 * GRANULE, 1, 0));
	map = mmap(NULL, 2 * GRANULE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	ck_assert_ptr_ne(map, MAP_FAILED);
	sim_vmm_end(ptr, GRANULE, 3, handles); /* the map holds the memory */
	map[0] = 1;
	map[2 * GRANULE - 1] = 2;
	munmap(map, 2 * GRANULE);
	ptr = sim_vmm(GRANULE, 3, handles, 0);
	ck_cu(CU(cuMemGetHandleForAddressRange)(&fd, ptr + GRANULE / 2, 2 * GRANULE, 1, 0));
	map = mmap(NULL, 2 * GRANULE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	for (size_t at = 0; at < 2 * GRANULE; at += GRANULE / 4) {
		map[at] = (char)(at / 4096);
		ck_cu(CU(cuMemcpyDtoH_v2)(&byte, ptr + GRANULE / 2 + at, 1));
		ck_assert_int_eq(byte, (unsigned char)(at / 4096));
	}
	close(fd);
	munmap(map, 2 * GRANULE);
}
END_TEST
#endif

Suite *suite_cuda_vmm(void)
{
	Suite *suite = suite_create("sim cuda vmm");
	TCase *tc = tcase_create("vmm");

	tcase_add_test(tc, create);
	tcase_add_test(tc, map_rules);
	tcase_add_test(tc, chunks);
	tcase_add_test(tc, life);
	tcase_add_test(tc, export_import);
	tcase_add_test(tc, other_process);
#ifndef MMAP_NOT_HOOKED
	tcase_add_test(tc, dmabuf_of_chunks);
#endif
	suite_add_tcase(suite, tc);
	return suite;
}
