// SPDX-License-Identifier: MIT
/*
 * barcopy_mem_alloc(): memory that is ready on each kind of platform, handed to another process, and
 * freed; barcopy_get_bar_info().
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/pass_fd.h"
#include "common/wrap.h"
#include "mem_sim.h"

static void use(gdr_t g, const barcopy_mem_t *mem)
{
	CUcontext before = NULL;

	standin_load();
	cuda.cuCtxGetCurrent(&before);
	if (!before)
		standin_start();
	ck_assert(same_memory(mem->handle, mem->cpu_ptr, mem->device_ptr));
	ck_assert(same_memory(mem->handle, (char *)mem->cpu_ptr + mem->size - 8,
			      mem->device_ptr + mem->size - 8));
	FAILS(EINVAL, gdr_copy_to_mapping(mem->handle, (char *)mem->cpu_ptr + mem->size, "x", 1));
	FAILS(EINVAL, barcopy_unmap_range(g, mem->handle));
}

/* In a program that has never heard of CUDA. */
START_TEST(test_alloc)
{
	static const size_t sizes[] = { 8, 4096, CHUNK, CHUNK + 1, 5 * CHUNK };
	gdr_t g = open_any();
	barcopy_mem_t mem, copy;

	standin_load();
	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t flags = i % 2 ? BARCOPY_MEM_SHAREABLE : 0;
		size_t size = sizes[i / 2];
		uint64_t backend = 0;

		OK(barcopy_mem_alloc(g, 0, size, flags, &mem));
		if (flags)
			size = (size + CHUNK - 1) / CHUNK * CHUNK;
		ck_assert_uint_eq(mem.size, size);
		ck_assert_uint_ge(standin_device_bytes(0), mem.size);
		use(g, &mem);
		OK(barcopy_get_handle_attribute(g, mem.handle, BARCOPY_HANDLE_ATTR_BACKEND,
						&backend));
		ck_assert_uint_eq(backend, BARCOPY_BACKEND_RM);
		copy = mem;
		OK(barcopy_mem_free(g, &mem));
		ck_assert(!mem.device_ptr && !mem.cpu_ptr && !mem.size && !mem.handle.h);
		ck_assert_uint_eq(standin_device_bytes(0), 0);
		FAILS(EINVAL, barcopy_mem_free(g, &mem));
		FAILS(EINVAL, barcopy_mem_free(g, &copy));
	}
	/* What is left is freed by the close. */
	OK(barcopy_mem_alloc(g, 0, 100, 0, &mem));
	OK(barcopy_mem_alloc(g, 0, 100, 0, &mem));
	FAILS(EINVAL, gdr_unpin_buffer(g, mem.handle));
	ck_assert_ptr_nonnull(strstr(barcopy_last_error(), "barcopy_mem_free"));
	FAILS(EINVAL, gdr_unmap(g, mem.handle, mem.cpu_ptr, mem.size));
	use(g, &mem);
	OK(barcopy_mem_free(g, &mem));
	ck_assert_uint_ge(standin_device_bytes(0), 100);
	OK(gdr_close(g));
	ck_assert_uint_eq(standin_device_bytes(0), 0);
}
END_TEST

/* The bit for GPUDirect is set exactly where the device has it: the stand-in always does. */
START_TEST(test_properties)
{
	unsigned int capable = 0;
	gdr_t g = open_any();
	barcopy_mem_t mem;

	standin_start();
	OK(barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem));
	CU(cuda.cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
				      mem.device_ptr));
	ck_assert_uint_eq(capable, 1);
	OK(gdr_close(g));
}
END_TEST

START_TEST(test_integrated)
{
	uint64_t type = 0, backend = 0;
	barcopy_mem_t wc, cached;
	gdr_t g;

	setenv("GDRSIM_INTEGRATED", "1", 1);
	g = open_any();
	OK(barcopy_mem_alloc(g, 0, 100, 0, &wc));
	OK(barcopy_mem_alloc(g, 0, 100, BARCOPY_MEM_CACHED, &cached));
	OK(barcopy_get_handle_attribute(g, wc.handle, BARCOPY_HANDLE_ATTR_BACKEND, &backend));
	ck_assert_uint_eq(backend, BARCOPY_BACKEND_HOST);
	OK(barcopy_get_handle_attribute(g, wc.handle, BARCOPY_HANDLE_ATTR_MAPPING_TYPE, &type));
	ck_assert_uint_eq(type, GDR_MAPPING_TYPE_WC);
	OK(barcopy_get_handle_attribute(g, cached.handle, BARCOPY_HANDLE_ATTR_MAPPING_TYPE, &type));
	ck_assert_uint_eq(type, GDR_MAPPING_TYPE_CACHING);
	use(g, &wc);
	use(g, &cached);
	OK(barcopy_mem_free(g, &wc));
	OK(barcopy_mem_free(g, &cached));
	OK(gdr_close(g));
}
END_TEST

