// SPDX-License-Identifier: MIT
/*
 * Corner cases of the registration cache: limits reached exactly, slots that are used again,
 * regions that outlive their cache, a cache that ends during a call. test_cache.c has what a cache
 * does for its callers.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/inside.h"
#include "cache/cache.h"
#include "common/resources.h"
#include "common/wrap.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "cuda/private.h"
#include "cache_table.h"
#include "fixture.h"

static bool is_cached(barcopy_cache_t cache, uint64_t addr)
{
	uint64_t hits = cache_stats(cache).hits;

	get_and_put(cache, addr);
	return cache_stats(cache).hits == hits + 1;
}

static struct gdri_cache *found(barcopy_cache_t cache)
{
	struct gdri_cache *c = (struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)cache);

	ck_assert_ptr_nonnull(c);
	return c;
}

static uint64_t pinned(void)
{
	barcopy_stats_t s = stats_of(NULL);

	return s.pins - s.unpins;
}

/* ---- limits -------------------------------------------------------------- */

/* The default limit is a part of the free BAR. A cache in a used slot starts from zero. */
static void default_limit(void)
{
	CUdeviceptr d = vmm_new(0, 8);
	barcopy_cache_stats_t s;
	uint32_t place = 0;
	barcopy_cache_t cache;
	gdr_mh_t h;
	void *va;

	OK(gdr_pin_buffer_v2(g, d, 4 * CHUNK, 0, &h));
	OK(gdr_map(g, h, &va, 4 * CHUNK));
	for (int i = 0; i < 3; i++) {
		OK(barcopy_cache_create(g, NULL, &cache));
		s = cache_stats(cache);
		ck_assert(!s.hits && !s.misses && !s.evictions && !s.invalidations && !s.regions &&
			  !s.regions_in_use && !s.bytes_pinned && s.max_bytes == UINT64_MAX);
		for (unsigned int k = 4; k < 8; k++) {
			get_and_put(cache, d + k * CHUNK);
			ck_assert(is_cached(cache, d + k * CHUNK));
		}
		OK(barcopy_cache_invalidate(cache, d + 4 * CHUNK, 1));
		s = cache_stats(cache);
		/* 8 of 32 MiB are taken by a pin. */
		ck_assert_uint_eq(s.max_bytes, 24 / 4 * 3 << 20);
		ck_assert_uint_eq(s.misses, 4);
		ck_assert_uint_eq(s.hits, 4);
		ck_assert_uint_eq(s.invalidations, 1);
		ck_assert_uint_eq(s.regions, 3);
		ck_assert(!i || place == (uint32_t)(uintptr_t)cache);
		place = (uint32_t)(uintptr_t)cache;
		OK(barcopy_cache_destroy(cache));
	}
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

/* Idle regions make room for a pin of the same context; regions in use do not. */
static void room_for_plain_pins(void)
{
	barcopy_region_t used;
	CUdeviceptr d = vmm_new(0, 16);
	gdr_mh_t h;
	void *va;
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 14 * CHUNK);

	OK(barcopy_cache_get(cache, d, 8, &used));
	for (unsigned int k = 1; k < 10; k++)
		get_and_put(cache, d + k * CHUNK);
	/* A range that an empty BAR could not hold evicts nothing. */
	FAILS(ENOMEM, barcopy_map_range(g, d, 16 * CHUNK, 0, &va, &h));
	FAILS(ENOMEM, barcopy_cache_get(cache, d, 16 * CHUNK, &(barcopy_region_t){ 0 }));
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
	OK(gdr_pin_buffer_v2(g, d + 10 * CHUNK, 6 * CHUNK, 0, &h));
	OK(gdr_map(g, h, &va, 6 * CHUNK));
	ck_assert(same_memory(h, va, d + 10 * CHUNK));
	ck_assert_uint_gt(cache_stats(cache).evictions, 0);
	ck_assert(same_memory(used.handle, used.cpu_ptr, d));
}

static struct {
	barcopy_cache_t cache;
	barcopy_mem_t mem;
	gdr_t other;
	CUdeviceptr memory;
	atomic_bool went_on;
} beside;

static void forget_one(void)
{
	OK(barcopy_cache_invalidate(beside.cache, beside.memory, 1));
}

/* An invalidation inside a call, whose end works it off; calls on the cache; another context. */
static void *other_calls(void *arg)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };
	barcopy_cache_t cache;
	barcopy_region_t r;
	gdr_mh_t h;
	void *va;
	int rc;

	wrap_reset();
	wrap_before("munmap", forget_one);
	rc = barcopy_mem_free(g, &beside.mem) ?: barcopy_cache_create(beside.other, NULL, &cache);
	rc = rc ?: barcopy_cache_get_stats(beside.cache, &s);
	rc = rc ?: barcopy_cache_get(beside.cache, beside.memory + 3 * CHUNK, 8, &r);
	rc = rc ?: barcopy_cache_put(beside.cache, &r);
	rc = rc ?: gdr_pin_buffer_v2(beside.other, beside.memory, 12 * CHUNK, 0, &h);
	atomic_store(&beside.went_on, !rc && gdr_map(beside.other, h, &va, 12 * CHUNK) == ENOMEM);
	return arg;
}

static void in_the_unmap(void)
{
	unit_start(1, other_calls, NULL, 0);
	unit_wait_asleep();
	ck_assert_msg(atomic_load(&beside.went_on), "the other thread waits");
}

static void after_the_failed_map(void)
{
	wrap_before("munmap", in_the_unmap);
}

/* While a region is unmapped, for whichever reason, no other thread waits for that. */
static void unmapped_beside_other_calls(void)
{
	barcopy_region_t r;
	gdr_mh_t h;
	void *va;

	beside.memory = vmm_new(0, 12);
	beside.cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
	beside.other = open_any();
	OK(barcopy_mem_alloc(g, 0, 4096, 0, &beside.mem));
	for (unsigned int i = 0; i < 4; i++)
		get_and_put(beside.cache, beside.memory + i * CHUNK);
	OK(barcopy_cache_get(beside.cache, beside.memory + CHUNK, 8, &r));
	wrap_reset();
	wrap_before("munmap", unit_row ? in_the_unmap : after_the_failed_map);
	switch (unit_row) {
	case 0: /* room for a map */
		OK(gdr_pin_buffer_v2(g, beside.memory + 4 * CHUNK, 8 * CHUNK, 0, &h));
		OK(gdr_map(g, h, &va, 8 * CHUNK));
		break;
	case 1:
		OK(barcopy_cache_invalidate(beside.cache, beside.memory + 2 * CHUNK, 1));
		break;
	case 2: /* the last put */
		OK(barcopy_cache_invalidate(beside.cache, beside.memory + CHUNK, 1));
		OK(barcopy_cache_put(beside.cache, &r));
		break;
	default: /* a sweep: no call but the trim finds that the memory was freed */
		vmm_replace(beside.memory + 2 * CHUNK, 0);
		OK(barcopy_cache_trim(beside.cache, UINT64_MAX));
	}
	wrap_reset();
	ck_assert(atomic_load(&beside.went_on));
	ck_assert_ptr_null(unit_join());
	OK(gdr_close(beside.other));
}

