// SPDX-License-Identifier: MIT
/*
 * Which backends a context has and which one serves a pin: gdr_open's promise, GDRCOPY_BACKEND,
 * fall-through, and what is said when nobody can.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "barcopy.h"

static void has(const char *part)
{
	ck_assert_msg(strstr(barcopy_last_error(), part), "\"%s\" is not in \"%s\"", part,
		      barcopy_last_error());
}

static void has_not(const char *part)
{
	ck_assert_msg(!strstr(barcopy_last_error(), part), "\"%s\" is in \"%s\"", part,
		      barcopy_last_error());
}

static void open_fails(uint32_t flags, int err)
{
	errno = 0;
	ck_assert_ptr_null(barcopy_open(flags));
	ck_assert_int_eq(errno, err);
	ck_assert_str_ne(barcopy_last_error(), "");
}

static gdr_t opened(uint32_t flags)
{
	gdr_t g = barcopy_open(flags);

	ck_assert_msg(g != NULL, "%s", barcopy_last_error());
	return g;
}

/* The backend that serves [addr, addr + size), as a barcopy_backend_t. */
static uint64_t server(gdr_t g, uint64_t addr, size_t size)
{
	uint64_t id = 0;
	gdr_mh_t h;
	int rc = gdr_pin_buffer_v2(g, addr, size, 0, &h);

	ck_assert_msg(!rc, "%d: %s", rc, barcopy_last_error());
	ck_assert_int_eq(barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_BACKEND, &id), 0);
	ck_assert_int_eq(gdr_unpin_buffer(g, h), 0);
	return id;
}

static int attribute(gdr_t g, gdr_attr_t attr)
{
	int v = -7;

	ck_assert_int_eq(gdr_get_attribute(g, attr, &v), 0);
	return v;
}

static void check_attributes(gdr_t g, int persistent, int force_pcie, int dmabuf)
{
	ck_assert_int_eq(attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING), persistent);
	ck_assert_int_eq(attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE), force_pcie);
	ck_assert_int_eq(attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP), dmabuf);
}

/* Below CUDA 13.3 and without NVIDIA's nodes nothing serves ordinary device memory: the open says so. */
static void open_keeps_its_promise(void)
{
	open_fails(BARCOPY_OPEN_DEFAULT, ENODEV);
	has("dmabuf: ");
	has("13.3");
	has("rm: no /dev/nvidiactl");
	errno = 0;
	ck_assert_ptr_null(gdr_open());
	ck_assert_int_eq(errno, ENODEV);
	ck_assert_int_eq(gdr_close(opened(BARCOPY_OPEN_ANY)), 0);
	open_fails(2, EINVAL); /* no such flag */
}

