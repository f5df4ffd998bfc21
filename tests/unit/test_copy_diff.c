// SPDX-License-Identifier: MIT
/*
 * Every implementation of the copies against the bytes that should come out: all alignments of both
 * sides, all small sizes, sizes around powers of two; guard pages on both sides of both buffers,
 * canaries around the destination.
 *
 * Places are chosen against the guard pages: a range's lines end where the area ends, or begin
 * where it begins, so a load of one line too many is a fault, and so is a single byte too many
 * where only the range itself may be loaded.
 *
 * GDRCOPY_TEST_QUICK=1 makes it small, GDRCOPY_TEST_FULL=1 takes every combination.
 */
#include "copy_area.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "impls/impls.h"

#define SMALL_MAX 1100
#define LARGE_MAX ((size_t)4 << 20)

enum direction { TO, FROM };

/* What runs now, for the message when a guard page is hit. */
static struct {
	const char *what;
	enum direction dir;
	size_t map_align, host_align, size;
} now;

static void on_fault(int sig)
{
	char text[160];
	int len = snprintf(text, sizeof(text), "fault: %s %s, map at %zu, host at %zu, %zu bytes\n",
			   now.what, now.dir == TO ? "to" : "from", now.map_align, now.host_align,
			   now.size);

	if (write(STDERR_FILENO, text, (size_t)len) < 0)
		_exit(2);
	signal(sig, SIG_DFL);
	raise(sig);
}

static struct area map, host, map_large, host_large;

static void setup(void)
{
	signal(SIGSEGV, on_fault);
	map = area_new(2 * 4096, MAP_PRIVATE);
	host = area_new(2 * 4096, MAP_PRIVATE);
	map_large = area_new(LARGE_MAX + 4096, MAP_PRIVATE);
	host_large = area_new(LARGE_MAX + 4096, MAP_PRIVATE);
}

/* One copy between two areas; dst holds canaries before and after. */
static void one(const struct gdri_copy_plan *plan, enum direction dir, const struct area *m,
		const struct area *h, size_t map_align, bool map_back, size_t host_align,
		bool host_back, size_t n)
{
	const struct area *to = dir == TO ? m : h;
	uint8_t *mp = area_at(m, map_align, n, map_back);
	uint8_t *hp = area_at(h, host_align, n, host_back);
	uint8_t *d = dir == TO ? mp : hp;
	const uint8_t *s = dir == TO ? hp : mp;
	size_t before = (size_t)(d - to->base) < LINE ? (size_t)(d - to->base) : LINE;
	size_t after = (size_t)(to->base + to->size - d) - n;
	static const uint8_t canaries[LINE] = { [0 ... LINE - 1] = CANARY };

	now.dir = dir, now.map_align = map_align, now.host_align = host_align, now.size = n;
	if (after > LINE)
		after = LINE;
	if (dir == TO)
		gdri_copy_to(plan, mp, hp, n);
	else
		gdri_copy_from(plan, hp, mp, n);
	if (memcmp(d, s, n) != 0 || memcmp(d - before, canaries, before) != 0 ||
	    memcmp(d + n, canaries, after) != 0) {
		size_t bad = 0;

		while (bad < n && d[bad] == s[bad])
			bad++;
		ck_abort_msg("%s %s, map at %zu, host at %zu, %zu bytes: wrong %s %zu", now.what,
			     dir == TO ? "to" : "from", map_align, host_align, n,
			     bad < n ? "at byte" : "around it, size", bad);
	}
	memset(d, CANARY, n);
}

static void start(const struct area *m, const struct area *h, enum direction dir, const char *what)
{
	area_fill(dir == TO ? h : m);
	memset(dir == TO ? m->base : h->base, CANARY, dir == TO ? m->size : h->size);
	now.what = what;
}

/* Against which end: where the range itself touches a guard page, there; else by turns. */
static bool at_end(size_t align, size_t n, unsigned int turn)
{
	bool ends = (align + n) % LINE == 0, begins = align == 0;

	return ends != begins ? ends : turn & 1;
}

/* All sizes up to 1100; how many of the alignments depends on the time there is. */
static void small_sizes(const struct gdri_copy_plan *plan, enum direction dir, const char *what,
			size_t align_step, size_t dense, unsigned int sparse)
{
	start(&map, &host, dir, what);
	for (size_t a = 0; a < LINE; a += align_step) {
		for (size_t b = 0; b < LINE; b += align_step) {
			for (size_t n = 0; n <= SMALL_MAX; n++) {
				bool edge = (a + n) % LINE == 0 || (b + n) % LINE == 0;

				if (n > dense && !edge && (7 * a + 13 * b + n) % sparse)
					continue;
				one(plan, dir, &map, &host, a, at_end(a, n, (unsigned int)(n + b)), b,
				    at_end(b, n, (unsigned int)(n + a + n / 2)), n);
			}
		}
	}
}

