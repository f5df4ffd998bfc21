// SPDX-License-Identifier: MIT
/*
 * Several allocations in one GPU page: a range or region of one never shows another's memory, on
 * each backend, in every order of free, at the same addresses again, in two threads. How much freed
 * memory a cache holds. CUDA contexts that outlive a pin. gdr_close() during hits and puts.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"
#include "common/preload.h"
#include "fixture.h"

#define MIB ((size_t)1 << 20)

/* ---- buffers that share a page ------------------------------------------- */

enum kind { BY_RANGE, BY_TAG, BY_NOTICE, KINDS };

struct buffer {
	uint64_t addr;
	size_t size;
	bool host;
	barcopy_region_t r; /* of a range: its pointer and handle */
};

static void make(struct buffer *b, size_t size, bool host)
{
	b->size = size;
	b->host = host;
	b->addr = host ? (uintptr_t)standin_host_alloc(size, 0) : standin_alloc(size);
}

static void destroy(struct buffer *b)
{
	if (b->host)
		CU(cuda.cuMemFreeHost((void *)(uintptr_t)b->addr));
	else
		CU(cuda.cuMemFree_v2(b->addr));
}

static void take(struct buffer *b, enum kind kind, barcopy_cache_t cache)
{
	if (kind == BY_RANGE)
		OK(barcopy_map_range(g, b->addr, b->size, 0, &b->r.cpu_ptr, &b->r.handle));
	else
		OK(barcopy_cache_get(cache, b->addr, b->size, &b->r));
}

static void give(struct buffer *b, enum kind kind, barcopy_cache_t cache)
{
	if (kind == BY_RANGE)
		OK(barcopy_unmap_range(g, b->r.handle));
	else
		OK(barcopy_cache_put(cache, &b->r));
	if (kind == BY_NOTICE)
		OK(barcopy_cache_invalidate(cache, b->addr, b->size));
}

static void load_word(const struct buffer *b, size_t at, uint64_t *value)
{
	if (b->host)
		memcpy(value, (const char *)(uintptr_t)b->addr + at, 8);
	else
		CU(cuda.cuMemcpyDtoH_v2(value, b->addr + at, 8));
}

/* The first and the last word are the buffer's; the handle's SYNC_MEMOPS is the allocation's. */
static void check(const struct buffer *b, enum kind kind)
{
	static _Atomic uint64_t next = 0x1234567800000000;
	uint64_t told = 9;

	for (int i = 0; i < 2; i++) {
		size_t at = i ? b->size - 8 : 0;
		uint64_t value = ++next, seen = 0, back = 0;

		OK(gdr_copy_to_mapping(b->r.handle, (char *)b->r.cpu_ptr + at, &value, 8));
		load_word(b, at, &seen);
		ck_assert_uint_eq(seen, value);
		OK(gdr_copy_from_mapping(b->r.handle, &back, (char *)b->r.cpu_ptr + at, 8));
		ck_assert_uint_eq(back, value);
	}
	if (kind == BY_RANGE)
		FAILS(EINVAL,
		      gdr_copy_from_mapping(b->r.handle, &told, (char *)b->r.cpu_ptr + b->size, 1));
	HANDLE_HAS(g, b->r.handle, SYNC_MEMOPS, 1);
	if (!b->host)
		ck_assert_int_eq(standin_sync_memops(b->addr), 1);
}

/* NULL for ranges. */
static barcopy_cache_t cache_for(enum kind kind, uint64_t max_bytes)
{
	if (kind == BY_RANGE)
		return NULL;
	return cache_with(g, kind == BY_NOTICE ? BARCOPY_CACHE_NOTIFIED : BARCOPY_CACHE_CHECK_TAG,
			  max_bytes);
}

