// SPDX-License-Identifier: MIT
/*
 * What a miss of the registration cache pins and verifies, what a sweep finds, and what is left where memory
 * or space is short.
 */
#include <pthread.h>

#include "cache_calls.h"
#include "cache_table.h"
#include "common/resources.h"
#include "common/wrap.h"

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
		{ 80, 2, 2 },
		{ 81, 2, 2 }, /* has the last page of that one */
		{ 76, 1, 1 },
		{ 76, 4, 4 }, /* 1 above would be the other page of that one */
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

/* A split item is not found behind its node, where it would hide another one. */
static void behind_a_split_node(void)
{
	uint64_t node = (uint64_t)GPU_PAGE_SIZE << GDRI_PAGES_NODE_BITS, from = 4 * node, stop;
	static gdri_pages_slot root[GDRI_PAGES_ROOT_SLOTS];
	struct gdri_pages pages = { root };
	int item[3];

	OK(gdri_pages_enter(&pages, 3 * node, 4 * node, &item[0]));
	OK(gdri_pages_enter(&pages, 4 * node - PAGE, 4 * node, &item[1]));
	gdri_pages_erase(&pages, 4 * node - PAGE, 4 * node, &item[1]);
	OK(gdri_pages_enter(&pages, 4 * node, 4 * node + PAGE, &item[2]));
	from -= PAGE;
	ck_assert_ptr_eq(gdri_pages_next(&pages, &from, 4 * node + PAGE, &stop), &item[2]);
	ck_assert_uint_eq(from, 4 * node);
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
	/* One in use stays, and those behind it are looked at. */
	cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, UINT64_MAX);
	OK(barcopy_cache_get(cache, d, 20 * CHUNK, &r));
	get_and_put(cache, next);
	vmm_replace(d + 19 * CHUNK, 0);
	vmm_replace(next, 0);
	OK(barcopy_cache_trim(cache, UINT64_MAX));
	ck_assert_uint_eq(cache_stats(cache).invalidations, 1);
	OK(barcopy_cache_put(cache, &r));
}

/* A cache with ten regions, by a miss each. */
static barcopy_cache_t ten_regions(CUdeviceptr d)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);

	for (unsigned int i = 0; i < 10; i++)
		get_and_put(cache, d + i * CHUNK);
	return cache;
}

/* A miss sweeps four regions, a trim all of them. */
static void swept_are_counted(void)
{
	CUdeviceptr d = vmm_new(0, 10), next = vmm_new(0, 1);
	barcopy_cache_t cache = ten_regions(d);

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
	CUdeviceptr d = vmm_new(0, 10), next = vmm_new(0, 1);
	barcopy_cache_t cache = ten_regions(d);

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

/* Three allocations, the first from a page's start on: each shares a page with the next one. */
static void neighbours(CUdeviceptr *d)
{
	while ((standin_alloc(4096) + 4096) % PAGE)
		;
	for (int i = 0; i < 3; i++) {
		d[i] = standin_alloc(NEIGHBOUR);
		ck_assert_uint_eq(d[i], d[0] + i * NEIGHBOUR);
	}
	ck_assert(!(d[0] % PAGE));
}

/* A hit takes no lock, whichever of a region's pages another one has in the table. */
static void hits_without_a_lock(void)
{
	static const struct {
		size_t at, size;
	} ranges[] = { { 0, NEIGHBOUR }, { 0, 8 },	       { NEIGHBOUR - 8, 8 },
		       { 4096, PAGE },	 { PAGE - 8, 4096 }, { PAGE - 1600, 4096 } };
	barcopy_cache_t cache = BY_NOTICE();
	CUdeviceptr d[3];
	barcopy_region_t r;
	uint64_t hits;

	neighbours(d);
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
	OK(barcopy_cache_invalidate(missed, miss_of, 1)); /* the other thread unpins this one too */
	return unused;
}

static void miss_on_another_thread(void)
{
	pthread_t t;

	ck_assert(!pthread_create(&t, NULL, miss, NULL));
	ck_assert(!pthread_join(t, NULL));
}

/* Nothing waits until another thread has unpinned: a miss, or an invalidation. Else this never ends. */
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
	ck_assert_uint_eq(pinned(), 0);
}

/* A region that would have no page left in the table ends. */
static void no_page_left(void)
{
	barcopy_cache_t cache = BY_NOTICE();
	barcopy_region_t r[3];
	CUdeviceptr d[3];

	neighbours(d);
	get_and_put(cache, d[1]);
	get_and_put(cache, d[2]); /* has the last page of that one */
	get_and_put(cache, d[0]); /* and this one its first page */
	ck_assert_uint_eq(cache_stats(cache).regions, 2);
	cache_table_check();
	/* A range whose last byte is another allocation's first: that one is pinned whole. */
	cache = BY_NOTICE();
	get_and_put(cache, d[2] - 7);
	ck_assert_uint_eq(cache_stats(cache).bytes_pinned, 3 * PAGE);
	cache_table_check();
	/* Also where its first page is all that the new one has: more would be beyond the limit. */
	cache = BY_NOTICE(.max_bytes = PAGE);
	OK(barcopy_cache_get(cache, d[1], NEIGHBOUR, &r[1]));
	OK(barcopy_cache_get(cache, d[2], NEIGHBOUR, &r[2]));
	OK(barcopy_cache_get(cache, d[1] - 8, 8, &r[0]));
	ck_assert_uint_eq(cache_stats(cache).bytes_pinned, 5 * PAGE);
	cache_table_check();
	for (int i = 0; i < 3; i++)
		OK(barcopy_cache_put(cache, &r[i]));
}

static const struct unit_test tests[] = {
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
	{ "behind a split node", behind_a_split_node, "", .bare = true },
	{ "parts are freed", parts_are_freed, DMABUF },
	{ "many parts are swept", many_parts_are_swept, DMABUF },
	{ "what is swept is counted", swept_are_counted, DMABUF },
	{ "a sweep goes on", sweep_goes_on, DMABUF },
	{ "freed in use", freed_in_use, DMABUF },
	{ "hits without a lock", hits_without_a_lock, DMABUF, .rows = 2 },
	{ "no page left", no_page_left, DMABUF },
	{ "a miss during an unpin", miss_during_an_unpin, DMABUF },
};

UNIT_MAIN("pins of caches", tests, unit_before = start, unit_after = end)
