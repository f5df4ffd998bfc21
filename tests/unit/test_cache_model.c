// SPDX-License-Identifier: MIT
/*
 * The registration cache under random calls. After each call its invariants hold: the right memory,
 * no hit after an invalidation, the limits of each GPU, the use of BAR1, descriptors. And what
 * ranges in use keep pinned.
 */

#include "common/preload.h"
#include "common/resources.h"
#include "common/wrap.h"
#include "cache_table.h"
#include "fixture.h"

enum { GPUS = 2, SEGMENT_PAGES = 96, CHUNKS = 12, HELD = 12, WHOLE_PAGES = CHUNK / PAGE };

/* Memory of a GPU: a segment too large to be pinned whole, or chunks that come and go. */
struct memory {
	CUdeviceptr base;
	unsigned int pages;
	int device;
	bool forgotten[SEGMENT_PAGES > CHUNKS *WHOLE_PAGES ? SEGMENT_PAGES : CHUNKS *WHOLE_PAGES];
};

struct held {
	struct memory *memory;
	unsigned int first, pages;
	barcopy_region_t real;
	uint64_t region_bytes;
};

struct rules {
	barcopy_cache_validity_t validity;
	uint64_t max_pages; /* of a GPU; 0: none */
	uint64_t max_regions;
};

static struct {
	barcopy_cache_t cache;
	const struct rules *rules;
	struct memory memory[2 * GPUS];
	struct held held[HELD];
	unsigned int count;
	uint64_t gets, bar_before[GPUS];
	unsigned long long random;
	unsigned int gpus;
} w;

static unsigned int below(unsigned int n)
{
	return (unsigned int)(unit_random(&w.random) >> 20) % n;
}

static uint64_t bar_used(int device)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) };

	OK(barcopy_get_bar_info(device, &info));
	return info.used;
}

/* A later get may hit in any page of the region. */
static void remember(struct held *h)
{
	struct memory *m = h->memory;
	gdr_info_t info;

	OK(gdr_get_info(g, h->real.handle, &info));
	h->region_bytes = info.mapped_size;
	for (uint64_t at = info.va; at < info.va + info.mapped_size; at += PAGE)
		if (at - m->base < m->pages * PAGE)
			m->forgotten[(at - m->base) / PAGE] = false;
}

/* The bytes of the regions in use, each counted once. */
static uint64_t bytes_in_use(void)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < w.count; i++) {
		unsigned int first = 0;

		while (w.held[first].real.handle.h != w.held[i].real.handle.h)
			first++;
		sum += first == i ? w.held[i].region_bytes : 0;
	}
	return sum;
}

static bool is_forgotten(const struct memory *m, unsigned int first, unsigned int pages)
{
	for (unsigned int p = first; p < first + pages; p++)
		if (!m->forgotten[p])
			return false;
	return true;
}

static struct memory *any_range(unsigned int *first, unsigned int *pages)
{
	struct memory *m = &w.memory[below(2 * w.gpus)];

	*first = below(m->pages);
	*pages = 1 + below(below(4) ? 3 : 20);
	if (*pages > m->pages - *first)
		*pages = m->pages - *first;
	return m;
}

static void hit_all(barcopy_cache_t cache)
{
	cache_table_hit((struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)cache));
}

static void check(void)
{
	barcopy_cache_stats_t s = cache_stats(w.cache);
	uint64_t used = 0;

	ck_assert_uint_eq(s.hits + s.misses, w.gets);
	ck_assert_uint_le(s.regions_in_use, w.count);
	for (unsigned int d = 0; d < w.gpus; d++) {
		uint64_t here = bar_used((int)d) - w.bar_before[d];

		used += here;
		/* Only regions in use may exceed the limit. */
		if (w.rules->max_pages && !w.count)
			ck_assert_uint_le(here, w.rules->max_pages * PAGE);
	}
	/* The stand-in's dma-bufs take no BAR. */
	if (used && standin_bar1_counts())
		ck_assert_uint_eq(s.bytes_pinned, used);
	if (w.rules->max_regions && !w.count)
		ck_assert_uint_le(s.regions, w.rules->max_regions);
	if (!below(50))
		hit_all(w.cache);
	if (below(50))
		return;
	/* Nothing but the regions in use is left, and the table is whole. */
	OK(barcopy_cache_trim(w.cache, 0));
	ck_assert_uint_eq(cache_stats(w.cache).bytes_pinned, bytes_in_use());
	cache_table_check();
}

