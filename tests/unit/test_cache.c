// SPDX-License-Identifier: MIT
/*
 * The registration cache: what is shared, kept, evicted and invalidated; never stale; never
 * unmapped in use. The random test against a model is test_cache_model.c.
 */
#include "fixture.h"

static bool is_same(const barcopy_region_t *r)
{
	return same_memory(r->handle, r->cpu_ptr, r->device_ptr);
}

/* Gets a region, which must show the memory; true: it was a hit. */
static bool take(barcopy_cache_t cache, uint64_t addr, size_t size, barcopy_region_t *r)
{
	uint64_t hits = cache_stats(cache).hits;

	OK(barcopy_cache_get(cache, addr, size, r));
	ck_assert_uint_eq(r->device_ptr, addr);
	ck_assert_uint_eq(r->size, size);
	ck_assert(is_same(r));
	return cache_stats(cache).hits != hits;
}

static bool touch(barcopy_cache_t cache, uint64_t addr)
{
	barcopy_region_t r;
	bool hit = take(cache, addr, 8, &r);

	OK(barcopy_cache_put(cache, &r));
	return hit;
}

#define BY_TAG	  OPTIONS(.validity = BARCOPY_CACHE_CHECK_TAG)
#define BY_NOTICE OPTIONS(.validity = BARCOPY_CACHE_NOTIFIED)

/* ---- scripts ------------------------------------------------------------- */

/*
 * A script: calls on one cache, and what each must do. Addresses count from the start of the
 * script's memory, which is several chunks side by side. NOW() compares every count: those that it
 * does not name are 0, hits and misses are those of the script's own calls.
 */
struct step {
	enum { END, TOUCH, TAKE, GIVE, SAME, SHARED, REFUSED, INVALID, COUNTS } op;
	int line, mine, other; /* line: of the source; mine, other: in held[] */
	int answer; /* an errno; for TOUCH and TAKE 1 is a hit */
	uint64_t at, size; /* TOUCH: a number of chunks, one after the other */
	barcopy_cache_stats_t now;
};
enum { A, B, C, D, E, HELD };

#define STEPS (const struct step[])
#define STEP(what, ...)                                   \
	{                                                 \
		.op = what, .line = __LINE__, __VA_ARGS__ \
	}
#define MISSES(from, chunks) STEP(TOUCH, .at = from, .size = chunks)
#define HITS(from, chunks)   STEP(TOUCH, .at = from, .size = chunks, .answer = 1)
#define MISS(from)	     MISSES(from, 1)
#define HIT(from)	     HITS(from, 1)
#define TAKE(who, hit, from, bytes) \
	STEP(TAKE, .mine = who, .answer = hit, .at = from, .size = bytes)
#define GIVE(who)		  STEP(GIVE, .mine = who)
#define SAME(who)		  STEP(SAME, .mine = who)
#define SHARE(who, with)	  STEP(SHARED, .mine = who, .other = with)
#define REFUSED(err, from, bytes) STEP(REFUSED, .answer = err, .at = from, .size = bytes)
#define INVALIDATE(from, bytes)	  STEP(INVALID, .at = from, .size = bytes)
#define NOW(...)		  STEP(COUNTS, .now = { __VA_ARGS__ })

#define AT_LINE(condition, what) ck_assert_msg(condition, "line %d: %s", s->line, what)

static void counts_are(const struct step *s, barcopy_cache_stats_t is, uint64_t misses,
		       uint64_t hits)
{
	const uint64_t pairs[][2] = {
		{ is.hits, hits },
		{ is.misses, misses },
		{ is.evictions, s->now.evictions },
		{ is.invalidations, s->now.invalidations },
		{ is.regions, s->now.regions },
		{ is.regions_in_use, s->now.regions_in_use },
		{ is.bytes_pinned, s->now.bytes_pinned },
		{ is.max_bytes, s->now.max_bytes ? s->now.max_bytes : is.max_bytes },
	};

	for (size_t i = 0; i < COUNT(pairs); i++)
		ck_assert_msg(pairs[i][0] == pairs[i][1], "line %d: count %zu is %lu, not %lu",
			      s->line, i, pairs[i][0], pairs[i][1]);
}

