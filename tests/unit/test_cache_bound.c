// SPDX-License-Identifier: MIT
/*
 * What ranges in use keep pinned, in a cache and without one, and that an invalidation reaches all that
 * overlaps. Random calls of a cache are in tests/model.
 */

#include "cache_table.h"
#include "fixture.h"

enum { CHUNKS = 12, WHOLE_PAGES = CHUNK / PAGE };

struct rules {
	barcopy_cache_validity_t validity;
	uint64_t max_pages;
};

static unsigned long long random_state;

static unsigned int below(unsigned int n)
{
	return (unsigned int)(unit_random(&random_state) >> 20) % n;
}

static uint64_t bar_used(int device)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) };

	OK(barcopy_get_bar_info(device, &info));
	return info.used;
}

static void hit_all(barcopy_cache_t cache)
{
	cache_table_hit((struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)cache));
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

enum { SEGMENT = 64 << 20, SMALL = 48, USES = 40 };

/* Two regions in use overlap. After an invalidation of a byte in both, or from it on, none is found. */
static void overlapping(void)
{
	enum { PAGES = 512, MOST = 64 };
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, (uint64_t)PAGES * PAGE);
	CUdeviceptr d = standin_alloc((size_t)PAGES * PAGE);

	random_state = 4242;
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

	random_state = 99991 + (rules ? rules->max_pages : 0);
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

#define LARGE_BAR "GDRSIM_BAR1_MIB=4096"

static const struct unit_test tests[] = {
	{ "overlapping regions", overlapping, LARGE_BAR },
	{ "bounded ranges", bounded, LARGE_BAR },
	{ "bounded cache", bounded, LARGE_BAR, &(struct rules){ BARCOPY_CACHE_CHECK_TAG, 1 } },
	{ "bounded cache by notice", bounded, LARGE_BAR,
	  &(struct rules){ BARCOPY_CACHE_NOTIFIED, 200 } },
	{ "growing", growing, "GDRSIM_BAR1_MIB=256" },
};

UNIT_MAIN("bounds of the cache", tests, unit_before = start, unit_after = end)
