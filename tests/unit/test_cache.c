// SPDX-License-Identifier: MIT
/*
 * The registration cache: its errors and their texts, its limits, which region an eviction takes, what a
 * miss pins and verifies, what is left where memory or space is short. Random calls are in tests/model,
 * and threads in tests/explore.
 */
#include "base/inside.h"
#include "cache_table.h"
#include "common/resources.h"
#include "common/wrap.h"
#include "fixture.h"

static bool is_same(const barcopy_region_t *r)
{
	return same_memory(r->handle, r->cpu_ptr, r->device_ptr);
}

/* Gets 8 bytes, which must be those of the memory, and puts them back; true: it was a hit. */
static bool touch(barcopy_cache_t cache, uint64_t addr)
{
	uint64_t hits = cache_stats(cache).hits;
	barcopy_region_t r;

	OK(barcopy_cache_get(cache, addr, 8, &r));
	ck_assert(is_same(&r));
	OK(barcopy_cache_put(cache, &r));
	return cache_stats(cache).hits != hits;
}

/* Touches chunks in this order: a letter is a chunk, a capital must miss, a small one hit. */
static void touch_all(barcopy_cache_t cache, CUdeviceptr d, const char *order)
{
	for (const char *c = order; *c; c++)
		ck_assert_msg(touch(cache, d + (uint64_t)((*c | 32) - 'a') * CHUNK) == (*c >= 'a'),
			      "%s, at %s: hit or miss?", order, c);
}

static void has(barcopy_cache_t cache, uint64_t evictions, uint64_t regions, uint64_t chunks)
{
	barcopy_cache_stats_t s = cache_stats(cache);

	ck_assert_uint_eq(s.evictions, evictions);
	ck_assert_uint_eq(s.regions, regions);
	ck_assert_uint_eq(s.bytes_pinned, chunks * CHUNK);
}

static struct gdri_cache *found(barcopy_cache_t cache)
{
	struct gdri_cache *c = (struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)cache);

	ck_assert_ptr_nonnull(c);
	return c;
}

static struct gdri_entry *entry_of(const barcopy_region_t *r)
{
	return (struct gdri_entry *)gdri_slots_find(&gdri_entries, r->entry);
}

static uint64_t pinned(void)
{
	barcopy_stats_t s = stats_of(NULL);

	return s.pins - s.unpins;
}

#define BY_NOTICE(...) new_cache(OPTIONS(.validity = BARCOPY_CACHE_NOTIFIED, __VA_ARGS__))

/* ---- refusals -------------------------------------------------------------------------------- */

static void put(void)
{
	barcopy_cache_t cache = BY_NOTICE(), other = BY_NOTICE();
	CUdeviceptr d = vmm_new(0, 1);
	barcopy_region_t r, copy;

	OK(barcopy_cache_get(cache, d, 1, &r));
	FAILS(EINVAL, barcopy_cache_put(other, &r));
	/* No bytes end nothing. */
	OK(barcopy_cache_invalidate(cache, d + 8, 0));
	ck_assert_uint_eq(cache_stats(cache).regions, 1);
	/* A region that has become another cache's since the call found it: that one keeps it. */
	OK(barcopy_cache_get(other, d, 1, &(barcopy_region_t){ 0 }));
	found(other)->options.max_regions = 0;
	atomic_store(&found(other)->over, true);
	OK(gdri_cache_unuse(found(other), entry_of(&r)));
	ck_assert_uint_eq(cache_stats(other).evictions, 0);
	OK(barcopy_cache_get(cache, d, 1, &r));
	copy = r;
	OK(barcopy_cache_put(cache, &r));
	FAILS(EINVAL, barcopy_cache_put(cache, &copy));
	ck_assert_uint_eq(copy.size, 1); /* a call that fails changes nothing */
	FAILS(EINVAL, barcopy_cache_put(cache, NULL));
	OK(barcopy_cache_destroy(cache));
	FAILS(EINVAL, barcopy_cache_get(cache, d, 1, &r));
	/* gdr_close() does not wait for a region that is never put back, invalidated or not */
	OK(barcopy_cache_get(other, d, 1, &r));
	OK(barcopy_cache_invalidate(other, d, 1));
	OK(barcopy_cache_get(other, d, 1, &r));
	end_now();
	copy = r;
	FAILS(EINVAL, barcopy_cache_put(other, &r));
	/* it was put: a second call would take the user of another thread */
	ck_assert_uint_eq(r.entry, 0);
	FAILS(EINVAL, barcopy_cache_put(other, &copy));
	ck_assert_uint_eq(copy.size, 1);
}

static barcopy_cache_t ended;
static barcopy_region_t left[3];

/* Of another region's pages: this one's are still there. */
static void put_before_its_pages_end(void)
{
	FAILS(EINVAL, barcopy_cache_put(ended, &left[1]));
}

/* By a cache that has ended: its own regions are put, with and without pages; another's is not. */
static void put_by_an_ended_one(void)
{
	CUdeviceptr d = vmm_new(0, 3);
	barcopy_cache_t cache;
	barcopy_region_t r;

	ended = BY_NOTICE();
	for (int i = 0; i < 3; i++)
		OK(barcopy_cache_get(ended, d + i * CHUNK, 1, &left[i]));
	wrap_reset();
	wrap_before("munmap", put_before_its_pages_end);
	end_now();
	ck_assert_uint_eq(left[1].entry, 0);
	start();
	cache = BY_NOTICE(); /* in the place of the one that has ended */
	ck_assert_uint_eq((uint32_t)(uintptr_t)cache, (uint32_t)(uintptr_t)ended);
	OK(barcopy_cache_get(cache, d, 1, &r));
	FAILS(EINVAL, barcopy_cache_put(ended, &r));
	ck_assert_uint_eq(r.size, 1);
	OK(barcopy_cache_put(cache, &r));
	FAILS(EINVAL, barcopy_cache_put(ended, &left[2]));
	ck_assert_uint_eq(left[2].entry, 0);
}

