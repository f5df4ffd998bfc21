// SPDX-License-Identifier: MIT
/*
 * The engine's other calls: vectored copies, waiting, and the first copies of several threads.
 */
#include "copy_area.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "impls/impls.h"

#define PIECES 100

static const gdr_mapping_type_t types[] = { GDR_MAPPING_TYPE_WC, GDR_MAPPING_TYPE_CACHING,
					    GDR_MAPPING_TYPE_DEVICE };

static uint32_t random_below(uint32_t limit)
{
	static unsigned long long state = 1;

	return (uint32_t)(unit_random(&state) >> 32) % limit;
}

/* Pieces of mixed sizes, some empty, some large, some ordered, none overlapping on either side. */
static size_t make_pieces(barcopy_copy_seg_t *seg, const struct area *map, const struct area *host)
{
	size_t map_at = 0, host_at = 0, count = 0;

	memset(seg, 0, PIECES * sizeof(*seg));
	while (count < PIECES) {
		static const uint32_t limits[] = { 1, 9, 65, 130, 600, 5000 };
		size_t size = random_below(limits[random_below(COUNT(limits))]);

		map_at += random_below(100), host_at += random_below(100);
		if (map_at + size > map->size || host_at + size > host->size)
			break;
		seg[count].map_ptr = map->base + map_at;
		seg[count].host_ptr = host->base + host_at;
		seg[count].size = size;
		seg[count].flags = random_below(5) ? 0 : BARCOPY_COPY_ORDERED;
		map_at += size, host_at += size, count++;
	}
	return count;
}

/* Every byte of dst is a piece's, as it is in src, or still a canary. */
static void check_pieces(const barcopy_copy_seg_t *seg, size_t count, bool to,
			 const struct area *dst)
{
	uint8_t *want = malloc(dst->size);

	ck_assert_ptr_nonnull(want);
	memset(want, CANARY, dst->size);
	for (size_t i = 0; i < count; i++) {
		const uint8_t *d = to ? seg[i].map_ptr : seg[i].host_ptr;
		const uint8_t *s = to ? seg[i].host_ptr : seg[i].map_ptr;

		memcpy(want + (d - dst->base), s, seg[i].size);
	}
	ck_assert_int_eq(memcmp(want, dst->base, dst->size), 0);
	free(want);
}

static void vectored(void)
{
	struct area map = area_new(64 * 1024, MAP_PRIVATE);
	struct area host = area_new(64 * 1024, MAP_PRIVATE);
	barcopy_copy_seg_t seg[PIECES];
	struct gdri_copy_plan plan;

	for (size_t t = 0; t < COUNT(types); t++) {
		for (size_t r = 0; !r || impl_at(r - 1); r++) {
			const struct gdri_copy_impl *impl = r ? impl_at(r - 1) : NULL;

			if (gdri_copy_plan_init(&plan, types[t], gdri_cpu_detect(), impl))
				continue;
			for (int round = 0; round < (unit_quick() ? 3 : 30); round++) {
				size_t count = make_pieces(seg, &map, &host);
				uint32_t flags = round & 1 ? BARCOPY_COPY_NO_FENCE : 0;

				area_fill(&host);
				memset(map.base, CANARY, map.size);
				gdri_copyv_to(&plan, seg, count, sizeof(*seg), flags);
				check_pieces(seg, count, true, &map);

				area_fill(&map);
				memset(host.base, CANARY, host.size);
				gdri_copyv_from(&plan, seg, count, sizeof(*seg), flags);
				check_pieces(seg, count, false, &host);
			}
			gdri_copyv_to(&plan, seg, 0, sizeof(*seg), 0);
			gdri_copyv_from(&plan, seg, 0, sizeof(*seg), 0);
		}
	}
}

/* A piece in the first and one in the last line: nothing outside their lines is loaded. */
static void vectored_guard(void)
{
	struct area map = area_new(4096, MAP_PRIVATE);
	struct gdri_copy_plan plan;
	uint8_t out[2][48];

	area_fill(&map);
	for (size_t t = 0; t < COUNT(types); t++) {
		for (size_t r = 0; !r || impl_at(r - 1); r++) {
			const struct gdri_copy_impl *impl = r ? impl_at(r - 1) : NULL;
			barcopy_copy_seg_t seg[2] = {
				{ .map_ptr = map.base, .host_ptr = out[0], .size = 48 },
				{ .map_ptr = map.base + map.size - 48,
				  .host_ptr = out[1],
				  .size = 48 },
			};

			if (gdri_copy_plan_init(&plan, types[t], gdri_cpu_detect(), impl))
				continue;
			ck_assert(plan.exact_reads == (types[t] == GDR_MAPPING_TYPE_CACHING));
			gdri_copyv_from(&plan, seg, 2, sizeof(*seg), 0);
			ck_assert_mem_eq(out[0], map.base, 48);
			ck_assert_mem_eq(out[1], map.base + map.size - 48, 48);
		}
	}
}

