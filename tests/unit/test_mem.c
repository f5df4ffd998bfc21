// SPDX-License-Identifier: MIT
/*
 * barcopy_mem_alloc(), export and import where they fail, barcopy_get_bar_info(). The memory itself
 * is a view of tests/model, threads that allocate are a scenario of tests/explore, importing in
 * another process is in tests/gpu/test_alloc.c, each call of CUDA that fails in tests/attack.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "barcopy_queue.h"
#include "base/inside.h"
#include "common/resources.h"
#include "common/wrap.h"
#include "fixture.h"

static void begin(void)
{
	g = open_any();
	standin_load();
}

/* gpuDirectRDMACapable is set where the device has it; the stand-in's always has. */
static void properties(void)
{
	unsigned int capable = 0;
	barcopy_mem_t mem;

	standin_start();
	OK(barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem));
	CU(cuda.cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
				      mem.device_ptr));
	ck_assert_uint_eq(capable, 1);
}

static void errors(void)
{
	barcopy_mem_t mem = { .size = 123 };
	unsigned long tried;

	FAILS(EINVAL, barcopy_mem_alloc(g, 0, 0, 0, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, 0, 1, 2, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_DMABUF, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, 0, 1, 0, NULL));
	FAILS(EINVAL, barcopy_mem_alloc(NULL, 0, 1, 0, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, 7, 1, 0, &mem));
	FAILS(EINVAL, barcopy_mem_alloc(g, -1, 1, 0, &mem));
	ck_assert(!gdri_is_inside()); /* a thread that stays inside could not be cancelled */
	FAILS(ENOTSUP, barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_CACHED, &mem));
	FAILS(ENOMEM, barcopy_mem_alloc(g, 0, SIZE_MAX, 0, &mem));
	FAILS(ENOMEM, barcopy_mem_alloc(g, 0, (size_t)1 << 40, 0, &mem));
	for (int flags = 0; flags <= BARCOPY_MEM_SHAREABLE; flags += BARCOPY_MEM_SHAREABLE) {
		cuda_hooks.set_fail("cuMemAlloc:*=999,cuMemCreate:*=999");
		FAILS(EIO, barcopy_mem_alloc(g, 0, 1, (uint32_t)flags, &mem));
		cuda_hooks.set_fail(NULL);
	}
	/* Shareable memory that CUDA refuses is not asked for again. */
	tried = cuda_hooks.calls("cuMemCreate");
	cuda_hooks.set_fail("cuMemCreate:*=801");
	FAILS(ENOTSUP, barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem));
	cuda_hooks.set_fail(NULL);
	ck_assert_uint_eq(cuda_hooks.calls("cuMemCreate"), tried + 1);
	ck_assert_uint_eq(mem.size, 123);
	FAILS(EINVAL, barcopy_mem_free(g, NULL));
	FAILS(EINVAL, barcopy_mem_free(g, &mem));
}

/* An attribute of the device that CUDA fails to tell is not taken for 0; an unknown one (1) is. */
static void attributes(void)
{
	static const struct {
		const char *fail, *text;
		int err;
	} rules[] = {
		{ "cuDeviceGetAttribute:1=999", "cuDeviceGetAttribute", EIO }, /* integrated */
		{ "cuDeviceGetAttribute:2=999", "cuDeviceGetAttribute", EIO }, /* exportable */
		{ "cuDeviceGetAttribute:3=999", "cuDeviceGetAttribute", EIO },
		{ "cuDeviceGetAttribute:4=999", "cuDeviceGetAttribute", EIO }, /* for GPUDirect */
		{ "cuDeviceGetAttribute:2=1", "CUDA exports no memory of GPU 0", ENOTSUP },
	};
	barcopy_mem_t mem, plain;
	int fd;

	OK(barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem));
	OK(barcopy_mem_export(g, &mem, &fd));
	close(fd);
	OK(barcopy_mem_alloc(g, 0, 1, 0, &plain));
	FAILS_WITH(ENOTSUP, "allocate it with BARCOPY_MEM_SHAREABLE",
		   barcopy_mem_export(g, &plain, &fd));
	OK(barcopy_mem_free(g, &plain));
	for (size_t i = 0; i < COUNT(rules); i++) {
		cuda_hooks.set_fail(rules[i].fail);
		FAILS_WITH(rules[i].err, rules[i].text,
			   barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem));
		cuda_hooks.set_fail(NULL);
	}
	cuda_hooks.set_fail("cuDeviceGetAttribute:1=1");
	OK(barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem));
	cuda_hooks.set_fail(NULL);
}