/* Frees the buffers in this order and allocates each again at once, at the same address. */
static void one_order(enum kind kind, size_t size, bool host, const int *order, int n)
{
	barcopy_cache_t cache = cache_for(kind, 0);
	struct buffer b[3];

	for (int i = 0; i < n; i++)
		make(&b[i], size, host);
	ck_assert_uint_eq(b[0].addr & GPU_PAGE_MASK, b[1].addr & GPU_PAGE_MASK);
	for (int i = 0; i < n; i++)
		take(&b[i], kind, cache);
	for (int i = 0; i < n; i++)
		check(&b[i], kind);
	for (int i = 0; i < n; i++) {
		struct buffer *f = &b[order[i]];
		uint64_t before = f->addr;

		give(f, kind, cache);
		destroy(f);
		make(f, size, host);
		ck_assert_uint_eq(f->addr, before);
		take(f, kind, cache);
		for (int k = 0; k < n; k++)
			check(&b[k], kind);
	}
	/* Freed for good, while the others stay in use. */
	for (int i = 0; i < n; i++) {
		give(&b[order[i]], kind, cache);
		destroy(&b[order[i]]);
		for (int k = i + 1; k < n; k++)
			check(&b[order[k]], kind);
	}
	if (cache)
		OK(barcopy_cache_destroy(cache));
}