/*
 * A range over a hole of a GPU page or more, or that CUDA does not know, fails soon, however long
 * it is, and evicts nothing.
 */
static void huge_ranges(void)
{
	static const size_t sizes[] = { 1ul << 28, 1ul << 34, 1ul << 40, 1ul << 56 };
	static char unknown[1 << 28];
	barcopy_region_t r;
	CUdeviceptr d = standin_alloc(CHUNK);
	gdr_mh_t h;
	void *cpu;
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);

	get_and_put(cache, d);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		unsigned long before = cuda_hooks.calls(NULL);
		uint64_t at = i ? d : (uintptr_t)unknown;

		FAILS(EINVAL, barcopy_map_range(g, at, sizes[i], 0, &cpu, &h));
		FAILS(EINVAL, barcopy_cache_get(cache, at, sizes[i], &r));
		ck_assert_uint_le(cuda_hooks.calls(NULL) - before, 4096);
	}
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
	ck_assert(is_cached(cache, d));
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
		/* A miss sweeps besides, one region here. */
		for (size_t k = 0; k < COUNT(names); k++)
			ck_assert_msg(cuda_hooks.calls(names[k]) - before[k] ==
					      1ul + (!i && k == 2),
				      "%s: %lu", names[k], cuda_hooks.calls(names[k]) - before[k]);
		ck_assert_int_eq(standin_sync_memops(d), 1);
	}
}

/* The flag leaves the allocation's attribute as it is; any use without the flag sets it. */
static void sync_memops_is_a_choice(void)
{
	CUdeviceptr d = standin_alloc(CHUNK), e = standin_alloc(CHUNK);
	gdr_mh_t h[2];
	void *cpu;

	get_and_put(new_cache(OPTIONS(.flags = BARCOPY_CACHE_NO_SYNC_MEMOPS)), d);
	OK(barcopy_map_range(g, d, 8, BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS, &cpu, &h[0]));
	ck_assert_int_eq(standin_sync_memops(d), 0);
	OK(barcopy_map_range(g, d, 8, 0, &cpu, &h[1]));
	ck_assert_int_eq(standin_sync_memops(d), 1);
	get_and_put(cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0), e);
	ck_assert_int_eq(standin_sync_memops(e), 1);
}

/* The users of a region share its handle, so only the cache has copy options. */
static void options_are_the_caches(void)
{
	barcopy_cache_t cache = new_cache(OPTIONS(.engine_read_min = 4096));
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_write_min = 4096 };
	static char bytes[CHUNK];
	barcopy_region_t r;

	OK(barcopy_cache_get(cache, vmm_new(0, 1), CHUNK, &r));
	FAILS_WITH(EINVAL, "of the cache", barcopy_set_copy_options(r.handle, &o));
	FAILS_WITH(EINVAL, "of the cache", barcopy_set_copy_options(r.handle, NULL));
	OK(gdr_copy_to_mapping(r.handle, r.cpu_ptr, bytes, CHUNK));
	OK(gdr_copy_from_mapping(r.handle, bytes, r.cpu_ptr, CHUNK));
	ck_assert_uint_eq(stats_of(g).engine_copies, 1);
}

/* While one GPU is beyond its limit, a miss on another looks at 32 regions for one to evict. */
static void looks_when_over(void)
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

	for (size_t i = 0; i < COUNT(rows); i++) {
		CUdeviceptr d = standin_alloc(8 * CHUNK);
		gdr_mh_t h[2];
		uint64_t pins;
		void *cpu;

		OK(barcopy_map_range(g, d, rows[i].first * PAGE, 0, &cpu, &h[0]));
		pins = pinned();
		OK(barcopy_map_range(g, d + PAGE * (rows[i].second > 1), rows[i].second * PAGE, 0,
				     &cpu, &h[1]));
		ck_assert_msg((pinned() == pins) == rows[i].shared, "row %zu", i);
		OK(barcopy_unmap_range(g, h[0]));
		OK(barcopy_unmap_range(g, h[1]));
		ck_assert_uint_eq(pinned(), 0);
	}
}

/* All pages in and beside a range but for one may have another region: by that page it is hit. */
static void hit_at_an_end(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	CUdeviceptr d = vmm_new(0, 1);
	struct gdri_entry *e;

	get_and_put(cache, d);
	e = gdri_pages_find(&found(cache)->pages, d);
	for (int i = 0; i < 5; i++)
		if (i != unit_row)
			gdri_pages_erase(&found(cache)->pages, d + i * PAGE, d + (i + 1) * PAGE, e);
	e = gdri_cache_hit(found(cache), d + PAGE, 3 * PAGE); /* else the lock would be taken */
	ck_assert_ptr_nonnull(e);
	OK(gdri_cache_unuse(found(cache), e));
}

/* What a miss pins beside others, by pages, of one allocation of 128. */
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
	};
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
	CUdeviceptr d = standin_alloc(4 * CHUNK);
	barcopy_region_t r[COUNT(steps)];
	uint64_t pages = 0;

	for (size_t i = 0; i < COUNT(steps); i++) {
		OK(barcopy_cache_get(cache, d + steps[i].first * PAGE, steps[i].pages * PAGE, &r[i]));
		ck_assert_msg(cache_stats(cache).bytes_pinned / PAGE == pages + steps[i].pinned,
			      "step %zu: %lu pages", i,
			      cache_stats(cache).bytes_pinned / PAGE - pages);
		pages = cache_stats(cache).bytes_pinned / PAGE;
		cache_table_check();
	}
	for (size_t i = 0; i < COUNT(steps); i++)
		OK(barcopy_cache_put(cache, &r[i]));
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

/* Ranges that the cache has room for do not end each other for ever. */
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

/* Host memory takes no BAR: it evicts nothing, and lack of BAR does not evict it. */
static void host_memory(void)
{
	CUdeviceptr d = vmm_new(0, 8);
	uint64_t host = (uintptr_t)standin_host_alloc(4 * CHUNK, 0);
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 2 * CHUNK);
	barcopy_region_t r;

	get_and_put(cache, d);
	get_and_put(cache, d + CHUNK);
	get_and_put(cache, host);
	for (int i = 0; i < 3; i++) /* a sweep ends before the last one */
		get_and_put(cache, (uintptr_t)standin_host_alloc(PAGE, 0));
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
	ck_assert(is_cached(cache, d) && is_cached(cache, d + CHUNK) && is_cached(cache, host));
	/* But the limit of regions does, also while regions in use exceed the other one. */
	found(cache)->options.max_regions = 1;
	OK(barcopy_cache_get(cache, d + 2 * CHUNK, 3 * CHUNK, &r));
	ck_assert_uint_eq(cache_stats(cache).regions, 1);
	OK(barcopy_cache_put(cache, &r));
	OK(barcopy_cache_destroy(cache));
	/* A BAR of four chunks. */
	cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
	get_and_put(cache, host);
	for (unsigned int i = 0; i < 8; i++)
		get_and_put(cache, d + i * CHUNK);
	ck_assert_uint_gt(cache_stats(cache).evictions, 0);
	ck_assert(is_cached(cache, host));
}

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