static void errors(void)
{
	static struct {
		barcopy_cache_options_t o;
		uint64_t newer;
	} options[] = {
		{ { .struct_size = sizeof(options[0].o), .validity = 2 }, 0 },
		{ { .struct_size = sizeof(options[0].o), .flags = 2 }, 0 },
		{ { .struct_size = 4 }, 0 },
		{ { .struct_size = 31 }, 0 }, /* no release had this size */
		{ { .struct_size = sizeof(options[0]) }, 1 },
	}, longer = { { .struct_size = sizeof(longer) }, 0 };
	static size_t longest[4096 / sizeof(size_t) + 1] = { 4096 };
	barcopy_cache_t cache, nobody = (barcopy_cache_t)(uintptr_t)0x100000001;
	barcopy_cache_stats_t s = { .struct_size = 8 };
	barcopy_region_t r = { .size = 42 };
	CUdeviceptr d = vmm_new(0, 1), last;

	FAILS(EINVAL, barcopy_cache_create(g, NULL, NULL));
	FAILS(EINVAL, barcopy_cache_create(NULL, NULL, &cache));
	for (size_t i = 0; i < COUNT(options); i++)
		FAILS(EINVAL, barcopy_cache_create(g, &options[i].o, &cache));
	OK(barcopy_cache_create(g, &longer.o, &cache));
	OK(barcopy_cache_destroy(cache));
	OK(barcopy_cache_create(g, (barcopy_cache_options_t *)longest, &cache));
	OK(barcopy_cache_destroy(cache));
	longest[0]++;
	FAILS_WITH(EINVAL, "struct_size is 4097",
		   barcopy_cache_create(g, (barcopy_cache_options_t *)longest, &cache));
	cache = new_cache(OPTIONS());
	FAILS(EINVAL, barcopy_cache_get(NULL, d, 1, &r));
	FAILS(EINVAL, barcopy_cache_get(nobody, d, 1, &r));
	FAILS_WITH(EINVAL, "size is 0", barcopy_cache_get(cache, d, 0, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, 0, 1, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, d, 1, NULL));
	FAILS(EOVERFLOW, barcopy_cache_get(cache, d, SIZE_MAX, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, (uint64_t)1 << 60, 1, &r));
	FAILS_WITH(EINVAL, "beyond any device address",
		   barcopy_cache_get(cache, ((uint64_t)1 << 57) - 1, 2, &r));
	FAILS_WITH(EINVAL, "no backend can pin", barcopy_cache_get(cache, ((uint64_t)1 << 57) - 1, 1, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, (uintptr_t)&r, 1, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, d + CHUNK - 1, 2, &r));
	ck_assert_uint_eq(r.size, 42);
	FAILS_WITH(EINVAL, "struct_size is 8; it has to be sizeof the struct, 72 to 4096",
		   barcopy_cache_get_stats(cache, &s));
	FAILS(EINVAL, barcopy_cache_get_stats(cache, NULL));
	OK(barcopy_cache_invalidate(cache, d, 1));
	FAILS(EINVAL, barcopy_cache_invalidate(NULL, d, 1));
	/* it ends behind its allocation, and a region that would be joined begins there */
	d = standin_alloc(5000);
	touch(cache, standin_alloc(256));
	FAILS_WITH(EINVAL, "beyond its allocation", barcopy_cache_get(cache, d, 5001, &r));
	/* it begins in such a hole: the allocation at its end is pinned whole all the same */
	d = standin_alloc(5000);
	last = standin_alloc(100000);
	ck_assert_uint_lt(last - d, GPU_PAGE_SIZE);
	OK(barcopy_cache_get(cache, d + 5000, last + 8 - (d + 5000), &r));
	OK(barcopy_cache_put(cache, &r));
	ck_assert(touch(cache, last + 100000 - 8));
	d = vmm_new(0, 1);
	/* the users of a region share its handle, so only the cache has copy options */
	OK(barcopy_cache_get(cache, d, 1, &r));
	FAILS_WITH(EINVAL, "of the cache", barcopy_set_copy_options(r.handle, NULL));
	OK(barcopy_cache_put(cache, &r));
	/* a refused argument changes no region */
	touch(cache, d);
	FAILS(EINVAL, barcopy_cache_get(cache, d + CHUNK - 1, 2, &r));
	ck_assert(touch(cache, d));
	/* all that lies behind an address */
	OK(barcopy_cache_invalidate(cache, d + CHUNK - 1, UINT64_MAX));
	ck_assert(!touch(cache, d));
}

/* Without memory for a handle each call fails as such, and keeps no pin; later calls succeed. */
static void no_memory_for_a_handle(void)
{
	CUdeviceptr d = vmm_new(0, 1), small = standin_alloc(4096), other = vmm_new(0, 1);
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	gdr_mh_t h[GDRI_SLOTS_PER_CHUNK], more;
	barcopy_mem_t mem;
	barcopy_region_t r;
	void *cpu;

	for (size_t i = 0; i < COUNT(h); i++)
		OK(barcopy_map_range(g, d + i, 1, 0, &cpu, &h[i]));
	for (int i = 0; i < 8; i++) {
		uint64_t pins = pinned();
		int rc;

		if (i == 4) /* by the entry that has failed */
			get_and_put(cache, other);
		wrap_reset();
		if (i < 4)
			wrap_fail("aligned_alloc", 1, ENOMEM);
		rc = i % 4 == 0	  ? barcopy_map_range(g, small, 8, 0, &cpu, &more)
		     : i % 4 == 1 ? gdr_pin_buffer_v2(g, d, CHUNK, 0, &more)
		     : i % 4 == 2 ? barcopy_mem_alloc(g, 0, 4096, 0, &mem)
				  : barcopy_cache_get(cache, small, 8, &r);
		wrap_reset();
		FAILS(i < 4 ? ENOMEM : 0, rc);
		if (i < 4) {
			SAYS("no memory for a handle");
			ck_assert_uint_eq(pinned(), pins);
			ck_assert_uint_eq(cache_stats(cache).regions, 0);
		}
	}
	OK(barcopy_cache_put(cache, &r));
	ck_assert(touch(cache, other) && touch(cache, small));
}