static void all_orders(size_t size, bool host)
{
	static const int orders[][3] = { { 0, 1 },    { 1, 0 },	   { 0, 1, 2 }, { 0, 2, 1 },
					 { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };

	for (enum kind kind = 0; kind < KINDS; kind++)
		for (size_t i = 0; i < COUNT(orders); i++)
			one_order(kind, size, host, orders[i], i < 2 ? 2 : 3);
}

static void device_buffers(void)
{
	all_orders(4096, false);
	all_orders(30000, false); /* the third reaches into the next page */
	end_now();
	ck_assert_uint_eq(standin_device_bytes(0), 0);
}

static void host_buffers(void)
{
	all_orders(4096, true);
	all_orders(30000, true);
}

/* A client that rounds down pins two buffers: SYNC_MEMOPS is set on both. */
static void plain_pin_of_two(void)
{
	uint64_t a = standin_alloc(4096), b = standin_alloc(4096);
	gdr_mh_t h;

	OK(gdr_pin_buffer_v2(g, a, b + 4096 - a, 0, &h));
	HANDLE_HAS(g, h, SYNC_MEMOPS, 1);
	ck_assert_int_eq(standin_sync_memops(b), 1);
}

struct worker {
	enum kind kind;
	barcopy_cache_t cache;
	bool host;
};

static void *allocate_and_use(void *arg)
{
	const struct worker *w = arg;

	cuda.cuCtxSetCurrent(standin_primary(0));
	for (int i = 0; i < (unit_quick() ? 40 : 400); i++) {
		struct buffer b[2];

		make(&b[0], 4096, w->host);
		make(&b[1], 12000, w->host);
		take(&b[0], w->kind, w->cache);
		take(&b[1], w->kind, w->cache);
		check(&b[0], w->kind);
		check(&b[1], w->kind);
		give(&b[i & 1], w->kind, w->cache);
		destroy(&b[i & 1]);
		check(&b[!(i & 1)], w->kind);
		give(&b[!(i & 1)], w->kind, w->cache);
		destroy(&b[!(i & 1)]);
	}
	return NULL;
}

static void two_threads(void)
{
	for (enum kind kind = 0; kind < KINDS; kind++) {
		struct worker w = { kind, cache_for(kind, 0), unit_arg != NULL };

		unit_threads(2, allocate_and_use, &w, 0);
		if (w.cache)
			OK(barcopy_cache_destroy(w.cache));
	}
}

/* ---- freed memory -------------------------------------------------------- */

enum { MEMORY_MIB = 128, LIMIT_MIB = MEMORY_MIB / 4 }; /* the default limit there */

/*
 * All of it but the first GPU page: the stand-in's dma-buf of a whole allocation is a plain memfd,
 * which does not hold the memory.
 */
static void get_most(barcopy_cache_t cache, uint64_t addr, size_t size, barcopy_region_t *r)
{
	OK(barcopy_cache_get(cache, addr + GPU_PAGE_SIZE, size - GPU_PAGE_SIZE, r));
}

/* All memory but the live bytes and the limit can be allocated. */
static void check_held(size_t live)
{
	CUdeviceptr probe;
	CUresult r = cuda.cuMemAlloc_v2(&probe, (MEMORY_MIB - LIMIT_MIB) * MIB - live);

	ck_assert_msg(!r, "more than the limit is held besides %zu MiB: CUresult %d", live / MIB,
		      (int)r);
	CU(cuda.cuMemFree_v2(probe));
}

static void churn(barcopy_cache_t cache, bool moves)
{
	unsigned long long seed = 99;

	for (int i = 0; i < (unit_quick() ? 300 : 10000); i++) {
		size_t size = (1 + unit_random(&seed) % 12) * 2 * MIB;
		barcopy_region_t r;
		CUdeviceptr addr;

		/* The reservation of a chunk is kept: the next address is another one. */
		addr = moves ? standin_chunks(0, 0, 1, size, STANDIN_EXPORTABLE | STANDIN_RDMA)
			     : standin_alloc(size);
		get_most(cache, addr, size, &r);
		if (i % 16 == 0)
			check_held(size);
		OK(barcopy_cache_put(cache, &r));
		if (moves)
			CU(cuda.cuMemUnmap(addr, size));
		else
			CU(cuda.cuMemFree_v2(addr));
		if (i % 16 == 0)
			check_held(0);
	}
}

static void never_more_than_the_limit(void)
{
	barcopy_cache_t cache = cache_for(BY_TAG, 0);
	uint64_t addr;
	barcopy_region_t r;

	churn(cache, false);
	churn(cache, true);
	/* Nor an allocation that is larger than it. */
	addr = standin_alloc(96 * MIB);
	get_most(cache, addr, 96 * MIB, &r);
	OK(barcopy_cache_put(cache, &r));
	CU(cuda.cuMemFree_v2(addr));
	check_held(0);
}

static void trim(void)
{
	barcopy_cache_t cache = cache_for(BY_NOTICE, UINT64_MAX);
	barcopy_region_t held;
	uint64_t addr[6];

	for (int i = 0; i < 6; i++) {
		addr[i] = standin_alloc(2 * MIB);
		get_and_put(cache, addr[i]);
	}
	OK(barcopy_cache_get(cache, addr[5], 8, &held));
	CU(cuda.cuMemFree_v2(addr[1]));
	CU(cuda.cuMemFree_v2(addr[3]));
	ck_assert_uint_eq(cache_stats(cache).regions, 6);
	OK(barcopy_cache_trim(cache, UINT64_MAX)); /* what is freed */
	ck_assert_uint_eq(cache_stats(cache).regions, 4);
	OK(barcopy_cache_trim(cache, 4 * MIB)); /* one of three idle ones */
	ck_assert_uint_eq(cache_stats(cache).regions, 3);
	OK(barcopy_cache_trim(cache, 4 * MIB));
	ck_assert_uint_eq(cache_stats(cache).regions, 3);
	OK(barcopy_cache_trim(cache, 0));
	ck_assert_uint_eq(cache_stats(cache).regions, 1);
	OK(gdr_copy_to_mapping(held.handle, held.cpu_ptr, "x", 1));
	OK(barcopy_cache_put(cache, &held));
	/* What takes no BAR goes too. */
	get_and_put(cache, (uintptr_t)standin_host_alloc(4096, 0));
	ck_assert_uint_eq(cache_stats(cache).regions, 2);
	OK(barcopy_cache_trim(cache, 0));
	ck_assert_uint_eq(cache_stats(cache).regions, 0);
	OK(barcopy_cache_destroy(cache));
	FAILS(EINVAL, barcopy_cache_trim(cache, 0));
	FAILS(EINVAL, barcopy_cache_trim(NULL, 0));
}

/* ---- contexts; the end --------------------------------------------------- */

static void *pin_without_context(void *arg)
{
	const struct standin_vmm *v = arg;
	barcopy_cache_t cache = cache_for(BY_TAG, 0);
	barcopy_region_t r;
	gdr_mh_t h;
	void *cpu;

	for (int i = 0; i < 3; i++) {
		OK(gdr_pin_buffer_v2(g, v->ptr, v->size, 0, &h));
		OK(gdr_map(g, h, &cpu, v->size));
		OK(gdr_unpin_buffer(g, h));
		OK(barcopy_map_range(g, v->ptr, v->size, 0, &cpu, &h));
		OK(barcopy_unmap_range(g, h));
		OK(barcopy_cache_get(cache, v->ptr, v->size, &r));
		OK(barcopy_cache_put(cache, &r));
		OK(barcopy_cache_invalidate(cache, v->ptr, v->size));
	}
	return NULL;
}

/* A program with memory in a CUDA context of its own: pins do not retain the primary context. */
static void no_primary_context(void)
{
	CUdeviceptr p;
	CUcontext ctx;
	gdr_mh_t h;

	standin_load();
	CU(cuda.cuInit(0));
	CU(cuda.cuCtxCreate_v2(&ctx, 0, 0));
	CU(cuda.cuMemAlloc_v2(&p, 2 * MIB));
	g = open_any();
	OK(gdr_pin_buffer_v2(g, p, 65536, 0, &h)); /* with rm's trial */
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuda.cuDevicePrimaryCtxRelease_v2(0));
	OK(gdr_unpin_buffer(g, h));
	OK(gdr_close(g));
}

