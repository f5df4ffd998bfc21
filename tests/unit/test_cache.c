// SPDX-License-Identifier: MIT
/*
 * The registration cache: its errors and their texts, and calls at the same time. Random calls are in
 * tests/model, and threads in tests/explore.
 */
#include "base/inside.h"
#include "cache_calls.h"
#include "cache_table.h"
#include "common/resources.h"
#include "common/wrap.h"

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

/* By a cache that has ended: its own regions are put, with and without pages; another's is refused. */
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
	/* So is an invalidation that had found the place before. */
	ck_assert_int_eq(gdri_cache_invalidate(found(cache), (uintptr_t)ended, 0, 1), -EINVAL);
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
	FAILS_WITH(EINVAL, "0x200000000000001 is beyond any device address",
		   barcopy_cache_get(cache, ((uint64_t)1 << 57) - 1, 2, &r));
	FAILS_WITH(EINVAL, "CUDA does not know ",
		   barcopy_cache_get(cache, ((uint64_t)1 << 57) - 1, 1, &r));
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
	last = standin_alloc(256);
	ck_assert_uint_lt(last - d, GPU_PAGE_SIZE);
	touch(cache, last);
	FAILS_WITH(EINVAL, "beyond its allocation", barcopy_cache_get(cache, d, 5001, &r));
	FAILS_WITH(EINVAL, "beyond its allocation", barcopy_cache_get(cache, d, last - d, &r));
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

/* ---- copies and unpins ----------------------------------------------------------------------- */

/* A cache's thresholds of the copy engine are those of its handles. */
static void thresholds(void)
{
	CUdeviceptr d = vmm_new(0, 1);
	barcopy_region_t r;
	uint64_t bytes[16] = { 0 };

	for (int reads = 0; reads < 2; reads++) {
		barcopy_cache_t cache = reads ? new_cache(OPTIONS(.engine_read_min = 64))
					      : new_cache(OPTIONS(.engine_write_min = 64));
		uint64_t before = stats_of(NULL).engine_copies;

		OK(barcopy_cache_get(cache, d, CHUNK, &r));
		OK(gdr_copy_to_mapping(r.handle, r.cpu_ptr, bytes, 64));
		OK(gdr_copy_from_mapping(r.handle, bytes, r.cpu_ptr, 56));
		ck_assert_uint_eq(stats_of(NULL).engine_copies - before, !reads);
		OK(gdr_copy_from_mapping(r.handle, bytes, r.cpu_ptr, 64));
		ck_assert_uint_eq(stats_of(NULL).engine_copies - before, 1);
		OK(barcopy_cache_put(cache, &r));
	}
}

static barcopy_cache_t going;

static CUdeviceptr going_at;

static void goes(void)
{
	OK(barcopy_cache_invalidate(going, going_at, CHUNK));
}

/*
 * An unpin that fails is returned once by the call that ends the cache, whose end it does not stop;
 * it is logged where another call makes it.
 */
static void unpin_fails(void)
{
	for (int fails = 0; fails < 4; fails++) {
		barcopy_cache_t other = BY_NOTICE();

		going = BY_NOTICE();
		going_at = vmm_new(0, 1);
		get_and_put(going, going_at);
		wrap_reset();
		if (fails)
			wrap_fail("munmap", 1, ENOMEM);
		if (fails < 2)
			ck_assert_int_eq(!!strstr(unit_stderr_of(goes), "unpinning a shared region"),
					 fails);
		if (!fails)
			OK(barcopy_cache_destroy(going));
		else if (fails < 3)
			FAILS_WITH(ENOMEM, "munmap: ", barcopy_cache_destroy(going));
		if (fails < 3)
			FAILS(EINVAL, barcopy_cache_destroy(going));
		OK(barcopy_cache_destroy(other));
	}
	FAILS_WITH(ENOMEM, "munmap: ", gdr_close(g));
	wrap_reset();
	g = NULL;
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
	pthread_mutex_lock(&place->lock);
	pthread_mutex_lock(&place->ending);
	ck_assert_int_eq(unit_in_child(ends_in_place, place), 0);
	pthread_mutex_unlock(&place->ending);
	pthread_mutex_unlock(&place->lock);
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

static const struct unit_test tests[] = {
	{ "put", put },
	{ "put by an ended one", put_by_an_ended_one },
	{ "errors", errors },
	{ "no memory for a handle", no_memory_for_a_handle, "" },
	{ "no memory for a cache", no_memory_for_a_cache, DMABUF },
	{ "thresholds of the copy engine", thresholds },
	{ "an unpin that fails", unpin_fails,
	  DMABUF " GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=4" },
	{ "pinned during an invalidation", pinned_during_an_invalidation, DMABUF },
	{ "invalidated inside a call", invalidated_inside_a_call },
	{ "pinned next to an invalidation", pinned_next_to_its_neighbour, DMABUF, .rows = 3 },
	{ "hits of threads", hits_of_threads, "" },
	{ "forked during an invalidation", forked_during_an_invalidation, DMABUF },
	{ "the environment is read by the open", environment_is_read_by_the_open, "" },
};

UNIT_MAIN("barcopy_cache", tests, unit_before = start, unit_after = end)