/* Nor for a cache, its table, or for what a region learns: then the region is not shared. */
static void no_memory_for_a_cache(void)
{
	CUdeviceptr a = standin_alloc(256), b = standin_alloc(256);
	barcopy_cache_t cache;
	barcopy_region_t r;

	for (int i = 0; i < 2; i++) {
		wrap_reset();
		wrap_fail(i ? "calloc" : "aligned_alloc", 1, ENOMEM);
		FAILS_WITH(ENOMEM, i ? "a table of pages" : "no memory for a cache",
			   barcopy_cache_create(g, NULL, &cache));
	}
	wrap_reset();
	wrap_fail("aligned_alloc", 1, ENOMEM);
	FAILS_WITH(ENOMEM, "no memory for a cache",
		   barcopy_map_range(g, a, 256, 0, &r.cpu_ptr, &r.handle));
	wrap_reset();
	cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	wrap_reset();
	wrap_fail("aligned_alloc", 1, ENOMEM);
	FAILS_WITH(ENOMEM, "no memory for a region", barcopy_cache_get(cache, a, 8, &r));
	wrap_reset();
	get_and_put(cache, a);
	for (int i = 0; i < 3; i++) /* by the middle, the first and the last byte */
		wrap_fail("malloc", 1, ENOMEM);
	OK(barcopy_cache_get(cache, b, 256, &r));
	ck_assert_str_eq(wrap_failed(), "malloc");
	wrap_reset();
	ck_assert(is_same(&r));
	ck_assert_uint_eq(cache_stats(cache).misses, 3);
	/* Nor for its pages in the table: then the region is its caller's alone. */
	a = standin_alloc(80 * CHUNK) + 79 * CHUNK; /* no page near it is in the table */
	wrap_fail("calloc", 1, ENOMEM);
	OK(barcopy_cache_get(cache, a, 8, &r));
	ck_assert_str_eq(wrap_failed(), "calloc");
	wrap_reset();
	cache_table_check();
	ck_assert(!touch(cache, a) && touch(cache, a));
}

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
	uint64_t host = (uintptr_t)standin_host_alloc(4 * CHUNK, 0), small;
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
	cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
	get_and_put(cache, host);
	for (unsigned int i = 0; i < 7; i++) /* each evicts one */
		get_and_put(cache, d + i * CHUNK);
	has(cache, 3, 5, 4);
	ck_assert_uint_eq(cache_stats(cache).misses, 8); /* a miss tries again by itself */
	ck_assert(touch(cache, host));
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

/* ---- what a miss pins --------------------------------------------------------------------------- */

/* What a miss pins where others are pinned, by pages, of one allocation of 128. */
static void joined(void)
{
	static const struct {
		unsigned int first, pages, pinned; /* pinned: by this region */
	} steps[] = {
		{ 10, 4, 4 }, /* alone */
		{ 13, 3, 3 }, /* shares a border page */
		{ 15, 4, 4 }, /* so does this one */
		{ 14, 1, 0 }, /* in the second one */
		{ 17, 4, 10 }, /* shares two with the third: both (6), and the 4 replaced beyond */
		{ 40, 2, 2 },
		{ 38, 6, 8 }, /* around: one more at each side, for the 2 replaced */
		{ 8, 22, 37 }, /* over three, up to the third's end: 22, 8 below, 7 up to the next */
		{ 60, 1, 1 },
		{ 60, 4, 5 }, /* has all of the one at its start: 1 beyond it */
		{ 73, 1, 1 },
		{ 70, 4, 5 }, /* and at its end */
		{ 90, 2, 2 },
		{ 92, 2, 2 },
		{ 91, 2, 2 }, /* shares a page with each */
		{ 89, 2, 5 }, /* has the last page of its own of the first: over it, and 2 below */
		{ 110, 2, 2 },
		{ 107, 1, 1 },
		{ 109, 3, 5 }, /* over the first, and 2 below: all of the second */
		{ 114, 2, 2 },
		{ 118, 1, 1 },
		{ 114, 3, 5 }, /* and above */
		{ 120, 4, 4 },
		{ 126, 2, 2 },
		{ 125, 3, 4 }, /* 2 below would be a part of the first */
		{ 50, 3, 3 },
		{ 52, 3, 3 }, /* shares a page with it */
		{ 48, 3, 3 }, /* and at the other end, which leaves it the page in its middle */
	};
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
	CUdeviceptr d = standin_alloc(4 * CHUNK), next = standin_alloc(4 * CHUNK);
	barcopy_region_t r[COUNT(steps)], again;
	uint64_t pages = 0;

	for (size_t i = 0; i < COUNT(steps); i++) {
		OK(barcopy_cache_get(cache, d + steps[i].first * PAGE, steps[i].pages * PAGE, &r[i]));
		ck_assert_msg(cache_stats(cache).bytes_pinned / PAGE == pages + steps[i].pinned,
			      "step %zu: %lu pages", i,
			      cache_stats(cache).bytes_pinned / PAGE - pages);
		pages = cache_stats(cache).bytes_pinned / PAGE;
		cache_table_check();
	}
	/* Of the range's pages the table has this region at the last one alone. */
	OK(barcopy_cache_get(cache, d + 92 * PAGE + 1, PAGE, &again));
	ck_assert(again.handle.h == r[13].handle.h);
	OK(barcopy_cache_put(cache, &again));
	for (size_t i = 0; i < COUNT(steps); i++)
		OK(barcopy_cache_put(cache, &r[i]));
	/* Of the next allocation; 4 pages below would be of this one. */
	ck_assert_uint_eq(next, d + 4 * CHUNK);
	pages = cache_stats(cache).bytes_pinned / PAGE;
	for (int i = 2; i; i--) {
		OK(barcopy_cache_get(cache, next + i * PAGE, 4 * PAGE, &again));
		OK(barcopy_cache_put(cache, &again));
	}
	ck_assert_uint_eq(cache_stats(cache).bytes_pinned / PAGE, pages + 6);
}