static void get(void)
{
	struct held *h = &w.held[w.count];
	uint64_t misses = cache_stats(w.cache).misses, low, high;
	int rc;

	h->memory = any_range(&h->first, &h->pages);
	low = h->memory->base + (uint64_t)h->first * PAGE + below(500) * 8;
	high = h->memory->base + (uint64_t)(h->first + h->pages) * PAGE - below(500) * 8;
	CU(cuda.cuCtxSetCurrent(standin_primary(h->memory->device)));
	rc = barcopy_cache_get(w.cache, low, high - low, &h->real);
	w.gets++;
	if (rc) {
		cache_table_check();
		/* Idle regions always make room. */
		ck_assert_msg(rc == ENOMEM && w.count, "errno %d: %s", rc, barcopy_last_error());
		w.gets = cache_stats(w.cache).hits + cache_stats(w.cache).misses;
		return;
	}
	w.count++;
	ck_assert_uint_eq(h->real.device_ptr, low);
	if (is_forgotten(h->memory, h->first, h->pages))
		ck_assert_uint_gt(cache_stats(w.cache).misses, misses);
	remember(h);
	if (!below(4))
		ck_assert(same_memory(h->real.handle, (char *)h->real.cpu_ptr + (high - low - 8),
				      high - 8));
}

/* Calls that are refused for their arguments, and those that reach beyond all memory. */
static void refused(barcopy_cache_t cache, uint64_t addr)
{
	size_t size = ((size_t)1 << (28 + below(36))) + below(2);
	barcopy_region_t r;
	void *cpu;
	gdr_mh_t h;
	int rc;

	if (cache)
		rc = barcopy_cache_get(cache, addr, below(9) ? size : 0, &r);
	else
		rc = barcopy_map_range(g, addr, below(9) ? size : 0, 0, &cpu, &h);
	ck_assert_msg(rc == EINVAL || rc == EOVERFLOW, "0x%zx: errno %d: %s", size, rc,
		      barcopy_last_error());
	cache_table_check();
}

static void put(unsigned int i)
{
	OK(barcopy_cache_put(w.cache, &w.held[i].real));
	w.held[i] = w.held[--w.count];
}

static void invalidate(struct memory *m, unsigned int first, unsigned int pages)
{
	OK(barcopy_cache_invalidate(w.cache, m->base + (uint64_t)first * PAGE + below(PAGE),
				    (uint64_t)(pages - 1) * PAGE + 1));
	for (unsigned int p = first; p < first + pages; p++)
		m->forgotten[p] = true;
}

static void invalidate_any(void)
{
	unsigned int first, pages;
	struct memory *m = any_range(&first, &pages);

	invalidate(m, first, pages);
}

/* New memory at the address of a chunk that is not in use: a get before it and one after it. */
static void reallocate(void)
{
	struct memory *m = &w.memory[2 * below(w.gpus) + 1];
	unsigned int chunk = below(CHUNKS);
	CUdeviceptr at = m->base + (uint64_t)chunk * CHUNK;
	struct held h = { .memory = m };
	uint64_t misses;

	for (unsigned int i = 0; i < w.count; i++)
		if (w.held[i].memory == m && w.held[i].first / WHOLE_PAGES <= chunk &&
		    (w.held[i].first + w.held[i].pages - 1) / WHOLE_PAGES >= chunk)
			return;
	CU(cuda.cuCtxSetCurrent(standin_primary(m->device)));
	if (!barcopy_cache_get(w.cache, at, 8, &h.real))
		OK(barcopy_cache_put(w.cache, &h.real));
	if (w.rules->validity == BARCOPY_CACHE_NOTIFIED)
		OK(barcopy_cache_invalidate(w.cache, at, CHUNK));
	vmm_replace(at, m->device);
	for (unsigned int p = 0; p < WHOLE_PAGES; p++)
		m->forgotten[chunk * WHOLE_PAGES + p] = true;
	misses = cache_stats(w.cache).misses;
	if (!barcopy_cache_get(w.cache, at, 8, &h.real)) { /* else regions in use take all space */
		ck_assert_uint_gt(cache_stats(w.cache).misses, misses);
		ck_assert(same_memory(h.real.handle, h.real.cpu_ptr, at));
		remember(&h);
		OK(barcopy_cache_put(w.cache, &h.real));
	}
	w.gets = cache_stats(w.cache).hits + cache_stats(w.cache).misses;
}