/* Plays a script on that many chunks and a cache of its own. */
static void play(unsigned int chunks, const barcopy_cache_options_t *o, const struct step *s)
{
	uint64_t hits = 0, misses = 0;
	barcopy_region_t held[HELD], r;
	barcopy_cache_t cache;
	CUdeviceptr d = vmm_new(0, chunks);

	for (cache = new_cache(o); s->op != END; s++) {
		barcopy_region_t *mine = &held[s->mine], *other = &held[s->other];
		uint64_t gets = s->op == TOUCH ? s->size : s->op == TAKE || s->op == REFUSED;

		*(s->op != REFUSED && s->answer ? &hits : &misses) += gets;
		switch (s->op) {
		case TOUCH:
			for (uint64_t i = 0; i < s->size; i++)
				AT_LINE(touch(cache, d + s->at + i * CHUNK) == s->answer,
					"hit or miss?");
			break;
		case TAKE:
			AT_LINE(take(cache, d + s->at, s->size, mine) == s->answer, "hit or miss?");
			break;
		case GIVE:
			OK(barcopy_cache_put(cache, mine));
			break;
		case SAME:
			AT_LINE(is_same(mine), "other memory");
			break;
		case SHARED:
			AT_LINE(mine->handle.h == other->handle.h, "another handle");
			AT_LINE((char *)mine->cpu_ptr - (char *)other->cpu_ptr ==
					(long)(mine->device_ptr - other->device_ptr),
				"another mapping");
			break;
		case REFUSED:
			AT_LINE(barcopy_cache_get(cache, d + s->at, s->size, &r) == s->answer,
				barcopy_last_error());
			break;
		case INVALID:
			OK(barcopy_cache_invalidate(cache, s->size == SIZE_MAX ? 0 : d + s->at,
						    s->size));
			break;
		default:
			counts_are(s, cache_stats(cache), misses, hits);
		}
	}
	OK(barcopy_cache_destroy(cache));
	FAILS(EINVAL, barcopy_cache_destroy(cache));
	vmm_delete(d, chunks);
}

/* One line of the source per thought. */
/* clang-format off */
static void sharing(void)
{
	play(4, BY_TAG, STEPS{
		TAKE(A, 0, 10, 100), TAKE(B, 1, 50, 200), SHARE(B, A),
		HIT(CHUNK - 8), /* the whole allocation */
		NOW(.regions = 1, .regions_in_use = 1, .bytes_pinned = CHUNK),
		/* overlapping: a new region serves both, the old one stays for its users */
		TAKE(C, 0, CHUNK - 100, 200), SAME(A),
		NOW(.regions = 2, .regions_in_use = 2, .bytes_pinned = 3 * CHUNK),
		GIVE(A), SAME(B), GIVE(B),
		NOW(.regions = 1, .regions_in_use = 1, .bytes_pinned = 2 * CHUNK),
		/* a part of it, however short, shares it */
		HIT(10), HIT(CHUNK + 10), TAKE(D, 1, 2 * CHUNK - 8, 8), SHARE(D, C), GIVE(C), SAME(D),
		GIVE(D), NOW(.regions = 1, .bytes_pinned = 2 * CHUNK), { END } });
}