/* A region in use whose memory was freed is not joined: it ends, and is counted. */
static void stale_is_not_joined(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, UINT64_MAX);
	CUdeviceptr d = vmm_new(0, 3);
	barcopy_region_t r;

	OK(barcopy_cache_get(cache, d, 2 * CHUNK, &r));
	vmm_replace(d + CHUNK, 0);
	OK(barcopy_cache_get(cache, d + 2 * CHUNK - 8, 16, &r));
	ck_assert_uint_eq(cache_stats(cache).bytes_pinned, 4 * CHUNK);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
}

/* Half of the limit is the most that a join reaches to; a longer one is not made. */
static void not_joined(void)
{
	/* From page 2 on: 6 pages and 4 beyond; 7 and 3, as 11 are more than half of 20; 11, or 9. */
	static const unsigned int pages[] = { 4, 5, 9 }, pinned[] = { 10, 10, 9 };
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 20 * PAGE);
	CUdeviceptr d = standin_alloc(4 * CHUNK);
	barcopy_region_t r;

	for (unsigned int i = 0; i < COUNT(pages); i++) {
		OK(barcopy_cache_trim(cache, 0));
		OK(barcopy_cache_get(cache, d, 4 * PAGE, &r));
		OK(barcopy_cache_put(cache, &r));
		OK(barcopy_cache_get(cache, d + 2 * PAGE, pages[i] * PAGE, &r));
		OK(barcopy_cache_put(cache, &r));
		ck_assert_uint_eq(cache_stats(cache).bytes_pinned, pinned[i] * PAGE);
		ck_assert_uint_eq(cache_stats(cache).regions, 1);
		cache_table_check();
	}
}

/* Ranges that the cache has space for do not end each other for ever. */
static void settled(void)
{
	static const unsigned int sets[][5][2] = { /* half of the limit; first page, pages */
						   { { 33 }, { 44, 29 }, { 66, 11 } },
						   { { 41 },
						     { 67, 3 },
						     { 52, 12 },
						     { 31, 5 },
						     { 30, 22 } } };
	CUdeviceptr d = standin_alloc(4 * CHUNK);

	for (size_t i = 0; i < COUNT(sets); i++) {
		barcopy_cache_t cache =
			cache_with(g, BARCOPY_CACHE_NOTIFIED, 2ull * sets[i][0][0] * PAGE);
		uint64_t misses = 0;
		barcopy_region_t r;

		for (int round = 0; round < 4; round++) {
			misses = cache_stats(cache).misses;
			for (int k = 1; k < 5 && sets[i][k][1]; k++) {
				OK(barcopy_cache_get(cache, d + sets[i][k][0] * PAGE,
						     sets[i][k][1] * PAGE, &r));
				OK(barcopy_cache_put(cache, &r));
				cache_table_check();
			}
		}
		ck_assert_msg(cache_stats(cache).misses == misses, "set %zu: still misses", i);
		OK(barcopy_cache_destroy(cache));
	}
}

/* A region that CUDA does not describe is its caller's alone: no later hit could verify it. */
static void not_described(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	CUdeviceptr d = standin_alloc(CHUNK);
	barcopy_region_t r;

	cuda_hooks.set_fail("cuPointerGetAttributes:*=999");
	OK(barcopy_cache_get(cache, d, 8, &r));
	cuda_hooks.set_fail(NULL);
	OK(barcopy_cache_put(cache, &r));
	ck_assert_uint_eq(cache_stats(cache).regions, 0);
	ck_assert(!touch(cache, d) && touch(cache, d));
	/* It is of no known GPU, which has no limit; this one has. */
	ck_assert_uint_lt(cache_stats(cache).max_bytes, UINT64_MAX);
}

/* A hole of more bytes than a GPU page has, but no page without memory: the second get is a hit. */
static void over_a_hole(void)
{
	barcopy_cache_t cache = new_cache(OPTIONS());
	CUdeviceptr at[3];
	barcopy_region_t r;

	for (int tries = 0; tries < 20; tries++) { /* until they lie so; in one process others lie before them */
		for (int i = 0; i < 3; i++)
			at[i] = standin_alloc(i == 1 ? 100000 : 5000);
		if (at[2] - (at[0] & GPU_PAGE_MASK) < 2 * PAGE)
			break;
	}
	CU(cuda.cuMemFree_v2(at[1]));
	ck_assert_uint_lt(at[2] - (at[0] & GPU_PAGE_MASK), 2 * PAGE);
	for (int i = 0; i < 2; i++) {
		OK(barcopy_cache_get(cache, at[0], at[2] + 5000 - at[0], &r));
		OK(barcopy_cache_put(cache, &r));
	}
	ck_assert_uint_eq(cache_stats(cache).hits, 1);
}

/* An allocation that a region has learnt is hit to its last byte, without CUDA, and no further. */
static void learnt(void)
{
	CUdeviceptr a = standin_alloc(256), b = standin_alloc(256);
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	struct gdri_cache *c = found(cache);
	struct gdri_entry *e;
	unsigned long calls;
	barcopy_region_t r;

	get_and_put(cache, a);
	ck_assert_ptr_null(gdri_cache_hit(c, b, 256));
	get_and_put(cache, b);
	calls = cuda_hooks.calls(NULL);
	e = gdri_cache_hit(c, b, 256);
	ck_assert_uint_eq(cuda_hooks.calls(NULL), calls);
	ck_assert_ptr_nonnull(e);
	OK(gdri_cache_unuse(c, e));
	ck_assert_ptr_null(gdri_cache_hit(c, b, 257));
	ck_assert_ptr_null(gdri_cache_hit(c, b + 255, 2));
	ck_assert_uint_eq(cache_stats(cache).misses, 1);
	/* Two allocations: what their region has of both. */
	a = standin_chunks(0, 0, 2, 2 * CHUNK, STANDIN_EXPORTABLE) + CHUNK;
	OK(barcopy_cache_get(cache, a + 100, 2 * CHUNK - 200, &r));
	calls = cuda_hooks.calls(NULL);
	ck_assert_ptr_eq(e = gdri_cache_hit(c, a, 2 * CHUNK), entry_of(&r));
	ck_assert_uint_eq(cuda_hooks.calls(NULL), calls);
	OK(gdri_cache_unuse(c, e));
}