START_TEST(test_several_gpus)
{
	barcopy_mem_t mem[3];
	gdr_t g;

	setenv("GDRSIM_DEVICES", "3", 1);
	g = open_any();
	for (int i = 0; i < 3; i++) {
		uint64_t device = 99;

		OK(barcopy_mem_alloc(g, i, 100, BARCOPY_MEM_SHAREABLE, &mem[i]));
		OK(barcopy_get_handle_attribute(g, mem[i].handle, BARCOPY_HANDLE_ATTR_DEVICE,
						&device));
		ck_assert_uint_eq(device, (unsigned int)i);
	}
	standin_load();
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(standin_device_bytes(i), CHUNK);
	OK(gdr_close(g));
}
END_TEST

START_TEST(test_errors)
{
	gdr_t g = open_any();
	barcopy_mem_t mem = { .size = 123 };

	FAILS(EINVAL, barcopy_mem_alloc(g, 0, 0, 0, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, 0, 1, 2, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, 0, 1, 0, NULL));
	FAILS(EINVAL, barcopy_mem_alloc(NULL, 0, 1, 0, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, 7, 1, 0, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, -1, 1, 0, &mem));
	FAILS(ENOTSUP, barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_CACHED, &mem));
	FAILS(ENOMEM, barcopy_mem_alloc(g, 0, SIZE_MAX, 0, &mem));
	FAILS(ENOMEM, barcopy_mem_alloc(g, 0, (size_t)1 << 40, 0, &mem));
	ck_assert_uint_eq(mem.size, 123);
	FAILS(EINVAL, barcopy_mem_free(g, NULL));
	FAILS(EINVAL, barcopy_mem_free(g, &mem));
	OK(gdr_close(g));
	FAILS(EINVAL, barcopy_mem_alloc(g, 0, 1, 0, &mem));
}
END_TEST

/* Each call of CUDA fails once: no leak, an error, and the next allocation is good. */
START_TEST(test_failing_calls)
{
	static const char *const names[] = { "cuInit",
					     "cuDeviceGetCount",
					     "cuDeviceGet",
					     "cuCtxPushCurrent",
					     "cuMemGetAllocationGranularity",
					     "cuMemCreate",
					     "cuMemAddressReserve",
					     "cuMemMap",
					     "cuMemSetAccess",
					     "cuMemGetHandleForAddressRange" };
	gdr_t g = open_any();
	barcopy_mem_t mem;

	standin_load();
	/* The first takes it, for all that follow. */
	cuda_hooks.set_fail("cuDevicePrimaryCtxRetain:*=999");
	FAILS(EIO, barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem));
	cuda_hooks.set_fail(NULL);
	ck_assert(standin_device_bytes(0) == 0);
	OK(barcopy_mem_alloc(g, 0, 1, 0, &mem));
	OK(barcopy_mem_free(g, &mem));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char spec[80];

		snprintf(spec, sizeof(spec), "%s:*=999", names[i]);
		cuda_hooks.set_fail(spec);
		ck_assert_msg(barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem) != 0, "%s",
			      names[i]);
		cuda_hooks.set_fail(NULL);
		ck_assert_msg(standin_device_bytes(0) == 0, "%s leaks", names[i]);
	}
	cuda_hooks.set_fail("cuMemAlloc:*=999");
	FAILS(EIO, barcopy_mem_alloc(g, 0, 1, 0, &mem));
	cuda_hooks.set_fail(NULL);
	OK(barcopy_mem_alloc(g, 0, 1, 0, &mem));
	OK(gdr_close(g));
}
END_TEST

static barcopy_mem_t going;
static gdr_t going_of;

static void free_going(void)
{
	OK(barcopy_mem_free(going_of, &going));
}