/* ---- the table of pages -------------------------------------------------- */

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
	OK(gdri_pages_enter(&pages, start, end, &item[1]));
	ck_assert_ptr_eq(gdri_pages_find(&pages, start), &item[1]);
	ck_assert_ptr_eq(gdri_pages_find(&pages, end - 1), &item[1]);
	ck_assert_ptr_null(gdri_pages_find(&pages, end));
}

/* An item that fills a node keeps the pages that no later one takes. */
static void node_is_split(void)
{
	uint64_t node = (uint64_t)GPU_PAGE_SIZE << GDRI_PAGES_NODE_BITS, start = 7 * node;
	static gdri_pages_slot root[GDRI_PAGES_ROOT_SLOTS];
	struct gdri_pages pages = { root };
	int item[2];

	OK(gdri_pages_enter(&pages, start, start + node, &item[0]));
	OK(gdri_pages_enter(&pages, start + PAGE, start + 2 * PAGE, &item[1]));
	for (uint64_t at = start; at < start + node; at += PAGE)
		ck_assert_ptr_eq(gdri_pages_find(&pages, at), &item[at == start + PAGE]);
	ck_assert_ptr_null(gdri_pages_find(&pages, start - 1));
	ck_assert_ptr_null(gdri_pages_find(&pages, start + node));
}

/*
 * One byte of the page at the border of two regions forgets both, whichever has it in the table, and
 * no others. (Cost was the reason that an invalidation looked further: 129 us beside large windows.)
 */
static void neighbours_are_forgotten(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
	CUdeviceptr d = standin_alloc(17 * CHUNK);
	barcopy_region_t low, high;

	for (int i = 0; i < 4; i++) {
		OK(barcopy_cache_trim(cache, 0));
		if (i & 1)
			OK(barcopy_cache_get(cache, d + 8 * CHUNK - 100, CHUNK, &high));
		OK(barcopy_cache_get(cache, d + 7 * CHUNK, CHUNK - 100, &low));
		if (!(i & 1))
			OK(barcopy_cache_get(cache, d + 8 * CHUNK - 100, CHUNK, &high));
		get_and_put(cache, d + 2 * CHUNK);
		ck_assert_uint_eq(cache_stats(cache).regions, 3);
		cache_table_check();
		OK(barcopy_cache_invalidate(cache, d + 8 * CHUNK - (i & 2 ? PAGE : 1), 1));
		OK(barcopy_cache_put(cache, &low));
		OK(barcopy_cache_put(cache, &high));
		ck_assert_uint_eq(cache_stats(cache).regions, 1);
		ck_assert(is_cached(cache, d + 2 * CHUNK));
	}
	/* A pin that fails changes nothing. */
	get_and_put(cache, d);
	FAILS(EINVAL, barcopy_cache_get(cache, d + 100, 40 * CHUNK, &low));
	ck_assert(is_cached(cache, d) && is_cached(cache, d + 2 * CHUNK));
}

/* ---- freed memory -------------------------------------------------------- */

/*
 * An invalidation on another thread may have passed the pages of a miss already: the region then
 * serves the caller of the miss alone and counts as invalidated.
 */
static void pinned_beside_an_invalidation(void)
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
	ck_assert(!is_cached(cache, d) && is_cached(cache, d));
	/* A doomed region that is found stale before it is released counts once. */
	vmm_delete(d, 1);
	pthread_mutex_lock(&found(cache)->lock);
	OK(barcopy_cache_invalidate(cache, d, 1));
	pthread_mutex_unlock(&found(cache)->lock);
	FAILS(EINVAL, barcopy_cache_get(cache, d, 8, &(barcopy_region_t){ 0 }));
	ck_assert_uint_eq(cache_stats(cache).invalidations, 2);
}

static barcopy_cache_t at_work;
static uint64_t beside_it;

static void invalidate_beside(void)
{
	OK(barcopy_cache_invalidate(at_work, beside_it, PAGE));
}

/* An invalidation of the page before or behind what is being pinned leaves that alone. */
static void pinned_beside_its_neighbour(void)
{
	CUdeviceptr d = vmm_new(0, 1);

	at_work = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	beside_it = unit_row ? d + CHUNK : d - PAGE;
	wrap_reset();
	wrap_before("mmap", invalidate_beside);
	get_and_put(at_work, d);
	ck_assert(is_cached(at_work, d));
	ck_assert_uint_eq(cache_stats(at_work).invalidations, 0);
}

static CUdeviceptr swapped;

static void swap(void)
{
	vmm_delete(swapped, 1);
	ck_assert_uint_eq(vmm_new(swapped, 1), swapped);
}

/* Memory that is freed and allocated again during the pin: the region shows the new memory. */
static void reallocated_during_the_pin(void)
{
	barcopy_cache_t cache;
	barcopy_region_t r;

	start();
	cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	swapped = vmm_new(0, 1);
	wrap_reset();
	wrap_before("mmap", swap);
	OK(barcopy_cache_get(cache, swapped, CHUNK, &r));
	wrap_reset();
	ck_assert(same_memory(r.handle, r.cpu_ptr, swapped));
	OK(barcopy_cache_put(cache, &r));
	ck_assert(is_cached(cache, swapped));
}

/* A sweep verifies 16 parts a miss, and goes on there: a later part that was freed is found. */
static void many_parts_are_swept(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, UINT64_MAX);
	CUdeviceptr d = vmm_new(0, 20);
	barcopy_region_t r;

	OK(barcopy_cache_get(cache, d, 20 * CHUNK, &r));
	OK(barcopy_cache_put(cache, &r));
	vmm_replace(d + 19 * CHUNK, 0);
	get_and_put(cache, vmm_new(0, 1));
	ck_assert_uint_eq(cache_stats(cache).invalidations, 0);
	get_and_put(cache, vmm_new(0, 1));
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
}