static void one_operation(void)
{
	unsigned int x = below(100);

	/* An invalidation in the middle of a library call. */
	if (!below(10))
		wrap_before(below(2) ? "munmap" : "mmap", invalidate_any);
	if (w.count == HELD || (w.count && x < 45))
		put(below(w.count));
	else if (x < 90)
		get();
	else if (x < 95)
		reallocate();
	else if (x < 99)
		invalidate_any();
	else
		OK(barcopy_cache_trim(w.cache, below(2) ? 0 : (uint64_t)below(100) * PAGE));
	if (!below(20)) {
		refused(w.cache, w.memory[below(2 * w.gpus)].base + below(CHUNK));
		w.gets = cache_stats(w.cache).hits + cache_stats(w.cache).misses;
	}
	wrap_reset();
	check();
}

static void play(void)
{
	const struct rules *rules = unit_arg;
	int fds;

	w.rules = rules;
	w.random = 0x9e3779b97f4a7c15 + rules->max_pages;
	w.gpus = getenv("GDRSIM_DEVICES") ? GPUS : 1;
	for (unsigned int d = 0; d < w.gpus; d++) {
		struct memory *m = &w.memory[2 * d];

		CU(cuda.cuCtxSetCurrent(standin_primary((int)d)));
		m[0] = (struct memory){ .base = standin_alloc(SEGMENT_PAGES * PAGE),
					.pages = SEGMENT_PAGES,
					.device = (int)d };
		m[1] = (struct memory){ .base = standin_chunks(0, (int)d, CHUNKS, CHUNK,
							       STANDIN_EXPORTABLE),
					.pages = CHUNKS * WHOLE_PAGES,
					.device = (int)d };
		w.bar_before[d] = bar_used((int)d);
	}
	w.cache = new_cache(
		OPTIONS(.validity = rules->validity, .max_regions = rules->max_regions,
			.max_bytes = rules->max_pages ? rules->max_pages * PAGE : UINT64_MAX));
	for (int i = 0; i < 40 && w.count < 8; i++)
		get();
	while (w.count)
		put(0);
	/* Without the regions of freed memory, which the stand-in's descriptors keep. */
	OK(barcopy_cache_trim(w.cache, UINT64_MAX));
	fds = resources_fds();
	for (int i = 0; i < (unit_quick() ? 600 : 20000); i++)
		one_operation();
	/* Regions keep no descriptors, however many they are. */
	OK(barcopy_cache_trim(w.cache, UINT64_MAX));
	ck_assert_int_le(resources_fds(), fds);
	while (w.count)
		put(0);
	check();
	OK(barcopy_cache_destroy(w.cache));
	for (unsigned int d = 0; d < w.gpus; d++)
		ck_assert_uint_eq(bar_used((int)d), w.bar_before[d]);
}

/* ---- the bound ----------------------------------------------------------- */

enum { SEGMENT = 64 << 20, SMALL = 48, USES = 40 };

/* Two regions in use overlap. After an invalidation of a byte in both, or from it on, none is found. */
static void overlapping(void)
{
	enum { PAGES = 512, MOST = 64 };
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, (uint64_t)PAGES * PAGE);
	CUdeviceptr d = standin_alloc((size_t)PAGES * PAGE);

	w.random = 4242;
	for (int i = 0; i < (unit_quick() ? 400 : 3000); i++) {
		unsigned int at[2], pages[2] = { 1 + below(MOST), 1 + below(MOST) }, last, both;
		barcopy_region_t r[2], again;
		uint64_t misses;

		at[0] = below(PAGES - 2 * MOST);
		at[1] = at[0] + below(pages[0]);
		last = at[0] + pages[0] < at[1] + pages[1] ? at[0] + pages[0] : at[1] + pages[1];
		both = at[1] + below(last - at[1]);
		OK(barcopy_cache_trim(cache, 0));
		for (unsigned int k = 0, first = below(2); k < 2; k++)
			OK(barcopy_cache_get(cache, d + (uint64_t)at[k ^ first] * PAGE,
					     (size_t)pages[k ^ first] * PAGE, &r[k ^ first]));
		OK(barcopy_cache_invalidate(cache, d + (uint64_t)both * PAGE + below(PAGE),
					    below(4) ? 1 : UINT64_MAX));
		for (int k = 0; k < 2; k++)
			OK(barcopy_cache_put(cache, &r[k]));
		ck_assert_uint_eq(cache_stats(cache).regions, 0);
		misses = cache_stats(cache).misses;
		OK(barcopy_cache_get(cache, d + (uint64_t)at[i & 1] * PAGE,
				     (size_t)pages[i & 1] * PAGE, &again));
		OK(barcopy_cache_put(cache, &again));
		ck_assert_uint_eq(cache_stats(cache).misses, misses + 1);
	}
	OK(barcopy_cache_destroy(cache));
}