/* Pages are removed before the memory behind them is given back; nothing keeps the rest from going. */
START_TEST(test_freed_last)
{
	const char *said, *freeing;

	setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
	going_of = open_any();
	standin_load();
	OK(barcopy_mem_alloc(going_of, 0, 1, BARCOPY_MEM_SHAREABLE, &going));
	wrap_reset();
	wrap_fail("munmap", 1, ENOMEM);
	cuda_hooks.set_fail("cuMemUnmap:1=999");
	said = strstr(unit_stderr_of(free_going), "unmapping");
	freeing = said ? strstr(said, "freeing") : NULL;
	ck_assert_ptr_nonnull(freeing);
	wrap_reset();
	cuda_hooks.set_fail(NULL);
	OK(gdr_close(going_of));
}
END_TEST

/* A program resets its device: what it had is gone, and the next allocation is good. */
START_TEST(test_reset)
{
	gdr_t g = open_any();
	barcopy_mem_t mem;

	standin_load();
	for (int i = 0; i < 3; i++) {
		OK(barcopy_mem_alloc(g, 0, 1, 0, &mem));
		OK(barcopy_mem_free(g, &mem));
		CU(cuda.cuDevicePrimaryCtxReset_v2(0));
	}
	OK(gdr_close(g));
	ck_assert_int_eq(cuda.cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

/* The BAR is smaller than the memory. */
START_TEST(test_small_bar)
{
	barcopy_mem_t mem;
	gdr_t g;

	setenv("GDRSIM_BAR1_MIB", "8", 1);
	g = open_any();
	FAILS(ENOMEM, barcopy_mem_alloc(g, 0, 16 << 20, 0, &mem));
	OK(barcopy_mem_alloc(g, 0, 4 << 20, 0, &mem));
	OK(gdr_close(g));
}
END_TEST

/* The other process: imports, by our call and by CUDA's own, and answers. 0, or what was wrong. */
static int importer(int socket)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	uint64_t value = 0, answer = 0x5678;
	barcopy_mem_t mem;
	CUdeviceptr ptr;
	size_t size = 0;
	gdr_mh_t mh;
	void *cpu;
	int fd;
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);

	if (!g)
		return 1;
	fd = take_fd(socket, &size);
	if (fd < 0)
		return 2;
	if (barcopy_mem_import(g, 0, fd, size, 0, &mem))
		return 3;
	if (gdr_copy_from_mapping(mem.handle, &value, (char *)mem.cpu_ptr + 4096, 8) ||
	    value != 0x1234)
		return 4;
	standin_start();
	if (cuda.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
	    cuda.cuMemAddressReserve(&ptr, size, 0, 0, 0) ||
	    cuda.cuMemMap(ptr, size, 0, handle, 0) || cuda.cuMemSetAccess(ptr, size, &access, 1))
		return 5;
	close(fd);
	/* What CUDA has imported is memory like any other. */
	if (barcopy_map_range(g, ptr + 4096, 8, 0, &cpu, &mh) ||
	    gdr_copy_from_mapping(mh, &value, cpu, 8) || value != 0x1234)
		return 6;
	if (gdr_copy_to_mapping(mem.handle, (char *)mem.cpu_ptr + 8192, &answer, 8))
		return 7;
	if (barcopy_mem_import(g, 0, 0, size, 0, &mem) != EINVAL)
		return 8;
	if (barcopy_mem_free(g, &mem))
		return 9;
	return gdr_close(g) ? 10 : 0;
}

START_TEST(test_two_processes)
{
	uint64_t value = 0x1234, seen = 0;
	int socket[2], status, fd;
	struct rlimit limit;
	barcopy_mem_t mem;
	pid_t pid;
	gdr_t g;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, socket), 0);
	/* forked before anything of CUDA is there, as any other process would be */
	pid = fork();
	if (!pid)
		_exit(importer(socket[1]));
	g = open_any();
	OK(barcopy_mem_alloc(g, 0, 3 * CHUNK, BARCOPY_MEM_SHAREABLE, &mem));
	OK(gdr_copy_to_mapping(mem.handle, (char *)mem.cpu_ptr + 4096, &value, 8));
	/* Without a descriptor left: said so, and nothing is lost. */
	getrlimit(RLIMIT_NOFILE, &limit);
	OK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3, limit.rlim_max }));
	FAILS(EMFILE, barcopy_mem_export(g, &mem, &fd));
	OK(setrlimit(RLIMIT_NOFILE, &limit));
	OK(barcopy_mem_export(g, &mem, &fd));
	ck_assert_int_eq(pass_fd(socket[0], fd, mem.size), 0);
	close(fd);
	waitpid(pid, &status, 0);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	OK(gdr_copy_from_mapping(mem.handle, &seen, (char *)mem.cpu_ptr + 8192, 8));
	ck_assert_uint_eq(seen, 0x5678);
	OK(barcopy_mem_free(g, &mem));
	OK(gdr_close(g));
}
END_TEST

