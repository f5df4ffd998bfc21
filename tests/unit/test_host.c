// SPDX-License-Identifier: MIT
/*
 * The host backend: memory of cudaHostAlloc by either address. Allocations share pages, so only the
 * allocation's own bytes may be touched.
 */

#include "cuda/private.h"
#include "fixture.h"

static gdr_mh_t pinned(uint64_t addr, size_t size)
{
	gdr_mh_t h;
	int rc = gdr_pin_buffer_v2(g, addr, size, 0, &h);

	ck_assert_msg(!rc, "%d: %s", rc, barcopy_last_error());
	return h;
}

/* The allocation is [base, base + size), at `host` for the CPU; copies beside it are refused. */
static void check_bounds(uint64_t base, char *host, size_t size, gdr_mapping_type_t type)
{
	char bytes[4096] = { 1, 2, 3 }, back[4096];
	gdr_info_t info;
	gdr_mh_t h = pinned(base + size / 2, 1);
	char *map, *at;
	void *va;

	HANDLE_HAS(g, h, BACKEND, BARCOPY_BACKEND_HOST);
	HANDLE_HAS(g, h, MAPPING_TYPE, type);
	HANDLE_HAS(g, h, SYNC_MEMOPS, 1);
	HANDLE_HAS(g, h, PERSISTENT, 0);
	OK(gdr_get_info(g, h, &info));
	ck_assert_uint_eq(info.va, (base + size / 2) & ~0xffffULL);
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_NONE);
	OK(gdr_map(g, h, &va, info.mapped_size));
	OK(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, type);
	ck_assert_int_eq(info.wc_mapping, type == GDR_MAPPING_TYPE_WC);
	map = va;
	at = map + (base - info.va); /* the arithmetic of every client */
	ck_assert_ptr_eq(at, host);

	OK(gdr_copy_to_mapping(h, at, bytes, size));
	ck_assert_int_eq(memcmp(host, bytes, size), 0);
	memset(back, 0xa5, sizeof(back));
	OK(gdr_copy_from_mapping(h, back, at, size));
	ck_assert_int_eq(memcmp(back, bytes, size), 0);
	ck_assert_int_eq(back[size], (char)0xa5);
	FAILS(EINVAL, gdr_copy_to_mapping(h, at - 1, bytes, 1));
	FAILS(EINVAL, gdr_copy_to_mapping(h, at - 1, bytes, 2));
	FAILS(EINVAL, gdr_copy_to_mapping(h, at + size, bytes, 1));
	FAILS(EINVAL, gdr_copy_to_mapping(h, at + size - 1, bytes, 2));
	FAILS(EINVAL, gdr_copy_from_mapping(h, back, at, size + 1));
	ck_assert_int_eq(gdr_copy_from_mapping(h, back, map, 1), at == map ? 0 : EINVAL);
	OK(barcopy_flush(h));
	OK(barcopy_fence(h, BARCOPY_FENCE_FULL));
	OK(gdr_unmap(g, h, va, info.mapped_size));
	FAILS(EINVAL, gdr_copy_to_mapping(h, at, bytes, 1));
	OK(gdr_unpin_buffer(g, h));
}

static void registered(void)
{
	char *mine = malloc(9000);

	CU(cuda.cuMemHostRegister_v2(mine + 8, 3000, 0));
	check_bounds((uintptr_t)mine + 8, mine + 8, 3000, GDR_MAPPING_TYPE_CACHING);
	cuda.cuMemHostUnregister(mine + 8);
	OK(gdr_close(g));
	free(mine);
	g = NULL;
}

/* Where CUDA does not give the allocation's bounds, the pin fails. */
static void unknown_bounds(void)
{
	gdr_mh_t h = { 77 };
	void *a = standin_host_alloc(64, 0);

	cuda_hooks.set_fail("cuPointerGetAttribute:*=1,cuMemGetAddressRange:*=1");
	FAILS_WITH(ENOTSUP, "where this allocation lies",
		   gdr_pin_buffer_v2(g, (uintptr_t)a, 64, 0, &h));
	cuda_hooks.set_fail("cuMemHostGetFlags:*=999");
	FAILS(ENOTSUP, gdr_pin_buffer_v2(g, (uintptr_t)a, 64, 0, &h));
	cuda_hooks.set_fail("cuPointerGetAttribute:1=1"); /* before CUDA 10.2 */
	OK(gdr_pin_buffer_v2(g, (uintptr_t)a, 64, 0, &h));
	cuda_hooks.set_fail(NULL);
}