/* With them it is served on the stock driver, if the GPUs export their memory. */
static void open_rests_on_rm(void)
{
	gdr_t g;

	standin_load();
	setenv("GDRSIM_RM", "denied", 1);
	open_fails(BARCOPY_OPEN_DEFAULT, EACCES);
	has("rm: /dev/nvidiactl may not be opened");
	unsetenv("GDRSIM_RM");
	setenv("GDRSIM_RM_DRIVER", "470.256.02", 1);
	open_fails(BARCOPY_OPEN_DEFAULT, ENODEV);
	has("rm: driver 470 is too old");
	unsetenv("GDRSIM_RM_DRIVER");
	setenv("GDRSIM_DMABUF", "0", 1);
	open_fails(BARCOPY_OPEN_DEFAULT, ENODEV);
	has("rm: none of 1 GPUs exports its memory as a dma-buf");
	unsetenv("GDRSIM_DMABUF");
	g = gdr_open();
	ck_assert_msg(g != NULL, "%s", barcopy_last_error());
	check_attributes(g, 1, 1, 0);
	standin_start();
	ck_assert_uint_eq(server(g, standin_alloc(4096), 4096), BARCOPY_BACKEND_RM);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* Programs open and close at every query: one CUDA call, no cuInit. */
static void open_is_cheap(void)
{
	gdr_t g;

	standin_load();
	ck_assert_int_eq(gdr_close(opened(BARCOPY_OPEN_ANY)), 0);
	ck_assert_uint_eq(cuda_hooks.calls("cuInit"), 0);
	ck_assert_uint_eq(cuda_hooks.calls(NULL), cuda_hooks.calls("cuDriverGetVersion"));
	/* Where a promise rests on what the GPUs can do, they are asked. */
	g = gdr_open();
	ck_assert_msg(g != NULL, "%s", barcopy_last_error());
	ck_assert_int_eq(gdr_close(g), 0);
	ck_assert_uint_eq(cuda_hooks.calls("cuInit"), 1);
}

/* A new enough CUDA alone is no promise: the GPUs must export their memory. */
static void no_promise_without_dmabuf(void)
{
	standin_load();
	open_fails(BARCOPY_OPEN_DEFAULT, ENODEV);
	has("exports its memory as a dma-buf");
	ck_assert_int_eq(gdr_close(opened(BARCOPY_OPEN_ANY)), 0);
}

static void open_without_libcuda(void)
{
	wrap_reset();
	wrap_deny_library("libcuda");
	open_fails(BARCOPY_OPEN_DEFAULT, ENODEV);
	has("no CUDA driver");
	open_fails(BARCOPY_OPEN_ANY, ENODEV);
	has("dmabuf: ");
	has("rm: ");
	has("host: ");
}

static void unknown_open_flags(void)
{
	open_fails(4, EINVAL);
	open_fails(0x80000000, EINVAL);
	has("0x80000000");
}

static void no_memory_for_a_context(void)
{
	wrap_reset();
	wrap_fail("aligned_alloc", 1, ENOMEM);
	open_fails(BARCOPY_OPEN_ANY, ENOMEM);
	ck_assert_str_eq(wrap_failed(), "aligned_alloc");
	ck_assert_int_eq(gdr_close(opened(BARCOPY_OPEN_ANY)), 0);
}

static void driver_version_fails(void)
{
	standin_load();
	cuda_hooks.set_fail("cuDriverGetVersion:*=999");
	open_fails(BARCOPY_OPEN_DEFAULT, EIO);
	has("cuDriverGetVersion");
	cuda_hooks.set_fail(NULL);
}

static void bad_backend_list(void)
{
	static const char *const lists[] = { "cuda",	"vulkan",     "RM",	      "rmx",
					     "r",	"rm,",	      ",rm",	      "rm,,host",
					     "rm host", "rm,rm",      "host,rm,host", ",",
					     " ",	"dmabuf;host" };

	for (size_t i = 0; i < COUNT(lists); i++) {
		setenv("GDRCOPY_BACKEND", lists[i], 1);
		open_fails(BARCOPY_OPEN_DEFAULT, EINVAL);
		has("GDRCOPY_BACKEND");
		open_fails(BARCOPY_OPEN_ANY, EINVAL);
	}
	setenv("GDRCOPY_BACKEND", "nothere,rm", 1);
	open_fails(BARCOPY_OPEN_DEFAULT, EINVAL);
	has("\"nothere\"");
	has_not("rm");
	/* What it was once, for whoever has it in a script. */
	setenv("GDRCOPY_BACKEND", "vulkan,host", 1);
	open_fails(BARCOPY_OPEN_ANY, EINVAL);
	has("\"vulkan\" (rm serves what it served");
	setenv("GDRCOPY_BACKEND", "", 1); /* as if it were not set */
	setenv("GDRSIM_RM", "absent", 1);
	open_fails(BARCOPY_OPEN_DEFAULT, ENODEV);
}

static void named_backends_alone(void)
{
	struct standin_vmm v;
	uint64_t host;
	gdr_mh_t h;
	gdr_t g;

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	host = (uintptr_t)standin_host_alloc(4096, 0);
	g = gdr_open(); /* naming it is asking for it: no BARCOPY_OPEN_ANY is needed */
	ck_assert_msg(g != NULL, "%s", barcopy_last_error());
	ck_assert_uint_eq(server(g, v.ptr, 4096), BARCOPY_BACKEND_RM);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, host, 4096, 0, &h), ENOTSUP);
	has("rm: not device memory");
	has_not("host: ");
	check_attributes(g, 1, 1, 0);
	ck_assert_int_eq(gdr_close(g), 0);

	setenv("GDRCOPY_BACKEND", "host", 1);
	g = opened(0);
	ck_assert_uint_eq(server(g, host, 4096), BARCOPY_BACKEND_HOST);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, 4096, 0, &h), ENOTSUP);
	has("host: not memory of cudaHostAlloc");
	check_attributes(g, 0, 0, 0);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* The order of the list is the order of trial. */