/* A hit by notice over two allocations makes no call of CUDA, nor where it was not pinned for that. */
static void two_allocations_are_hit(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);

	for (unsigned int i = 0; i < 2; i++) { /* pinned whole; too long for that */
		CUdeviceptr middle = standin_chunks(0, 0, 2, (i + 1) * CHUNK, STANDIN_EXPORTABLE) +
				     (i + 1) * CHUNK;
		unsigned long before;
		barcopy_region_t r;

		OK(barcopy_cache_get(cache, middle - 8, 16, &r));
		OK(barcopy_cache_put(cache, &r));
		before = cuda_hooks.calls(NULL);
		OK(barcopy_cache_get(cache, middle - 100, 200, &r));
		OK(barcopy_cache_put(cache, &r));
		ck_assert_uint_eq(cuda_hooks.calls(NULL), before);
		ck_assert_uint_eq(cache_stats(cache).hits, i + 1);
	}
}

/* A get that fails keeps no entry; one whose pages the table has no memory for is its caller's alone. */
static void nothing_is_kept(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
	CUdeviceptr d = standin_alloc(CHUNK), far;
	barcopy_region_t r;
	uint32_t count;

	get_and_put(cache, d);
	count = gdri_entries.count;
	for (int i = 0; i < 3 * GDRI_SLOTS_PER_CHUNK; i++)
		FAILS(EINVAL, barcopy_cache_get(cache, d + 100, 2 * CHUNK, &r));
	ck_assert_uint_eq(gdri_entries.count, count);
	far = standin_alloc(80 * CHUNK) + 79 * CHUNK; /* no page near it is in the table */
	wrap_reset();
	wrap_fail("calloc", 1, ENOMEM);
	OK(barcopy_cache_get(cache, far, 8, &r));
	ck_assert_str_eq(wrap_failed(), "calloc");
	wrap_reset();
	cache_table_check();
	ck_assert(!is_cached(cache, far) && is_cached(cache, far));
	OK(barcopy_cache_put(cache, &r));
	cache_table_check();
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

/* What a region has noted and learnt of its allocations is freed with it. */
static void parts_are_freed(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	CUdeviceptr a = standin_alloc(256), b = standin_alloc(256);
	size_t used = 0;

	for (int i = 0; i < 20; i++) {
		get_and_put(cache, a);
		get_and_put(cache, b);
		OK(barcopy_cache_trim(cache, 0));
		if (i == 9)
			used = resources_heap();
	}
	ck_assert_uint_lt(resources_heap(), used + 1000);
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

/* Memory that the GPU does not have: nothing that is idle and exists makes room for it. */
static void no_memory_left(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	CUdeviceptr d = vmm_new(0, 4), freed = vmm_new(0, 1);
	barcopy_mem_t mem;

	for (unsigned int i = 0; i < 4; i++)
		get_and_put(cache, d + i * CHUNK);
	get_and_put(cache, freed);
	vmm_delete(freed, 1);
	for (int i = 0; i < 2; i++)
		FAILS(ENOMEM,
		      barcopy_mem_alloc(g, 0, 122 << 20, i ? BARCOPY_MEM_SHAREABLE : 0, &mem));
	ck_assert_uint_eq(cache_stats(cache).regions, 4);
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
}

/*
 * Each miss verifies a few regions and remembers the next one. Where that one has ended and its
 * slot belongs to another cache, the next miss must not take it for a region of this cache.
 */
static void next_to_verify_has_ended(void)
{
	CUdeviceptr d, other_memory;
	barcopy_cache_t cache, other;

	d = vmm_new(0, 8);
	cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	other = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	for (unsigned int i = 0; i < 6; i++) /* the sixth miss has verified four */
		get_and_put(cache, d + i * CHUNK);
	OK(barcopy_cache_invalidate(cache, d + 4 * CHUNK, CHUNK));
	other_memory = vmm_new(0, 1);
	get_and_put(other, other_memory);
	vmm_delete(other_memory, 1);
	get_and_put(cache, d + 6 * CHUNK);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
	ck_assert_uint_eq(cache_stats(cache).regions, 6);
	ck_assert_uint_eq(cache_stats(other).regions, 1);
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
	ck_assert(!is_cached(cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0), d));
	(void)stats_of(NULL);
	ck_assert_uint_eq(atomic_load(&environment_reads), before);
}

/* ---- locks and failures -------------------------------------------------- */

static struct {
	barcopy_cache_t cache;
	CUdeviceptr memory;
	barcopy_region_t r;
	gdr_mh_t h;
	atomic_bool went_on;
} waits;

/* One call for each row, which must wait for a lock that the test holds. */
static void *calls_that_wait(void *arg)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };
	barcopy_copy_options_t o = { .struct_size = sizeof(o) };
	struct gdri_entry *e;
	barcopy_region_t r;
	gdr_info_t info;
	int rc = 0;

	switch (unit_row) {
	case 0:
		rc = barcopy_cache_trim(waits.cache, 0);
		break;
	case 1:
		rc = barcopy_cache_get_stats(waits.cache, &s);
		break;
	case 2:
		rc = barcopy_cache_get(waits.cache, waits.memory + CHUNK, 8, &r);
		break;
	case 3: /* the last put of a region that was invalidated */
		rc = barcopy_cache_put(waits.cache, &waits.r);
		break;
	case 4:
		rc = barcopy_cache_put(waits.cache, &waits.r) ?: barcopy_cache_destroy(waits.cache);
		break;
	case 5:
		rc = gdr_close(g);
		g = NULL;
		break;
	case 6:
		e = gdri_cache_cover(found(waits.cache), waits.memory, 8);
		rc = e ? gdri_cache_unuse(e->cache, e) : 1;
		break;
	case 7:
		rc = gdr_get_info(g, waits.h, &info);
		break;
	case 8:
		rc = barcopy_set_copy_options(waits.h, &o);
		break;
	default:
		rc = gdr_unpin_buffer(g, waits.h);
	}
	atomic_store(&waits.went_on, true);
	return rc ? &waits : arg;
}

static void locks_are_taken(void)
{
	struct gdri_handle *handle;
	pthread_mutex_t *lock;
	struct gdri_entry *e;
	uint32_t state;

	waits.memory = vmm_new(0, 3);
	waits.cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	OK(barcopy_cache_get(waits.cache, waits.memory, 8, &waits.r));
	OK(gdr_pin_buffer_v2(g, waits.memory + 2 * CHUNK, CHUNK, 0, &waits.h));
	OK(gdri_handle_lock(NULL, waits.h, &handle));
	pthread_mutex_unlock(&handle->lock);
	if (unit_row == 3)
		OK(barcopy_cache_invalidate(waits.cache, waits.memory, 1));
	e = (struct gdri_entry *)gdri_slots_find(&gdri_entries, waits.r.entry);
	state = atomic_load(&e->state);
	lock = unit_row > 6 ? &handle->lock : &found(waits.cache)->lock;
	pthread_mutex_lock(lock);
	unit_start(1, calls_that_wait, NULL, 0);
	unit_wait_asleep();
	ck_assert_msg(!atomic_load(&waits.went_on), "the call took no lock");
	if (unit_row == 6)
		ck_assert_msg(atomic_load(&e->state) == state, "the call took the lock too late");
	pthread_mutex_unlock(lock);
	ck_assert_ptr_null(unit_join());
	/* Nor did it keep one. */
	ck_assert_int_eq(pthread_mutex_trylock(lock), 0);
	pthread_mutex_unlock(lock);
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
	ck_assert(is_cached(cache, other) && is_cached(cache, small));
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
	get_and_put(cache, a);
	for (int i = 0; i < 3; i++) /* by the middle, the first and the last byte */
		wrap_fail("malloc", 1, ENOMEM);
	OK(barcopy_cache_get(cache, b, 256, &r));
	ck_assert_str_eq(wrap_failed(), "malloc");
	wrap_reset();
	ck_assert(same_memory(r.handle, r.cpu_ptr, b));
	ck_assert_uint_eq(cache_stats(cache).misses, 2);
}

