// SPDX-License-Identifier: MIT
/* Limits of the registration cache, which region an eviction takes, and calls that need what it has. */
#include "cache_calls.h"
#include "common/wrap.h"

/* ---- limits and evictions --------------------------------------------------------------------- */

/* The default limit is three quarters of the free BAR. A cache in a used slot starts from zero. */
static void default_limit(void)
{
	CUdeviceptr d = vmm_new(0, 5);
	barcopy_cache_stats_t s;
	barcopy_cache_t cache;
	gdr_mh_t h;
	void *va;

	OK(gdr_pin_buffer_v2(g, d, 4 * CHUNK, 0, &h));
	OK(gdr_map(g, h, &va, 4 * CHUNK));
	for (int i = 0; i < 2; i++) {
		OK(barcopy_cache_create(g, NULL, &cache));
		s = cache_stats(cache);
		ck_assert(!s.hits && !s.misses && !s.invalidations && s.max_bytes == UINT64_MAX);
		touch_all(cache, d, "Ee");
		OK(barcopy_cache_invalidate(cache, d + 4 * CHUNK, 1));
		/* 8 of 32 MiB are taken by a pin. */
		ck_assert_uint_eq(cache_stats(cache).max_bytes, 24 / 4 * 3 << 20);
		OK(barcopy_cache_destroy(cache));
	}
}

static uint64_t first_limit;

static void first_miss(void)
{
	barcopy_cache_t cache = BY_NOTICE();

	touch_all(cache, vmm_new(0, 1), "A");
	first_limit = cache_stats(cache).max_bytes;
}

/* Without NVML it is a part of the GPU's memory; if that is unknown too, this is logged. */
static void no_nvml(void)
{
	ck_assert_str_eq(unit_stderr_of(first_miss), "");
	ck_assert_uint_eq(first_limit, (uint64_t)8192 / 4 << 20);
	cuda_hooks.set_fail("cuDeviceTotalMem:1=999");
	ck_assert_ptr_nonnull(strstr(unit_stderr_of(first_miss), "no limit for a cache"));
	ck_assert_uint_eq(first_limit, UINT64_MAX);
}

/* Half of the mappings that a process may have. */
static void default_regions(void)
{
	char dir[UNIT_DIR], path[UNIT_DIR + 8];
	FILE *f;

	unit_temp_dir(dir);
	snprintf(path, sizeof(path), "%s/count", dir);
	f = fopen(path, "w");
	ck_assert(f && fputs("1000\n", f) >= 0 && !fclose(f));
	wrap_reset();
	wrap_instead("/proc/sys/vm/max_map_count", path);
	ck_assert_uint_eq(found(cache_with(g, BARCOPY_CACHE_NOTIFIED, 0))->options.max_regions,
			  500);
	ck_assert(!unlink(path)); /* as without /proc: 65530, the kernel's default */
	ck_assert_uint_eq(found(cache_with(g, BARCOPY_CACHE_NOTIFIED, 0))->options.max_regions,
			  32765);
	wrap_reset();
	unit_remove_dir(dir);
}

/* Second chance: a region that was used since the last sweep passed survives the next sweep. */
static void evicted_by_count(void)
{
	barcopy_cache_t cache = BY_NOTICE(.max_regions = 3);
	CUdeviceptr d = vmm_new(0, 8);
	barcopy_region_t r;

	touch_all(cache, d, "ABCaD"); /* the second one goes */
	has(cache, 1, 3, 3);
	touch_all(cache, d, "acdB"); /* all were used again: the oldest goes */
	has(cache, 2, 3, 3);
	touch_all(cache, d, "ad");
	/* a region in use stays, however often the sweep passes it */
	OK(barcopy_cache_get(cache, d, 8, &r));
	touch_all(cache, d, "EFGHa");
	ck_assert(is_same(&r));
	OK(barcopy_cache_put(cache, &r));
	has(cache, 6, 3, 3);
}