static barcopy_mem_t going;

static void free_going(void)
{
	FAILS_WITH(ENOMEM, "munmap: ", barcopy_mem_free(g, &going));
	FAILS(EINVAL, barcopy_mem_free(g, &going));
}

/* By a stream of its own: cuMemFree() would wait for every kernel of the GPU. */
static void freed_beside_kernels(void)
{
	unsigned long by_stream = cuda_hooks.calls("cuMemFreeAsync");
	unsigned long at_once = cuda_hooks.calls("cuMemFree");
	barcopy_mem_t mem;

	OK(barcopy_mem_alloc(g, 0, 100, 0, &mem));
	OK(barcopy_mem_free(g, &mem));
	ck_assert_mem_eq(&mem, &(barcopy_mem_t){ 0 }, sizeof(mem));
	ck_assert_uint_gt(cuda_hooks.calls("cuMemFreeAsync"), by_stream);
	ck_assert_uint_eq(cuda_hooks.calls("cuMemFree"), at_once);
}

/*
 * The mapping ends before its memory is freed; a failed call does not stop the rest, and is
 * returned. A second failure is logged.
 */
static void freed_last(void)
{
	unsigned long freed = cuda_hooks.calls("cuMemAddressFree");
	unsigned long at_once = cuda_hooks.calls("cuMemFree");
	OK(barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &going));
	wrap_reset();
	wrap_fail("munmap", 1, ENOMEM);
	cuda_hooks.set_fail("cuMemUnmap:1=999");
	ck_assert(strstr(unit_stderr_of(free_going), "cuMemUnmap: "));
	/* Addresses that are still mapped are not given back. */
	ck_assert_uint_eq(cuda_hooks.calls("cuMemAddressFree"), freed);
	ck_assert_uint_eq(cuda_hooks.calls("cuMemFree"), at_once);
	wrap_reset();
	cuda_hooks.set_fail(NULL);
}

/* What a reset of the device has freed ends without a failure, and the next allocation works. */
static void reset(void)
{
	barcopy_mem_t mem, rest;
	unsigned long freed;

	for (uint32_t i = 0; i < 3; i++) {
		OK(barcopy_mem_alloc(g, 0, 1, i % 2 ? BARCOPY_MEM_SHAREABLE : 0, &mem));
		OK(barcopy_mem_alloc(g, 0, 1, i % 2 ? BARCOPY_MEM_SHAREABLE : 0, &rest));
		OK(barcopy_mem_free(g, &mem));
		CU(cuda.cuDevicePrimaryCtxReset_v2(0));
		/* Memory of cuMemCreate outlives it. */
		freed = cuda_hooks.calls("cuMemAddressFree");
		OK(barcopy_mem_free(g, &rest));
		ck_assert_uint_eq(cuda_hooks.calls("cuMemAddressFree"), freed + i % 2);
	}
	OK(barcopy_mem_alloc(g, 0, 1, 0, &rest));
	CU(cuda.cuDevicePrimaryCtxReset_v2(0));
	OK(gdr_close(g));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuda.cuDevicePrimaryCtxRelease_v2(0));
	g = NULL;
}

/* A free after a reset does not free what the program has allocated at this address since. */
static void reset_and_reused(void)
{
	CUcontext primary;
	barcopy_mem_t mem;
	CUdeviceptr ptr;

	OK(barcopy_mem_alloc(g, 0, 100, 0, &mem));
	CU(cuda.cuDevicePrimaryCtxReset_v2(0));
	CU(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuda.cuCtxSetCurrent(primary));
	CU(cuda.cuMemAlloc_v2(&ptr, 100));
	ck_assert_uint_eq(ptr, mem.device_ptr);
	OK(barcopy_mem_free(g, &mem));
	CU(cuda.cuMemFree_v2(ptr));
}