/* An allocation that a region has learnt is hit to its last byte, and no further. */
static void learnt(void)
{
	CUdeviceptr a = standin_alloc(256), b = standin_alloc(256);
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	struct gdri_cache *c = found(cache);
	struct gdri_entry *e;

	get_and_put(cache, a);
	ck_assert_ptr_null(gdri_cache_hit(c, b, 256));
	get_and_put(cache, b);
	e = gdri_cache_hit(c, b, 256);
	ck_assert_ptr_nonnull(e);
	OK(gdri_cache_unuse(c, e));
	ck_assert_ptr_null(gdri_cache_hit(c, b, 257));
	ck_assert_ptr_null(gdri_cache_hit(c, b + 255, 2));
	ck_assert_uint_eq(cache_stats(cache).misses, 1);
}

/* A stale region in use, here of host memory, is found to be stale and counted so. */
static void stale_host_memory(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	void *host = standin_host_alloc(PAGE, 0);
	barcopy_region_t r;

	OK(barcopy_cache_get(cache, (uintptr_t)host, 8, &r));
	CU(cuda.cuMemFreeHost(host));
	ck_assert_ptr_eq(standin_host_alloc(PAGE, 0), host);
	get_and_put(cache, (uintptr_t)host);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
	ck_assert(is_cached(cache, (uintptr_t)host));
	OK(barcopy_cache_put(cache, &r));
	CU(cuda.cuMemFreeHost(host));
	FAILS(EINVAL, barcopy_cache_get(cache, (uintptr_t)host, 8, &(barcopy_region_t){ 0 }));
	ck_assert_uint_eq(cache_stats(cache).regions, 0);
	ck_assert_uint_eq(cache_stats(cache).invalidations, 2);
}

/* ---- the end ------------------------------------------------------------- */

/*
 * A put races with gdr_close() and comes when its region is closed and the slot of its cache
 * belongs to another: it closes nothing twice and leaves the other cache's regions alone.
 */
static void put_after_the_end(void)
{
	barcopy_region_t r, next;
	struct gdri_entry *e;
	CUdeviceptr d = vmm_new(0, 2);
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	struct gdri_cache *place = found(cache);

	get_and_put(cache, d);
	e = gdri_cache_hit(place, d, 8);
	ck_assert_ptr_nonnull(e);
	OK(gdr_close(g));
	ck_assert_uint_eq(pinned(), 0);
	g = open_any();
	cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	ck_assert_ptr_eq(found(cache), place);
	OK(barcopy_cache_get(cache, d + CHUNK, 8, &r));
	OK(barcopy_cache_invalidate(cache, d + CHUNK, 8));
	ck_assert_uint_eq(cache_stats(cache).regions_in_use, 1);
	OK(gdri_cache_unuse(place, e));
	ck_assert_uint_eq(pinned(), 1);
	ck_assert_uint_eq(cache_stats(cache).regions_in_use, 1);
	OK(barcopy_cache_put(cache, &r));
	ck_assert_uint_eq(cache_stats(cache).regions_in_use, 0);
	ck_assert_uint_eq(pinned(), 0);
	/* The entry's slot is used again too. */
	OK(barcopy_cache_get(cache, d, 8, &r));
	OK(barcopy_cache_get(cache, d + CHUNK, 8, &next));
	ck_assert_uint_eq(pinned(), 2);
	OK(barcopy_cache_invalidate(cache, d, 2 * CHUNK));
	OK(barcopy_cache_put(cache, &r));
	OK(barcopy_cache_put(cache, &next));
	ck_assert_uint_eq(pinned(), 0);
}

/*
 * A context's shared ranges end with it: the next context in its slot makes its own. A region in
 * use ends with it too, and the put that then fails frees its entry.
 */
static void ranges_of_the_next_context(void)
{
	for (int i = 0; i < 3 + GDRI_SLOTS_PER_CHUNK; i++) {
		CUdeviceptr d = vmm_new(0, 1);
		barcopy_region_t r;
		barcopy_cache_t cache[3];
		gdr_mh_t h;
		void *cpu;

		/* One of them takes the slot of the former context's ranges. */
		for (int k = 0; k < 3; k++)
			cache[k] = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
		OK(barcopy_map_range(g, d + 100, 8, 0, &cpu, &h));
		ck_assert(same_memory(h, cpu, d + 100));
		for (int k = 0; k < 3; k++) {
			ck_assert_uint_eq(cache_stats(cache[k]).misses, 0);
			ck_assert_uint_eq(cache_stats(cache[k]).regions, 0);
			if (k)
				OK(barcopy_cache_destroy(cache[k]));
		}
		if (i % 2) { /* else the context's end does it */
			OK(barcopy_unmap_range(g, h));
			ck_assert_uint_eq(pinned(), 0);
		}
		OK(barcopy_cache_get(*cache, d, 8, &r));
		vmm_delete(d, 1);
		OK(gdr_close(g));
		FAILS(EINVAL, barcopy_cache_put(*cache, &r));
		g = open_any();
	}
	ck_assert_uint_eq(gdri_ranges.count, GDRI_SLOTS_PER_CHUNK);
	ck_assert_uint_eq(gdri_entries.count, GDRI_SLOTS_PER_CHUNK);
}

static barcopy_cache_t trimmed;
static CUdeviceptr trimmed_range;
static void *trims(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)barcopy_cache_trim(trimmed, 0);
}

/* A region that an invalidation inside the library has doomed is released once, behind its put. */
static void put_of_a_doomed_region(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	CUdeviceptr d = standin_alloc(CHUNK), other = standin_alloc(CHUNK);
	barcopy_region_t a, b;
	barcopy_cache_stats_t s;

	OK(barcopy_cache_get(cache, d, 8, &a));
	gdri_inside_enter();
	OK(barcopy_cache_invalidate(cache, d, 1));
	OK(barcopy_cache_put(cache, &a));
	gdri_inside_leave();
	s = cache_stats(cache);
	ck_assert(!s.regions && s.invalidations == 1);
	OK(barcopy_cache_get(cache, d, 8, &a));
	OK(barcopy_cache_get(cache, other, 8, &b));
	ck_assert_uint_ne((uint32_t)a.entry, (uint32_t)b.entry);
	OK(barcopy_cache_invalidate(cache, d, 1));
	s = cache_stats(cache);
	ck_assert(s.regions == 2 && s.regions_in_use == 2);
	OK(barcopy_cache_put(cache, &a));
	OK(barcopy_cache_put(cache, &b));
	ck_assert_uint_eq(cache_stats(cache).regions, 1);
}

