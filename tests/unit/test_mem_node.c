// SPDX-License-Identifier: MIT
/*
 * Memory, ranges and the cache where the gdrdrv node serves: plain device memory, and pins that the
 * driver revokes.
 */
#include <errno.h>

#include "common/node.h"

static void use(gdr_mh_t mh, void *cpu, uint64_t dptr)
{
	uint64_t value = dptr ^ 0x5555, seen = 0;

	OK(gdr_copy_to_mapping(mh, cpu, &value, 8));
	CU(cuda.cuMemcpyDtoH_v2(&seen, dptr, 8));
	ck_assert_uint_eq(seen, value);
}

static void test_alloc(void)
{
	unsigned long before = cuda_hooks.calls("cuMemAlloc");
	barcopy_mem_t mem;
	gdr_t g;
	int fd;

	g = node_open("2.6", "1");
	OK(barcopy_mem_alloc(g, 0, 5000, 0, &mem));
	ck_assert_uint_eq(cuda_hooks.calls("cuMemAlloc"), before + 1);
	ck_assert_uint_eq(mem.size, 5000);
	HANDLE_HAS(g, mem.handle, BACKEND, BARCOPY_BACKEND_GDRDRV);
	use(mem.handle, mem.cpu_ptr, mem.device_ptr);
	FAILS(ENOTSUP, barcopy_mem_export(g, &mem, &fd));
	OK(barcopy_mem_free(g, &mem));
	ck_assert_uint_eq(standin_device_bytes(0), 0);
	ck_assert_uint_eq(node.pins(), 0);
	OK(gdr_close(g));
}

static void test_ranges(void)
{
	uint64_t base, late;
	gdr_mh_t a, b, c;
	void *pa, *pb, *pc;
	gdr_t g;

	g = node_open("2.6", "1");
	base = standin_alloc(300);
	OK(barcopy_map_range(g, base + 1, 100, 0, &pa, &a));
	late = standin_alloc(300);
	ck_assert_uint_eq(base & GPU_PAGE_MASK, late & GPU_PAGE_MASK);
	OK(barcopy_map_range(g, late, 300, 0, &pb, &b));
	OK(barcopy_map_range(g, base, 300, BARCOPY_MAP_RANGE_READ_ONLY, &pc, &c));
	ck_assert_uint_eq(node.pins(), 2);
	use(a, (char *)pa + 7, base + 8);
	use(b, pb, late);
	OK(barcopy_unmap_range(g, a));
	use(b, pb, late);
	OK(barcopy_unmap_range(g, b));
	OK(barcopy_unmap_range(g, c));
	ck_assert_uint_eq(node.pins(), 0);
	ck_assert_uint_eq(node.maps(), 0);
	OK(gdr_close(g));
}

/* The driver revokes a pin when its memory is freed; the cache does not find it again. */
static void test_revoked(void)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o) };
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };
	barcopy_cache_t cache;
	barcopy_region_t r;
	uint64_t base;
	gdr_t g;

	g = node_open("2.6", "0");
	base = standin_alloc(MIB);
	OK(barcopy_cache_create(g, &o, &cache));
	for (int i = 0; i < 10; i++) {
		uint64_t again;

		for (int k = 0; k < 3; k++) {
			OK(barcopy_cache_get(cache, base + 4096, 8, &r));
			use(r.handle, r.cpu_ptr, base + 4096);
			OK(barcopy_cache_put(cache, &r));
		}
		CU(cuda.cuMemFree_v2(base));
		again = standin_alloc(MIB);
		ck_assert_uint_eq(again, base);
	}
	OK(barcopy_cache_get_stats(cache, &s));
	ck_assert_uint_eq(s.misses, 10);
	ck_assert_uint_eq(s.hits, 20);
	ck_assert_uint_eq(s.invalidations, 9);
	OK(barcopy_cache_destroy(cache));
	ck_assert_uint_eq(node.pins(), 0);
	OK(gdr_close(g));
}

static const struct unit_test tests[] = {
	{ "alloc", test_alloc },
	{ "ranges", test_ranges },
	{ "revoked", test_revoked },
};

UNIT_MAIN("memory on the gdrdrv node", tests, node_start(argv))