/*
 * A program with CUDA contexts of its own, and a thread without one: the library retains the
 * primary context once, and releases it with its last gdr_close().
 */
static void primary_context_once(void)
{
	struct standin_vmm v;
	CUcontext ctx;
	unsigned long before;
	gdr_t other;
	gdr_mh_t h;

	standin_load();
	CU(cuda.cuInit(0));
	CU(cuda.cuCtxCreate_v2(&ctx, 0, 0));
	g = open_any();
	other = open_any();
	standin_vmm_alloc(&v, 0, 2, 2 * MIB, true);
	OK(gdr_pin_buffer_v2(g, v.ptr, v.size, 0, &h)); /* with rm's trial */
	OK(gdr_unpin_buffer(g, h));
	before = standin_contexts();
	unit_threads(1, pin_without_context, &v, 0);
	ck_assert_uint_le(standin_contexts() - before, 1);
	OK(gdr_close(g));
	g = other;
	unit_threads(1, pin_without_context, &v, 0);
	ck_assert_uint_le(standin_contexts() - before, 1);
	OK(gdr_close(other));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuda.cuDevicePrimaryCtxRelease_v2(0));
}

static _Atomic(barcopy_cache_t) hit_cache;
static uint64_t hit_memory;
static atomic_bool stop;

static void *hit(void *arg)
{
	static _Thread_local uint64_t wrong;

	cuda.cuCtxSetCurrent(standin_primary(0));
	while (!atomic_load(&stop)) {
		barcopy_cache_t cache = atomic_load(&hit_cache);
		uint64_t offset = (uint64_t)(uintptr_t)arg * 4096;
		barcopy_region_t r;
		int err = barcopy_cache_get(cache, hit_memory + offset, 64, &r);

		wrong += err && err != EINVAL;
		if (!err)
			err = barcopy_cache_put(cache, &r);
		wrong += err && err != EINVAL;
	}
	return (void *)(uintptr_t)wrong;
}

/* gdr_close() during hits and puts: they find a live entry or none, never freed memory. */
static void close_beside_hits(void)
{
	hit_memory = standin_alloc(MIB);
	for (int i = 0; i < (unit_quick() ? 60 : 400); i++) {
		if (i)
			g = open_any();
		atomic_store(&hit_cache, cache_for(i & 1 ? BY_TAG : BY_NOTICE, 0));
		if (!i)
			unit_start(3, hit, NULL, 1);
		usleep(1000);
		OK(gdr_close(g));
	}
	atomic_store(&stop, true);
	ck_assert_ptr_null(unit_join());
	CU(cuda.cuMemFree_v2(hit_memory));
	g = NULL;
}

static barcopy_region_t last_region;
static pthread_barrier_t both;

static void *last_put(void *arg)
{
	pthread_barrier_wait(&both);
	return (void *)(intptr_t)barcopy_cache_put((barcopy_cache_t)arg, &last_region);
}