/* A call that has found its cache waits for the context; by then the cache has ended. */
static void ended_meanwhile(void)
{
	struct gdri_cache *cache;

	trimmed = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	cache = found(trimmed);
	pthread_mutex_lock(&cache->ctx->lock);
	unit_start(1, trims, NULL, 0);
	unit_wait_asleep();
	gdri_slot_retire(&cache->slot);
	pthread_mutex_unlock(&cache->ctx->lock);
	ck_assert_int_eq((int)(intptr_t)unit_join(), EINVAL);
	FAILS(-EINVAL, gdri_cache_invalidate(cache, (uintptr_t)trimmed, 0, 1));
	(void)gdri_slot_publish(&cache->slot);
	end_now(); /* no other call holds the context */
}

static __typeof__(gdri_cu.cuPointerGetAttribute) ask;

static CUresult ends_the_cache(void *data, CUpointer_attribute attribute, CUdeviceptr at)
{
	gdri_cu.cuPointerGetAttribute = ask;
	gdri_slot_retire(&found(trimmed)->slot);
	return ask(data, attribute, at);
}

/* A hit in a cache that ends meanwhile, as beside gdr_close(), is none, and leaves no use. */
static void ended_in_a_hit(void)
{
	CUdeviceptr d = standin_alloc(CHUNK);
	struct gdri_cache *cache;
	barcopy_region_t r;

	trimmed = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	cache = found(trimmed);
	get_and_put(trimmed, d);
	ask = gdri_cu.cuPointerGetAttribute;
	gdri_cu.cuPointerGetAttribute = ends_the_cache;
	FAILS(EINVAL, barcopy_cache_get(trimmed, d, 8, &r));
	ck_assert(gdri_cu.cuPointerGetAttribute == ask);
	(void)gdri_slot_publish(&cache->slot);
	trimmed = (barcopy_cache_t)(uintptr_t)gdri_slot_name(&cache->slot);
	ck_assert_uint_eq(cache_stats(trimmed).regions_in_use, 0);
	ck_assert_uint_eq(cache_stats(trimmed).hits, 0);
}

static atomic_int ended_beside;

static void *ends_or_trims(void *arg)
{
	(void)arg;
	OK(unit_row ? barcopy_cache_trim(trimmed, 0) : barcopy_cache_destroy(trimmed));
	atomic_store(&ended_beside, 1);
	return NULL;
}

static void another_ends(void)
{
	unit_start(1, ends_or_trims, NULL, 0);
	unit_wait_asleep();
	ck_assert_msg(!atomic_load(&ended_beside), "a region is pinned, and the call has ended");
}

/* A cache ends, or a trim, when the region that another call unmaps is unmapped. */
static void destroyed_beside_an_unmap(void)
{
	trimmed = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	get_and_put(trimmed, vmm_new(0, 1));
	wrap_reset();
	wrap_before("munmap", another_ends);
	OK(barcopy_cache_trim(trimmed, 0));
	unit_join();
	ck_assert_int_eq(ended_beside, 1);
}

static atomic_uint unmaps;
static atomic_bool refused;

static void counts_unmap(void)
{
	atomic_fetch_add(&unmaps, 1);
}

static void *evicts(void *arg)
{
	CUdeviceptr d = trimmed_range + (uintptr_t)arg * 2 * CHUNK;

	cuda.cuCtxSetCurrent(standin_primary(0));
	for (unsigned int i = 0; !atomic_load(&refused); i++) {
		wrap_reset();
		wrap_before("munmap", counts_unmap);
		get_and_put(trimmed, d + i % 2 * CHUNK);
	}
	return NULL;
}

/*
 * A call that finds no room ends, though others evict and fill without end (barcopy_mem_alloc()
 * counted an attempt twice and missed its bound); and it takes the room of another cache's idle
 * regions.
 */
static void room_beside_evictions(void)
{
	enum { MAP_ENDS, TAKES_IDLE, ALLOC_ENDS };
	CUdeviceptr d = vmm_new(0, 20);
	barcopy_cache_t idle;
	barcopy_mem_t mem;
	gdr_mh_t h[2];
	void *va;
	int rc;

	trimmed = cache_with(g, BARCOPY_CACHE_NOTIFIED, PAGE);
	idle = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	trimmed_range = vmm_new(0, 4);
	for (unsigned int i = 0; i < 2; i++)
		OK(gdr_pin_buffer_v2(g, d + i * 10 * CHUNK, 10 * CHUNK, 0, &h[i]));
	if (unit_row != TAKES_IDLE)
		OK(gdr_map(g, h[0], &va, 10 * CHUNK));
	for (unsigned int i = 0; unit_row == TAKES_IDLE && i < 6; i++)
		get_and_put(idle, d + i * CHUNK);
	unit_start(2, evicts, NULL, 1);
	while (atomic_load(&unmaps) < 8)
		usleep(10);
	rc = unit_row == ALLOC_ENDS ? barcopy_mem_alloc(g, 0, 10 * CHUNK, 0, &mem)
				    : gdr_map(g, h[1], &va, 10 * CHUNK);
	atomic_store(&refused, true);
	unit_join();
	ck_assert_int_eq(rc, unit_row == TAKES_IDLE ? 0 : ENOMEM);
	ck_assert_int_eq(!!cache_stats(idle).evictions, unit_row == TAKES_IDLE);
}

/* A region in use is beyond the limit, and fills BAR1: its parts share it, also a long one. */
static void parts_beyond_the_limit(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 8 * CHUNK);
	CUdeviceptr d = standin_alloc(20 * CHUNK);
	barcopy_region_t whole, part[20];
	uint64_t pins;

	OK(barcopy_cache_get(cache, d, 12 * CHUNK, &whole));
	pins = pinned();
	OK(barcopy_cache_get(cache, d + PAGE, 4 * CHUNK, &part[0]));
	for (unsigned int i = 1; i < COUNT(part); i++)
		OK(barcopy_cache_get(cache, d + i * CHUNK / 2, 4096, &part[i]));
	ck_assert_uint_eq(pinned(), pins);
	ck_assert_uint_eq(cache_stats(cache).misses, 1);
	OK(barcopy_cache_put(cache, &whole));
	for (unsigned int i = 0; i < COUNT(part); i++)
		OK(barcopy_cache_put(cache, &part[i]));
	ck_assert_uint_eq(cache_stats(cache).bytes_pinned, 0);
}