/* Regions in use may exceed the limit until they are put back. */
static void limit_by_bytes(void)
{
	barcopy_cache_t cache = BY_NOTICE(.max_bytes = CHUNK);
	CUdeviceptr d = vmm_new(0, 8);
	barcopy_region_t r[5];

	touch_all(cache, d, "A");
	has(cache, 0, 1, 1); /* a whole allocation of the limit's size */
	cache = BY_NOTICE(.max_bytes = 3 * CHUNK);
	touch_all(cache, d, "ABCD");
	has(cache, 1, 3, 3);
	touch_all(cache, d, "EFGH");
	has(cache, 5, 3, 3);
	for (unsigned int i = 0; i < COUNT(r); i++)
		OK(barcopy_cache_get(cache, d + i * CHUNK, 8, &r[i]));
	has(cache, 8, 5, 5);
	ck_assert_uint_eq(cache_stats(cache).regions_in_use, 5);
	for (unsigned int i = 0; i < COUNT(r); i++)
		OK(barcopy_cache_put(cache, &r[i]));
	has(cache, 10, 3, 3);
	touch_all(cache, d, "cde");
	OK(barcopy_cache_trim(cache, 2 * CHUNK));
	has(cache, 11, 2, 2);
	/* One region less would leave a byte too many. */
	OK(barcopy_cache_trim(cache, CHUNK - 1));
	has(cache, 13, 0, 0);
}

/* Idle regions make space for a pin of the same context; regions in use do not. */
static void space_for_plain_pins(void)
{
	barcopy_region_t used;
	CUdeviceptr d = vmm_new(0, 16);
	uint64_t evictions;
	gdr_mh_t h;
	void *va;
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 14 * CHUNK);
	barcopy_cache_t other = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 14 * CHUNK);

	OK(barcopy_cache_get(cache, d, 8, &used));
	for (unsigned int k = 1; k < 10; k++)
		get_and_put(cache, d + k * CHUNK);
	get_and_put(other, d + 15 * CHUNK);
	/* A range that an empty BAR could not hold evicts nothing. */
	FAILS(ENOMEM, barcopy_map_range(g, d, 16 * CHUNK, 0, &va, &h));
	FAILS(ENOMEM, barcopy_cache_get(cache, d, 16 * CHUNK, &(barcopy_region_t){ 0 }));
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
	OK(gdr_pin_buffer_v2(g, d + 10 * CHUNK, 6 * CHUNK, 0, &h));
	OK(gdr_map(g, h, &va, 6 * CHUNK));
	ck_assert(same_memory(h, va, d + 10 * CHUNK));
	ck_assert_uint_gt(cache_stats(cache).evictions, 0);
	ck_assert_uint_eq(cache_stats(other).evictions, 0); /* one cache has enough */
	evictions = cache_stats(cache).evictions;
	for (unsigned int k = 10; k < 15; k++)
		get_and_put(other, d + k * CHUNK); /* a miss evicts of its own cache first */
	ck_assert_uint_eq(cache_stats(cache).evictions, evictions);
	ck_assert_uint_gt(cache_stats(other).evictions, 0);
	ck_assert(same_memory(used.handle, used.cpu_ptr, d));
}

/* GPU 1's BAR is full: that evicts nothing of GPU 0. */
static void several_gpus(void)
{
	barcopy_cache_t cache = new_cache(OPTIONS(.max_bytes = UINT64_MAX));
	barcopy_region_t r;
	barcopy_mem_t mem;
	CUdeviceptr d;

	OK(barcopy_mem_alloc(g, 1, 8 << 20, 0, &mem));
	d = vmm_new(0, 1);
	touch(cache, d);
	OK(barcopy_cache_trim(cache, cache_stats(cache).bytes_pinned)); /* so much may stay */
	FAILS(ENOMEM, barcopy_cache_get(cache, mem.device_ptr, 8, &r));
	ck_assert(touch(cache, d));
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
}