/*
 * An integrated GPU: host memory by host and by device pointer, each as it was allocated (GPUDirect
 * RDMA guide, "Porting to Tegra"), small ones beside each other in one page.
 */
static void integrated(void)
{
	bool own_address = getenv("GDRSIM_HOST_POINTER") != NULL;
	static const struct {
		size_t size;
		unsigned int flags;
		gdr_mapping_type_t type;
	} kinds[] = {
		{ 700, 0, GDR_MAPPING_TYPE_CACHING },
		{ 1, CU_MEMHOSTALLOC_WRITECOMBINED, GDR_MAPPING_TYPE_WC },
		{ 4095, CU_MEMHOSTALLOC_DEVICEMAP, GDR_MAPPING_TYPE_CACHING },
		{ 100, CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_PORTABLE,
		  GDR_MAPPING_TYPE_WC },
	};
	char *mine = malloc(5000);
	CUdeviceptr d;

	for (size_t i = 0; i < COUNT(kinds); i++) {
		char *a = standin_host_alloc(kinds[i].size, kinds[i].flags);

		CU(cuda.cuMemHostGetDevicePointer_v2(&d, a, 0));
		ck_assert_int_eq(d != (uintptr_t)a, own_address);
		check_bounds((uintptr_t)a, a, kinds[i].size, kinds[i].type);
		check_bounds(d, a, kinds[i].size, kinds[i].type);
	}
	CU(cuda.cuMemHostRegister_v2(mine + 8, 3000, 0));
	CU(cuda.cuMemHostGetDevicePointer_v2(&d, mine + 8, 0));
	check_bounds((uintptr_t)mine + 8, mine + 8, 3000, GDR_MAPPING_TYPE_CACHING);
	check_bounds(d, mine + 8, 3000, GDR_MAPPING_TYPE_CACHING);
	cuda.cuMemHostUnregister(mine + 8);
	free(mine);
}

static __typeof__(gdri_cu.cuPointerGetAttribute) ask;

static CUresult starts_at_the_host(void *data, CUpointer_attribute attribute, CUdeviceptr at)
{
	CUresult r = ask(data, attribute, at);

	if (!r && attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
		r = ask(data, CU_POINTER_ATTRIBUTE_HOST_POINTER, *(CUdeviceptr *)data);
	return r;
}

/* CUDA's text leaves open which of two addresses an allocation's start is. */
static void start_by_host_address(void)
{
	ask = gdri_cu.cuPointerGetAttribute;
	gdri_cu.cuPointerGetAttribute = starts_at_the_host;
	integrated();
	gdri_cu.cuPointerGetAttribute = ask;
}

/* Memory of cudaMalloc there: the text says what to allocate instead. */
static void integrated_device_memory(void)
{
	gdr_mh_t h = { 77 };

	FAILS_WITH(ENOTSUP, "GPU 0 is integrated",
		   gdr_pin_buffer_v2(g, standin_alloc(65536), 65536, 0, &h));
	SAYS("cudaHostAlloc");
	SAYS("barcopy_mem_alloc");
	ck_assert_uint_eq(h.h, 77);
	/* gdr_open() fails: programs that use cudaMalloc memory alone then do without. */
	ck_assert_ptr_null(gdr_open());
}

/* Where CUDA has no flags of registered memory, it is cached. */
static void registered_without_flags(void)
{
	cuda_hooks.set_fail("cuMemHostGetFlags:*=1");
	registered();
	cuda_hooks.set_fail(NULL);
}

static const struct unit_test tests[] = {
	{ "registered memory", registered, "" },
	{ "unknown bounds", unknown_bounds, "" },
	{ "integrated GPU, one address", integrated, "GDRSIM_INTEGRATED=1 GDRSIM_WC_SAME=1" },
	{ "integrated GPU, two addresses", integrated,
	  "GDRSIM_INTEGRATED=1 GDRSIM_HOST_POINTER=0" },
	{ "integrated GPU, the start by host address", start_by_host_address,
	  "GDRSIM_INTEGRATED=1 GDRSIM_HOST_POINTER=0" },
	{ "integrated GPU, memory of cudaMalloc", integrated_device_memory, "GDRSIM_INTEGRATED=1" },
	{ "registered memory without flags", registered_without_flags, "" },
};

UNIT_MAIN("host", tests, unit_before = start, unit_after = end)
