// SPDX-License-Identifier: MIT
/*
 * The dma-buf backend: which drivers have it, its trial, what it refuses, and the errno of a pin that
 * fails. What it maps is a machine of tests/model.
 */
#include <fcntl.h>
#include <unistd.h>

#include "common/resources.h"
#include "common/wrap.h"
#include "core/ctx.h"
#include "cuda/private.h"
#include "fixture.h"

static struct standin_vmm v;

static void start_alone(void)
{
	setenv("GDRCOPY_BACKEND", "dmabuf", 1);
	start();
	standin_vmm_alloc(&v, 0, 3, STANDIN_GRANULE, true);
}

static void version_gate(void)
{
	static const struct {
		const char *version, *refused;
	} table[] = { { "11070", "11.7" }, { "13000", "13.0" }, { "13020", "13.2" },
		      { "13030" },	   { "13040" },		{ "14000" } };
	char text[64];

	setenv("GDRCOPY_BACKEND", "dmabuf", 1);
	for (size_t i = 0; i < COUNT(table); i++) {
		setenv("GDRSIM_DRIVER_VERSION", table[i].version, 1);
		snprintf(text, sizeof(text), "CUDA driver %s cannot map", table[i].refused ?: "");
		if (table[i].refused)
			FAILS_WITH(ENODEV, text, ERRNO_OF(gdr_open()));
		else
			OK(ERRNO_OF(gdr_open()));
	}
}

static void map_types(void)
{
	gdr_mh_t h;
	void *map = &map;

	OK(gdr_pin_buffer_v2(g, v.ptr, 65536, 0, &h));
	FAILS_WITH(ENOTSUP, "Caching",
		   gdr_map_v2(g, h, &map, 65536, GDR_MAP_FLAG_REQ_CACHE_MAPPING));
	FAILS_WITH(ENOTSUP,
		   "\"Device\" was requested, but the dmabuf backend maps this memory as \"Write "
		   "Combining\"",
		   gdr_map_v2(g, h, &map, 65536, GDR_MAP_FLAG_REQ_DEVICE_MAPPING));
	ck_assert_ptr_eq(map, &map);
	OK(gdr_map_v2(g, h, &map, 65536, GDR_MAP_FLAG_REQ_WC_MAPPING));
}

/* A system call fails during a pin: nothing is left, and no handle is written. */
static void pin_fails(const char *call, unsigned long nth, int err, int expect, const char *text)
{
	gdr_mh_t h = { 77 };

	resources_note();
	wrap_reset();
	wrap_fail(call, nth, err);
	FAILS_WITH(expect, text, gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h));
	ck_assert_str_eq(wrap_failed(), call);
	wrap_reset();
	ck_assert_uint_eq(h.h, 77);
	ck_assert_ptr_null(resources_changed());
}

static void pin_error_paths(void)
{
	gdr_mh_t h;

	pin_fails("mmap", 1, ENOMEM, ENOMEM, "address space");
	pin_fails("mmap", 1, ENODEV, ENOTSUP, "refuses mmap");
	pin_fails("mmap", 1, EPERM, ENOTSUP, "refuses mmap");
	pin_fails("mmap", 1, 524, ENOTSUP, "ENOTSUPP");
	pin_fails("madvise", 1, ENOMEM, ENOMEM, "MADV_DONTFORK");
	pin_fails("madvise", 1, EINVAL, ENOTSUP, "MADV_DONTFORK");
	/* A page of the range cannot be read: the buffer is no mapping of all of it. */
	pin_fails("syscall", 1, EFAULT, ENOTSUP, "whole range");
	pin_fails("syscall", 2, EFAULT, ENOTSUP, "whole range");
	OK(gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h));
}

/* The table of descriptors cannot grow: a pin whose descriptor finds no room fails. */
static void table_is_full(void)
{
	unsigned int failed = 0;

	for (int i = 0; i < 17; i++) {
		gdr_mh_t h;

		wrap_reset();
		wrap_fail("realloc", 1, ENOMEM);
		if (gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h)) {
			pin_fails("realloc", 1, ENOMEM, ENOMEM, "no memory to keep a descriptor");
			failed++;
		}
		wrap_reset();
		ck_assert_int_ge(gdri_fork_open("/dev/null", O_RDONLY), 0);
	}
	ck_assert_uint_ge(failed, 1);
}