/* Maps a dma-buf that came over the socket, in a process without a context of CUDA. */
static int dmabuf_importer(int socket)
{
	uint64_t value = 0, answer = 0x5678, backend = 0, device = 7;
	barcopy_mem_t mem, again;
	gdr_info_t info;
	size_t size = 0;
	int fd, other;
	gdr_t g = gdr_open();

	if (!g)
		return 1;
	fd = take_fd(socket, &size);
	if (fd < 0)
		return 2;
	if (barcopy_mem_import(g, -1, fd, size, BARCOPY_MEM_DMABUF, &mem) || mem.device_ptr ||
	    mem.size != size)
		return 3;
	if (gdr_copy_from_mapping(mem.handle, &value, (char *)mem.cpu_ptr + 4096, 8) ||
	    value != 0x1234)
		return 4;
	if (gdr_copy_to_mapping(mem.handle, (char *)mem.cpu_ptr + size - 8, &answer, 8) ||
	    gdr_copy_to_mapping(mem.handle, (char *)mem.cpu_ptr + size, &answer, 1) != EINVAL)
		return 5;
	if (gdr_get_info(g, mem.handle, &info) || info.va || info.mapped_size != size ||
	    barcopy_get_handle_attribute(g, mem.handle, BARCOPY_HANDLE_ATTR_BACKEND, &backend) ||
	    backend != BARCOPY_BACKEND_DMABUF ||
	    barcopy_get_handle_attribute(g, mem.handle, BARCOPY_HANDLE_ATTR_DEVICE, &device) !=
		    ENOTSUP ||
	    barcopy_get_handle_attribute(g, mem.handle, BARCOPY_HANDLE_ATTR_SYNC_MEMOPS, &device) ||
	    device)
		return 6;
	if (barcopy_mem_export(g, &mem, &other) != ENOTSUP)
		return 7;
	if (barcopy_set_copy_options(
		    mem.handle,
		    &(barcopy_copy_options_t){ .struct_size = sizeof(barcopy_copy_options_t),
					       .engine_write_min = 1 }) != ENOTSUP ||
	    !strstr(barcopy_last_error(),
		    "no device address")) /* not asked of CUDA, for address 0 */
		return 8;
	/* Half of it a second time, after the descriptor is gone here. */
	if (barcopy_mem_import(g, 0, fd, size / 2, BARCOPY_MEM_DMABUF, &again) || close(fd))
		return 9;
	if (barcopy_mem_free(g, &mem) ||
	    gdr_copy_from_mapping(again.handle, &value, (char *)again.cpu_ptr + 4096, 8) ||
	    value != 0x1234)
		return 10;
	return gdr_close(g) ? 11 : 0; /* which frees `again` */
}

START_TEST(test_dmabuf_handed_over)
{
	uint64_t value = 0x1234, seen = 0;
	int socket[2], status, fd;
	CUdeviceptr ptr;
	pid_t pid;

	setenv("GDRSIM_DRIVER_VERSION", "13030", 1);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, socket), 0);
	pid = fork();
	if (!pid)
		_exit(dmabuf_importer(socket[1]));
	standin_start();
	ptr = vmm_new(0, 1);
	CU(cuda.cuMemcpyHtoD_v2(ptr + 4096, &value, 8));
	CU(cuda.cuMemGetHandleForAddressRange(&fd, ptr, CHUNK, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					      0));
	ck_assert_int_eq(pass_fd(socket[0], fd, CHUNK), 0);
	close(fd);
	waitpid(pid, &status, 0);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	CU(cuda.cuMemcpyDtoH_v2(&seen, ptr + CHUNK - 8, 8));
	ck_assert_uint_eq(seen, 0x5678);
	vmm_delete(ptr, 1);
}
END_TEST