static void order(void)
{
	struct standin_vmm v;
	gdr_t g;

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	g = opened(BARCOPY_OPEN_ANY);
	ck_assert_uint_eq(server(g, v.ptr, 4096), BARCOPY_BACKEND_DMABUF);
	ck_assert_int_eq(gdr_close(g), 0);
	setenv("GDRCOPY_BACKEND", "rm,dmabuf", 1);
	g = opened(0);
	ck_assert_uint_eq(server(g, v.ptr, 4096), BARCOPY_BACKEND_RM);
	ck_assert_uint_eq(server(g, standin_alloc(4096), 4096), BARCOPY_BACKEND_RM);
	ck_assert_int_eq(gdr_close(g), 0);
	setenv("GDRCOPY_BACKEND", "dmabuf,rm", 1);
	g = opened(0);
	ck_assert_uint_eq(server(g, v.ptr, 4096), BARCOPY_BACKEND_DMABUF);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* One context, every kind of memory: each by who can. */
static void fall_through(void)
{
	struct standin_vmm v;
	gdr_t g;

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	g = opened(BARCOPY_OPEN_ANY);
	setenv("GDRSIM_DMABUF_MMAP", "0", 1);
	ck_assert_uint_eq(server(g, v.ptr, 4096), BARCOPY_BACKEND_RM);
	unsetenv("GDRSIM_DMABUF_MMAP");
	ck_assert_uint_eq(server(g, v.ptr, 4096), BARCOPY_BACKEND_DMABUF);
	ck_assert_uint_eq(server(g, (uintptr_t)standin_host_alloc(64, 0), 64),
			  BARCOPY_BACKEND_HOST);
	check_attributes(g, 1, 1, 0); /* dmabuf and rm serve */
	ck_assert_int_eq(gdr_close(g), 0);
}

static void use_dmabuf_mmap(void)
{
	static const char *const no[] = { "", "0", "2", "11", "yes" };
	struct standin_vmm v;
	gdr_mh_t h;
	gdr_t g;

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	open_fails(BARCOPY_OPEN_ANY, ENODEV); /* driver 13.0: it was asked for this backend alone */
	has("13.3");
	setenv("GDRSIM_DRIVER_VERSION", "13030", 1);
	g = opened(BARCOPY_OPEN_ANY);
	ck_assert_uint_eq(server(g, v.ptr, 64), BARCOPY_BACKEND_DMABUF);
	setenv("GDRSIM_DMABUF_MMAP", "0", 1);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, 64, 0, &h), ENOTSUP);
	has("dmabuf: ");
	has_not("rm: ");
	ck_assert_int_eq(gdr_close(g), 0);
	unsetenv("GDRSIM_DMABUF_MMAP");
	setenv("GDRSIM_DRIVER_VERSION", "13000", 1);
	/* 1 and nothing else asks for it. */
	for (size_t i = 0; i < COUNT(no); i++) {
		setenv("GDRCOPY_USE_DMABUF_MMAP", no[i], 1);
		ck_assert_int_eq(gdr_close(opened(BARCOPY_OPEN_ANY)), 0);
	}
	setenv("GDRCOPY_USE_DMABUF_MMAP", "1", 1);
	setenv("GDRCOPY_BACKEND", "rm", 1); /* the newer variable wins */
	g = opened(0);
	ck_assert_uint_eq(server(g, v.ptr, 64), BARCOPY_BACKEND_RM);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void every_reason_is_named(void)
{
	gdr_mh_t h = { 77 };
	gdr_t g;

	standin_start();
	setenv("GDRSIM_DMABUF_MMAP", "0", 1);
	setenv("GDRSIM_RM_PROTECTED", "1", 1);
	g = opened(BARCOPY_OPEN_ANY);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, standin_alloc(4096), 4096, 0, &h), ENOTSUP);
	has("dmabuf: this driver refuses mmap of its dma-buf");
	has("rm: the trial on GPU 0 failed: RM_MAP_MEMORY: NV_ERR_NOT_SUPPORTED");
	has("host: not memory of cudaHostAlloc");
	ck_assert_uint_eq(h.h, 77);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* Memory that the caller must know better (L17). */