/* Host memory takes no BAR: it evicts nothing, and lack of BAR does not evict it. */
static void host_memory(void)
{
	CUdeviceptr d = vmm_new(0, 8);
	uint64_t host = (uintptr_t)standin_host_alloc(4 * CHUNK, 0), small, misses;
	unsigned long asked;
	gdr_mh_t h;
	void *cpu;
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 2 * CHUNK);
	barcopy_region_t r;

	get_and_put(cache, d);
	get_and_put(cache, d + CHUNK);
	get_and_put(cache, host);
	for (int i = 0; i < 3; i++) /* a sweep ends before the last one */
		get_and_put(cache, (uintptr_t)standin_host_alloc(PAGE, 0));
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
	ck_assert(touch(cache, d) && touch(cache, d + CHUNK) && touch(cache, host));
	/* But the limit of regions does, also while regions in use exceed the other one. */
	found(cache)->options.max_regions = 1;
	OK(barcopy_cache_get(cache, d + 2 * CHUNK, 3 * CHUNK, &r));
	ck_assert_uint_eq(cache_stats(cache).regions, 1);
	OK(barcopy_cache_put(cache, &r));
	OK(barcopy_cache_destroy(cache));
	/* An allocation of up to 2 MiB is cached as a whole, whatever the limit. */
	cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, PAGE);
	small = (uintptr_t)standin_host_alloc(CHUNK, 0);
	get_and_put(cache, small);
	ck_assert(touch(cache, small + CHUNK / 2));
	OK(barcopy_cache_destroy(cache));
	/* One region too many: one goes, though it gives back no BAR. */
	cache = BY_NOTICE(.max_regions = 2);
	get_and_put(cache, host);
	get_and_put(cache, d);
	get_and_put(cache, d + CHUNK);
	has(cache, 1, 2, 2);
	OK(barcopy_cache_destroy(cache));
	/* A BAR of four chunks. */
	misses = stats_of(g).cache_misses;
	cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
	get_and_put(cache, host);
	for (unsigned int i = 0; i < 7; i++) /* each evicts one */
		get_and_put(cache, d + i * CHUNK);
	has(cache, 3, 5, 4);
	ck_assert_uint_eq(cache_stats(cache).misses, 8); /* a miss tries again by itself */
	ck_assert(touch(cache, host));
	/* Without hope it tries once; it is one miss also where it tries again. */
	OK(barcopy_cache_trim(cache, 0));
	OK(barcopy_map_range(g, d, 7 << 20, 0, &cpu, &h));
	for (unsigned int i = 0; i < 3; i++) {
		asked = cuda_hooks.calls("cuMemGetHandleForAddressRange");
		FAILS(ENOMEM, barcopy_cache_get(cache, d + 4 * CHUNK, CHUNK, &r));
		ck_assert_uint_eq(cuda_hooks.calls("cuMemGetHandleForAddressRange"), asked + 1);
		ck_assert_uint_eq(cache_stats(cache).misses, 9 + i);
	}
	ck_assert_uint_eq(stats_of(g).cache_misses, misses + 11);
	OK(barcopy_unmap_range(g, h));
}

/*
 * Small allocations share pages: a region of one is no reason to pin less than all of another. The
 * last begins in the page of the first two and ends in the next one.
 */
static void host_memory_in_one_page(void)
{
	enum { SIZE = 24 << 10 };
	barcopy_cache_t cache = BY_NOTICE(.max_regions = 0);
	uint64_t at[3];

	for (unsigned int i = 0; i < COUNT(at); i++)
		at[i] = (uintptr_t)standin_host_alloc(SIZE, 0);
	ck_assert_uint_eq(at[0] / PAGE, at[2] / PAGE);
	ck_assert_uint_eq((at[2] + SIZE - 8) / PAGE, at[2] / PAGE + 1);
	get_and_put(cache, at[0]);
	get_and_put(cache, at[2] + SIZE - 8);
	ck_assert(touch(cache, at[2]));
}

/* While one GPU is beyond its limit, a miss on another tries 32 regions for one to evict. */
static void tries_when_over(void)
{
	enum { USED = 34 };
	barcopy_cache_t cache = new_cache(OPTIONS(.max_bytes = (USED - 1) * PAGE));
	CUdeviceptr d[2] = { standin_chunks(0, 0, 1, 2 * CHUNK, 0),
			     standin_chunks(0, 1, 1, 2 * CHUNK, 0) };
	barcopy_region_t r[USED], idle;

	for (unsigned int i = 0; i < USED; i++)
		OK(barcopy_cache_get(cache, d[0] + i * PAGE, PAGE, &r[i]));
	OK(barcopy_cache_get(cache, d[1], (USED - 1) * PAGE, &idle));
	OK(barcopy_cache_put(cache, &idle));
	for (unsigned int i = 0; i < 2; i++) {
		OK(barcopy_cache_get(cache, d[1] + (USED + i) * PAGE, PAGE, &idle));
		ck_assert_uint_eq(cache_stats(cache).evictions, i);
	}
}

/* Until a put leaves a region idle, or an eviction: not until an ended region is put. */
static void tries_until_put(void)
{
	enum { USED = 34 };
	barcopy_cache_t cache = new_cache(OPTIONS(.max_bytes = (USED - 1) * PAGE));
	CUdeviceptr d[2] = { standin_chunks(0, 0, 1, 2 * CHUNK, 0),
			     standin_chunks(0, 1, 1, 2 * CHUNK, 0) };
	barcopy_region_t r[2][USED], again;

	for (unsigned int i = 0; i < USED; i++)
		OK(barcopy_cache_get(cache, d[0] + i * PAGE, PAGE, &r[0][i]));
	get_and_put(cache, d[1]);
	OK(barcopy_cache_invalidate(cache, d[0], PAGE));
	OK(barcopy_cache_put(cache, &r[0][0]));
	OK(barcopy_cache_get(cache, d[0] + PAGE, PAGE, &again));
	OK(barcopy_cache_put(cache, &again)); /* which has another user */
	for (unsigned int i = 1; i < USED; i++) {
		ck_assert_uint_eq(cache_stats(cache).bytes_pinned, (USED - 1 + i) * PAGE);
		OK(barcopy_cache_get(cache, d[1] + i * PAGE, PAGE, &r[1][i]));
	}
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
	OK(barcopy_cache_put(cache, &r[1][1]));
	ck_assert_uint_eq(cache_stats(cache).evictions, 1);
}