/* A short range gets a pin of its own within a longer one; without space it shares that one's. */
static void a_range_without_space(void)
{
	CUdeviceptr d = standin_alloc(20 * CHUNK);
	void *all, *cpu;
	gdr_mh_t h[3];

	OK(barcopy_map_range(g, d, 12 * CHUNK - PAGE, 0, &all, &h[0]));
	OK(barcopy_map_range(g, d + CHUNK, 4096, 0, &cpu, &h[1]));
	ck_assert_ptr_ne(cpu, (char *)all + CHUNK);
	OK(barcopy_map_range(g, d + CHUNK, 5 * CHUNK, 0, &cpu, &h[2]));
	ck_assert_ptr_eq(cpu, (char *)all + CHUNK);
	FAILS(ENOMEM, barcopy_map_range(g, d + 11 * CHUNK, 5 * CHUNK, 0, &cpu, &h[1]));
	/* It keeps what it shares. */
	OK(barcopy_unmap_range(g, h[0]));
	ck_assert(same_memory(h[2], (char *)all + CHUNK, d + CHUNK));
	OK(barcopy_unmap_range(g, h[2]));
	OK(barcopy_map_range(g, d + 11 * CHUNK, 5 * CHUNK, 0, &cpu, &h[1]));
}

static pthread_barrier_t together;
static atomic_uint turns; /* of a loop, before the trim */

static void *trims_all_along(void *arg)
{
	cuda.cuCtxSetCurrent(standin_primary(0));
	while (pthread_barrier_wait(&together), !atomic_load(&refused)) {
		for (atomic_uint i = 0; i < atomic_load(&turns); i++)
			;
		OK(barcopy_cache_trim(trimmed, 0));
		pthread_barrier_wait(&together);
	}
	return arg;
}

/*
 * Idle regions fill BAR1, and a map finds space, whenever another thread trims: what that thread has
 * taken out and not unpinned yet is space too. (One map of 25 was ENOMEM.)
 */
static void room_beside_a_trim(void)
{
	CUdeviceptr d = vmm_new(0, 5);
	unsigned long long random = 7;
	gdr_mh_t h;
	void *va;

	trimmed = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
	pthread_barrier_init(&together, NULL, 2);
	unit_start(1, trims_all_along, NULL, 0);
	for (int i = 0; i < (unit_quick() ? 500 : 10000); i++) {
		for (int k = 0; k < 4; k++)
			get_and_put(trimmed, d + (unsigned int)k * CHUNK);
		OK(gdr_pin_buffer_v2(g, d + 4 * CHUNK, CHUNK, 0, &h));
		atomic_store(&turns, unit_random(&random) % 5000);
		pthread_barrier_wait(&together);
		OK(gdr_map(g, h, &va, CHUNK));
		pthread_barrier_wait(&together);
		OK(gdr_unpin_buffer(g, h));
	}
	atomic_store(&refused, true);
	pthread_barrier_wait(&together);
	unit_join();
}

static void *maps(void *arg)
{
	gdr_mh_t h;
	void *va;

	cuda.cuCtxSetCurrent(standin_primary(0));
	OK(gdr_pin_buffer_v2(g, trimmed_range, 8 * CHUNK, 0, &h));
	OK(gdr_map(g, h, &va, 8 * CHUNK));
	return arg;
}

/* Inside the holder's pin: another thread's map is short, and waits for the lock. */
static void map_waits(void)
{
	struct gdri_cache *cache = found(trimmed);

	if (!pthread_mutex_trylock(&cache->lock)) { /* not the pin yet */
		pthread_mutex_unlock(&cache->lock);
		wrap_before("ioctl", map_waits);
		return;
	}
	unit_start(1, maps, NULL, 0);
	unit_wait_asleep();
}

/* What the holder of the lock evicts meanwhile is room for a call that waits for the lock. */
static void room_of_a_holder(void)
{
	CUdeviceptr d = vmm_new(0, 10);
	barcopy_region_t r;

	trimmed_range = vmm_new(0, 8);
	trimmed = cache_with(g, BARCOPY_CACHE_NOTIFIED, 10 * CHUNK);
	OK(barcopy_cache_get(trimmed, d, 10 * CHUNK, &r));
	OK(barcopy_cache_put(trimmed, &r));
	wrap_reset();
	wrap_before("ioctl", map_waits);
	OK(barcopy_cache_get(trimmed, vmm_new(0, 1), 8, &r));
	unit_join();
}

/*
 * A map finds BAR1 full, and a cache of its context that ends while the map waits for its lock. The
 * next cache there is another context's and keeps its region: the map takes the room of the others.
 */
static void room_of_the_own_context(void)
{
	CUdeviceptr d = vmm_new(0, 16);
	barcopy_cache_t cache[2];
	struct gdri_cache *next;
	barcopy_region_t r;
	gdr_t own;

	trimmed_range = vmm_new(0, 8);
	for (unsigned int i = 0; i < 2; i++) {
		cache[i] = cache_with(g, BARCOPY_CACHE_NOTIFIED, UINT64_MAX);
		OK(barcopy_cache_get(cache[i], d + i * 8 * CHUNK, 8 * CHUNK, &r));
		OK(barcopy_cache_put(cache[i], &r));
	}
	next = found(cache[0]);
	pthread_mutex_lock(&next->lock);
	unit_start(1, maps, NULL, 0);
	unit_wait_asleep();
	own = atomic_exchange(&next->g, NULL);
	pthread_mutex_unlock(&next->lock);
	unit_join();
	atomic_store(&next->g, own);
	ck_assert_uint_eq(cache_stats(cache[0]).evictions, 0);
	ck_assert_uint_eq(cache_stats(cache[1]).evictions, 1);
}

static void *forgets(void *arg)
{
	(void)arg;
	gdri_cache_forget(found(trimmed), trimmed_range, trimmed_range + CHUNK);
	atomic_store(&ended_beside, 1);
	return NULL;
}

static void another_forgets(void)
{
	unit_start(1, forgets, NULL, 0);
	unit_wait_asleep();
	ck_assert_msg(!atomic_load(&ended_beside), "forgotten while another thread unpins it");
}

/* What is forgotten is unpinned, by whichever thread, also one that a trim has taken out before. */
static void forgotten_is_unpinned(void)
{
	trimmed = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	trimmed_range = vmm_new(0, 1);
	get_and_put(trimmed, unit_row ? trimmed_range : vmm_new(0, 1));
	if (!unit_row)
		get_and_put(trimmed, trimmed_range);
	wrap_reset();
	wrap_before("munmap", another_forgets);
	OK(barcopy_cache_trim(trimmed, unit_row ? 0 : CHUNK));
	unit_join();
	ck_assert_uint_eq(pinned(), 0);
}