static size_t loaded;

static void count_loaded(void *dst, const void *src, size_t n)
{
	loaded += n;
	memcpy(dst, src, n);
}

/* Write-combined memory is loaded by whole lines, wherever the caller wants the bytes. */
static void lines_for_any_alignment(void)
{
	static const struct gdri_copy_impl counting = { .name = "counting",
							.block = BARCOPY_LINE,
							.from = count_loaded };
	static const struct gdri_copy_impl any_range = { .name = "any range",
							 .block = 1,
							 .from = count_loaded };
	static uint8_t out[1024 + 8];
	struct area map = area_new(4096, MAP_PRIVATE);
	struct gdri_copy_plan plan;

	area_fill(&map);
	ck_assert_int_eq(gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_WC, gdri_cpu_detect(), NULL), 0);
	plan.from = &counting;
	for (size_t at = 0; at < 8; at++) {
		loaded = 0;
		gdri_copy_from(&plan, out + at, map.base, 1024);
		ck_assert_uint_eq(loaded, 1024);
		ck_assert_mem_eq(out + at, map.base, 1024);
	}
	/* An implementation that takes any range gets that range, and no lines around it. */
	plan.from = &any_range;
	loaded = 0;
	gdri_copy_from(&plan, out, map.base + 9, 30);
	ck_assert_uint_eq(loaded, 30);
	ck_assert_mem_eq(out, map.base + 9, 30);
}

/* Lines whose addresses differ in one bit are two lines, whatever a batch knows them by. */
static void far_pieces(void)
{
	size_t size = (size_t)1 << (unit_quick() ? 22 : 26);
	struct area map = area_new(size + 4096, MAP_PRIVATE | MAP_NORESERVE);
	struct gdri_copy_plan plan;

	ck_assert_int_eq(gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_WC, gdri_cpu_detect(), NULL), 0);
	for (size_t far = 64; far <= size; far *= 2) {
		barcopy_copy_seg_t seg[2] = { { .size = 64 }, { .size = 64 } };
		uint8_t out[2][64];

		for (size_t i = 0; i < 2; i++) {
			seg[i].map_ptr = map.base + i * far;
			seg[i].host_ptr = out[i];
			memset(seg[i].map_ptr, (int)i + 1, 64);
		}
		gdri_copyv_from(&plan, seg, 2, sizeof(*seg), 0);
		for (size_t i = 0; i < 2; i++)
			ck_assert_mem_eq(out[i], seg[i].map_ptr, 64);
	}
}

/* ---- which lines a vector's reads load, and which together --------------- */

/* Calls of `lines`, and what they were asked for. */
static struct {
	const uint8_t *at[1024];
	unsigned int call[1024];
	size_t n;
	unsigned int calls;
	const uint8_t *map, *map_end;
} loads;

static void note_line(uint8_t *line, const uint8_t *at)
{
	ck_assert_uint_lt(loads.n, COUNT(loads.at));
	loads.at[loads.n] = at;
	loads.call[loads.n++] = loads.calls;
	memcpy(line, at, 64);
}

/* Addresses behind the last line are outside the mapping: a CPU may load them speculatively. */
static void lines_noting_loads(uint8_t *line, const uint8_t *const *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		note_line(line + 64 * i, at[i]);
	for (size_t i = n; i < n + 24; i++)
		ck_assert(at[i] < loads.map || at[i] >= loads.map_end);
	loads.calls++;
}

static void from_noting_loads(void *dst, const void *src, size_t n)
{
	for (size_t i = 0; i < n; i += 64)
		note_line((uint8_t *)dst + i, (const uint8_t *)src + i);
	loads.calls++;
}

