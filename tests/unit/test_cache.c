// SPDX-License-Identifier: MIT
/*
 * The registration cache: what is shared, kept, evicted and invalidated; never stale; never
 * unmapped in use. The random test against a model is test_cache_model.c.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem_sim.h"

static gdr_t g;

static void setup(void)
{
	standin_start();
	g = open_any();
}

static void teardown(void)
{
	OK(gdr_close(g));
	cuda.cuDevicePrimaryCtxRelease_v2(0);
}

static barcopy_cache_t new_cache(barcopy_cache_validity_t validity, uint64_t max_bytes,
				 uint64_t max_regions)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o),
				      .validity = validity,
				      .max_bytes = max_bytes,
				      .max_regions = max_regions };
	barcopy_cache_t cache;

	OK(barcopy_cache_create(g, &o, &cache));
	return cache;
}

static barcopy_cache_stats_t stats_of(barcopy_cache_t cache)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };

	OK(barcopy_cache_get_stats(cache, &s));
	return s;
}

static void touch(barcopy_cache_t cache, uint64_t addr)
{
	barcopy_region_t r;

	OK(barcopy_cache_get(cache, addr, 8, &r));
	ck_assert(same_memory(r.handle, r.cpu_ptr, addr));
	OK(barcopy_cache_put(cache, &r));
}

static bool is_cached(barcopy_cache_t cache, uint64_t addr)
{
	uint64_t hits = stats_of(cache).hits;

	touch(cache, addr);
	return stats_of(cache).hits == hits + 1;
}

START_TEST(test_sharing)
{
	CUdeviceptr d = vmm_new(0, 4);
	barcopy_cache_t cache = new_cache(BARCOPY_CACHE_CHECK_TAG, 0, 0);
	barcopy_region_t a, b, c;

	OK(barcopy_cache_get(cache, d + 10, 100, &a));
	OK(barcopy_cache_get(cache, d + 50, 200, &b));
	ck_assert_ptr_eq((char *)a.cpu_ptr + 40, b.cpu_ptr);
	ck_assert_uint_eq(a.handle.h, b.handle.h);
	ck_assert_uint_eq(b.device_ptr, d + 50);
	ck_assert_uint_eq(b.size, 200);
	/* the whole allocation */
	touch(cache, d + CHUNK - 8);
	ck_assert_uint_eq(stats_of(cache).misses, 1);
	ck_assert_uint_eq(stats_of(cache).hits, 2);
	ck_assert_uint_eq(stats_of(cache).bytes_pinned, CHUNK);
	/* overlapping: one region for both from now on, the old one stays for its users */
	OK(barcopy_cache_get(cache, d + CHUNK - 100, 200, &c));
	ck_assert(same_memory(a.handle, a.cpu_ptr, d + 10));
	ck_assert(same_memory(c.handle, c.cpu_ptr, d + CHUNK - 100));
	ck_assert_uint_eq(stats_of(cache).regions, 2);
	ck_assert_uint_eq(stats_of(cache).regions_in_use, 2);
	OK(barcopy_cache_put(cache, &a));
	ck_assert(same_memory(b.handle, b.cpu_ptr, d + 50));
	OK(barcopy_cache_put(cache, &b));
	ck_assert_uint_eq(stats_of(cache).regions, 1);
	ck_assert(is_cached(cache, d + 10));
	ck_assert(is_cached(cache, d + CHUNK + 10));
	ck_assert_uint_eq(stats_of(cache).bytes_pinned, 2 * CHUNK);
	OK(barcopy_cache_put(cache, &c));
	OK(barcopy_cache_destroy(cache));
	FAILS(EINVAL, barcopy_cache_destroy(cache));
	vmm_delete(d, 4);
}
END_TEST