/* A pin that fails is tried again only where it was of more than the range. */
static void tried_again(void)
{
	static const char call[] = "cuMemGetHandleForAddressRange";
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	CUdeviceptr d = standin_alloc(CHUNK);
	barcopy_region_t r;

	cuda_hooks.set_fail("cuMemGetHandleForAddressRange:*=801");
	for (unsigned int i = 0; i < 2; i++) {
		unsigned long before = cuda_hooks.calls(call);

		FAILS(ENOTSUP, barcopy_cache_get(cache, d, i ? 8 : CHUNK, &r));
		ck_assert_uint_eq(cuda_hooks.calls(call) - before, i + 1);
	}
	cuda_hooks.set_fail(NULL);
}

/*
 * CUDA describes the allocation of a miss or a pin once, before the pin; after it one attribute,
 * the buffer ID, shows that the memory is still the same.
 */
static void one_question(void)
{
	static const char *const names[] = { "cuPointerGetAttributes", "cuMemGetAddressRange_v2",
					     "cuPointerGetAttribute", "cuPointerSetAttribute" };
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	unsigned long before[COUNT(names)];
	gdr_mh_t h;

	get_and_put(cache, standin_alloc(4 * CHUNK));
	for (int i = 0; i < 2; i++) {
		CUdeviceptr d = standin_alloc(4 * CHUNK);

		for (size_t k = 0; k < COUNT(names); k++)
			before[k] = cuda_hooks.calls(names[k]);
		if (i)
			OK(gdr_pin_buffer_v2(g, d, 4 * CHUNK, 0, &h));
		else
			get_and_put(cache, d);
		/* A miss sweeps too, one region here. */
		for (size_t k = 0; k < COUNT(names); k++)
			ck_assert_msg(cuda_hooks.calls(names[k]) - before[k] ==
					      1ul + (!i && k == 2),
				      "%s: %lu", names[k], cuda_hooks.calls(names[k]) - before[k]);
		ck_assert_int_eq(standin_sync_memops(d), 1);
	}
}

/* ---- entries, pages and parts ------------------------------------------------------------------- */

/* An entry refuses a user more than its counter can hold. */
static void most_users(void)
{
	struct gdri_cache *cache;
	struct gdri_entry *e;
	CUdeviceptr d = vmm_new(0, 1);
	barcopy_cache_t c = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);

	get_and_put(c, d);
	cache = found(c);
	e = gdri_cache_hit(cache, d, 8);
	ck_assert_ptr_nonnull(e);
	atomic_fetch_add(&e->state, GDRI_CACHE_FULL - 2);
	ck_assert_ptr_eq(gdri_cache_hit(cache, d, 8), e);
	ck_assert_ptr_null(gdri_cache_hit(cache, d, 8));
	OK(gdri_cache_unuse(cache, e));
	ck_assert_ptr_eq(gdri_cache_hit(cache, d, 8), e);
	atomic_fetch_sub(&e->state, GDRI_CACHE_FULL - 1);
	OK(gdri_cache_unuse(cache, e));
	OK(barcopy_cache_destroy(c));
}

/* Without memory for the second of two nodes, an item is erased from the first. */
static void half_entered(void)
{
	uint64_t node = (uint64_t)GPU_PAGE_SIZE << GDRI_PAGES_NODE_BITS;
	uint64_t start = 7 * node - 2 * GPU_PAGE_SIZE, end = 7 * node + GPU_PAGE_SIZE;
	static gdri_pages_slot root[GDRI_PAGES_ROOT_SLOTS];
	struct gdri_pages pages = { root };
	uint64_t item[2], from = start, stop;

	/* The first node exists. */
	OK(gdri_pages_enter(&pages, start - GPU_PAGE_SIZE, start, &item[0]));
	wrap_reset();
	wrap_fail("calloc", 1, ENOMEM);
	FAILS(-ENOMEM, gdri_pages_enter(&pages, start, end, &item[1]));
	ck_assert_str_eq(wrap_failed(), "calloc");
	wrap_reset();
	gdri_pages_erase(&pages, start, end, &item[1]);
	for (uint64_t at = start; at < end; at += GPU_PAGE_SIZE)
		ck_assert_ptr_null(gdri_pages_find(&pages, at));
	ck_assert_ptr_null(gdri_pages_next(&pages, &from, UINT64_MAX, &stop));
	ck_assert_ptr_eq(gdri_pages_find(&pages, start - 1), &item[0]);
	/* Nor for the node of a slot that has an item in all its pages. */
	OK(gdri_pages_enter(&pages, 9 * node, 10 * node, &item[0]));
	wrap_fail("calloc", 1, ENOMEM);
	FAILS(-ENOMEM, gdri_pages_enter(&pages, 9 * node, 9 * node + GPU_PAGE_SIZE, &item[1]));
	ck_assert_str_eq(wrap_failed(), "calloc");
	ck_assert_ptr_eq(gdri_pages_find(&pages, 10 * node - 1), &item[0]);
	OK(gdri_pages_enter(&pages, start, end, &item[1]));
	ck_assert_ptr_eq(gdri_pages_find(&pages, start), &item[1]);
	ck_assert_ptr_eq(gdri_pages_find(&pages, end - 1), &item[1]);
	ck_assert_ptr_null(gdri_pages_find(&pages, end));
}