/* Each range longer than the last: at most four times the longest is pinned, with linear work. */
static void growing(void)
{
	uint64_t before, segment = standin_alloc(SEGMENT);
	gdr_mh_t h[500];
	void *cpu;

	OK(barcopy_map_range(g, segment, 1, 0, &cpu, &h[0]));
	before = bar_used(0);
	for (unsigned int i = 1; i < COUNT(h); i++)
		OK(barcopy_map_range(g, segment + 100, (size_t)i * 100000, 0, &cpu, &h[i]));
	ck_assert_uint_le(bar_used(0) - before, 4ull * COUNT(h) * 100000);
	ck_assert_uint_le(stats_of(g).pins, 20);
	/* The same for a window that slides. */
	for (unsigned int i = 1; i < COUNT(h); i++)
		OK(barcopy_unmap_range(g, h[i]));
	for (unsigned int i = 1; i < COUNT(h); i++)
		OK(barcopy_map_range(g, segment + i * 100000, 5000000, 0, &cpu, &h[i]));
	ck_assert_uint_le(bar_used(0) - before, 4ull * (COUNT(h) * 100000 + 5000000));
}

/* A segment, chunks side by side, and small allocations that share pages. */
static struct {
	CUdeviceptr segment, chunks, small[SMALL];
	size_t sizes[SMALL];
} b;

static void any_bytes(uint64_t *low, uint64_t *high)
{
	static const unsigned int lengths[] = { 300, 5000, 150000, 400000, 2000000, 20000000 };
	size_t within = CHUNKS * CHUNK, size = 1 + below(lengths[below(COUNT(lengths))]);
	unsigned int i = below(3 * SMALL);
	uint64_t base = b.chunks;

	if (i < SMALL) {
		base = b.small[i];
		within = b.sizes[i];
	} else if (i < 2 * SMALL) {
		base = b.segment;
		within = i % 2 ? SEGMENT : 24 * PAGE;
	}
	size = size < within ? size : within;
	*low = base + below((unsigned int)(within - size) + 1);
	*high = *low + size;
	/* Often at the boundary of a page. */
	if (!below(3) && (*low & GPU_PAGE_MASK) >= base)
		*low &= GPU_PAGE_MASK;
}

static uint64_t pages_of(uint64_t low, uint64_t high)
{
	return ((high - 1) >> GPU_PAGE_SHIFT) - (low >> GPU_PAGE_SHIFT) + 1;
}

/* The pages of the allocation around addr, if it is one that is pinned whole; and its base. */
static uint64_t whole_pages(uint64_t addr, uint64_t *base)
{
	*base = b.chunks + (addr - b.chunks) / CHUNK * CHUNK;
	if (addr - b.chunks < CHUNKS * CHUNK)
		return pages_of(*base, *base + CHUNK);
	for (int i = 0; i < SMALL; i++) {
		*base = b.small[i];
		if (addr - *base < b.sizes[i])
			return pages_of(*base, *base + b.sizes[i]);
	}
	return 0;
}

static uint64_t larger(uint64_t x, uint64_t y)
{
	return x > y ? x : y;
}

/*
 * What a range in use may keep pinned: 2 MiB, or twice what it touches. In a cache of that limit:
 * what it touches and small allocations at its ends, or half of the limit.
 */
static uint64_t most_pages(uint64_t low, uint64_t high, const struct rules *rules)
{
	uint64_t base[2], pages = pages_of(low, high), first = whole_pages(low, &base[0]),
			  last = whole_pages(high - 1, &base[1]);

	if (!rules)
		return larger(WHOLE_PAGES, 2 * pages);
	return larger(rules->max_pages / 2, pages + first + (base[0] == base[1] ? 0 : last));
}

/*
 * After each call the ranges in use keep no more than that, and a cache its limit besides. In a cache
 * a range also keeps the region of a longer one in which it lies.
 */