START_TEST(test_put)
{
	CUdeviceptr d = vmm_new(0, 1);
	barcopy_cache_t cache = new_cache(BARCOPY_CACHE_NOTIFIED, 0, 0), other;
	barcopy_region_t r, copy;

	other = new_cache(BARCOPY_CACHE_NOTIFIED, 0, 0);
	OK(barcopy_cache_get(cache, d, 1, &r));
	copy = r;
	FAILS(EINVAL, barcopy_cache_put(other, &r));
	OK(barcopy_cache_put(cache, &r));
	FAILS(EINVAL, barcopy_cache_put(cache, &r));
	FAILS(EINVAL, barcopy_cache_put(cache, &copy));
	FAILS(EINVAL, barcopy_cache_put(cache, NULL));
	OK(barcopy_cache_get(cache, d, 1, &r));
	FAILS(EBUSY, barcopy_cache_destroy(cache));
	ck_assert(same_memory(r.handle, r.cpu_ptr, d));
	OK(barcopy_cache_put(cache, &r));
	OK(barcopy_cache_destroy(cache));
	FAILS(EINVAL, barcopy_cache_put(cache, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, d, 1, &r));
	/* a use that is never given back, detached or not, does not keep gdr_close() */
	OK(barcopy_cache_get(other, d, 1, &r));
	OK(barcopy_cache_invalidate(other, d, 1));
	OK(barcopy_cache_get(other, d, 1, &r));
	OK(gdr_close(g));
	FAILS(EINVAL, barcopy_cache_put(other, &r));
	FAILS(EINVAL, barcopy_cache_get(other, d, 1, &r));
	FAILS(EINVAL, gdr_copy_to_mapping(r.handle, r.cpu_ptr, "x", 1));
	vmm_delete(d, 1);
	g = barcopy_open(BARCOPY_OPEN_ANY);
}
END_TEST

START_TEST(test_errors)
{
	struct {
		barcopy_cache_options_t o;
		uint64_t newer;
	} future = { .o = { .struct_size = sizeof(future) }, .newer = 0 };
	barcopy_cache_options_t o = { .struct_size = sizeof(o) };
	barcopy_cache_stats_t s = { .struct_size = 8 };
	barcopy_cache_t cache, none = NULL;
	CUdeviceptr d = vmm_new(0, 1);
	barcopy_region_t r = { .size = 42 };

	FAILS(EINVAL, barcopy_cache_create(g, NULL, NULL));
	FAILS(EINVAL, barcopy_cache_create(NULL, NULL, &cache));
	o.validity = 2;
	FAILS(EINVAL, barcopy_cache_create(g, &o, &cache));
	o.validity = 0;
	o.flags = 1;
	FAILS(EINVAL, barcopy_cache_create(g, &o, &cache));
	o.flags = 0;
	o.struct_size = 4;
	FAILS(EINVAL, barcopy_cache_create(g, &o, &cache));
	o.struct_size = sizeof(o) - 1; /* no caller ever had that */
	FAILS(EINVAL, barcopy_cache_create(g, &o, &cache));
	o.struct_size = sizeof(o);
	OK(barcopy_cache_create(g, &o, &cache));
	OK(barcopy_cache_destroy(cache));
	future.newer = 1;
	FAILS(EINVAL, barcopy_cache_create(g, &future.o, &cache));
	future.newer = 0;
	OK(barcopy_cache_create(g, &future.o, &cache));
	FAILS(EINVAL, barcopy_cache_get(none, d, 1, &r));
	FAILS(EINVAL, barcopy_cache_get((barcopy_cache_t)(uintptr_t)0x100000001, d, 1, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, d, 0, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, 0, 1, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, d, 1, NULL));
	FAILS(EOVERFLOW, barcopy_cache_get(cache, d, SIZE_MAX, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, (uint64_t)1 << 60, 1, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, (uintptr_t)&r, 1, &r));
	FAILS(ENOTSUP, barcopy_cache_get(cache, d + CHUNK - 1, 2, &r));
	ck_assert_uint_eq(r.size, 42);
	FAILS(EINVAL, barcopy_cache_get_stats(cache, &s));
	FAILS(EINVAL, barcopy_cache_get_stats(cache, NULL));
	OK(barcopy_cache_invalidate(cache, d, 1));
	FAILS(EINVAL, barcopy_cache_invalidate(none, d, 1));
	/* an argument that is refused leaves what is there */
	touch(cache, d);
	FAILS(ENOTSUP, barcopy_cache_get(cache, d + CHUNK - 1, 2, &r));
	ck_assert(is_cached(cache, d));
	vmm_delete(d, 1);
}
END_TEST

