// SPDX-License-Identifier: MIT
/* The host backend where CUDA does not say all. What it maps are machines of tests/model. */

#include "cuda/private.h"
#include "fixture.h"

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

static __typeof__(gdri_cu.cuPointerGetAttributes) ask_several;

static CUresult no_host_pointer(unsigned int n, CUpointer_attribute *names, void **values,
				CUdeviceptr at)
{
	CUresult r = ask_several(n, names, values, at);

	for (unsigned int i = 0; i < n; i++)
		if (names[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			*(void **)values[i] = NULL;
	return r;
}

/* Host memory that CUDA lets the CPU reach by no pointer is not served. */
static void without_a_host_pointer(void)
{
	void *a = standin_host_alloc(64, 0);
	gdr_mh_t h;

	OK(gdri_cuda_load());
	ask_several = gdri_cu.cuPointerGetAttributes;
	gdri_cu.cuPointerGetAttributes = no_host_pointer;
	FAILS_WITH(ENOTSUP, "where this allocation lies",
		   gdr_pin_buffer_v2(g, (uintptr_t)a, 64, 0, &h));
	gdri_cu.cuPointerGetAttributes = ask_several;
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
	char *a = standin_host_alloc(700, 0), byte = 1;
	gdr_info_t info;
	CUdeviceptr d;
	gdr_mh_t h;
	void *va;

	CU(cuda.cuMemHostGetDevicePointer_v2(&d, a, 0));
	ck_assert_uint_ne(d, (uintptr_t)a);
	ask = gdri_cu.cuPointerGetAttribute;
	gdri_cu.cuPointerGetAttribute = starts_at_the_host;
	for (int i = 0; i < 2; i++) {
		OK(gdr_pin_buffer_v2(g, i ? d + 350 : (uintptr_t)a + 350, 1, 0, &h));
		OK(gdr_get_info(g, h, &info));
		OK(gdr_map(g, h, &va, info.mapped_size));
		ck_assert_ptr_eq((char *)va + ((i ? d : (uintptr_t)a) - info.va), a);
		OK(gdr_copy_to_mapping(h, a, &byte, 1));
		OK(gdr_copy_to_mapping(h, a + 699, &byte, 1));
		FAILS(EINVAL, gdr_copy_to_mapping(h, a - 1, &byte, 1));
		FAILS(EINVAL, gdr_copy_to_mapping(h, a + 700, &byte, 1));
		OK(gdr_unpin_buffer(g, h));
	}
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
	static char mine[64];
	gdr_mh_t h;

	CU(cuda.cuMemHostRegister_v2(mine, sizeof(mine), 0));
	cuda_hooks.set_fail("cuMemHostGetFlags:*=1");
	OK(gdr_pin_buffer_v2(g, (uintptr_t)mine, 1, 0, &h));
	HANDLE_HAS(g, h, MAPPING_TYPE, GDR_MAPPING_TYPE_CACHING);
	cuda_hooks.set_fail(NULL);
}

/* A range that begins before its allocation, or ends behind it, is neither mapped nor a hit. */
static void beyond(void)
{
	uint64_t a = (uintptr_t)standin_host_alloc(700, 0);
	uint64_t b = (uintptr_t)standin_host_alloc(700, 0); /* behind it, in the same GPU page */
	const struct {
		uint64_t addr;
		size_t size;
		uint64_t used; /* the allocation whose region is in use */
	} rows[] = {
		{ a - 1, 2, a }, { a + 699, 2, a }, { a, 701, a },     { a - 256, PAGE, a },
		{ a, 1400, a },	 { b - 1, 2, b },   { b - 1, 701, b }, { a + 699, b - a, b },
	};
	barcopy_region_t r, whole;
	barcopy_cache_t cache;
	gdr_mh_t h;
	void *va;

	ck_assert_uint_eq(b, a + 1024);
	for (int notified = 0; notified < 2; notified++) {
		cache = cache_with(g, notified, 0);
		for (size_t i = 0; i < 2 * COUNT(rows); i++) {
			uint64_t addr = rows[i / 2].addr;
			size_t size = rows[i / 2].size;

			if (i % 2)
				OK(barcopy_cache_get(cache, rows[i / 2].used, 700, &whole));
			FAILS_WITH(EINVAL, "beyond host memory of 0x2bc bytes",
				   barcopy_cache_get(cache, addr, size, &r));
			FAILS(EINVAL, barcopy_map_range(g, addr, size, 0, &va, &h));
			if (i % 2)
				OK(barcopy_cache_put(cache, &whole));
		}
		OK(barcopy_cache_destroy(cache));
	}
	OK(gdr_pin_buffer_v2(g, a, PAGE, 0, &h)); /* a pin may be rounded up */
	OK(gdr_unpin_buffer(g, h));
}

static const struct unit_test tests[] = {
	{ "unknown bounds", unknown_bounds, "" },
	{ "no host pointer", without_a_host_pointer, "" },
	{ "integrated GPU, the start by host address", start_by_host_address,
	  "GDRSIM_INTEGRATED=1 GDRSIM_HOST_POINTER=0" },
	{ "integrated GPU, memory of cudaMalloc", integrated_device_memory, "GDRSIM_INTEGRATED=1" },
	{ "beyond an allocation", beyond, "" },
	{ "registered memory without flags", registered_without_flags, "" },
};

UNIT_MAIN("host", tests, unit_before = start, unit_after = end)