static void wrong_memory(void)
{
	void *heap = malloc(4096);
	CUdeviceptr managed;
	gdr_mh_t h = { 77 };
	gdr_t g;

	standin_start();
	g = opened(BARCOPY_OPEN_ANY);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, (uintptr_t)heap, 4096, 0, &h), EINVAL);
	has("pageable host memory");
	ck_assert_int_eq(cuda.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), 0);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, managed, 4096, 0, &h),
			 EINVAL); /* as gdrapi.h has it */
	has("managed");
	ck_assert_uint_eq(h.h, 77);
	ck_assert_int_eq(gdr_close(g), 0);
	free(heap);
}

/*
 * Which of several reasons is the errno. Above all: a pin that nobody can serve is never a
 * success, whatever the reasons are.
 */
static void precedence(void)
{
	static const struct {
		const char *fail;
		int err;
	} table[] = {
		{ "cuMemGetHandleForAddressRange:*=999", ENOTSUP }, /* host's ENOTSUP says more */
		{ "cuMemGetHandleForAddressRange:*=2", ENOMEM },
		{ "cuMemGetHandleForAddressRange:*=800", EACCES },
	};
	struct standin_vmm v;
	gdr_mh_t h;
	gdr_t g;

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	g = opened(BARCOPY_OPEN_ANY);
	ck_assert_uint_eq(server(g, v.ptr, 4096), BARCOPY_BACKEND_RM); /* the trial is over */
	for (size_t i = 0; i < COUNT(table); i++) {
		cuda_hooks.set_fail(table[i].fail);
		h.h = 77;
		ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, 4096, 0, &h), table[i].err);
		ck_assert_uint_eq(h.h, 77);
	}
	cuda_hooks.set_fail(NULL);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void only_unclear_reasons(void)
{
	struct standin_vmm v;
	gdr_mh_t h = { 77 };
	gdr_t g;

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	g = opened(0);
	ck_assert_uint_eq(server(g, v.ptr, 4096), BARCOPY_BACKEND_RM);
	cuda_hooks.set_fail("cuMemGetHandleForAddressRange:*=999");
	ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, 4096, 0, &h), EIO);
	has("rm: cuMemGetHandleForAddressRange: CUDA_ERROR_UNKNOWN");
	cuda_hooks.set_fail("cuMemGetHandleForAddressRange:*=100");
	ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, 4096, 0, &h), ENODEV);
	ck_assert_uint_eq(h.h, 77);
	cuda_hooks.set_fail(NULL);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void mixed_attributes(void)
{
	gdr_t g = opened(BARCOPY_OPEN_ANY); /* rm and host: what serves device memory counts */

	check_attributes(g, 1, 1, 0);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* L1: on every backend. */
static void driver_version_everywhere(void)
{
	static const char *const lists[] = { "dmabuf", "rm", "host" };

	for (size_t i = 0; i < COUNT(lists); i++) {
		int major = -1, minor = -1;
		gdr_t g;

		setenv("GDRCOPY_BACKEND", lists[i], 1);
		g = opened(0);
		ck_assert_int_eq(gdr_driver_get_version(g, &major, &minor), 0);
		ck_assert_int_eq(major, 2);
		ck_assert_int_eq(minor, 6);
		ck_assert_int_eq(gdr_close(g), 0);
	}
}

/* Without a coherent link every mapping of rm is one over PCIe; with one the driver must know the bit. */
static void force_pcie(void)
{
	gdr_mh_t h = { 77 };
	uint64_t p;
	gdr_t g;

	standin_start();
	p = standin_alloc(4096);
	g = opened(BARCOPY_OPEN_ANY);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, p, 4096, GDR_PIN_FLAG_FORCE_PCIE, &h), 0);
	ck_assert_int_eq(gdr_unpin_buffer(g, h), 0);
	/* Programs ask again without the flag when they see EINVAL: so also where one backend alone
	 * could serve, and refuses for the flag only. */
	ck_assert_int_eq(gdr_pin_buffer_v2(g, (uintptr_t)standin_host_alloc(64, 0), 64,
					   GDR_PIN_FLAG_FORCE_PCIE, &h),
			 EINVAL);
	has("GDR_PIN_FLAG_FORCE_PCIE");
	ck_assert_int_eq(gdr_close(g), 0);
	setenv("GDRCOPY_BACKEND", "dmabuf", 1);
	g = opened(0);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, p, 4096, GDR_PIN_FLAG_FORCE_PCIE, &h), EINVAL);
	setenv("GDRSIM_DMABUF_PCIE", "1", 1);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, p, 4096, GDR_PIN_FLAG_FORCE_PCIE, &h), 0);
	ck_assert_int_eq(gdr_close(g), 0);
}