/* Copies them by an implementation that notes its loads; the bytes must be right. */
static void note_loads(barcopy_copy_seg_t *seg, size_t count)
{
	const struct gdri_copy_impl impl = {
		.name = "noted", .block = 64, .from = from_noting_loads, .lines = lines_noting_loads
	};
	struct gdri_copy_plan plan;

	ck_assert_int_eq(gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_WC, 0, &impl), 0);
	loads.n = loads.calls = 0;
	gdri_copyv_from(&plan, seg, count, sizeof(*seg), 0);
	for (size_t i = 0; i < count; i++)
		ck_assert_mem_eq(seg[i].host_ptr, seg[i].map_ptr, seg[i].size);
}

static size_t times_loaded(const uint8_t *line)
{
	size_t n = 0;

	for (size_t i = 0; i < loads.n; i++)
		n += loads.at[i] == line;
	return n;
}

/* Words that share lines, in any order; and pieces across lines. */
static void each_line_once(void)
{
	struct area map = area_new(64 * 1024, MAP_PRIVATE), host = area_new(8192, MAP_PRIVATE);
	barcopy_copy_seg_t seg[128] = { 0 };

	area_fill(&map);
	loads.map = map.base;
	loads.map_end = map.base + map.size;
	for (size_t step = 1; step < 64; step += 6) {
		for (size_t i = 0; i < 64; i++)
			seg[i] = (barcopy_copy_seg_t){ .map_ptr = map.base + i * step % 64 * 8,
						       .host_ptr = host.base + 8 * i,
						       .size = 8 };
		note_loads(seg, 64);
		ck_assert_uint_eq(loads.n, 8);
	}
	for (size_t i = 0; i < 60; i++)
		seg[i] = (barcopy_copy_seg_t){ .map_ptr = map.base + i * 40 + 3,
					       .host_ptr = host.base + 48 * i,
					       .size = 37 };
	note_loads(seg, 60);
	ck_assert_uint_eq(loads.n, (59 * 40 + 40 + 63) / 64);
	/* A page apart, every one asked for twice. */
	for (size_t i = 0; i < 32; i++)
		seg[i] = (barcopy_copy_seg_t){ .map_ptr = map.base + i % 16 * 4096 + i,
					       .host_ptr = host.base + 8 * i,
					       .size = 8 };
	note_loads(seg, 32);
	ck_assert_uint_eq(loads.n, 16);
	/* Two words of one line; a word by itself is one plain load. */
	for (size_t i = 0; i < 2; i++)
		seg[i] = (barcopy_copy_seg_t){ .map_ptr = map.base + 8 * i,
					       .host_ptr = host.base + 8 * i,
					       .size = 8 };
	note_loads(seg, 2);
	ck_assert_uint_eq(loads.n, 1);
	note_loads(seg, 1);
	ck_assert_uint_eq(loads.n, 0);
	/* More lines than are loaded together. */
	for (size_t i = 0; i < 128; i++)
		seg[i] = (barcopy_copy_seg_t){ .map_ptr = map.base + i * 128,
					       .host_ptr = host.base + 64 * i,
					       .size = 64 };
	note_loads(seg, 128);
	ck_assert_uint_eq(loads.n, 128);
	ck_assert_uint_le(loads.calls, 4);
}

/* The pieces of a cached mapping are loaded by themselves, whatever the implementation can do. */
static void cached_pieces(void)
{
	const struct gdri_copy_impl impl = { .name = "noted",
					     .block = 1,
					     .to = count_loaded,
					     .from = count_loaded,
					     .lines = lines_noting_loads };
	struct area map = area_new(4096, MAP_PRIVATE);
	struct gdri_copy_plan plan;
	uint64_t out[4];
	barcopy_copy_seg_t seg[2] = {
		{ .map_ptr = map.base + 8, .host_ptr = out, .size = 16 },
		{ .map_ptr = map.base + 72, .host_ptr = out + 2, .size = 16 },
	};

	area_fill(&map);
	ck_assert_int_eq(gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_CACHING, 0, &impl), 0);
	loads.n = loaded = 0;
	gdri_copyv_from(&plan, seg, 2, sizeof(*seg), 0);
	ck_assert_uint_eq(loads.n, 0);
	ck_assert_uint_eq(loaded, 32);
	for (size_t i = 0; i < 2; i++)
		ck_assert_mem_eq(seg[i].host_ptr, seg[i].map_ptr, 16);
}