/* gdr_close() and the last put of an invalidated region: only one of them ends the handle. */
static void close_beside_last_put(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 4096 };
	uint64_t addr = standin_alloc(4 * MIB);

	pthread_barrier_init(&both, NULL, 2);
	for (int i = 0; i < 200; i++) {
		barcopy_cache_t cache;
		gdr_mh_t h[2];
		void *va;

		if (i)
			g = open_any();
		cache = cache_for(BY_NOTICE, 0);
		OK(barcopy_cache_get(cache, addr, 64, &last_region));
		OK(barcopy_cache_invalidate(cache, addr, 64));
		unit_start(1, last_put, cache, 0);
		pthread_barrier_wait(&both);
		usleep(100 + 10 * i);
		OK(gdr_close(g));
		unit_join();
		g = open_any();
		for (int k = 0; k < 2; k++) {
			OK(gdr_pin_buffer_v2(g, addr + (unsigned)k * 65536, 65536, 0, &h[k]));
			OK(gdr_map(g, h[k], &va, 65536));
		}
		ck_assert_uint_ne(h[0].h & 0xffffffff, h[1].h & 0xffffffff);
		OK(gdr_close(g));
	}
	g = NULL;
}

/*
 * A hit has found an entry, and before it adds its user, the entry becomes another cache's: here
 * the first cache's table still leads to it. That is no hit, and the other cache's entry gets no
 * user.
 */
static void entry_of_another_cache(void)
{
	struct gdri_cache *one, *other;
	barcopy_cache_t c[2];
	struct gdri_entry *e;
	uint64_t addr = standin_alloc(2 * MIB);

	for (int i = 0; i < 2; i++)
		c[i] = cache_for(BY_NOTICE, 0);
	get_and_put(c[1], addr);
	one = (struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)c[0]);
	other = (struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)c[1]);
	e = gdri_cache_hit(other, addr, 64);
	ck_assert_ptr_nonnull(e);
	OK(gdri_cache_unuse(other, e));
	OK(gdri_pages_enter(&one->pages, addr, addr + 2 * MIB, e));
	ck_assert_ptr_null(gdri_cache_hit(one, addr, 64));
	gdri_pages_erase(&one->pages, addr, addr + 2 * MIB, e);
	ck_assert_uint_eq(cache_stats(c[1]).regions, 1);
	OK(barcopy_cache_destroy(c[1])); /* not in use */
}

#define ON_DMABUF   "GDRSIM_NODE=absent GDRSIM_RM=absent GDRSIM_DRIVER_VERSION=13030"
#define ON_RM	    "GDRSIM_NODE=absent"
#define ON_NODE	    "GDRSIM_RM=absent"
#define ON_CALLBACK "GDRSIM_RM=absent GDRSIM_NODE_PERSISTENT=0"
#define SMALL	    " GDRSIM_MEM_MIB=128"

#define ON_EACH(text, fn, more)                                                   \
	{ text ", dmabuf", fn, ON_DMABUF more }, { text ", rm", fn, ON_RM more }, \
		{ text ", gdrdrv", fn, ON_NODE more },                            \
	{                                                                         \
		text ", gdrdrv with callbacks", fn, ON_CALLBACK more              \
	}

static const struct unit_test tests[] = {
	ON_EACH("buffers in one page", device_buffers, ""),
	ON_EACH("two threads", two_threads, ""),
	ON_EACH("a pin of two buffers", plain_pin_of_two, ""),
	{ "host buffers in one page", host_buffers, "" },
	{ "host buffers in one page, integrated GPU", host_buffers, "GDRSIM_INTEGRATED=1" },
	{ "host buffers, two threads", two_threads, "", "host" },
	ON_EACH("freed memory", never_more_than_the_limit, SMALL),
	ON_EACH("trim", trim, ""),
	{ "the primary context, dmabuf", primary_context_once, ON_DMABUF, .bare = true },
	{ "the primary context, rm", primary_context_once, ON_RM, .bare = true },
	{ "no primary context, rm", no_primary_context, ON_RM, .bare = true },
	{ "an entry of another cache", entry_of_another_cache, ON_DMABUF },
	{ "closed during the last put, gdrdrv", close_beside_last_put, ON_NODE },
	{ "closed during hits, dmabuf", close_beside_hits, ON_DMABUF },
	{ "closed during hits, gdrdrv", close_beside_hits, ON_NODE },
};

UNIT_MAIN("regions", tests, test_preload(argv, "libgdrdrv_node.so"), unit_before = start,
	  unit_after = end)