/* Second chance: what was used again since the last look stays for another one. */
START_TEST(test_evicted_by_count)
{
	CUdeviceptr d = vmm_new(0, 8);
	barcopy_cache_t cache = new_cache(BARCOPY_CACHE_NOTIFIED, 0, 3);
	barcopy_region_t held;

	touch(cache, d);
	touch(cache, d + CHUNK);
	touch(cache, d + 2 * CHUNK);
	touch(cache, d); /* again: the second one goes */
	touch(cache, d + 3 * CHUNK);
	ck_assert_uint_eq(stats_of(cache).evictions, 1);
	ck_assert_uint_eq(stats_of(cache).regions, 3);
	ck_assert(is_cached(cache, d));
	ck_assert(is_cached(cache, d + 2 * CHUNK));
	ck_assert(is_cached(cache, d + 3 * CHUNK));
	/* all three were used again: the oldest goes */
	ck_assert(!is_cached(cache, d + CHUNK));
	ck_assert_uint_eq(stats_of(cache).evictions, 2);
	ck_assert(is_cached(cache, d));
	ck_assert(is_cached(cache, d + 3 * CHUNK));
	/* in use it stays, however often it is passed */
	OK(barcopy_cache_get(cache, d, 8, &held));
	for (int i = 4; i < 8; i++)
		touch(cache, d + (size_t)i * CHUNK);
	ck_assert(same_memory(held.handle, held.cpu_ptr, d));
	ck_assert(is_cached(cache, d));
	OK(barcopy_cache_put(cache, &held));
	ck_assert_uint_eq(stats_of(cache).regions, 3);
	OK(barcopy_cache_destroy(cache));
	vmm_delete(d, 8);
}
END_TEST

START_TEST(test_limit_by_bytes)
{
	CUdeviceptr d = vmm_new(0, 8);
	barcopy_cache_t cache = new_cache(BARCOPY_CACHE_NOTIFIED, 3 * CHUNK, 0);
	barcopy_region_t held[5];

	for (int i = 0; i < 8; i++) {
		touch(cache, d + (size_t)i * CHUNK);
		ck_assert_uint_le(stats_of(cache).bytes_pinned, 3 * CHUNK);
	}
	ck_assert_uint_eq(stats_of(cache).evictions, 5);
	/* what is in use may be more than the limit, until it is given back */
	for (int i = 0; i < 5; i++)
		OK(barcopy_cache_get(cache, d + (size_t)i * CHUNK, 8, &held[i]));
	ck_assert_uint_eq(stats_of(cache).bytes_pinned, 5 * CHUNK);
	for (int i = 0; i < 5; i++)
		OK(barcopy_cache_put(cache, &held[i]));
	ck_assert_uint_eq(stats_of(cache).bytes_pinned, 3 * CHUNK);
	OK(barcopy_cache_destroy(cache));
	vmm_delete(d, 8);
}
END_TEST