/* An item that fills a node is found in a part of it once, and keeps the pages that no later one takes. */
static void node_is_split(void)
{
	uint64_t node = (uint64_t)GPU_PAGE_SIZE << GDRI_PAGES_NODE_BITS, start = GDRI_PAGES_LIMIT - node;
	static gdri_pages_slot root[GDRI_PAGES_ROOT_SLOTS];
	uint64_t from = start + PAGE, stop;
	struct gdri_pages pages = { root };
	int item[2];

	OK(gdri_pages_enter(&pages, start, start + node, &item[0]));
	ck_assert_ptr_eq(gdri_pages_next(&pages, &from, start + 2 * PAGE, &stop), &item[0]);
	ck_assert_uint_eq(stop, start + 2 * PAGE);
	ck_assert_ptr_null(gdri_pages_next(&pages, &stop, start + 2 * PAGE, &from));
	OK(gdri_pages_enter(&pages, start + PAGE, start + 2 * PAGE, &item[1]));
	for (uint64_t at = start; at < start + node; at += PAGE)
		ck_assert_ptr_eq(gdri_pages_find(&pages, at), &item[at == start + PAGE]);
	ck_assert_ptr_null(gdri_pages_find(&pages, start - 1));
	ck_assert_ptr_null(gdri_pages_find(&pages, start + node));
	gdri_pages_erase(&pages, start, start + node, &item[0]);
	ck_assert_ptr_eq(gdri_pages_find(&pages, start + PAGE), &item[1]);
	from = start;
	ck_assert_ptr_null(gdri_pages_next(&pages, &from, start + PAGE, &stop));
}

/* What a region has noted and learnt of its allocations is freed with it. */
static void parts_are_freed(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	CUdeviceptr a = standin_alloc(256), b = standin_alloc(256);
	size_t used = 0;

	for (int i = 0; i < 40; i++) {
		get_and_put(cache, a);
		get_and_put(cache, b);
		OK(barcopy_cache_trim(cache, 0));
		if (i == 9)
			used = resources_heap();
	}
	ck_assert_uint_lt(resources_heap(), used + 1000);
}

/* A sweep verifies 16 parts a miss, and goes on there: a later part that was freed is found. */
static void many_parts_are_swept(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, UINT64_MAX);
	CUdeviceptr d = vmm_new(0, 20), next;
	barcopy_region_t r;

	OK(barcopy_cache_get(cache, d, 20 * CHUNK, &r));
	OK(barcopy_cache_put(cache, &r));
	vmm_replace(d + 19 * CHUNK, 0);
	next = vmm_new(0, 1);
	get_and_put(cache, next);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 0);
	vmm_replace(next, 0); /* of the next region the first part is verified */
	get_and_put(cache, vmm_new(0, 1));
	ck_assert_uint_eq(cache_stats(cache).invalidations, 2);
	/* A trim verifies all parts, also where a sweep has begun with a region. */
	d = vmm_new(0, 20);
	cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, UINT64_MAX);
	OK(barcopy_cache_get(cache, d, 20 * CHUNK, &r));
	OK(barcopy_cache_put(cache, &r));
	get_and_put(cache, vmm_new(0, 1));
	vmm_replace(d, 0);
	OK(barcopy_cache_trim(cache, UINT64_MAX));
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
	/* Where the region has ended, it goes on at the first part of the next one. */
	cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, UINT64_MAX);
	OK(barcopy_cache_get(cache, d, 20 * CHUNK, &r));
	OK(barcopy_cache_put(cache, &r));
	next = vmm_new(0, 1);
	get_and_put(cache, next);
	OK(barcopy_cache_invalidate(cache, d, 1));
	vmm_replace(next, 0);
	get_and_put(cache, vmm_new(0, 1));
	ck_assert_uint_eq(cache_stats(cache).invalidations, 2);
}

/* A miss sweeps four regions, a trim all of them. */
static void swept_are_counted(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	CUdeviceptr d = vmm_new(0, 10), next = vmm_new(0, 1);

	for (unsigned int i = 0; i < 10; i++)
		get_and_put(cache, d + i * CHUNK);
	vmm_delete(d, 10);
	get_and_put(cache, next);
	ck_assert_uint_eq(cache_stats(cache).regions, 10 - 4 + 1);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 4);
	OK(barcopy_cache_trim(cache, UINT64_MAX));
	ck_assert_uint_eq(cache_stats(cache).regions, 1);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 10);
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
}

/* Where another region ends, a sweep goes on at its place: behind ten misses, the seventh region. */
static void sweep_goes_on(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	CUdeviceptr d = vmm_new(0, 10), next = vmm_new(0, 1);

	for (unsigned int i = 0; i < 10; i++)
		get_and_put(cache, d + i * CHUNK);
	OK(barcopy_cache_invalidate(cache, d + CHUNK, 1));
	vmm_replace(d + 9 * CHUNK, 0);
	get_and_put(cache, next);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 2);
	ck_assert_uint_eq(cache_stats(cache).regions, 9);
}

/* A sweep leaves a region in use, but a get that finds its memory freed ends it. */
static void freed_in_use(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	CUdeviceptr d = vmm_new(0, 1), next = vmm_new(0, 1);
	barcopy_region_t r, other;

	OK(barcopy_cache_get(cache, d, 8, &r));
	vmm_delete(d, 1);
	get_and_put(cache, next);
	ck_assert_uint_eq(cache_stats(cache).regions, 2);
	FAILS(EINVAL, barcopy_cache_get(cache, d, 8, &other));
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
	OK(barcopy_cache_put(cache, &r));
	ck_assert_uint_eq(cache_stats(cache).regions, 1);
}

enum { NEIGHBOUR = GPU_PAGE_SIZE + 4096 };

/* Three allocations, one behind the other: each shares a page with the next one. */
static void neighbours(CUdeviceptr *d, size_t first)
{
	while ((standin_alloc(4096) + 4096) % PAGE)
		;
	d[0] = standin_alloc(first);
	ck_assert(!(d[0] % PAGE));
	for (int i = 1; i < 3; i++) {
		d[i] = standin_alloc(NEIGHBOUR);
		ck_assert_uint_eq(d[i], d[0] + first + (i - 1) * NEIGHBOUR);
	}
}