/* The last piece of a batch has up to as many lines as a piece can have, or more. */
static void full_batch(void)
{
	struct area map = area_new(64 * 1024, MAP_PRIVATE), host = area_new(64 * 1024, MAP_PRIVATE);
	const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_WC);
	barcopy_copy_seg_t seg[140] = { 0 };

	area_fill(&map);
	for (size_t before = 120; before < 130; before++) {
		for (size_t lines = 1; lines <= 34; lines++) {
			for (size_t i = 0; i < before + 2; i++)
				seg[i] = (barcopy_copy_seg_t){ .map_ptr = map.base + i * 128,
							       .host_ptr = host.base + 64 * i,
							       .size = 64 };
			seg[before].map_ptr = map.base + 32 * 1024 + 63;
			seg[before].host_ptr = host.base + 32 * 1024;
			seg[before].size = 64 * lines - 63;
			gdri_copyv_from(plan, seg, before + 2, sizeof(*seg), 0);
			for (size_t i = 0; i < before + 2; i++)
				ck_assert_mem_eq(seg[i].host_ptr, seg[i].map_ptr, seg[i].size);
		}
	}
}

/* Lines before an ORDERED piece are never loaded together with lines behind it. */
static void ordered_parts(void)
{
	struct area map = area_new(64 * 1024, MAP_PRIVATE), host = area_new(64 * 1024, MAP_PRIVATE);
	barcopy_copy_seg_t seg[100] = { 0 };

	area_fill(&map);
	loads.map = map.base;
	loads.map_end = map.base + map.size;
	for (size_t i = 0; i < COUNT(seg); i++)
		seg[i] = (barcopy_copy_seg_t){ .map_ptr = map.base + i / 10 * 4096 + i % 10 * 64,
					       .host_ptr = host.base + 64 * i,
					       .size = i % 10 == 4 ? 0 : 64,
					       .flags = i % 10 ? 0 : BARCOPY_COPY_ORDERED };
	/* Large, among the others, and ordered. */
	seg[53].size = seg[60].size = 3000;
	seg[53].host_ptr = host.base + 20000;
	seg[60].host_ptr = host.base + 24000;
	note_loads(seg, COUNT(seg));
	ck_assert_uint_eq(times_loaded(seg[4].map_ptr), 0); /* of size 0 */
	for (size_t i = 0, next; i < loads.n; i = next) {
		for (next = i + 1; next < loads.n && loads.call[next] == loads.call[i]; next++)
			ck_assert_uint_eq((size_t)(loads.at[next] - map.base) / 4096,
					  (size_t)(loads.at[i] - map.base) / 4096);
		if (next < loads.n)
			ck_assert_uint_le((size_t)(loads.at[i] - map.base) / 4096,
					  (size_t)(loads.at[next] - map.base) / 4096);
	}
	for (size_t i = 0; i < 3; i++)
		seg[i] = (barcopy_copy_seg_t){ .map_ptr = map.base + 8 * i,
					       .host_ptr = host.base + 8 * i,
					       .size = 8,
					       .flags = i == 2 ? BARCOPY_COPY_ORDERED : 0 };
	note_loads(seg, 3);
	ck_assert_uint_eq(times_loaded(map.base), 2);
}

/* Pieces with one destination: the last one's bytes remain, whatever the sizes. */
static void one_destination(void)
{
	static const size_t sizes[] = { 8, 64, 200, 900, 3000 };
	struct area map = area_new(64 * 1024, MAP_PRIVATE), host = area_new(4096, MAP_PRIVATE);
	const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_WC);
	uint8_t want[4096];

	area_fill(&map);
	for (int round = 0; round < 200; round++) {
		barcopy_copy_seg_t seg[40] = { 0 };

		memset(host.base, CANARY, host.size);
		memset(want, CANARY, sizeof(want));
		for (size_t i = 0; i < COUNT(seg); i++) {
			size_t size = sizes[random_below(COUNT(sizes))], at = random_below(1000);

			seg[i] = (barcopy_copy_seg_t){ .map_ptr = map.base + random_below(60000),
						       .host_ptr = host.base + at,
						       .size = size };
			memcpy(want + at, seg[i].map_ptr, size);
		}
		gdri_copyv_from(plan, seg, COUNT(seg), sizeof(*seg), 0);
		ck_assert_mem_eq(host.base, want, sizeof(want));
	}
}