/* An eviction that has brought it back within the limit ends that: the next miss tries all regions. */
static void tries_when_within(void)
{
	enum { USED = 34 };
	barcopy_cache_t cache = BY_NOTICE(.max_regions = USED);
	CUdeviceptr d = standin_alloc(2 * CHUNK);
	barcopy_region_t r[2];

	for (unsigned int i = 0; i < 2 * USED; i++) /* all, and but the first again */
		if (i != USED)
			touch(cache, d + i % USED * PAGE);
	for (unsigned int i = 0; i < COUNT(r); i++)
		OK(barcopy_cache_get(cache, d + (USED + i) * PAGE, 8, &r[i]));
	ck_assert_uint_eq(cache_stats(cache).regions, USED);
	for (unsigned int i = 0; i < COUNT(r); i++)
		OK(barcopy_cache_put(cache, &r[i]));
}

/* So does a put. */
static void tries_when_put(void)
{
	enum { LIMIT = 34 };
	barcopy_cache_t cache = BY_NOTICE(.max_regions = LIMIT);
	CUdeviceptr d = standin_alloc(2 * CHUNK);
	barcopy_region_t r[LIMIT + 1];

	for (unsigned int i = 0; i < COUNT(r); i++)
		OK(barcopy_cache_get(cache, d + i * PAGE, 8, &r[i]));
	for (unsigned int i = 0; i < COUNT(r); i++)
		OK(barcopy_cache_put(cache, &r[i])); /* the first one is evicted */
	for (unsigned int i = 1; i < COUNT(r); i++)
		ck_assert(touch(cache, d + i * PAGE));
	OK(barcopy_cache_get(cache, d + COUNT(r) * PAGE, 8, &r[0]));
	ck_assert_uint_eq(cache_stats(cache).regions, LIMIT);
	OK(barcopy_cache_put(cache, &r[0]));
}

/* A range shares a pin of 2 MiB, and one of twice its own pages; of a longer one it has its own. */
static void shared_ranges(void)
{
	static const struct {
		size_t first, second; /* in pages; each within the one before */
		bool shared;
	} rows[] = {
		{ CHUNK / PAGE, 1, true },	 { CHUNK / PAGE + 1, 1, false },
		{ 3 * CHUNK / PAGE, CHUNK / PAGE * 3 / 2, true },
		{ 3 * CHUNK / PAGE, CHUNK / PAGE * 3 / 2 - 1, false },
	};
	CUdeviceptr d = standin_alloc(8 * CHUNK);
	gdr_mh_t h[3];
	void *cpu;

	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t pins;

		OK(barcopy_map_range(g, d, rows[i].first * PAGE, 0, &cpu, &h[0]));
		pins = pinned();
		OK(barcopy_map_range(g, d + PAGE * (rows[i].second > 1), rows[i].second * PAGE, 0,
				     &cpu, &h[1]));
		ck_assert_msg((pinned() == pins) == rows[i].shared, "row %zu", i);
		OK(barcopy_unmap_range(g, h[0]));
		OK(barcopy_unmap_range(g, h[1]));
		ck_assert_uint_eq(pinned(), 0);
	}
	/* A newer range has all pages of the third but the last, which the first one has. */
	for (unsigned int i = 0; i < COUNT(h); i++)
		OK(barcopy_map_range(g, d + (i ? 2 * i - 2 : 1) * PAGE, (i == 2 ? 3 : 4) * PAGE, 0,
				     &cpu, &h[i]));
	ck_assert_uint_eq(pinned(), 2);
}

/* Of two ranges that have all bytes of a third it shares that of its own pages in the table. */
static void shared_by_own_pages(void)
{
	enum { LENGTH = 2 * CHUNK / PAGE };
	static const struct {
		unsigned int first, pages;
	} rows[] = {
		{ 0, LENGTH },
		{ 1, LENGTH },
		{ 1, LENGTH / 2 - 1 }, /* too few to share those */
		{ 1, LENGTH / 2 }, /* the last page is the second's, the one before the first's */
	};
	CUdeviceptr d = standin_alloc((LENGTH + 1) * PAGE);
	void *cpu[COUNT(rows)];
	gdr_mh_t h;

	for (size_t i = 0; i < COUNT(rows); i++) {
		OK(barcopy_map_range(g, d + rows[i].first * PAGE, rows[i].pages * PAGE, 0, &cpu[i],
				     &h));
		ck_assert_uint_eq(pinned(), i < 3 ? i + 1 : 3);
	}
	ck_assert_ptr_ne(cpu[3], (char *)cpu[0] + PAGE);
	ck_assert_ptr_eq(cpu[3], cpu[1]);
}