/* A hit takes no lock, whichever of a region's pages another one has in the table. */
static void hits_without_a_lock(void)
{
	static const struct {
		size_t at, size;
	} ranges[] = { { 0, NEIGHBOUR }, { 0, 8 },
		       { NEIGHBOUR - 8, 8 }, { PAGE - 8, 4096 }, { 4096, PAGE } };
	barcopy_cache_t cache = BY_NOTICE();
	CUdeviceptr d[3];
	barcopy_region_t r;
	uint64_t hits;

	neighbours(d, NEIGHBOUR);
	for (int i = 0; i < 3; i++)
		get_and_put(cache, d[unit_row ? 2 - i : i]);
	ck_assert_uint_eq(cache_stats(cache).regions, 3);
	hits = cache_stats(cache).hits;
	pthread_mutex_lock(&found(cache)->lock);
	for (unsigned int i = 0; i < 3; i++)
		for (unsigned int k = 0; k < COUNT(ranges); k++) {
			OK(barcopy_cache_get(cache, d[i] + ranges[k].at, ranges[k].size, &r));
			OK(barcopy_cache_put(cache, &r));
			hits++;
		}
	pthread_mutex_unlock(&found(cache)->lock);
	ck_assert_uint_eq(cache_stats(cache).hits, hits);
}

static barcopy_cache_t missed;
static CUdeviceptr miss_of;

static void *miss(void *unused)
{
	get_and_put(missed, miss_of);
	return unused;
}

static void miss_on_another_thread(void)
{
	pthread_t t;

	ck_assert(!pthread_create(&t, NULL, miss, NULL));
	ck_assert(!pthread_join(t, NULL));
}

/* A miss within the limits does not wait until another thread has unpinned: else this never ends. */
static void miss_during_an_unpin(void)
{
	CUdeviceptr d = vmm_new(0, 1);

	missed = BY_NOTICE();
	miss_of = vmm_new(0, 1);
	get_and_put(missed, d);
	wrap_reset();
	wrap_before("munmap", miss_on_another_thread);
	OK(barcopy_cache_invalidate(missed, d, 1));
	ck_assert_uint_eq(cache_stats(missed).misses, 2);
}

/* A region that would have no page left in the table ends. */
static void no_page_left(void)
{
	barcopy_cache_t cache = BY_NOTICE();
	CUdeviceptr d[3];

	neighbours(d, NEIGHBOUR);
	get_and_put(cache, d[1]);
	get_and_put(cache, d[2]); /* has the last page of that one */
	get_and_put(cache, d[0]); /* and this one its first page */
	ck_assert_uint_eq(cache_stats(cache).regions, 2);
	cache_table_check();
}

/* ---- at the same time ---------------------------------------------------------------------------- */

/*
 * An invalidation on another thread may have passed the pages of a miss already: the region then
 * serves the caller of the miss alone and counts as invalidated.
 */
static void pinned_during_an_invalidation(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	CUdeviceptr d = vmm_new(0, 1);
	barcopy_region_t r;

	atomic_fetch_add(&found(cache)->invalidating, 1);
	OK(barcopy_cache_get(cache, d, 8, &r));
	cache_table_check(); /* no page has it */
	OK(barcopy_cache_put(cache, &r));
	cache_table_check();
	atomic_fetch_sub(&found(cache)->invalidating, 1);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
	ck_assert_uint_eq(cache_stats(cache).regions, 0);
	ck_assert(!touch(cache, d));
	/* A hit takes no lock. */
	pthread_mutex_lock(&found(cache)->lock);
	OK(barcopy_cache_get(cache, d, 8, &r));
	OK(barcopy_cache_put(cache, &r));
	pthread_mutex_unlock(&found(cache)->lock);
	/* A doomed region that is found stale before it is released counts once. */
	vmm_delete(d, 1);
	pthread_mutex_lock(&found(cache)->lock);
	OK(barcopy_cache_invalidate(cache, d, 1));
	pthread_mutex_unlock(&found(cache)->lock);
	ck_assert(!gdri_is_inside());
	FAILS(EINVAL, barcopy_cache_get(cache, d, 8, &(barcopy_region_t){ 0 }));
	ck_assert_uint_eq(cache_stats(cache).invalidations, 2);
}

/* What is invalidated inside a call of the library, by a hook, is unpinned at the end of that. */
static void invalidated_inside_a_call(void)
{
	barcopy_cache_t cache = BY_NOTICE();
	CUdeviceptr d = vmm_new(0, 1);

	for (uint64_t i = 1; i < 3; i++) {
		get_and_put(cache, d);
		gdri_inside_enter();
		OK(barcopy_cache_invalidate(cache, d, 1));
		ck_assert_uint_eq(pinned(), 1);
		if (i == 2) { /* or by the next call on the cache */
			ck_assert_uint_eq(cache_stats(cache).regions, 0);
			ck_assert_uint_eq(cache_stats(cache).invalidations, i);
		}
		gdri_inside_leave();
		ck_assert_uint_eq(pinned(), 0);
	}
}

static barcopy_cache_t at_work;
static uint64_t next_to_it;

static void invalidate_neighbour(void)
{
	OK(barcopy_cache_invalidate(at_work, next_to_it, PAGE));
}

/*
 * An invalidation of the page before or behind what is being pinned, or is pinned, leaves that alone. One of
 * what is being pinned ends it with its user.
 */
static void pinned_next_to_its_neighbour(void)
{
	CUdeviceptr d = vmm_new(0, 1);

	at_work = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	next_to_it = unit_row == 2 ? d + CHUNK - PAGE : unit_row ? d + CHUNK : d - PAGE;
	wrap_reset();
	wrap_before("mmap", invalidate_neighbour);
	get_and_put(at_work, d);
	if (unit_row == 2) {
		ck_assert_uint_eq(cache_stats(at_work).regions, 0);
		ck_assert_uint_eq(cache_stats(at_work).invalidations, 1);
		return;
	}
	invalidate_neighbour();
	ck_assert(touch(at_work, d));
	ck_assert_uint_eq(cache_stats(at_work).invalidations, 0);
}

static int ends_in_place(void *place)
{
	gdr_t own = open_any();
	barcopy_cache_t cache = cache_with(own, BARCOPY_CACHE_NOTIFIED, 0);

	ck_assert_ptr_eq(found(cache), place);
	OK(barcopy_cache_destroy(cache)); /* which waits for all invalidations: else without end */
	OK(gdr_close(own));
	return 0;
}