/* More memory than BAR: idle regions make room, regions in use do not. */
START_TEST(test_bar_exhausted)
{
	barcopy_cache_t cache;
	barcopy_region_t held[5];
	CUdeviceptr d;

	OK(gdr_close(g));
	setenv("GDRSIM_BAR1_MIB", "8", 1);
	g = barcopy_open(BARCOPY_OPEN_ANY);
	d = vmm_new(0, 16);
	cache = new_cache(BARCOPY_CACHE_CHECK_TAG, UINT64_MAX, 0);
	for (int pass = 0; pass < 3; pass++)
		for (int i = 0; i < 16; i++)
			touch(cache, d + (size_t)i * CHUNK);
	ck_assert_uint_eq(stats_of(cache).misses, 48);
	ck_assert_uint_eq(stats_of(cache).evictions, 44);
	for (int i = 0; i < 4; i++)
		OK(barcopy_cache_get(cache, d + (size_t)i * CHUNK, 8, &held[i]));
	FAILS(ENOMEM, barcopy_cache_get(cache, d + 5 * CHUNK, 8, &held[4]));
	for (int i = 0; i < 4; i++)
		ck_assert(same_memory(held[i].handle, held[i].cpu_ptr, d + (size_t)i * CHUNK));
	OK(barcopy_cache_put(cache, &held[2]));
	OK(barcopy_cache_get(cache, d + 5 * CHUNK, 8, &held[4]));
	ck_assert(same_memory(held[4].handle, held[4].cpu_ptr, d + 5 * CHUNK));
	/* room for four chunks side by side needs all four gone */
	for (int i = 0; i < 5; i++)
		if (i != 2)
			OK(barcopy_cache_put(cache, &held[i]));
	OK(barcopy_cache_get(cache, d + 8 * CHUNK, 4 * CHUNK, &held[0]));
	OK(barcopy_cache_put(cache, &held[0]));
	FAILS(ENOMEM, barcopy_cache_get(cache, d + 8 * CHUNK, 5 * CHUNK, &held[0]));
	OK(barcopy_cache_destroy(cache));
	vmm_delete(d, 16);
}
END_TEST

START_TEST(test_default_limit)
{
	CUdeviceptr d;
	barcopy_cache_t cache;

	OK(gdr_close(g));
	setenv("GDRSIM_BAR1_MIB", "32", 1);
	g = barcopy_open(BARCOPY_OPEN_ANY);
	d = vmm_new(0, 16);
	OK(barcopy_cache_create(g, NULL, &cache));
	for (int i = 0; i < 16; i++)
		touch(cache, d + (size_t)i * CHUNK);
	ck_assert_uint_eq(stats_of(cache).max_bytes, 24 << 20);
	ck_assert_uint_eq(stats_of(cache).bytes_pinned, 24 << 20);
	OK(barcopy_cache_destroy(cache));
	vmm_delete(d, 16);
}
END_TEST

START_TEST(test_no_nvml)
{
	CUdeviceptr d = vmm_new(0, 1);
	barcopy_cache_t cache;

	setenv("GDRSIM_FAIL", "nvmlInit:*=9", 1);
	OK(barcopy_cache_create(g, NULL, &cache));
	touch(cache, d);
	ck_assert_uint_eq(stats_of(cache).max_bytes,
			  (uint64_t)8192 / 4 << 20); /* of memory, then */
	OK(barcopy_cache_destroy(cache));
	vmm_delete(d, 1);
}
END_TEST

START_TEST(test_invalidate)
{
	CUdeviceptr d = vmm_new(0, 3);
	barcopy_cache_t cache = new_cache(BARCOPY_CACHE_NOTIFIED, 0, 0);
	barcopy_region_t r, r2;

	for (int i = 0; i < 3; i++)
		touch(cache, d + (size_t)i * CHUNK);
	/* one byte of it is enough, and a neighbour stays */
	OK(barcopy_cache_invalidate(cache, d + CHUNK + 777, 1));
	ck_assert_uint_eq(stats_of(cache).invalidations, 1);
	ck_assert_uint_eq(stats_of(cache).regions, 2);
	ck_assert(is_cached(cache, d + CHUNK - 8));
	ck_assert(is_cached(cache, d + 2 * CHUNK));
	/* in use: good until the last put, never found again */
	OK(barcopy_cache_get(cache, d, 8, &r));
	OK(barcopy_cache_get(cache, d, 8, &r2));
	OK(barcopy_cache_invalidate(cache, d, CHUNK));
	ck_assert_uint_eq(stats_of(cache).regions, 2);
	ck_assert(same_memory(r.handle, r.cpu_ptr, d));
	ck_assert(!is_cached(cache, d));
	OK(barcopy_cache_put(cache, &r));
	ck_assert(same_memory(r2.handle, r2.cpu_ptr, d));
	OK(barcopy_cache_put(cache, &r2));
	OK(barcopy_cache_invalidate(cache, 0, SIZE_MAX));
	ck_assert_uint_eq(stats_of(cache).regions, 0);
	ck_assert_uint_eq(stats_of(cache).bytes_pinned, 0);
	OK(barcopy_cache_destroy(cache));
	vmm_delete(d, 3);
}
END_TEST