/* Second chance: a region that was used since the last sweep passed survives the next sweep. */
static void evicted_by_count(void)
{
	play(8, OPTIONS(.validity = BARCOPY_CACHE_NOTIFIED, .max_regions = 3), STEPS{
		MISSES(0, 3), HIT(0), MISS(3 * CHUNK), /* the second one goes */
		NOW(.evictions = 1, .regions = 3, .bytes_pinned = 3 * CHUNK),
		HIT(0), HITS(2 * CHUNK, 2), MISS(CHUNK), /* all were used again: the oldest goes */
		NOW(.evictions = 2, .regions = 3, .bytes_pinned = 3 * CHUNK),
		HIT(0), HIT(3 * CHUNK),
		/* a region in use stays, however often the sweep passes it */
		TAKE(A, 1, 0, 8), MISSES(4 * CHUNK, 4), SAME(A), HIT(0), GIVE(A),
		NOW(.evictions = 6, .regions = 3, .bytes_pinned = 3 * CHUNK), { END } });
}

static void limit_by_bytes(void)
{
	play(8, OPTIONS(.validity = BARCOPY_CACHE_NOTIFIED, .max_bytes = 3 * CHUNK), STEPS{
		MISSES(0, 2), NOW(.regions = 2, .bytes_pinned = 2 * CHUNK),
		MISSES(2 * CHUNK, 2), NOW(.evictions = 1, .regions = 3, .bytes_pinned = 3 * CHUNK),
		MISSES(4 * CHUNK, 4), NOW(.evictions = 5, .regions = 3, .bytes_pinned = 3 * CHUNK),
		/* regions in use may exceed the limit until they are put back */
		TAKE(A, 0, 0, 8), TAKE(B, 0, CHUNK, 8), TAKE(C, 0, 2 * CHUNK, 8),
		TAKE(D, 0, 3 * CHUNK, 8), TAKE(E, 0, 4 * CHUNK, 8),
		NOW(.evictions = 8, .regions = 5, .regions_in_use = 5, .bytes_pinned = 5 * CHUNK),
		GIVE(A), GIVE(B), GIVE(C), GIVE(D), GIVE(E),
		NOW(.evictions = 10, .regions = 3, .bytes_pinned = 3 * CHUNK), { END } });
}

/* More memory than BAR (of four chunks): idle regions make room, regions in use do not. */
static void bar_exhausted(void)
{
	play(16, OPTIONS(.max_bytes = UINT64_MAX), STEPS{
		MISSES(0, 16), MISSES(0, 16), MISSES(0, 16),
		NOW(.evictions = 44, .regions = 4, .bytes_pinned = 4 * CHUNK),
		TAKE(A, 0, 0, 8), TAKE(B, 0, CHUNK, 8), TAKE(C, 0, 2 * CHUNK, 8),
		TAKE(D, 0, 3 * CHUNK, 8), REFUSED(ENOMEM, 5 * CHUNK, 8),
		SAME(A), SAME(B), SAME(C), SAME(D), GIVE(C), TAKE(E, 0, 5 * CHUNK, 8),
		/* room for four chunks side by side needs all four gone */
		GIVE(A), GIVE(B), GIVE(D), GIVE(E), TAKE(A, 0, 8 * CHUNK, 4 * CHUNK), GIVE(A),
		REFUSED(ENOMEM, 8 * CHUNK, 5 * CHUNK), { END } });
}

/* Without NVML the limit is a part of the GPU's memory. */
static void no_nvml(void)
{
	play(1, NULL, STEPS{ MISS(0),
		NOW(.regions = 1, .bytes_pinned = CHUNK, .max_bytes = (uint64_t)8192 / 4 << 20),
		{ END } });
}

static void invalidate(void)
{
	play(3, BY_NOTICE, STEPS{
		MISSES(0, 3), INVALIDATE(CHUNK + 777, 1), /* one byte of a region is enough */
		NOW(.invalidations = 1, .regions = 2, .bytes_pinned = 2 * CHUNK),
		HIT(CHUNK - 8), HIT(2 * CHUNK),
		/* in use: good until the last put, never found again */
		TAKE(A, 1, 0, 8), TAKE(B, 1, 0, 8), INVALIDATE(0, CHUNK),
		NOW(.invalidations = 2, .regions = 2, .regions_in_use = 1, .bytes_pinned = 2 * CHUNK),
		SAME(A), MISS(0), GIVE(A), SAME(B), GIVE(B),
		INVALIDATE(0, SIZE_MAX), NOW(.invalidations = 4), { END } });
}
/* Where a region joined with its neighbours would exceed the limit, the range alone is pinned. */
static void never_joined_beyond_the_limit(void)
{
	play(2, OPTIONS(.max_bytes = CHUNK), STEPS{
		MISS(0), NOW(.regions = 1, .bytes_pinned = CHUNK), TAKE(A, 0, CHUNK - 8, 16), GIVE(A),
		NOW(.evictions = 1, .regions = 1, .bytes_pinned = 2 * PAGE), { END } });
}