static void comparisons(void)
{
	static const uint64_t values[] = { 0, 1, 0x7fffffffu, 0x80000000u, 0xffffffffu };
	struct area area = area_new(4096, MAP_PRIVATE);
	uint64_t *map = (uint64_t *)(void *)area.base;

	for (size_t t = 0; t < COUNT(types); t++) {
		const struct gdri_copy_plan *plan = gdri_copy_plan(types[t]);

		for (size_t i = 0; i < COUNT(values); i++) {
			for (size_t j = 0; j < COUNT(values); j++) {
				uint64_t a = values[i], b = values[j];
				const bool holds[] = { false, a == b, a != b, a<b, a <= b, a> b,
						       a >= b };

				for (int cmp = BARCOPY_CMP_EQ; cmp <= BARCOPY_CMP_GE; cmp++) {
					int want = holds[cmp] ? 0 : -ETIMEDOUT;

					map[0] = a | 0x5500000000000000u; /* not looked at */
					ck_assert_int_eq(gdri_wait(plan, map, 4, (barcopy_cmp_t)cmp,
								   (uint32_t)b, 0, &(uint64_t){ 0 }),
							 want);
					map[0] = a << 32;
					ck_assert_int_eq(gdri_wait(plan, map, 8, (barcopy_cmp_t)cmp,
								   b << 32, 0, &(uint64_t){ 0 }),
							 want);
				}
			}
		}
		ck_assert_int_eq(gdri_wait(plan, map, 4, (barcopy_cmp_t)0, 0, 0, &(uint64_t){ 0 }), -EINVAL);
		ck_assert_int_eq(gdri_wait(plan, map, 8, (barcopy_cmp_t)7, 0, 0, &(uint64_t){ 0 }), -EINVAL);
		map[0] = 5;
		ck_assert_int_eq(gdri_wait(plan, map, 8, BARCOPY_CMP_NE, 5, 1000, &(uint64_t){ 0 }), -ETIMEDOUT);
		ck_assert_int_eq(gdri_wait(plan, map, 4, BARCOPY_CMP_EQ, 5, UINT64_MAX, &(uint64_t){ 0 }), 0);
		ck_assert_int_eq(gdri_wait(plan, map, 4, BARCOPY_CMP_EQ, 5, UINT64_MAX - 1, &(uint64_t){ 0 }), 0);
	}
}

/* Threads that meet in the first call, then copy side by side in one line. */
static pthread_barrier_t gate;
static struct area together;

static void *first_call(void *arg)
{
	size_t me = (size_t)(uintptr_t)arg;
	uint8_t *mine = together.base + me * 16 + 3, data[11], back[11];
	uintptr_t wrong = 0;

	pthread_barrier_wait(&gate);
	for (int round = 0; round < 200; round++) {
		const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_CACHING);

		memset(data, (int)me * 50 + round % 50, sizeof(data));
		gdri_copy_to(plan, mine, data, sizeof(data));
		gdri_copy_from(plan, back, mine, sizeof(back));
		wrong += memcmp(data, back, sizeof(data)) != 0;
	}
	return (void *)wrong;
}

static void first_call_in_threads(void)
{
	together = area_new(4096, MAP_PRIVATE);
	pthread_barrier_init(&gate, NULL, 4);
	ck_assert_ptr_null(unit_threads(4, first_call, NULL, 1));
}

/* A copy that has one whole line of the mapping stores it as a line. */
static void one_whole_line(void)
{
	static const struct gdri_copy_impl counting = { .name = "counting",
							.block = BARCOPY_LINE,
							.to = count_loaded };
	static uint8_t host[128];
	struct area map = area_new(4096, MAP_PRIVATE);
	struct gdri_copy_plan plan;

	ck_assert_int_eq(gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_WC, gdri_cpu_detect(), NULL),
			 0);
	plan.to = &counting;
	for (size_t head = 0; head < 64; head++)
		for (size_t line = 0; line < 2; line++) {
			loaded = 0;
			gdri_copy_to(&plan, map.base + 64 - head, host, head + 63 + line);
			ck_assert_uint_eq(loaded, 64 * line);
		}
}

static const struct unit_test tests[] = {
	{ "vectored", vectored },
	{ "vectored, at the edges of the mapping", vectored_guard },
	{ "lines for any alignment", lines_for_any_alignment },
	{ "one whole line", one_whole_line },
	{ "pieces far from each other", far_pieces },
	{ "each line once", each_line_once },
	{ "cached pieces", cached_pieces },
	{ "a full batch", full_batch },
	{ "ordered parts", ordered_parts },
	{ "one destination", one_destination },
	{ "comparisons", comparisons },
	{ "first call in threads", first_call_in_threads },
};

UNIT_MAIN("copy: vectored copies and words", tests)