/* A wrong descriptor or size, a buffer that is too small, a driver that refuses the mmap. */
START_TEST(test_dmabuf_errors)
{
	barcopy_mem_t mem = { .size = 42 };
	CUdeviceptr ptr;
	int fd, ends[2];
	gdr_t g;

	setenv("GDRSIM_DRIVER_VERSION", "13030", 1);
	g = open_any();
	standin_start();
	ptr = vmm_new(0, 1);
	CU(cuda.cuMemGetHandleForAddressRange(&fd, ptr, CHUNK, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					      0));
	ck_assert_int_eq(pipe(ends), 0);
	FAILS(ENOTSUP, barcopy_mem_import(g, 0, ends[0], CHUNK, BARCOPY_MEM_DMABUF, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 0, -1, CHUNK, BARCOPY_MEM_DMABUF, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 0, 99, CHUNK, BARCOPY_MEM_DMABUF, &mem));
	/* No new memory in the place of another process's, which every backend would serve. */
	FAILS(EINVAL, barcopy_mem_import(g, 0, -1, CHUNK, 0, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 0, -2, CHUNK - 1, 0, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 0, fd, 0, BARCOPY_MEM_DMABUF, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 0, fd, CHUNK - 4096, BARCOPY_MEM_DMABUF, &mem));
	FAILS(ENOTSUP, barcopy_mem_import(g, 0, fd, CHUNK + PAGE, BARCOPY_MEM_DMABUF, &mem));
	ck_assert_ptr_nonnull(strstr(barcopy_last_error(), "whole range"));
	FAILS(EINVAL, barcopy_mem_import(g, 5, fd, CHUNK, BARCOPY_MEM_DMABUF, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, -2, fd, CHUNK, BARCOPY_MEM_DMABUF, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 0, fd, CHUNK, BARCOPY_MEM_DMABUF | 8, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 0, fd, CHUNK, BARCOPY_MEM_CACHED, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, 0, CHUNK, BARCOPY_MEM_DMABUF, &mem));
	ck_assert_uint_eq(mem.size, 42);
	OK(gdr_close(g));

	/* No backend takes one where dma-bufs cannot be mapped. */
	setenv("GDRCOPY_BACKEND", "rm,host", 1);
	g = open_any();
	FAILS(ENOTSUP, barcopy_mem_import(g, 0, fd, CHUNK, BARCOPY_MEM_DMABUF, &mem));
	OK(gdr_close(g));
	close(fd);
	vmm_delete(ptr, 1);
}
END_TEST

START_TEST(test_import_errors)
{
	gdr_t g = open_any();
	barcopy_mem_t mem;
	int fd = -7, pipe_fd[2];
	gdr_mh_t mh;
	void *cpu;

	ck_assert_int_eq(pipe(pipe_fd), 0);
	ck_assert_int_ne(barcopy_mem_import(g, 0, pipe_fd[0], CHUNK, 0, &mem), 0);
	FAILS(EINVAL, barcopy_mem_import(g, 0, -1, CHUNK, 0, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 0, 99, CHUNK, 0, &mem));
	OK(barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem));
	OK(barcopy_map_range(g, mem.device_ptr, 8, 0, &cpu, &mh));
	FAILS(EINVAL, barcopy_mem_export(g, &(barcopy_mem_t){ .handle = mh }, &fd));
	FAILS(EINVAL, barcopy_mem_free(g, &(barcopy_mem_t){ .handle = mh }));
	ck_assert_int_eq(fd, -7);
	OK(barcopy_mem_export(g, &mem, &fd));
	FAILS(EINVAL, barcopy_mem_import(g, 0, fd, CHUNK - 1, 0, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 0, fd, CHUNK, 1, &mem));
	FAILS(EINVAL, barcopy_mem_import(g, 5, fd, CHUNK, 0, &mem));
	close(fd);
	OK(barcopy_unmap_range(g, mh));
	OK(gdr_close(g));
}
END_TEST