/* The BAR is smaller than the memory. */
static void small_bar(void)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o) };
	barcopy_region_t idle;
	barcopy_cache_t cache;
	barcopy_queue_t queue;
	barcopy_port_t port;
	barcopy_mem_t mem;
	CUdeviceptr d;
	gdr_mh_t h;
	void *va;
	int fd;

	FAILS(ENOMEM, barcopy_mem_alloc(g, 0, 16 << 20, 0, &mem));
	/* An idle region gives way. */
	OK(barcopy_cache_create(g, &o, &cache));
	standin_start();
	d = standin_alloc(6 << 20);
	OK(barcopy_cache_get(cache, d, 6 << 20, &idle));
	OK(barcopy_cache_put(cache, &idle));
	OK(barcopy_mem_alloc(g, 0, 4 << 20, BARCOPY_MEM_SHAREABLE, &mem));
	OK(barcopy_mem_export(g, &mem, &fd));
	OK(barcopy_mem_free(g, &mem));
	OK(barcopy_cache_get(cache, d, 6 << 20, &idle));
	OK(barcopy_cache_put(cache, &idle));
	/* From another process it comes without FD_CLOEXEC. */
	OK(fcntl(fd, F_SETFD, 0));
	OK(barcopy_mem_import(g, 0, fd, 4 << 20, 0, &mem));
	close(fd);
	OK(barcopy_mem_free(g, &mem));
	/* For a queue and a port, too. */
	OK(barcopy_cache_get(cache, d, 6 << 20, &idle));
	OK(barcopy_cache_put(cache, &idle));
	OK(barcopy_cache_get(cache, standin_alloc(CHUNK), CHUNK, &idle));
	OK(barcopy_cache_put(cache, &idle));
	OK(barcopy_queue_create(g, 0, NULL, &queue));
	OK(barcopy_cache_get(cache, d, 6 << 20, &idle));
	OK(barcopy_cache_put(cache, &idle));
	OK(gdr_pin_buffer_v2(g, d + 4 * CHUNK, CHUNK - PAGE, 0, &h));
	OK(gdr_map(g, h, &va, CHUNK - PAGE));
	OK(barcopy_port_create(g, 0, NULL, &port));
}

/* Descriptors of a row; -1, -2 and 99 are invalid. */
enum { PIPE = 1000, DMABUF, EXPORTED, MEMFD, PLAIN };

