// SPDX-License-Identifier: MIT
/*
 * The store discipline, watched: every byte is stored exactly once, every naturally aligned word of
 * 4 or 8 bytes in one store, nothing else at all. (On arm64: test_copy_watch.)
 *
 * Behind each instruction of a copy (step.h) what changed is noted, and the old bytes come back, so
 * that a second store of the same value shows as well. What one instruction stores is one store: a
 * vector register never crosses the aligned line that it is stored to, and words do not cross lines.
 *
 * GDRCOPY_TEST_QUICK=1 makes it small.
 */
#include "../copy_area.h"

#include <stdio.h>

#include "copy/word.h"
#include "impls/impls.h"
#include "step.h"

#define RANGE_MAX ((size_t)448)
#define TARGET	  (RANGE_MAX + 3 * LINE)
#define OLD	  0xcc /* what the target holds; no source byte has this value */

enum what { COPY_TO, COPY_FROM, PUT32, PUT64, VECTORED };

static _Alignas(64) uint8_t target[TARGET], source[TARGET];
static uint8_t old[TARGET];
static struct gdri_copy_plan plan;

/* Of the copy that is watched: the number, from 1, of the store that wrote each byte. */
static uint16_t when[TARGET];
static int stores;
static size_t twice; /* a byte that was stored again, plus 1; 0: none was */

static void look(void)
{
	if (memcmp(target, old, TARGET) == 0)
		return;
	stores++;
	for (size_t i = 0; i < TARGET; i++) {
		if (target[i] == OLD)
			continue;
		twice = when[i] ? i + 1 : twice;
		when[i] = (uint16_t)stores;
	}
	memset(target, OLD, TARGET);
}

static void setup(void)
{
	step_watch(4096);
	step_behind = look;
	memset(target, OLD, TARGET);
	memset(old, OLD, TARGET);
	for (size_t i = 0; i < TARGET; i++)
		source[i] = (uint8_t)(1 + i % 200);
}

/* The words at the seams stay in one piece: the discipline is each piece's. */
static void vectored(uint8_t *d, const uint8_t *s, size_t size)
{
	size_t cut = size / 16 * 8, seam = -(uintptr_t)d & 7;
	barcopy_copy_seg_t seg[3] = {
		{ .map_ptr = d, .host_ptr = (void *)(uintptr_t)s, .size = seam },
		{ .map_ptr = d + seam,
		  .host_ptr = (void *)(uintptr_t)(s + seam),
		  .size = cut,
		  .flags = BARCOPY_COPY_ORDERED },
		{ .map_ptr = d + seam + cut,
		  .host_ptr = (void *)(uintptr_t)(s + seam + cut),
		  .size = size - seam - cut },
	};

	if (seam > size || size < 16)
		seg[0].size = size, seg[1].size = seg[2].size = 0;
	gdri_copyv_to(&plan, seg, 3, sizeof(*seg), 0);
}

static void watch(enum what what, uint8_t *d, const uint8_t *s, size_t size)
{
	uint64_t value;

	memcpy(&value, s, sizeof(value));
	memset(when, 0, sizeof(when));
	stores = 0;
	twice = 0;
	step_begin();
	if (what == COPY_TO)
		gdri_copy_to(&plan, d, s, size);
	else if (what == COPY_FROM)
		gdri_copy_from(&plan, d, s, size);
	else if (what == PUT32)
		gdri_put32(&plan, d, (uint32_t)value);
	else if (what == PUT64)
		gdri_put64(&plan, d, value);
	else
		vectored(d, s, size);
	step_end();
}

/* Each store lies at a multiple of its size, which DEVICE memory of arm64 demands. */
static void check_aligned(const char *name, size_t at, size_t size)
{
	for (size_t i = 0, next; i < TARGET; i = next) {
		for (next = i + 1; next < TARGET && when[next] == when[i]; next++)
			;
		if (when[i])
			ck_assert_msg(!(i % (next - i)), "%s: %zu bytes at %zu: %zu at once at %zu",
				      name, size, at, next - i, i - at);
	}
}

static void check(enum what what, const char *name, size_t at, size_t from, size_t size)
{
	ck_assert_uint_le(size, RANGE_MAX);
	watch(what, target + at, source + from, size);
	ck_assert_msg(!twice, "%s: %zu bytes at %zu: byte %zu stored twice", name, size, at,
		      twice - 1 - at);
	for (size_t i = 0; i < TARGET; i++) {
		bool inside = i >= at && i < at + size;

		ck_assert_msg(inside == (when[i] != 0), "%s: %zu bytes at %zu: byte %td %s", name,
			      size, at, (ptrdiff_t)i - (ptrdiff_t)at,
			      inside ? "not stored" : "is outside and was stored");
	}
	if (what != COPY_FROM)
		check_aligned(name, at, size);
	/* A word of the host's side can be whole only if it is a word on the other side too. */
	if (what == COPY_FROM && (at - from) % 8)
		return;
	for (size_t width = 4; width <= 8; width += 4) {
		for (size_t i = (at + width - 1) / width * width; i + width <= at + size;
		     i += width)
			for (size_t j = 1; j < width; j++)
				ck_assert_msg(
					when[i + j] == when[i],
					"%s: %zu bytes at %zu: the %zu-byte word at %zu in parts",
					name, size, at, width, i - at);
		if (size == width && at % width == 0)
			ck_assert_int_eq(stores, 1);
	}
}