/* A thread invalidates in a cache that has ended, while another one forks: the child has no such thread. */
static void forked_during_an_invalidation(void)
{
	barcopy_cache_t cache = BY_NOTICE();
	struct gdri_cache *place = found(cache);

	OK(barcopy_cache_destroy(cache));
	atomic_store(&place->invalidating, 1);
	ck_assert_int_eq(unit_in_child(ends_in_place, place), 0);
	atomic_store(&place->invalidating, 0);
}

static atomic_uint environment_reads;

/* Replaces the C library's function, the only one by which the library reads its environment. */
char *secure_getenv(const char *name)
{
	atomic_fetch_add(&environment_reads, 1);
	return getenv(name);
}

/* Another thread may call setenv(), so only the first open reads the environment. */
static void environment_is_read_by_the_open(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = BARCOPY_COPY_ENGINE_AUTO };
	barcopy_mem_t mem;
	CUdeviceptr d = vmm_new(0, 2);
	gdr_mh_t h[2];
	void *va;
	unsigned int before = atomic_load(&environment_reads);

	ck_assert_uint_gt(before, 0);
	OK(gdr_pin_buffer_v2(g, d, CHUNK, 0, &h[0]));
	OK(gdr_map(g, h[0], &va, CHUNK));
	OK(barcopy_set_copy_options(h[0], &o));
	ck_assert(same_memory(h[0], va, d));
	OK(barcopy_map_range(g, d + 100, CHUNK, 0, &va, &h[1]));
	OK(barcopy_mem_alloc(g, 0, 4096, 0, &mem));
	ck_assert(!touch(cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0), d));
	(void)stats_of(NULL);
	ck_assert_uint_eq(atomic_load(&environment_reads), before);
}

static CUdeviceptr hit_address;

static void *hit(void *cache)
{
	get_and_put(*(barcopy_cache_t *)cache, hit_address);
	return NULL;
}

/* A hit of each thread is in the sum, whichever of the counters it has. */
static void hits_of_threads(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);

	hit_address = standin_alloc(CHUNK);
	get_and_put(cache, hit_address); /* a miss */
	for (uint64_t n = 1; n <= GDRI_CACHE_SHARDS; n++) {
		ck_assert_ptr_null(unit_threads(1, hit, &cache, 0));
		ck_assert_uint_eq(gdri_cache_hits(found(cache)), n);
	}
}

#define DMABUF "GDRCOPY_BACKEND=dmabuf,host GDRSIM_DRIVER_VERSION=13030"

static const struct unit_test tests[] = {
	{ "put", put },
	{ "put by an ended one", put_by_an_ended_one },
	{ "errors", errors },
	{ "no memory for a handle", no_memory_for_a_handle, "" },
	{ "no memory for a cache", no_memory_for_a_cache, DMABUF },
	{ "default limit", default_limit, "GDRSIM_BAR1_MIB=32" },
	{ "no NVML", no_nvml,
	  "GDRSIM_FAIL=nvmlInit:*=9 GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=2" },
	{ "default number of regions", default_regions, "" },
	{ "evicted by count", evicted_by_count },
	{ "limit by bytes", limit_by_bytes },
	{ "space for plain pins", space_for_plain_pins, "GDRSIM_BAR1_MIB=24" },
	{ "several GPUs", several_gpus, "GDRSIM_BAR1_MIB=8 GDRSIM_DEVICES=2" },
	{ "host memory", host_memory, "GDRSIM_BAR1_MIB=8" },
	{ "tries while over the limit", tries_when_over, "GDRSIM_DEVICES=2" },
	{ "tries within the limit", tries_when_within, DMABUF },
	{ "tries behind a put", tries_when_put, DMABUF },
	{ "shared ranges", shared_ranges, DMABUF },
	{ "another context's caches", another_contexts_caches,
	  "GDRSIM_NODE=absent GDRSIM_MEM_MIB=128" },
	{ "no memory left", no_memory_left, "GDRSIM_MEM_MIB=128 GDRSIM_DEVICES=2" },
	{ "a pin without space", pin_without_space, "" },
	{ "joined", joined, DMABUF },
	{ "not joined", not_joined, DMABUF },
	{ "stale is not joined", stale_is_not_joined, DMABUF },
	{ "settled", settled, DMABUF },
	{ "not described", not_described, "GDRSIM_RM=absent LD_PRELOAD=$SIM/libgdrdrv_node.so" },
	{ "over a hole", over_a_hole },
	{ "an allocation that was learnt", learnt, DMABUF },
	{ "tried again", tried_again, DMABUF },
	{ "one question", one_question, "" },
	{ "most users", most_users, DMABUF },
	{ "no memory for the second node", half_entered, "", .bare = true },
	{ "a node is split", node_is_split, "", .bare = true },
	{ "parts are freed", parts_are_freed, DMABUF },
	{ "many parts are swept", many_parts_are_swept, DMABUF },
	{ "what is swept is counted", swept_are_counted, DMABUF },
	{ "a sweep goes on", sweep_goes_on, DMABUF },
	{ "freed in use", freed_in_use, DMABUF },
	{ "hits without a lock", hits_without_a_lock, DMABUF, .rows = 2 },
	{ "no page left", no_page_left, DMABUF },
	{ "a miss during an unpin", miss_during_an_unpin, DMABUF },
	{ "pinned during an invalidation", pinned_during_an_invalidation, DMABUF },
	{ "invalidated inside a call", invalidated_inside_a_call },
	{ "pinned next to an invalidation", pinned_next_to_its_neighbour, DMABUF, .rows = 3 },
	{ "hits of threads", hits_of_threads, "" },
	{ "forked during an invalidation", forked_during_an_invalidation, DMABUF },
	{ "the environment is read by the open", environment_is_read_by_the_open, "" },
};

UNIT_MAIN("barcopy_cache", tests, unit_before = start, unit_after = end)