/* Unmaps the memory at d and maps other memory there. */
static void reallocate(CUdeviceptr d)
{
	CU(cuda.cuMemUnmap(d, CHUNK));
	CU(cuda.cuMemAddressFree(d, CHUNK));
	ck_assert_uint_eq(vmm_new(d, 1), d);
}

START_TEST(test_reallocated)
{
	CUdeviceptr d = vmm_new(0, 1);
	barcopy_cache_t tag = new_cache(BARCOPY_CACHE_CHECK_TAG, 0, 0);
	barcopy_cache_t notified = new_cache(BARCOPY_CACHE_NOTIFIED, 0, 0);
	barcopy_region_t r;

	for (int i = 0; i < 100; i++) {
		touch(tag, d);
		touch(tag, d + 100);
		touch(notified, d);
		OK(barcopy_cache_get(tag, d, 8, &r)); /* across the free */
		OK(barcopy_cache_invalidate(notified, d, CHUNK));
		reallocate(d);
		if (i % 2) {
			touch(tag, d);
			ck_assert(!same_memory(r.handle, r.cpu_ptr, d));
		}
		OK(barcopy_cache_put(tag, &r));
	}
	ck_assert_uint_eq(stats_of(tag).invalidations, 100 - 1 + 1);
	ck_assert_uint_eq(stats_of(tag).regions, 1);
	/* freed and not allocated again */
	vmm_delete(d, 1);
	FAILS(EINVAL, barcopy_cache_get(tag, d, 8, &r));
	ck_assert_uint_eq(stats_of(tag).regions, 0);
	OK(barcopy_cache_destroy(tag));
	OK(barcopy_cache_destroy(notified));
}
END_TEST

/* Each thread frees and allocates at addresses of its own, and looks at its neighbours' regions. */
struct churn {
	barcopy_cache_t cache;
	bool notify;
	CUdeviceptr mine;
	unsigned int rounds;
	uintptr_t bad;
};

static void *churn(void *arg)
{
	struct churn *c = arg;

	cuda.cuCtxSetCurrent(standin_primary(0));
	for (unsigned int i = 0; i < c->rounds; i++) {
		for (int k = 0; k < 3; k++) {
			uint64_t at = c->mine + (i * 64 + (unsigned int)k * 8192) % CHUNK;
			barcopy_region_t r;

			if (barcopy_cache_get(c->cache, at, 8, &r)) {
				c->bad++;
				continue;
			}
			c->bad += !same_memory(r.handle, r.cpu_ptr, at);
			c->bad += barcopy_cache_put(c->cache, &r) != 0;
		}
		if (c->notify)
			c->bad += barcopy_cache_invalidate(c->cache, c->mine, CHUNK) != 0;
		c->bad += cuda.cuMemUnmap(c->mine, CHUNK) != 0;
		c->bad += cuda.cuMemAddressFree(c->mine, CHUNK) != 0;
		c->bad += vmm_new(c->mine, 1) != c->mine;
	}
	return NULL;
}

static bool quick(void)
{
	const char *text = getenv("GDRCOPY_TEST_QUICK");

	return text && *text && *text != '0';
}