static void use_impl(const struct gdri_copy_impl *impl, gdr_mapping_type_t type)
{
	ck_assert_int_eq(gdri_copy_plan_init(&plan, type, gdri_cpu_detect(), impl), 0);
}

/*
 * A step costs some microseconds, so it is a choice of ranges that is watched: lines at the
 * beginning, in the middle, at the end, none. GDRCOPY_TEST_FULL=1 watches more.
 */
static void ranges(enum what what, const char *name, bool other_side)
{
	static const size_t few[][2] = {
		{ 0, 64 },  { 0, 128 },	 { 0, 200 }, { 1, 63 },	 { 3, 320 }, { 8, 131 },
		{ 13, 64 }, { 32, 128 }, { 33, 95 }, { 60, 65 }, { 63, 66 }, { 63, 448 },
	};
	static const size_t aligns[] = {
		0, 1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 31, 32, 33, 56, 60, 63
	};
	static const size_t sizes[] = { 1, 63, 64, 65, 127, 128, 131, 200, 319, 320, 321, 448 };
	bool full = getenv("GDRCOPY_TEST_FULL") != NULL;
	size_t count = full ? COUNT(aligns) * COUNT(sizes) : COUNT(few);

	for (size_t i = 0; i < count; i += unit_quick() ? 4 : 1) {
		size_t at = LINE + (full ? aligns[i / COUNT(sizes)] : few[i][0]);
		size_t n = full ? sizes[i % COUNT(sizes)] : few[i][1];

		check(what, name, at, at, n);
		if (other_side)
			check(what, name, at, LINE + 8 + at / 2, n);
	}
}

static void impls(void)
{
	for (size_t i = 0; impl_at(i); i++) {
		const struct gdri_copy_impl *impl = impl_at(i);

		if (impl->needs & ~gdri_cpu_detect()) {
			fprintf(stderr, "skipped: %s, not on this CPU\n", impl->name);
			continue;
		}
		use_impl(impl, GDR_MAPPING_TYPE_WC);
		if (impl->to)
			ranges(COPY_TO, impl->name, false);
		if (impl->from)
			ranges(COPY_FROM, impl->name, false);
	}
}

/* The edges are the same code everywhere: every alignment within a word, every small size. */
static void all_edges(void)
{
	static const size_t aligns[] = { 0, 1, 2, 3, 4, 5, 6, 7, 9, 31, 48, 57, 62, 63 };
	static const size_t sizes[] = { 1,  2,	3,  4,	5,  6,	7,  8,	9,  10, 11,
					12, 13, 14, 15, 16, 17, 23, 33, 63, 71, 127 };
	size_t skip = unit_quick() ? 5 : 1;

	use_impl(NULL, GDR_MAPPING_TYPE_WC);
	for (size_t a = 0; a < COUNT(aligns); a += skip)
		for (size_t n = 0; n < COUNT(sizes); n += skip)
			check(COPY_TO, "edges", LINE + aligns[a], LINE + 3, sizes[n]);
}

static void mapping_types(void)
{
	for (int type = GDR_MAPPING_TYPE_WC; type < GDR_MAPPING_TYPE_MAX; type++) {
		use_impl(NULL, (gdr_mapping_type_t)type);
		ranges(COPY_TO, "type", false);
		ranges(COPY_FROM, "type, read", type == GDR_MAPPING_TYPE_CACHING);
		ranges(VECTORED, "vectored", false);
	}
}

static void single_words(void)
{
	for (int type = GDR_MAPPING_TYPE_WC; type < GDR_MAPPING_TYPE_MAX; type++) {
		use_impl(NULL, (gdr_mapping_type_t)type);
		for (size_t at = 0; at < LINE; at += 4) {
			check(PUT32, "put32", LINE + at, LINE + at, 4);
			check(COPY_TO, "4 bytes", LINE + at, LINE + 1, 4);
			check(COPY_TO, "8 bytes at 4", LINE + at, LINE + 1, 8);
		}
		for (size_t at = 0; at < LINE; at += 8) {
			check(PUT64, "put64", LINE + at, LINE + at, 8);
			check(COPY_TO, "8 bytes", LINE + at, LINE + 1, 8);
			check(VECTORED, "a piece of 8 bytes", LINE + at, LINE + 1, 8);
		}
	}
}

static const struct unit_test tests[] = {
	{ "implementations", impls },
	{ "edges", all_edges },
	{ "mapping types", mapping_types },
	{ "single words", single_words },
};

UNIT_MAIN("copy: store discipline", tests, step_start(), unit_before = setup)