static void bounded(void)
{
	const struct rules *rules = unit_arg;
	barcopy_cache_t cache =
		rules ? cache_with(g, rules->validity, rules->max_pages * PAGE) : NULL;
	struct {
		uint64_t most; /* pages that it may keep */
		barcopy_region_t r; /* of a range: its pointer and handle */
	} use[USES], *u;
	uint64_t longest = 0; /* most_pages() of any range so far */
	unsigned int count = 0;
	uint64_t before, most = rules ? rules->max_pages : 0;

	w.random = 99991 + (rules ? rules->max_pages : 0);
	b.segment = standin_alloc(SEGMENT);
	b.chunks = standin_chunks(0, 0, CHUNKS, CHUNK, STANDIN_EXPORTABLE);
	for (int i = 0; i < SMALL; i++) {
		b.sizes[i] = 1 + below(i % 2 ? 3000 : 300000);
		b.small[i] = standin_alloc(b.sizes[i]);
	}
	before = bar_used(0);
	for (int i = 0; i < (unit_quick() ? 3000 : 60000); i++) {
		uint64_t low, high;

		u = &use[count];
		any_bytes(&low, &high);
		if (!below(20))
			refused(cache, low);
		if (cache && i % 20 == 0)
			hit_all(cache);
		if (cache && !below(20)) {
			OK(barcopy_cache_invalidate(cache, low, high - low));
		} else if (count < (i / 50 % 4 ? 3 : USES) && below(100) < 65) {
			/* Many at a time, and then few, which the others must not have kept pinned. */
			OK(cache ? barcopy_cache_get(cache, low, high - low, &u->r)
				 : barcopy_map_range(g, low, high - low, 0, &u->r.cpu_ptr,
						     &u->r.handle));
			u->most = most_pages(low, high, rules);
			longest = larger(u->most, longest);
			u->most = cache ? longest : u->most;
			most += u->most;
			count++;
		} else if (count) {
			u = &use[below(count)];
			OK(cache ? barcopy_cache_put(cache, &u->r)
				 : barcopy_unmap_range(g, u->r.handle));
			most -= u->most;
			*u = use[--count];
		}
		ck_assert_msg(bar_used(0) - before <= most * PAGE,
			      "step %d, %u in use: %lu pages, not %lu", i, count,
			      (bar_used(0) - before) / PAGE, most);
	}
	while (count--)
		OK(cache ? barcopy_cache_put(cache, &use[count].r)
			 : barcopy_unmap_range(g, use[count].r.handle));
	ck_assert_uint_le(bar_used(0) - before, (rules ? rules->max_pages : 0) * PAGE);
	if (cache)
		OK(barcopy_cache_destroy(cache));
	ck_assert_uint_eq(bar_used(0), before);
}

#define ON_DMABUF "GDRSIM_NODE=absent GDRSIM_RM=absent GDRSIM_DRIVER_VERSION=13030 "
#define ON_RM	  "GDRSIM_NODE=absent "
#define ON_NODE	  "GDRSIM_RM=absent "

static const struct rules by_tag = { BARCOPY_CACHE_CHECK_TAG, 0, 0 },
			  by_notice = { BARCOPY_CACHE_NOTIFIED, 0, 0 };

static const struct unit_test tests[] = {
	{ "by tag, dmabuf", play, ON_DMABUF, &by_tag },
	{ "by notice, rm", play, ON_RM, &by_notice },
	{ "by tag, two GPUs", play, ON_RM "GDRSIM_DEVICES=2", &by_tag },
	{ "bytes of each GPU", play, ON_RM "GDRSIM_DEVICES=2",
	  &(struct rules){ BARCOPY_CACHE_CHECK_TAG, 150, 0 } },
	{ "count", play, ON_DMABUF "GDRSIM_DEVICES=2",
	  &(struct rules){ BARCOPY_CACHE_NOTIFIED, 0, 7 } },
	{ "a small BAR", play, ON_RM "GDRSIM_BAR1_MIB=16", &by_notice },
	{ "overlapping regions", overlapping, ON_RM "GDRSIM_BAR1_MIB=4096" },
	{ "bounded ranges", bounded, ON_RM "GDRSIM_BAR1_MIB=4096" },
	{ "bounded cache", bounded, ON_RM "GDRSIM_BAR1_MIB=4096",
	  &(struct rules){ BARCOPY_CACHE_CHECK_TAG, 1, 0 } },
	{ "bounded cache by notice", bounded, ON_RM "GDRSIM_BAR1_MIB=4096",
	  &(struct rules){ BARCOPY_CACHE_NOTIFIED, 200, 0 } },
	{ "growing", growing, ON_RM "GDRSIM_BAR1_MIB=256" },
};

UNIT_MAIN("invariants of the cache", tests, test_preload(argv, "libgdrdrv_node.so"),
	  unit_before = start, unit_after = end)