static void large_sizes(const struct gdri_copy_plan *plan, enum direction dir, const char *what)
{
	static const size_t aligns[][2] = { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 5, 63 }, { 40, 8 } };
	static const int around[] = { -65, -64, -1, 0, 1, 63, 64 };
	size_t max = unit_quick() ? (size_t)1 << 14 : LARGE_MAX;

	start(&map_large, &host_large, dir, what);
	for (size_t power = 2048; power <= max; power *= 2) {
		size_t some = power > 65536 ? 3 : COUNT(around);

		for (size_t i = 0; i < COUNT(aligns); i++)
			for (size_t j = 0; j < some; j++) {
				size_t n =
					power + (size_t)(power > 65536 ? around[2 + j] : around[j]);

				one(plan, dir, &map_large, &host_large, aligns[i][0], j & 1,
				    aligns[i][1], i & 1, n);
			}
	}
}

static bool has(const struct gdri_copy_impl *impl, enum direction dir)
{
	return dir == TO ? impl->to != NULL : impl->from != NULL;
}

/* Each implementation that this CPU can run, by name, in each of its directions. */
static void each_impl(void (*test)(const struct gdri_copy_plan *, enum direction, const char *))
{
	uint32_t features = gdri_cpu_detect();

	for (size_t i = 0; impl_at(i); i++) {
		const struct gdri_copy_impl *impl = impl_at(i);
		struct gdri_copy_plan plan;

		if (impl->needs & ~features) {
			fprintf(stderr, "skipped: %s, not on this CPU\n", impl->name);
			continue;
		}
		/* All other features are masked: the implementation relies on none of them. */
		ck_assert_int_eq(gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_WC, impl->needs, impl),
				 0);
		for (enum direction dir = TO; dir <= FROM; dir++) {
			if (!has(impl, dir))
				continue;
			ck_assert_ptr_eq(dir == TO ? plan.to : plan.from, impl);
			test(&plan, dir, impl->name);
		}
	}
}

static void impl_small(const struct gdri_copy_plan *plan, enum direction dir, const char *what)
{
	if (unit_quick())
		small_sizes(plan, dir, what, 9, 140, 37);
	else if (getenv("GDRCOPY_TEST_FULL"))
		small_sizes(plan, dir, what, 1, SMALL_MAX, 1);
	else
		small_sizes(plan, dir, what, 1, 192, 16);
}

static void impls_small(void)
{
	each_impl(impl_small);
}

static void impls_large(void)
{
	each_impl(large_sizes);
}

/* The plans of lesser CPUs, for every mapping type. */
static void masked_plans(void)
{
	static const struct {
		const char *mask, *what;
	} masks[] = {
		{ "none", "plan without features" },
		{ "sse2", "plan for sse2" },
		{ "sse2,sse4.1", "plan for sse4.1" },
		{ "sse2,sse4.1,avx2", "plan for avx2" },
		{ "sse2,sse4.1,avx2,avx512", "plan for early avx512" },
		{ "-avx512", "plan without avx512" },
		{ "all", "plan for this CPU" },
	};
	bool quick = unit_quick();

	for (size_t i = 0; i < COUNT(masks); i++) {
		for (int type = GDR_MAPPING_TYPE_WC; type < GDR_MAPPING_TYPE_MAX; type++) {
			struct gdri_copy_plan plan;
			uint32_t mask;

			ck_assert_int_eq(gdri_cpu_parse_mask(masks[i].mask, &mask), 0);
			mask &= gdri_cpu_detect();
			ck_assert_int_eq(
				gdri_copy_plan_init(&plan, (gdr_mapping_type_t)type, mask, NULL),
				0);
			ck_assert_uint_eq(plan.to->needs & ~mask, 0);
			ck_assert_uint_eq(plan.from->needs & ~mask, 0);
			for (enum direction dir = TO; dir <= FROM; dir++) {
				small_sizes(&plan, dir, masks[i].what, quick ? 21 : 3,
					    quick ? 100 : 192, 31);
				if (!quick)
					large_sizes(&plan, dir, masks[i].what);
			}
		}
	}
}

/* A cached mapping is read within the range only: each end of it against a guard page. */
static void cached_reads_stay_inside(void)
{
	const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_CACHING);

	start(&map, &host, FROM, "cached");
	for (size_t n = 0; n <= SMALL_MAX; n++) {
		for (size_t b = 0; b < LINE; b += 7) {
			size_t a = (LINE - n % LINE) % LINE;

			one(plan, FROM, &map, &host, a, true, b, false, n);
			one(plan, FROM, &map, &host, 0, false, b, true, n);
		}
	}
}

static const struct unit_test tests[] = {
	{ "small ranges", impls_small },
	{ "large ranges", impls_large },
	{ "masked plans", masked_plans },
	{ "cached reads stay inside", cached_reads_stay_inside },
};

UNIT_MAIN("copy: implementations against the reference", tests, unit_before = setup)