/* A pin is rounded to pages and may exceed the limit only then: the cache evicts at once. */
static void rounded_beyond_the_limit(void)
{
	play(1, OPTIONS(.max_bytes = PAGE + PAGE / 2), STEPS{
		MISS(8), MISS(8 * PAGE), NOW(.evictions = 1, .regions = 1, .bytes_pinned = PAGE),
		HIT(8 * PAGE), { END } });
}

/* Within its limit again, a cache serves parts of its regions. */
static void within_the_limit_again(void)
{
	play(4, OPTIONS(.max_bytes = 2 * CHUNK), STEPS{
		TAKE(A, 0, 0, CHUNK), TAKE(B, 0, CHUNK, CHUNK), TAKE(C, 0, 2 * CHUNK, CHUNK),
		INVALIDATE(CHUNK, 2 * CHUNK), GIVE(B), GIVE(C), TAKE(D, 0, 3 * CHUNK, CHUNK),
		HIT(PAGE), GIVE(D), GIVE(A), { END } });
}

static void empty_range(void)
{
	for (int i = 0; i < 2; i++)
		play(8, i ? BY_NOTICE : BY_TAG, STEPS{
			TAKE(A, 0, 0, 4 * CHUNK), TAKE(B, 0, 2 * CHUNK, 6 * CHUNK), GIVE(A), GIVE(B),
			REFUSED(EINVAL, 0, 0), REFUSED(EINVAL, 5, 0), INVALIDATE(5, 0), HIT(0), { END } });
}
/* clang-format on */

/* ---- refusals ------------------------------------------------------------ */