/* An allocation evicts from the caches of its own context only. */
static void another_contexts_caches(void)
{
	size_t size = (size_t)96 << 20;
	barcopy_region_t r;
	barcopy_mem_t mem;
	gdr_t other = open_any();
	barcopy_cache_t theirs = cache_with(other, BARCOPY_CACHE_CHECK_TAG, UINT64_MAX);
	uint64_t addr = standin_alloc(size);

	/* All but a page: the stand-in's dma-buf of a whole allocation does not hold the memory. */
	OK(barcopy_cache_get(theirs, addr + PAGE, size - PAGE, &r));
	OK(barcopy_cache_put(theirs, &r));
	CU(cuda.cuMemFree_v2(addr));
	FAILS(ENOMEM, barcopy_mem_alloc(g, 0, 80 << 20, 0, &mem));
	ck_assert_uint_eq(cache_stats(theirs).regions, 1);
	OK(barcopy_mem_alloc(other, 0, 80 << 20, 0, &mem));
	ck_assert_uint_eq(cache_stats(theirs).regions, 0);
}

/* Memory that the GPU does not have: nothing that is idle and exists makes space for it. */
static void no_memory_left(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	CUdeviceptr d = standin_chunks(0, 1, 4, CHUNK, STANDIN_EXPORTABLE);
	CUdeviceptr freed = standin_chunks(0, 1, 1, CHUNK, STANDIN_EXPORTABLE);
	barcopy_mem_t mem;

	for (unsigned int i = 0; i < 4; i++)
		get_and_put(cache, d + i * CHUNK);
	get_and_put(cache, freed);
	vmm_delete(freed, 1);
	for (int i = 0; i < 2; i++)
		FAILS(ENOMEM,
		      barcopy_mem_alloc(g, 1, 122 << 20, i ? BARCOPY_MEM_SHAREABLE : 0, &mem));
	ck_assert_uint_eq(cache_stats(cache).regions, 4);
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
}

/* A pin without space evicts what is idle. */
static void pin_without_space(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	CUdeviceptr d = vmm_new(0, 2);
	gdr_mh_t h;

	get_and_put(cache, d);
	cuda_hooks.set_fail("cuMemGetHandleForAddressRange:1=2");
	OK(gdr_pin_buffer(g, d + CHUNK, CHUNK, 0, 0, &h));
	ck_assert_uint_eq(cache_stats(cache).evictions, 1);
}

static const struct unit_test tests[] = {
	{ "default limit", default_limit, "GDRSIM_BAR1_MIB=32" },
	{ "no NVML", no_nvml,
	  "GDRSIM_FAIL=nvmlInit:*=9 GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=2" },
	{ "default number of regions", default_regions, "" },
	{ "evicted by count", evicted_by_count },
	{ "limit by bytes", limit_by_bytes },
	{ "space for plain pins", space_for_plain_pins, "GDRSIM_BAR1_MIB=24" },
	{ "several GPUs", several_gpus, "GDRSIM_BAR1_MIB=8 GDRSIM_DEVICES=2" },
	{ "host memory", host_memory, "GDRSIM_BAR1_MIB=8" },
	{ "host memory in one page", host_memory_in_one_page, "" },
	{ "tries while over the limit", tries_when_over, "GDRSIM_DEVICES=2" },
	{ "tries until a put", tries_until_put, "GDRSIM_DEVICES=2" },
	{ "tries within the limit", tries_when_within, DMABUF },
	{ "tries behind a put", tries_when_put, DMABUF },
	{ "shared ranges", shared_ranges, DMABUF },
	{ "shared by own pages", shared_by_own_pages, DMABUF },
	{ "another context's caches", another_contexts_caches,
	  "GDRSIM_NODE=absent GDRSIM_MEM_MIB=128" },
	{ "no memory left", no_memory_left, "GDRSIM_MEM_MIB=128 GDRSIM_DEVICES=2" },
	{ "a pin without space", pin_without_space, "" },
};

UNIT_MAIN("limits of caches", tests, unit_before = start, unit_after = end)