static void run_churn(barcopy_cache_validity_t validity, uint64_t max_regions)
{
	barcopy_cache_t cache = new_cache(validity, 0, max_regions);
	pthread_t thread[4];
	struct churn c[4];

	/* first fit: with a gap between them nobody else gets an address that is free for a moment */
	for (int i = 0; i < 4; i++)
		c[i] = (struct churn){ cache, validity == BARCOPY_CACHE_NOTIFIED, vmm_new(0, 1),
				       quick() ? 40 : 1000, 0 };
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, churn, &c[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		ck_assert_uint_eq(c[i].bad, 0);
		vmm_delete(c[i].mine, 1);
	}
	OK(barcopy_cache_destroy(cache));
}

START_TEST(test_reallocated_threads)
{
	run_churn(BARCOPY_CACHE_CHECK_TAG, 0);
	run_churn(BARCOPY_CACHE_NOTIFIED, 0);
	run_churn(BARCOPY_CACHE_CHECK_TAG, 2);
}
END_TEST

/* Hits, misses, evictions and invalidations of the same regions from all threads. */
static CUdeviceptr common;
static barcopy_cache_t common_cache;

static void *hammer(void *arg)
{
	unsigned int x = (unsigned int)(uintptr_t)arg * 2654435761u + 12345;
	uintptr_t bad = 0;

	cuda.cuCtxSetCurrent(standin_primary(0));
	for (int i = 0; i < (quick() ? 300 : 20000); i++) {
		uint64_t addr, value = (uint64_t)(uintptr_t)arg << 32 | (unsigned int)i, seen = 0;
		barcopy_region_t r;

		x = x * 1103515245 + 12345;
		addr = common + (x >> 8) % 8 * CHUNK + (x >> 16) % 1024 * 64 + (uintptr_t)arg * 8;
		if (x >> 12 & 31) {
			if (barcopy_cache_get(common_cache, addr, 8, &r)) {
				bad++;
				continue;
			}
			bad += gdr_copy_to_mapping(r.handle, r.cpu_ptr, &value, 8) != 0;
			bad += gdr_copy_from_mapping(r.handle, &seen, r.cpu_ptr, 8) ||
			       seen != value;
			bad += barcopy_cache_put(common_cache, &r) != 0;
		} else {
			bad += barcopy_cache_invalidate(common_cache, addr, 1) != 0;
		}
	}
	return (void *)bad;
}

START_TEST(test_threads)
{
	pthread_t thread[4];
	barcopy_cache_stats_t s;

	common = vmm_new(0, 8);
	for (int round = 0; round < 2; round++) {
		common_cache =
			new_cache(round ? BARCOPY_CACHE_NOTIFIED : BARCOPY_CACHE_CHECK_TAG, 0, 5);
		for (uintptr_t i = 0; i < 4; i++)
			ck_assert_int_eq(pthread_create(&thread[i], NULL, hammer, (void *)i), 0);
		for (int i = 0; i < 4; i++) {
			void *bad;

			pthread_join(thread[i], &bad);
			ck_assert_uint_eq((uintptr_t)bad, 0);
		}
		s = stats_of(common_cache);
		ck_assert_uint_gt(s.evictions, 0);
		ck_assert_uint_gt(s.invalidations, 0);
		ck_assert_uint_gt(s.hits, 0);
		ck_assert_uint_eq(s.regions_in_use, 0);
		ck_assert_uint_le(s.regions, 5);
		OK(barcopy_cache_destroy(common_cache));
	}
	vmm_delete(common, 8);
}
END_TEST