/* A program without standard input: a pin keeps descriptor 0. */
static void descriptor_zero(void)
{
	int input = open("/dev/null", O_RDONLY);
	gdr_mh_t h;

	ck_assert_int_eq(input, 0);
	start_alone();
	OK(gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h)); /* with the trial */
	OK(gdr_unpin_buffer(g, h));
	close(input);
	OK(gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h));
	ck_assert_int_ge(fcntl(0, F_GETFD), 0);
	OK(gdr_unpin_buffer(g, h));
	ck_assert_int_eq(fcntl(0, F_GETFD), -1);
	end();
}

/* Without CUDA's word on the link the type of a mapping is unknown. */
static void unknown_link(void)
{
	OK(gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &(gdr_mh_t){ 0 })); /* with the trial */
	cuda_hooks.set_fail("cuDeviceGetAttribute:*=999");
	FAILS_WITH(EIO, "dmabuf: cuDeviceGetAttribute: ",
		   gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &(gdr_mh_t){ 0 }));
	cuda_hooks.set_fail(NULL);
}

/* Pages that cannot be removed are still the handle's mapping. */
static void unmap_fails(void)
{
	gdr_mh_t h;
	void *map;

	OK(gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h));
	OK(gdr_map(g, h, &map, v.chunk));
	wrap_reset();
	wrap_fail("munmap", 1, ENOMEM);
	FAILS_WITH(ENOMEM, "munmap: ", gdr_unmap(g, h, map, v.chunk));
	wrap_reset();
}

/*
 * A part whose first GPU page begins in memory that has been freed: libcuda refuses that page
 * alone, and exports the whole allocation.
 */
static void beside_freed(void)
{
	static const struct {
		size_t front, size, offset, part;
	} rows[] = {
		{ 0x200, 100000, 0, 8 },	 { 0x200, 100000, 50000, 8 },
		{ 0xf200, 100000, 0, 8 },	 { 0x200, 0x10000, 0xfdff, 1 },
		{ 0x200, 0x10000, 0xfdff, 512 }, { 0xfe00, 0x400, 0x1ff, 1 },
		{ 0xfe00, 0x400, 0, 0x400 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		CUdeviceptr front = standin_alloc(rows[i].front), p = standin_alloc(rows[i].size);
		CUdeviceptr at = p + rows[i].offset;
		gdr_info_t info;
		gdr_mh_t h;
		void *map;

		ck_assert_uint_eq(p, front + rows[i].front);
		OK(gdr_pin_buffer(g, at, rows[i].part, 0, 0, &h));
		OK(gdr_unpin_buffer(g, h));
		resources_note();
		OK(gdr_pin_buffer(g, at, rows[i].part, 0, 0, &h));
		OK(gdr_unpin_buffer(g, h));
		ck_assert_ptr_null(resources_changed());
		CU(cuda.cuMemFree_v2(front));
		/* A range may begin in freed memory of its first page. */
		OK(gdr_pin_buffer(g, p - 1, 2, 0, 0, &h));
		OK(gdr_unpin_buffer(g, h));
		OK(gdr_pin_buffer(g, at, rows[i].part, 0, 0, &h));
		OK(gdr_get_info(g, h, &info));
		ck_assert_uint_eq(info.va, at & ~0xffffull);
		ck_assert_uint_eq(info.mapped_size,
				  ((at + rows[i].part + 0xffff) & ~0xffffull) - info.va);
		OK(gdr_map(g, h, &map, info.mapped_size));
		ck_assert(same_memory(h, (char *)map + (((at & ~7ull) - info.va)), at & ~7ull));
		OK(gdr_unpin_buffer(g, h));
		OK(barcopy_map_range(g, at, rows[i].part, 0, &map, &h));
		OK(barcopy_unmap_range(g, h));
		CU(cuda.cuMemFree_v2(p));
	}
}

/* libcuda 580 refuses a part of a pool's memory that neither begins nor ends with an object. */
static void of_a_pool(void)
{
	CUdeviceptr p, whole;
	gdr_mh_t h = { 77 };
	void *map;

	CU(cuda.cuMemAllocAsync(&whole, 32 << 20, NULL));
	CU(cuda.cuMemAllocAsync(&p, 1 << 20, NULL));
	OK(barcopy_map_range(g, whole + CHUNK, PAGE, 0, &map, &h)); /* it ends with its object */
	ck_assert(same_memory(h, map, whole + CHUNK));
	OK(barcopy_unmap_range(g, h));
	h.h = 77;
	resources_note();
	FAILS_WITH(ENOTSUP, "exports no dma-buf of this part of the memory: cuMemGetHandle",
		   gdr_pin_buffer(g, p + PAGE, PAGE, 0, 0, &h));
	FAILS(ENOTSUP, gdr_pin_buffer(g, p + (1 << 20) - PAGE, PAGE, 0, 0, &h));
	FAILS_WITH(EINVAL, "CUDA_ERROR_INVALID_VALUE",
		   gdr_pin_buffer_v2(g, p + PAGE, PAGE, GDR_PIN_FLAG_FORCE_PCIE, &h));
	FAILS_WITH(EINVAL, "CUDA_ERROR_INVALID_VALUE",
		   gdr_pin_buffer(g, p + (1 << 20) - PAGE, 8 << 20, 0, 0, &h)); /* beyond it */
	ck_assert_uint_eq(h.h, 77);
	ck_assert_ptr_null(resources_changed());
	OK(gdr_pin_buffer(g, p, PAGE, 0, 0, &h));
}

/* Memory that is freed during its pin: the address is bad, not the kind of memory. */
static void freed_during_pin(void)
{
	struct gdri_pin_request request = { .size = PAGE };
	struct gdri_pin pin;
	struct gdri_ctx *ctx;

	request.addr = standin_alloc(CHUNK);
	gdri_cuda_describe(request.addr, PAGE, &request.memory);
	CU(cuda.cuMemFree_v2(request.addr));
	OK(gdri_ctx_get(g, &ctx));
	FAILS_WITH(-EINVAL, "CUDA_ERROR_INVALID_VALUE",
		   gdri_backends_pin(&ctx->backends, &request, &pin));
	OK(gdri_ctx_put(ctx, 0));
}

/* The dma-buf is smaller than the range. */
static void short_buffer(void)
{
	gdr_mh_t h = { 77 };

	OK(gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h)); /* with the trial */
	OK(gdr_unpin_buffer(g, h));
	h.h = 77;
	resources_note();
	wrap_reset();
	wrap_lseek_size(v.chunk - 1);
	FAILS_WITH(ENOTSUP, "whole range", gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h));
	ck_assert_uint_eq(h.h, 77);
	ck_assert_ptr_null(resources_changed());
	wrap_lseek_size(0);
	FAILS_WITH(ENOTSUP, "whole range", gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h));
	wrap_lseek_size(v.chunk);
	OK(gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h));
	wrap_reset();
	wrap_fail("lseek", 0, ESPIPE); /* a dma-buf without a size */
	OK(gdr_pin_buffer_v2(g, v.ptr, v.chunk, 0, &h));
	wrap_reset();
}