static void import_errors(void)
{
	static const struct {
		int err, device, fd;
		size_t size;
		uint32_t flags;
	} rows[] = {
		{ EINVAL, 0, PIPE, CHUNK, BARCOPY_MEM_DMABUF },
		{ EINVAL, 0, MEMFD, CHUNK, BARCOPY_MEM_DMABUF },
		{ EINVAL, -1, MEMFD, CHUNK, BARCOPY_MEM_DMABUF },
		{ EINVAL, 0, PLAIN, CHUNK, BARCOPY_MEM_DMABUF },
		{ EINVAL, 0, -1, CHUNK, BARCOPY_MEM_DMABUF },
		{ EINVAL, 0, 99, CHUNK, BARCOPY_MEM_DMABUF },
		{ EINVAL, 0, DMABUF, 0, BARCOPY_MEM_DMABUF },
		{ EINVAL, 0, DMABUF, CHUNK - 4096, BARCOPY_MEM_DMABUF },
		{ ENOTSUP, 0, DMABUF, CHUNK + PAGE, BARCOPY_MEM_DMABUF },
		{ EINVAL, 5, DMABUF, CHUNK, BARCOPY_MEM_DMABUF },
		{ EINVAL, -2, DMABUF, CHUNK, BARCOPY_MEM_DMABUF },
		{ EINVAL, 0, DMABUF, CHUNK, BARCOPY_MEM_DMABUF | 8 },
		{ EINVAL, 0, DMABUF, CHUNK, BARCOPY_MEM_CACHED },
		/* A backend would serve new memory instead of another process's. */
		{ EINVAL, 0, -1, CHUNK, 0 },
		{ EINVAL, 0, -2, CHUNK - 1, 0 },
		{ EINVAL, 0, 99, CHUNK, 0 },
		{ EINVAL, 0, PIPE, CHUNK, 0 },
		{ EINVAL, 0, EXPORTED, CHUNK - 1, 0 },
		{ EINVAL, 0, EXPORTED, CHUNK, 1 },
		{ EINVAL, 5, EXPORTED, CHUNK, 0 },
	};
	barcopy_mem_t mem, out = { .size = 42 };
	int ends[2], dmabuf, exported = -7, memfd = memfd_create("not GPU memory", 0);
	FILE *plain = tmpfile();
	struct rlimit limit;
	CUdeviceptr ptr;
	gdr_mh_t range;
	void *cpu;

	standin_start();
	ptr = vmm_new(0, 1);
	CU(cuda.cuMemGetHandleForAddressRange(&dmabuf, ptr, CHUNK,
					      CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert(plain && !ftruncate(memfd, CHUNK) && !ftruncate(fileno(plain), CHUNK));
	OK(barcopy_mem_alloc(g, 0, 1, BARCOPY_MEM_SHAREABLE, &mem));
	OK(barcopy_map_range(g, mem.device_ptr, 8, 0, &cpu, &range));
	FAILS(EINVAL, barcopy_mem_export(g, &(barcopy_mem_t){ .handle = range }, &exported));
	FAILS(EINVAL, barcopy_mem_free(g, &(barcopy_mem_t){ .handle = range }));
	getrlimit(RLIMIT_NOFILE, &limit);
	OK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3, limit.rlim_max }));
	FAILS(EMFILE, barcopy_mem_export(g, &mem, &exported));
	FAILS_WITH(EINVAL, "fd", barcopy_mem_export(g, &mem, NULL));
	FAILS_WITH(EINVAL, "mem", barcopy_mem_export(g, NULL, &exported));
	FAILS_WITH(EINVAL, "not made by gdr_pin_buffer(): end it by barcopy_mem_free()",
		   gdr_unpin_buffer(g, mem.handle));
	OK(setrlimit(RLIMIT_NOFILE, &limit));
	ck_assert_int_eq(exported, -7);
	OK(barcopy_mem_export(g, &mem, &exported));
	for (size_t i = 0; i < COUNT(rows); i++) {
		int fd = rows[i].fd;

		fd = fd == PIPE ? ends[0] : fd == DMABUF ? dmabuf : fd == EXPORTED ? exported : fd;
		fd = fd == MEMFD ? memfd : fd == PLAIN ? fileno(plain) : fd;
		ck_assert_msg(barcopy_mem_import(g, rows[i].device, fd, rows[i].size, rows[i].flags,
						 &out) == rows[i].err,
			      "row %zu: %s", i, barcopy_last_error());
		if (rows[i].size == CHUNK + PAGE)
			SAYS("whole range");
	}
	OK(barcopy_unmap_range(g, range));
	OK(gdr_close(g));

	/* No backend takes a dma-buf that the driver does not let a process map. */
	setenv("GDRCOPY_BACKEND", "rm,host", 1);
	g = open_any();
	FAILS(ENOTSUP, barcopy_mem_import(g, 0, dmabuf, CHUNK, BARCOPY_MEM_DMABUF, &out));
	ck_assert_uint_eq(out.size, 42);
}