static void *fills(void *arg)
{
	cuda.cuCtxSetCurrent(standin_primary(0));
	for (unsigned int i = 2; i < 20; i++)
		get_and_put(trimmed, trimmed_range + i * CHUNK);
	return arg;
}

static void another_fills(void)
{
	unit_start(1, fills, NULL, 0);
	unit_wait_asleep();
	ck_assert_uint_le(pinned(), 4);
}

/*
 * While a thread unpins a region, others get no further: beyond the limit there is at most what they
 * evict in one call each. (With 8 MiB, and 1 ms for an unmap, 176 were seen.)
 */
static void evictions_wait_for_the_unpin(void)
{
	trimmed = new_cache(OPTIONS(.validity = BARCOPY_CACHE_NOTIFIED,
				    .max_bytes = unit_row ? UINT64_MAX : 2 * CHUNK,
				    .max_regions = unit_row ? 2 : 0));
	trimmed_range = vmm_new(0, 20);
	get_and_put(trimmed, trimmed_range);
	get_and_put(trimmed, trimmed_range + CHUNK);
	wrap_reset();
	wrap_before("munmap", another_fills);
	OK(barcopy_cache_invalidate(trimmed, trimmed_range, 1));
	unit_join();
	ck_assert_uint_eq(pinned(), 2);
}

static struct gdri_cache *found_before;
static atomic_bool context_held;

static void *holds_the_context(void *arg)
{
	struct gdri_cache *cache = arg;
	struct gdri_ctx *ctx = cache->ctx;

	pthread_mutex_lock(&ctx->lock);
	atomic_store(&context_held, true);
	unit_wait_asleep(); /* the thread that ends the cache */
	arg = LIST_FIRST(&ctx->caches) == cache ? NULL : arg;
	pthread_mutex_unlock(&ctx->lock);
	return arg;
}

static void context_is_held(void)
{
	unit_start(1, holds_the_context, found_before, 0);
	while (!atomic_load(&context_held))
		sched_yield();
}

/* A cache leaves its context's list under the context's lock. */
static void unlisted_under_the_lock(void)
{
	trimmed = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	found_before = found(trimmed);
	get_and_put(trimmed, vmm_new(0, 1));
	wrap_reset();
	wrap_before("munmap", context_is_held);
	OK(barcopy_cache_destroy(trimmed));
	ck_assert_ptr_null(unit_join());
}

#define DMABUF "GDRCOPY_BACKEND=dmabuf,host GDRSIM_DRIVER_VERSION=13030"

static const struct unit_test tests[] = {
	{ "default limit", default_limit, "GDRSIM_BAR1_MIB=32" },
	{ "default number of regions", default_regions, "" },
	{ "room for plain pins", room_for_plain_pins, "GDRSIM_BAR1_MIB=24" },
	{ "unmapped beside other calls", unmapped_beside_other_calls,
	  "GDRSIM_BAR1_MIB=24 GDRSIM_BAR1_REUSE=0", .rows = 4 },
	{ "huge ranges", huge_ranges, "" },
	{ "one question", one_question, "" },
	{ "SYNC_MEMOPS is a choice", sync_memops_is_a_choice, "" },
	{ "copy options are the cache's", options_are_the_caches, "" },
	{ "looks while over the limit", looks_when_over, "GDRSIM_DEVICES=2" },
	{ "a hit at an end", hit_at_an_end, DMABUF, .rows = 5 },
	{ "shared ranges", shared_ranges, DMABUF },
	{ "joined", joined, DMABUF },
	{ "not joined", not_joined, DMABUF },
	{ "stale is not joined", stale_is_not_joined, DMABUF },
	{ "settled", settled, DMABUF },
	{ "host memory", host_memory, "GDRSIM_BAR1_MIB=8" },
	{ "most users", most_users, DMABUF },
	{ "no memory for the second node", half_entered, "", .bare = true },
	{ "a node is split", node_is_split, "", .bare = true },
	{ "neighbours are forgotten", neighbours_are_forgotten, DMABUF },
	{ "reallocated during the pin", reallocated_during_the_pin, DMABUF },
	{ "pinned beside an invalidation", pinned_beside_an_invalidation, DMABUF },
	{ "pinned beside its neighbour's", pinned_beside_its_neighbour, DMABUF, .rows = 2 },
	{ "many parts are swept", many_parts_are_swept, DMABUF },
	{ "two allocations are hit", two_allocations_are_hit, DMABUF },
	{ "nothing is kept", nothing_is_kept, DMABUF },
	{ "tried again", tried_again, DMABUF },
	{ "parts are freed", parts_are_freed, DMABUF },
	{ "what is swept is counted", swept_are_counted, DMABUF },
	{ "another context's caches", another_contexts_caches,
	  "GDRSIM_NODE=absent GDRSIM_MEM_MIB=128" },
	{ "no memory left", no_memory_left, "GDRSIM_MEM_MIB=128" },
	{ "the next region to verify has ended", next_to_verify_has_ended, DMABUF },
	{ "the environment is read by the open", environment_is_read_by_the_open, "" },
	{ "locks are taken", locks_are_taken, DMABUF, .rows = 10 },
	{ "no memory for a handle", no_memory_for_a_handle, "" },
	{ "no memory for a cache", no_memory_for_a_cache, "" },
	{ "an allocation that was learnt", learnt, DMABUF },
	{ "stale host memory", stale_host_memory, "" },
	{ "a put after the end", put_after_the_end, DMABUF },
	{ "a put of a doomed region", put_of_a_doomed_region, DMABUF },
	{ "ranges of the next context", ranges_of_the_next_context, DMABUF },
	{ "ended meanwhile", ended_meanwhile, DMABUF },
	{ "ended in a hit", ended_in_a_hit, DMABUF },
	{ "unlisted under the lock", unlisted_under_the_lock, DMABUF },
	{ "destroyed beside an unmap", destroyed_beside_an_unmap, DMABUF, .rows = 2 },
	{ "room beside evictions", room_beside_evictions, "GDRSIM_BAR1_MIB=32", .rows = 3 },
	{ "parts beyond the limit", parts_beyond_the_limit, "GDRSIM_BAR1_MIB=24" },
	{ "a range without space", a_range_without_space, "GDRSIM_BAR1_MIB=28" },
	{ "room beside a trim", room_beside_a_trim, "GDRSIM_BAR1_MIB=8" },
	{ "room of the lock's holder", room_of_a_holder, "GDRSIM_BAR1_MIB=32" },
	{ "room of the own context", room_of_the_own_context, "GDRSIM_BAR1_MIB=32" },
	{ "evictions wait for the unpin", evictions_wait_for_the_unpin, DMABUF, .rows = 2 },
	{ "forgotten is unpinned", forgotten_is_unpinned, DMABUF, .rows = 2 },
};

UNIT_MAIN("registration cache: edges", tests, unit_before = start, unit_after = end)