/* A driver that maps the first memory object alone: what lies in one object is served. */
static void first_object(void)
{
	gdr_mh_t h = { 77 };
	void *map;

	if (test_emulator_lacks("the first memory object alone is mapped",
				"reads beyond the end of a file by a system call"))
		return;
	resources_note();
	FAILS_WITH(ENOTSUP, "whole range", gdr_pin_buffer_v2(g, v.ptr, v.size, 0, &h));
	FAILS_WITH(ENOTSUP, "whole range",
		   gdr_pin_buffer_v2(g, v.ptr + v.chunk - 65536, 2 * 65536, 0, &h));
	ck_assert_uint_eq(h.h, 77);
	ck_assert_ptr_null(resources_changed());
	for (size_t i = 0; i < 3; i++) {
		OK(gdr_pin_buffer_v2(g, v.ptr + i * v.chunk, v.chunk, 0, &h));
		OK(gdr_map(g, h, &map, v.chunk));
		ck_assert(same_memory(h, (char *)map + v.chunk - 8, v.ptr + (i + 1) * v.chunk - 8));
	}
}

/* ---- the trial ----------------------------------------------------------- */

enum { SECOND = 1000 }; /* at which the clock stands */

static int pin(CUdeviceptr addr, uint32_t flags)
{
	gdr_mh_t h = { 77 };
	int rc = gdr_pin_buffer_v2(g, addr, 4096, flags, &h);

	if (!rc)
		OK(gdr_unpin_buffer(g, h));
	return rc;
}