static uint64_t type_of(gdr_t g, uint64_t addr, uint32_t flags)
{
	uint64_t type = 0;
	gdr_mh_t h;
	int rc = gdr_pin_buffer_v2(g, addr, 4096, flags, &h);

	if (rc)
		return 1000 + (uint64_t)rc;
	ck_assert_int_eq(
		barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_MAPPING_TYPE, &type), 0);
	ck_assert_int_eq(gdr_unpin_buffer(g, h), 0);
	return type;
}

/* Over a coherent link mappings are cached, unless they are forced onto PCIe. */
static void coherent_link(void)
{
	static const char *const drivers[] = { "580.95.05", "595.45.04" };
	uint64_t p;
	gdr_t g;

	standin_start();
	p = standin_alloc(4096);
	for (int i = 0; i < 2; i++) {
		setenv("GDRSIM_RM_DRIVER", drivers[i], 1);
		setenv("GDRCOPY_BACKEND", "rm", 1);
		g = opened(0);
		check_attributes(g, 1, i, 0);
		ck_assert_uint_eq(type_of(g, p, 0), GDR_MAPPING_TYPE_CACHING);
		ck_assert_uint_eq(type_of(g, p, GDR_PIN_FLAG_FORCE_PCIE),
				  i ? (uint64_t)GDR_MAPPING_TYPE_WC : 1000 + EINVAL);
		ck_assert_int_eq(gdr_close(g), 0);
	}
	setenv("GDRCOPY_BACKEND", "dmabuf", 1);
	g = opened(0);
	ck_assert_uint_eq(type_of(g, p, 0), GDR_MAPPING_TYPE_CACHING);
	ck_assert_uint_eq(type_of(g, p, GDR_PIN_FLAG_FORCE_PCIE), GDR_MAPPING_TYPE_WC);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* What is short for one backend is short for the next: no second one is tried. */
static void short_of_memory(void)
{
	gdr_mh_t h = { 77 };
	gdr_t g;

	standin_start();
	g = opened(BARCOPY_OPEN_ANY);
	setenv("GDRSIM_DMABUF_MMAP", "1", 1);
	cuda_hooks.set_fail("cuMemGetHandleForAddressRange:1=2");
	ck_assert_int_eq(gdr_pin_buffer_v2(g, standin_alloc(4096), 4096, 0, &h), ENOMEM);
	has("dmabuf: ");
	has_not("rm: ");
	has_not("host: ");
	ck_assert_uint_eq(h.h, 77);
	cuda_hooks.set_fail(NULL);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void tokens(void)
{
	struct standin_vmm v;
	gdr_mh_t h = { 77 };
	gdr_t g;

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	g = opened(BARCOPY_OPEN_ANY);
	/* Accepted and never used: whoever gives them pins memory of its own process. */
	ck_assert_int_eq(gdr_pin_buffer(g, v.ptr, 4096, 1, 0, &h), 0);
	ck_assert_int_eq(gdr_pin_buffer(g, v.ptr, 4096, 0, 1, &h), 0);
	ck_assert_int_eq(gdr_close(g), 0);
	setenv("GDRCOPY_BACKEND", "rm", 1);
	g = opened(0);
	ck_assert_int_eq(gdr_pin_buffer(g, standin_alloc(64), 64, 77, 7, &h), 0);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void ranges(void)
{
	static const struct {
		unsigned long addr;
		size_t size;
		int err;
	} table[] = {
		{ 0, 4096, EINVAL },
		{ 0, 0, EINVAL },
		{ 0x7f0000000000, 0, EINVAL },
		{ ~0UL, 1, EOVERFLOW },
		{ ~0UL, 2, EOVERFLOW },
		{ 1, ~0UL, EOVERFLOW },
		{ 0x7f0000000000, ~0UL, EOVERFLOW },
		{ ~0UL - 65535, 1, EOVERFLOW },
		{ ~0UL - 65535, 65536, EOVERFLOW },
		{ ~0UL - 65537, 1, EINVAL }, /* ends on the last page: only unknown */
		{ 2, ~0UL - 1, EOVERFLOW },
	};
	gdr_mh_t h = { 77 };
	gdr_t g;

	standin_start();
	g = opened(BARCOPY_OPEN_ANY);
	for (size_t i = 0; i < COUNT(table); i++) {
		int rc = gdr_pin_buffer_v2(g, table[i].addr, table[i].size, 0, &h);

		ck_assert_msg(rc == table[i].err, "%zu: %d, %s", i, rc, barcopy_last_error());
	}
	ck_assert_uint_eq(h.h, 77);
	ck_assert_int_eq(gdr_close(g), 0);
}

static const struct unit_test tests[] = {
	{ "gdr_open keeps its promise", open_keeps_its_promise, "GDRSIM_RM=absent" },
	{ "gdr_open rests on rm", open_rests_on_rm, "" },
	{ "gdr_open is cheap", open_is_cheap, "GDRSIM_DRIVER_VERSION=13030" },
	{ "gdr_open without dma-buf export", no_promise_without_dmabuf,
	  "GDRSIM_DRIVER_VERSION=13030 GDRSIM_DMABUF=0" },
	{ "gdr_open on an integrated GPU", no_promise_without_dmabuf,
	  "GDRSIM_DRIVER_VERSION=13030 GDRSIM_INTEGRATED=1" },
	{ "gdr_open without libcuda", open_without_libcuda, "" },
	{ "unknown flags of barcopy_open", unknown_open_flags, "" },
	{ "no memory for a context", no_memory_for_a_context, "" },
	{ "the driver's version fails", driver_version_fails, "GDRSIM_RM=absent" },
	{ "GDRCOPY_BACKEND that names none", bad_backend_list, "" },
	{ "GDRCOPY_BACKEND names one", named_backends_alone, "GDRCOPY_BACKEND=rm" },
	{ "GDRCOPY_BACKEND orders", order, "GDRSIM_DRIVER_VERSION=13030" },
	{ "each pin by who can", fall_through, "GDRSIM_DRIVER_VERSION=13030" },
	{ "GDRCOPY_USE_DMABUF_MMAP", use_dmabuf_mmap, "GDRCOPY_USE_DMABUF_MMAP=1" },
	{ "every backend's reason", every_reason_is_named, "GDRSIM_DRIVER_VERSION=13030" },
	{ "managed and pageable memory (L17)", wrong_memory, "GDRSIM_DRIVER_VERSION=13030" },
	{ "precedence of errors", precedence, "" },
	{ "nobody can, for unclear reasons", only_unclear_reasons, "GDRCOPY_BACKEND=rm" },
	{ "attributes of several backends", mixed_attributes, "" },
	{ "driver version on every backend (L1)", driver_version_everywhere,
	  "GDRSIM_DRIVER_VERSION=13030" },
	{ "GDR_PIN_FLAG_FORCE_PCIE", force_pcie, "GDRSIM_DRIVER_VERSION=13030" },
	{ "coherent link", coherent_link,
	  "GDRSIM_DRIVER_VERSION=13030 GDRSIM_COHERENT=1 GDRSIM_DMABUF_PCIE=1" },
	{ "short of memory", short_of_memory, "GDRSIM_DRIVER_VERSION=13030" },
	{ "P2P tokens", tokens, "GDRSIM_DRIVER_VERSION=13030" },
	{ "ranges that cannot be", ranges, "GDRSIM_DRIVER_VERSION=13030" },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "backends", tests, COUNT(tests));
}