static void bar_info(void)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) }, later = info;
	unsigned long (*nvml_calls)(const char *name);
	barcopy_mem_t mem;

	OK(barcopy_get_bar_info(0, &info));
	ck_assert_uint_eq(info.total, 256 << 20);
	ck_assert_uint_eq(info.used + info.free, info.total);
	OK(barcopy_mem_alloc(g, 0, 16 << 20, 0, &mem));
	OK(barcopy_get_bar_info(0, &later));
	ck_assert_uint_eq(later.used, info.used + (16 << 20));
	*(void **)&nvml_calls = dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), "gdrsim_calls");
	ck_assert(nvml_calls && nvml_calls("nvmlDeviceGetBAR1MemoryInfo") == 2);
	ck_assert_uint_eq(nvml_calls("nvmlInit"), 1);
	FAILS(EINVAL, barcopy_get_bar_info(1, &info));
	ck_assert(!gdri_is_inside());
	FAILS(EINVAL, barcopy_get_bar_info(0, NULL));
	info.struct_size = 8;
	FAILS(EINVAL, barcopy_get_bar_info(0, &info));
}

static void nvml_fails(void)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info), .total = 42 };

	FAILS_WITH(ENOTSUP, "Driver not loaded", barcopy_get_bar_info(0, &info));
	ck_assert_uint_eq(info.total, 42);
}

/* Shareable: the stand-in keeps the stream by which other memory is freed. */
static void heap(void)
{
	barcopy_mem_t mem;
	size_t used = 0;
	gdr_mh_t range;
	CUdeviceptr d;
	void *cpu;

	standin_start();
	d = standin_alloc(CHUNK);
	for (int i = 0; i < 110; i++) {
		if (i == 10)
			used = resources_heap();
		OK(barcopy_mem_alloc(g, 0, 4096, BARCOPY_MEM_SHAREABLE, &mem));
		OK(barcopy_mem_free(g, &mem));
		wrap_reset();
		wrap_fail("mmap", 1, EACCES);
		ck_assert(barcopy_mem_alloc(g, 0, 4096, BARCOPY_MEM_SHAREABLE, &mem));
		wrap_reset();
		wrap_fail("mmap", 0, EACCES);
		ck_assert(barcopy_map_range(g, d, 8, 0, &cpu, &range));
		wrap_reset();
	}
	ck_assert_uint_lt(resources_heap(), used + 1000);
}

/* A release of the primary context that fails is repeated by the last close, which returns it. */
static void release_fails(void)
{
	unsigned long made = cuda_hooks.calls("cuDevicePrimaryCtxRetain");
	unsigned long ended = cuda_hooks.calls("cuDevicePrimaryCtxRelease");
	barcopy_mem_t mem;

	cuda_hooks.set_fail("cuDevicePrimaryCtxRelease:1=999");
	for (int i = 0; i < 3; i++) {
		OK(barcopy_mem_alloc(g, 0, 1, 0, &mem));
		OK(barcopy_mem_free(g, &mem));
	}
	cuda_hooks.set_fail(NULL);
	OK(gdr_close(g));
	ck_assert_uint_eq(cuda_hooks.calls("cuDevicePrimaryCtxRetain") - made,
			  cuda_hooks.calls("cuDevicePrimaryCtxRelease") - ended - 1);
	g = open_any();
	OK(barcopy_mem_alloc(g, 0, 1, 0, &mem));
	cuda_hooks.set_fail("cuDevicePrimaryCtxRelease:1=999");
	FAILS_WITH(EIO, "cuDevicePrimaryCtxRelease: ", gdr_close(g));
	cuda_hooks.set_fail(NULL);
	g = NULL;
}

static const struct unit_test tests[] = {
	{ "properties", properties },
	{ "errors", errors },
	{ "attributes", attributes },
	{ "freed beside kernels", freed_beside_kernels },
	{ "freed last", freed_last, "GDRCOPY_ENABLE_LOGGING=1" },
	{ "reset", reset },
	{ "a release that fails", release_fails },
	{ "reset, and the address is used again", reset_and_reused },
	{ "a small BAR", small_bar, "GDRSIM_BAR1_MIB=8" },
	{ "import: errors", import_errors, "GDRSIM_DRIVER_VERSION=13030" },
	{ "BAR info", bar_info, "GDRSIM_BAR1_MIB=256" },
	{ "BAR info: NVML fails", nvml_fails, "GDRSIM_FAIL=nvmlInit:*=9" },
	{ "allocations and the heap", heap, "" },
};

UNIT_MAIN("barcopy_mem_alloc", tests, unit_before = begin, unit_after = end)