/* Once for each GPU, and for each kind of mapping. */
static void tried_once(void)
{
	CUdeviceptr p;
	gdr_mh_t h;
	void *map;
	size_t had;
	int free_fd[2];

	CU(cuda.cuCtxSetCurrent(standin_primary(1)));
	p = standin_alloc(4096);
	CU(cuda.cuCtxSetCurrent(standin_primary(0)));
	had = standin_device_bytes(0);
	for (int i = 0; i < 2; i++) {
		unsigned long made = cuda_hooks.calls("cuMemAlloc");

		OK(pin(v.ptr, 0));
		ck_assert_uint_eq(cuda_hooks.calls("cuMemAlloc") - made, i ? 0 : 3);
		OK(pin(v.ptr, GDR_PIN_FLAG_FORCE_PCIE));
		ck_assert_uint_eq(cuda_hooks.calls("cuMemAlloc") - made, i ? 0 : 6);
		OK(barcopy_map_range(g, p, 4096, 0, &map, &h)); /* mapped as long as it is pinned */
		OK(barcopy_unmap_range(g, h));
		ck_assert_uint_eq(cuda_hooks.calls("cuMemAlloc") - made, i ? 0 : 9);
	}
	ck_assert_uint_eq(standin_device_bytes(0), had);
	/* The mapping of a range holds the buffer, and no descriptor stays. */
	OK(barcopy_map_range(g, v.ptr, 4096, 0, &map, &h));
	OK(barcopy_unmap_range(g, h));
	for (int i = 0; i < 2; i++) {
		free_fd[i] = dup(0);
		close(free_fd[i]);
		if (!i)
			OK(barcopy_map_range(g, v.ptr + v.chunk, 4096, 0, &map, &h));
	}
	ck_assert_int_eq(free_fd[1], free_fd[0]);
}

/* Bytes that differ are final, and a range of either kind leaves nothing. */
static void wrong_bytes(void)
{
	const char *text = "dmabuf: the trial on GPU 0 failed: the mapping shows other memory";
	gdr_mh_t h;
	void *map;

	wrap_clock(SECOND);
	FAILS_WITH(ENOTSUP, text, pin(v.ptr, 0));
	FAILS_WITH(ENOTSUP, text, barcopy_map_range(g, v.ptr, 4096, 0, &map, &h));
	resources_note();
	unsetenv("GDRSIM_DMABUF_WRONG");
	wrap_clock(SECOND + 86400);
	FAILS_WITH(ENOTSUP, text, pin(v.ptr, 0));
	FAILS_WITH(ENOTSUP, text, barcopy_map_range(g, v.ptr, 4096, 0, &map, &h));
	ck_assert_ptr_null(resources_changed());
	/* Nor does it make another trial's failure final. */
	cuda_hooks.set_fail("cuMemcpyHtoDAsync:*=700");
	FAILS_WITH(ENOTSUP, "the copy engine", pin(v.ptr, GDR_PIN_FLAG_FORCE_PCIE));
	cuda_hooks.set_fail(NULL);
	wrap_clock(SECOND + 2 * 86400);
	OK(pin(v.ptr, GDR_PIN_FLAG_FORCE_PCIE));
}

/* What says nothing about dmabuf stands for a second, a shortage not at all. */
static void heals(void)
{
	wrap_clock(SECOND);
	cuda_hooks.set_fail("cuMemAlloc:2=2");
	FAILS_WITH(ENOMEM, "dmabuf: the trial before the first pin on GPU 0 failed: cuMemAlloc",
		   pin(v.ptr, 0));
	cuda_hooks.set_fail("cuMemcpyHtoDAsync:*=700");
	FAILS_WITH(ENOTSUP, "the copy engine could not reach", pin(v.ptr, 0));
	cuda_hooks.set_fail(NULL);
	FAILS_WITH(ENOTSUP, "the copy engine could not reach", pin(v.ptr, 0));
	wrap_clock(SECOND + 2);
	OK(pin(v.ptr, 0));
}

/* The trial's own pins have the caller's flags: the second export is the trial's. */
static void tried_with_flags(void)
{
	cuda_hooks.set_fail("cuMemGetHandleForAddressRange:2=801");
	FAILS_WITH(
		ENOTSUP,
		"the trial on GPU 0 failed: this backend does not support GDR_PIN_FLAG_FORCE_PCIE",
		pin(v.ptr, GDR_PIN_FLAG_FORCE_PCIE));
	cuda_hooks.set_fail(NULL);
}

static __typeof__(gdri_cu.cuPointerGetAttributes) ask;
static int ordinal;