static void put(void)
{
	barcopy_cache_t cache, other;
	barcopy_region_t r, copy;
	CUdeviceptr d = vmm_new(0, 1);

	cache = new_cache(BY_NOTICE);
	other = new_cache(BY_NOTICE);
	OK(barcopy_cache_get(cache, d, 1, &r));
	copy = r;
	FAILS(EINVAL, barcopy_cache_put(other, &r));
	OK(barcopy_cache_put(cache, &r));
	FAILS(EINVAL, barcopy_cache_put(cache, &r));
	FAILS(EINVAL, barcopy_cache_put(cache, &copy));
	ck_assert_uint_eq(copy.size, 1); /* a call that fails changes nothing */
	FAILS(EINVAL, barcopy_cache_put(cache, NULL));
	OK(barcopy_cache_get(cache, d, 1, &r));
	FAILS(EBUSY, barcopy_cache_destroy(cache));
	ck_assert(is_same(&r));
	OK(barcopy_cache_put(cache, &r));
	OK(barcopy_cache_destroy(cache));
	FAILS(EINVAL, barcopy_cache_put(cache, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, d, 1, &r));
	/* gdr_close() does not wait for a region that is never put back, invalidated or not */
	OK(barcopy_cache_get(other, d, 1, &r));
	OK(barcopy_cache_invalidate(other, d, 1));
	OK(barcopy_cache_get(other, d, 1, &r));
	OK(gdr_close(g));
	copy = r;
	FAILS(EINVAL, barcopy_cache_put(other, &r));
	/* it was put: a second call would take the user of another thread */
	ck_assert_uint_eq(r.entry, 0);
	FAILS(EINVAL, barcopy_cache_put(other, &copy));
	ck_assert_uint_eq(copy.size, 1);
	FAILS(EINVAL, barcopy_cache_get(other, d, 1, &r));
	FAILS(EINVAL, gdr_copy_to_mapping(copy.handle, copy.cpu_ptr, "x", 1));
	g = NULL;
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
	CUdeviceptr d = vmm_new(0, 1);

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
	FAILS(EINVAL, barcopy_cache_get(cache, d, 0, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, 0, 1, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, d, 1, NULL));
	FAILS(EOVERFLOW, barcopy_cache_get(cache, d, SIZE_MAX, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, (uint64_t)1 << 60, 1, &r));
	FAILS_WITH(EINVAL, "beyond any device address",
		   barcopy_cache_get(cache, ((uint64_t)1 << 57) - 1, 2, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, (uintptr_t)&r, 1, &r));
	FAILS(EINVAL, barcopy_cache_get(cache, d + CHUNK - 1, 2, &r));
	ck_assert_uint_eq(r.size, 42);
	FAILS_WITH(EINVAL, "struct_size is 8; it has to be sizeof the struct, 72 to 4096",
		   barcopy_cache_get_stats(cache, &s));
	FAILS(EINVAL, barcopy_cache_get_stats(cache, NULL));
	OK(barcopy_cache_invalidate(cache, d, 1));
	FAILS(EINVAL, barcopy_cache_invalidate(NULL, d, 1));
	/* a refused argument changes no region */
	touch(cache, d);
	FAILS(EINVAL, barcopy_cache_get(cache, d + CHUNK - 1, 2, &r));
	ck_assert(touch(cache, d));
	/* all that lies behind an address */
	OK(barcopy_cache_invalidate(cache, d + CHUNK - 1, UINT64_MAX));
	ck_assert(!touch(cache, d));
}

/* ---- memory that comes and goes ------------------------------------------ */

static void reallocated(void)
{
	barcopy_cache_t tag, notified;
	barcopy_region_t r;
	CUdeviceptr d = vmm_new(0, 1);

	tag = new_cache(BY_TAG);
	notified = new_cache(BY_NOTICE);
	for (int i = 0; i < 100; i++) {
		touch(tag, d);
		touch(tag, d + 100);
		touch(notified, d);
		OK(barcopy_cache_get(tag, d, 8, &r)); /* held while its memory is freed */
		OK(barcopy_cache_invalidate(notified, d, CHUNK));
		vmm_replace(d, 0);
		if (i % 2) {
			touch(tag, d);
			ck_assert(!is_same(&r));
		}
		OK(barcopy_cache_put(tag, &r));
	}
	ck_assert_uint_eq(cache_stats(tag).invalidations, 100);
	ck_assert_uint_eq(cache_stats(tag).regions, 1);
	/* freed and not allocated again */
	vmm_delete(d, 1);
	FAILS(EINVAL, barcopy_cache_get(tag, d, 8, &r));
	ck_assert_uint_eq(cache_stats(tag).regions, 0);
}

/* Small allocations of one GPU page share a region, a later one too. */
static void one_page(void)
{
	barcopy_cache_t cache = new_cache(BY_TAG);
	CUdeviceptr a, b, c;

	a = standin_alloc(256);
	b = standin_alloc(256);
	touch(cache, a);
	ck_assert(touch(cache, b));
	c = standin_alloc(256);
	ck_assert(touch(cache, c));
	ck_assert_uint_eq(cache_stats(cache).bytes_pinned, PAGE);
	/* c is freed and allocated again at its address: a and b still verify the page */
	CU(cuda.cuMemFree_v2(c));
	c = standin_alloc(256);
	touch(cache, c);
	/* when all three are freed, nothing verifies the page any more */
	CU(cuda.cuMemFree_v2(a));
	CU(cuda.cuMemFree_v2(b));
	CU(cuda.cuMemFree_v2(c));
	touch(cache, standin_alloc(256));
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
	FAILS(ENOMEM, barcopy_cache_get(cache, mem.device_ptr, 8, &r));
	ck_assert(touch(cache, d));
	ck_assert_uint_eq(cache_stats(cache).evictions, 0);
}