START_TEST(test_bar_info)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) },
			   later = { .struct_size = sizeof(later) };
	unsigned long (*nvml_calls)(const char *name);
	barcopy_mem_t mem;
	gdr_t g;

	setenv("GDRSIM_BAR1_MIB", "256", 1);
	g = open_any();
	OK(barcopy_get_bar_info(0, &info));
	ck_assert_uint_eq(info.total, 256 << 20);
	ck_assert_uint_eq(info.used + info.free, info.total);
	OK(barcopy_mem_alloc(g, 0, 16 << 20, 0, &mem));
	OK(barcopy_get_bar_info(0, &later));
	ck_assert_uint_eq(later.used, info.used + (16 << 20));
	/* NVML is made ready once. */
	*(void **)&nvml_calls = dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), "gdrsim_calls");
	ck_assert(nvml_calls && nvml_calls("nvmlDeviceGetBAR1MemoryInfo") == 2);
	ck_assert_uint_eq(nvml_calls("nvmlInit"), 1);
	OK(barcopy_mem_free(g, &mem));
	FAILS(EINVAL, barcopy_get_bar_info(1, &info));
	FAILS(EINVAL, barcopy_get_bar_info(0, NULL));
	info.struct_size = 8;
	FAILS(EINVAL, barcopy_get_bar_info(0, &info));
	OK(gdr_close(g));
}
END_TEST

START_TEST(test_nvml_fails)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info), .total = 42 };
	gdr_t g;

	setenv("GDRSIM_FAIL", "nvmlInit:*=9", 1);
	g = open_any();
	FAILS(ENOTSUP, barcopy_get_bar_info(0, &info));
	ck_assert_ptr_nonnull(strstr(barcopy_last_error(), "Driver not loaded"));
	ck_assert_uint_eq(info.total, 42);
	OK(gdr_close(g));
}
END_TEST

START_TEST(test_fork)
{
	gdr_t g = open_any();
	barcopy_mem_t mem, other;
	int status;
	pid_t pid;

	OK(barcopy_mem_alloc(g, 0, 8, 0, &mem));
	pid = fork();
	if (!pid) {
		int fd, bad = barcopy_mem_alloc(g, 0, 1, 0, &other) != EACCES;

		bad |= (barcopy_mem_export(g, &mem, &fd) != EACCES) << 1;
		bad |= (barcopy_mem_free(g, &mem) != EACCES) << 2;
		_exit(bad);
	}
	waitpid(pid, &status, 0);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	use(g, &mem);
	OK(barcopy_mem_free(g, &mem));
	OK(gdr_close(g));
}
END_TEST

static gdr_t shared_g;

static void *alloc_and_free(void *arg)
{
	uintptr_t bad = 0;

	(void)arg;
	for (int i = 0; i < 50; i++) {
		uint64_t value = (uint64_t)(uintptr_t)arg + 1, seen = 0;
		barcopy_mem_t mem;

		if (barcopy_mem_alloc(shared_g, 0, 100, 0, &mem)) {
			bad++;
			continue;
		}
		bad += gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, &value, 8) != 0;
		bad += gdr_copy_from_mapping(mem.handle, &seen, mem.cpu_ptr, 8) || seen != value;
		bad += barcopy_mem_free(shared_g, &mem) != 0;
	}
	return (void *)bad;
}

START_TEST(test_threads)
{
	pthread_t thread[4];

	shared_g = open_any();
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, alloc_and_free, (void *)i), 0);
	for (int i = 0; i < 4; i++) {
		void *bad;

		pthread_join(thread[i], &bad);
		ck_assert_uint_eq((uintptr_t)bad, 0);
	}
	OK(gdr_close(shared_g));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("barcopy_mem_alloc");
	TCase *tc = tcase_create("memory");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_alloc);
	tcase_add_test(tc, test_properties);
	tcase_add_test(tc, test_integrated);
	tcase_add_test(tc, test_several_gpus);
	tcase_add_test(tc, test_errors);
	tcase_add_test(tc, test_failing_calls);
	tcase_add_test(tc, test_freed_last);
	tcase_add_test(tc, test_reset);
	tcase_add_test(tc, test_small_bar);
	tcase_add_test(tc, test_two_processes);
	tcase_add_test(tc, test_import_errors);
	tcase_add_test(tc, test_dmabuf_handed_over);
	tcase_add_test(tc, test_dmabuf_errors);
	tcase_add_test(tc, test_bar_info);
	tcase_add_test(tc, test_nvml_fails);
	tcase_add_test(tc, test_fork);
	tcase_add_test(tc, test_threads);
	suite_add_tcase(suite, tc);
	return unit_suite(suite, CK_FORK);
}