static CUresult says_ordinal(unsigned int n, CUpointer_attribute *names, void **values, CUdeviceptr at)
{
	CUresult r = ask(n, names, values, at);

	for (unsigned int i = 0; i < n; i++)
		if (names[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)values[i] = ordinal;
	return r;
}

/* There is no verdict on a GPU that CUDA does not name. */
static void unknown_gpu(void)
{
	ask = gdri_cu.cuPointerGetAttributes;
	gdri_cu.cuPointerGetAttributes = says_ordinal;
	for (ordinal = -1; ordinal < 65; ordinal += 65)
		FAILS_WITH(ENOTSUP, "dmabuf: CUDA does not say on which GPU it is", pin(v.ptr, 0));
	gdri_cu.cuPointerGetAttributes = ask;
}

/* Another process's memory has no trial, and no address that the copy engine could use. */
static void imported(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 1 };
	barcopy_mem_t mem;
	int fd;

	CU(cuda.cuMemGetHandleForAddressRange(&fd, v.ptr, v.chunk,
					      CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	wrap_reset();
	wrap_fail("fcntl", 2, EMFILE); /* the first one asks whether it is open */
	FAILS_WITH(EMFILE, "dmabuf: dup of the dma-buf: Too many open files",
		   barcopy_mem_import(g, 0, fd, v.chunk, BARCOPY_MEM_DMABUF, &mem));
	wrap_reset();
	OK(barcopy_mem_import(g, 0, fd, v.chunk, BARCOPY_MEM_DMABUF, &mem));
	FAILS_WITH(ENOTSUP, "no device address", barcopy_set_copy_options(mem.handle, &o));
	FAILS_WITH(ENOTSUP, "came as a dma-buf", barcopy_mem_export(g, &mem, &(int){ -1 }));
	OK(barcopy_mem_free(g, &mem));
	/* It is on the GPU that the caller names, or on none. */
	for (int named = -1; named < 2; named++) {
		uint64_t device = 7;

		OK(barcopy_mem_import(g, named, fd, v.chunk, BARCOPY_MEM_DMABUF, &mem));
		FAILS(named < 0 ? ENOTSUP : 0,
		      barcopy_get_handle_attribute(g, mem.handle, BARCOPY_HANDLE_ATTR_DEVICE,
						   &device));
		ck_assert_uint_eq(device, named < 0 ? 7 : (uint64_t)named);
		OK(barcopy_mem_free(g, &mem));
	}
	close(fd);
	ck_assert_uint_eq(cuda_hooks.calls("cuMemAlloc"), 0);
}

#define CUDA_13_3 "GDRSIM_DRIVER_VERSION=13030"

static const struct unit_test tests[] = {
	{ "the driver's version decides", version_gate, CUDA_13_3, .bare = true },
	{ "types of mapping", map_types, CUDA_13_3 },
	{ "every error of a pin", pin_error_paths, CUDA_13_3 },
	{ "the table of descriptors is full", table_is_full, CUDA_13_3 },
	{ "descriptor 0", descriptor_zero, CUDA_13_3, .bare = true },
	{ "an unknown link", unknown_link, CUDA_13_3 },
	{ "an unmap that fails", unmap_fails, CUDA_13_3 },
	{ "beside freed memory", beside_freed, CUDA_13_3 },
	{ "a part of a pool", of_a_pool, CUDA_13_3 " GDRSIM_DMABUF_PCIE=1" },
	{ "freed during its pin", freed_during_pin, CUDA_13_3 },
	{ "a buffer that is too short", short_buffer, CUDA_13_3 },
	{ "the first memory object alone is mapped", first_object,
	  CUDA_13_3 " GDRSIM_DMABUF_FIRST=1" },
	{ "tried once for each GPU and kind", tried_once,
	  CUDA_13_3 " GDRSIM_DEVICES=2 GDRSIM_DMABUF_PCIE=1" },
	{ "tried with the pin's flags", tried_with_flags, CUDA_13_3 " GDRSIM_DMABUF_PCIE=1" },
	{ "wrong bytes", wrong_bytes, CUDA_13_3 " GDRSIM_DMABUF_WRONG=1 GDRSIM_DMABUF_PCIE=1" },
	{ "a verdict heals", heals, CUDA_13_3 },
	{ "an unknown GPU", unknown_gpu, CUDA_13_3 },
	{ "an import is not tried", imported, CUDA_13_3 " GDRSIM_DEVICES=2" },
};

UNIT_MAIN("dmabuf", tests, unit_before = start_alone, unit_after = end)