/* ---- threads ------------------------------------------------------------- */

struct thread {
	barcopy_cache_t cache;
	CUdeviceptr at;
	uintptr_t number, bad;
};

/* Hits, misses, evictions and invalidations of the same regions, on all threads. */
static void *hammer(void *arg)
{
	struct thread *t = arg;
	unsigned int x = (unsigned int)t->number * 2654435761u + 12345;

	cuda.cuCtxSetCurrent(standin_primary(0));
	for (int i = 0; i < (unit_quick() ? 300 : 20000); i++) {
		uint64_t addr, value = t->number << 32 | (unsigned int)i, seen = 0;
		barcopy_region_t r;

		x = x * 1103515245 + 12345;
		addr = t->at + (x >> 8) % 8 * CHUNK + (x >> 16) % 1024 * 64 + t->number * 8;
		if (!(x >> 12 & 31)) {
			t->bad += barcopy_cache_invalidate(t->cache, addr, 1) != 0;
			continue;
		}
		if (barcopy_cache_get(t->cache, addr, 8, &r)) {
			t->bad++;
			continue;
		}
		t->bad += gdr_copy_to_mapping(r.handle, r.cpu_ptr, &value, 8) != 0;
		t->bad += gdr_copy_from_mapping(r.handle, &seen, r.cpu_ptr, 8) || seen != value;
		t->bad += barcopy_cache_put(t->cache, &r) != 0;
	}
	return NULL;
}

static void threads(void)
{
	const barcopy_cache_options_t *o[] = { OPTIONS(.max_regions = 5),
					       OPTIONS(.validity = BARCOPY_CACHE_NOTIFIED,
						       .max_regions = 5) };
	CUdeviceptr at = vmm_new(0, 8);
	struct thread t[4];

	for (size_t i = 0; i < COUNT(o); i++) {
		barcopy_cache_t cache = new_cache(o[i]);
		barcopy_cache_stats_t s;

		for (uintptr_t k = 0; k < COUNT(t); k++)
			t[k] = (struct thread){ cache, at, k, 0 };
		unit_threads(COUNT(t), hammer, t, sizeof(t[0]));
		for (size_t k = 0; k < COUNT(t); k++)
			ck_assert_uint_eq(t[k].bad, 0);
		s = cache_stats(cache);
		ck_assert(s.evictions && s.invalidations && s.hits);
		ck_assert_uint_eq(s.regions_in_use, 0);
		ck_assert_uint_le(s.regions, 5);
		OK(barcopy_cache_destroy(cache));
	}
}

static const struct unit_test tests[] = {
	{ "sharing", sharing, NULL },
	{ "put", put, NULL },
	{ "errors", errors, NULL },
	{ "evicted by count", evicted_by_count, NULL },
	{ "limit by bytes", limit_by_bytes, NULL },
	{ "BAR exhausted", bar_exhausted, "GDRSIM_BAR1_MIB=8" },
	{ "no NVML", no_nvml, "GDRSIM_FAIL=nvmlInit:*=9" },
	{ "invalidate", invalidate, NULL },
	{ "never joined beyond the limit", never_joined_beyond_the_limit, NULL },
	{ "rounded beyond the limit", rounded_beyond_the_limit, NULL },
	{ "within the limit again", within_the_limit_again, NULL },
	{ "an empty range", empty_range, NULL },
	{ "reallocated", reallocated, NULL },
	{ "threads", threads, NULL },
	{ "one page", one_page, "GDRSIM_DRIVER_VERSION=13030" },
	{ "several GPUs", several_gpus, "GDRSIM_BAR1_MIB=8 GDRSIM_DEVICES=2" },
};

UNIT_MAIN("barcopy_cache", tests, unit_before = start, unit_after = end)