/* Small allocations of one GPU page: one region, also for one that came later. */
START_TEST(test_one_page)
{
	CUdeviceptr a, b, c;
	barcopy_cache_t cache;

	OK(gdr_close(g));
	setenv("GDRSIM_DRIVER_VERSION", "13030", 1);
	g = gdr_open();
	cache = new_cache(BARCOPY_CACHE_CHECK_TAG, 0, 0);
	CU(cuda.cuMemAlloc_v2(&a, 256));
	CU(cuda.cuMemAlloc_v2(&b, 256));
	touch(cache, a);
	ck_assert(is_cached(cache, b));
	CU(cuda.cuMemAlloc_v2(&c, 256));
	ck_assert(is_cached(cache, c));
	ck_assert_uint_eq(stats_of(cache).bytes_pinned, PAGE);
	/* c goes and comes: another allocation at that address, but a and b prove the page */
	CU(cuda.cuMemFree_v2(c));
	CU(cuda.cuMemAlloc_v2(&c, 256));
	touch(cache, c);
	/* all of them go: the page is another one */
	CU(cuda.cuMemFree_v2(a));
	CU(cuda.cuMemFree_v2(b));
	CU(cuda.cuMemFree_v2(c));
	CU(cuda.cuMemAlloc_v2(&b, 256));
	touch(cache, b);
	CU(cuda.cuMemFree_v2(b));
	OK(barcopy_cache_destroy(cache));
}
END_TEST

START_TEST(test_several_gpus)
{
	CUdeviceptr d;
	barcopy_cache_t cache;
	barcopy_mem_t mem[8];
	barcopy_region_t r;

	OK(gdr_close(g));
	setenv("GDRSIM_BAR1_MIB", "8", 1);
	g = barcopy_open(BARCOPY_OPEN_ANY);
	cache = new_cache(BARCOPY_CACHE_CHECK_TAG, UINT64_MAX, 0);
	/* GPU 1 takes all of its BAR; what is idle on GPU 0 must not be given up for it */
	OK(barcopy_mem_alloc(g, 1, 8 << 20, 0, &mem[0]));
	d = vmm_new(0, 1);
	touch(cache, d);
	FAILS(ENOMEM, barcopy_cache_get(cache, mem[0].device_ptr, 8, &r));
	ck_assert(is_cached(cache, d));
	ck_assert_uint_eq(stats_of(cache).evictions, 0);
	OK(barcopy_cache_destroy(cache));
	vmm_delete(d, 1);
}
END_TEST

static void more_gpus(void)
{
	setenv("GDRSIM_DEVICES", "2", 1);
	setup();
}

START_TEST(test_fork)
{
	CUdeviceptr d = vmm_new(0, 1);
	barcopy_cache_t cache = new_cache(BARCOPY_CACHE_NOTIFIED, 0, 0);
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };
	barcopy_region_t r, mine;
	int status;
	pid_t pid;

	OK(barcopy_cache_get(cache, d, 8, &r));
	pid = fork();
	if (!pid) {
		int bad = barcopy_cache_get(cache, d, 8, &mine) != EACCES;

		bad |= (barcopy_cache_put(cache, &r) != EACCES) << 1;
		bad |= (barcopy_cache_invalidate(cache, d, 8) != EACCES) << 2;
		bad |= (barcopy_cache_get_stats(cache, &s) != EACCES) << 3;
		bad |= (barcopy_cache_destroy(cache) != EACCES) << 4;
		_exit(bad);
	}
	waitpid(pid, &status, 0);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	ck_assert(same_memory(r.handle, r.cpu_ptr, d));
	OK(barcopy_cache_put(cache, &r));
	ck_assert(is_cached(cache, d));
	vmm_delete(d, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("barcopy_cache");
	TCase *tc = tcase_create("cache"), *several = tcase_create("several GPUs");

	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_sharing);
	tcase_add_test(tc, test_put);
	tcase_add_test(tc, test_errors);
	tcase_add_test(tc, test_evicted_by_count);
	tcase_add_test(tc, test_limit_by_bytes);
	tcase_add_test(tc, test_bar_exhausted);
	tcase_add_test(tc, test_default_limit);
	tcase_add_test(tc, test_no_nvml);
	tcase_add_test(tc, test_invalidate);
	tcase_add_test(tc, test_reallocated);
	tcase_add_test(tc, test_reallocated_threads);
	tcase_add_test(tc, test_threads);
	tcase_add_test(tc, test_one_page);
	tcase_add_test(tc, test_fork);
	tcase_add_checked_fixture(several, more_gpus, teardown);
	tcase_add_test(several, test_several_gpus);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, several);
	return unit_suite(suite, CK_FORK);
}
