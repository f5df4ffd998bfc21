// SPDX-License-Identifier: MIT
/*
 * What the copy engine does to a mapping on arm64, access by access.
 *
 * Device memory takes naturally aligned accesses only: an unaligned one is an alignment fault,
 * whatever SCTLR_EL1.A says (Arm ARM, "Alignment support", "Unaligned data access"). Emulation does
 * not enforce that, so each access is looked at instead. For the other types: every byte is stored
 * once, every aligned word in one store, and reads stay inside the lines, or for cached mappings
 * the bytes, that were asked for.
 *
 * GDRCOPY_TEST_QUICK=1 makes it small.
 */
#include "../copy_area.h"

#include "impls/impls.h"
#include "watch.h"

#define RANGE_MAX 320
#define FRONT	  (4 * LINE) /* room on both sides */

static struct watch *w;
static uint8_t host[RANGE_MAX + 2 * LINE], want[RANGE_MAX + 2 * LINE];
static const char *row_name;
static size_t at, size; /* of the range under test, from the start of the watched memory */

#define CHECK(cond, what)                                                                      \
	ck_assert_msg(cond, "%s, %s of %zu bytes at %zu: access %zu of %u bytes at %zu", what, \
		      row_name, size, at % LINE, i, w->access[i].size, w->access[i].at % LINE)

static void fill(uint8_t *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		p[i] = (uint8_t)(seed >> 24);
	}
}

/* Every access naturally aligned and single; of words only where it is device memory. */
static void check_shape(bool device)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct watch_access *a = &w->access[i];

		CHECK((a->size & (a->size - 1)) == 0 && a->at % a->size == 0, "unaligned");
		CHECK(!a->pair, "a pair");
		CHECK(!device || a->size <= 8, "too wide for device memory");
	}
}

static void check_stores(void)
{
	uint8_t times[RANGE_MAX] = { 0 }, wide[RANGE_MAX] = { 0 };

	for (size_t i = 0; i < w->count; i++) {
		const struct watch_access *a = &w->access[i];

		CHECK(a->store, "a load");
		CHECK(a->at >= at && a->at + a->size <= at + size, "outside the range");
		for (size_t b = a->at - at; b < a->at - at + a->size; b++) {
			CHECK(!times[b]++, "stored twice");
			wide[b] = (uint8_t)a->size;
		}
	}
	for (size_t b = 0; b < size; b++) {
		size_t i = 0, place = at + b;

		CHECK(times[b] == 1, "not stored");
		if (place % 8 == 0 && b + 8 <= size)
			CHECK(wide[b] >= 8, "an aligned word in pieces");
		else if (place % 4 == 0 && b + 4 <= size)
			CHECK(wide[b] >= 4, "an aligned half of a word in pieces");
	}
}

/* Loads inside [low, high), no byte of it twice. */
static void check_loads(size_t low, size_t high, bool once)
{
	uint8_t times[RANGE_MAX + 4 * LINE] = { 0 };

	for (size_t i = 0; i < w->count; i++) {
		const struct watch_access *a = &w->access[i];

		CHECK(!a->store, "a store");
		CHECK(a->at >= low && a->at + a->size <= high, "outside what may be read");
		for (size_t b = a->at - low; b < a->at - low + a->size; b++)
			CHECK(!times[b]++ || !once, "loaded twice");
	}
	for (size_t b = at - low; b < at - low + size; b++)
		ck_assert_msg(times[b], "%s: byte %zu of %zu was not loaded", row_name, b, size);
}

static void copy_to(const struct gdri_copy_plan *plan, size_t host_at)
{
	memset(w->plain, 0xcc, w->size);
	memset(want, 0xcc, sizeof(want));
	fill(host, sizeof(host), (uint32_t)(at * 131 + size));
	w->count = 0;
	gdri_copy_to(plan, w->memory + at, host + host_at, size);
	check_shape(plan->type == GDR_MAPPING_TYPE_DEVICE);
	check_stores();
	ck_assert_mem_eq(w->plain + at, host + host_at, size);
	ck_assert_mem_eq(w->plain + at - LINE, want, LINE);
	ck_assert_mem_eq(w->plain + at + size, want, LINE);
}

static void copy_from(const struct gdri_copy_plan *plan, size_t host_at)
{
	bool exact = plan->type == GDR_MAPPING_TYPE_CACHING;
	size_t unit = plan->type == GDR_MAPPING_TYPE_DEVICE ? 8 : LINE;

	fill(w->plain, w->size, (uint32_t)(at * 137 + size));
	memset(host, 0xcc, sizeof(host));
	memset(want, 0xcc, sizeof(want));
	memcpy(want + host_at, w->plain + at, size);
	w->count = 0;
	gdri_copy_from(plan, host + host_at, w->memory + at, size);
	if (exact) {
		check_loads(at, at + size, false);
	} else {
		check_shape(plan->type == GDR_MAPPING_TYPE_DEVICE);
		check_loads(at / unit * unit, (at + size + unit - 1) / unit * unit, true);
	}
	ck_assert_msg(!memcmp(host, want, sizeof(host)), "%s: wrong bytes from %zu, %zu of them",
		      row_name, at % LINE, size);
}

/* All places in a line, by steps; all small sizes, and others around whole lines. */
static void ranges(const struct gdri_copy_plan *plan, const char *name, bool to, bool from)
{
	size_t step = unit_quick() ? 9 : 5;

	row_name = name;
	for (at = FRONT; at < FRONT + LINE; at += step) {
		for (size = 1; size < RANGE_MAX; size++) {
			if (size > 24 && (at + size) % LINE > 1 &&
			    (at + size) % (unit_quick() ? 29 : 13))
				continue;
			if (to)
				copy_to(plan, LINE + size % 9);
			if (from)
				copy_from(plan, LINE + size % 7);
		}
	}
}

/* Each impl by name: those that have stores hold the discipline, those with loads stay in lines. */
static void each_row(void)
{
	gdr_mapping_type_t type = GDR_MAPPING_TYPE_WC + (unsigned int)unit_row;

	for (size_t i = 0; impl_at(i); i++) {
		const struct gdri_copy_impl *row = impl_at(i);
		struct gdri_copy_plan plan;

		ck_assert_int_eq(gdri_copy_plan_init(&plan, type, row->needs, row), 0);
		ranges(&plan, row->name, row->to, row->from);
	}
}

/* Words, vectored copies, waits and flushes on device memory. */
static void device_calls(void)
{
	const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_DEVICE);
	uint8_t bytes[3][40];

	row_name = "calls";
	fill(w->plain, w->size, 1);
	fill(&bytes[0][0], sizeof(bytes), 2);
	for (at = 0; at < LINE; at++) {
		barcopy_copy_seg_t seg[3] = {
			{ .map_ptr = w->memory + at, .host_ptr = bytes[0], .size = 40 },
			{ .map_ptr = w->memory + 128 + at, .host_ptr = bytes[1], .size = 17 },
			{ .map_ptr = w->memory + 256 + at,
			  .host_ptr = bytes[2],
			  .size = 5,
			  .flags = BARCOPY_COPY_ORDERED },
		};

		w->count = 0;
		gdri_copyv_to(plan, seg, 3, sizeof(*seg), 0);
		gdri_copyv_from(plan, seg, 3, sizeof(*seg), 0);
		gdri_put32(plan, w->memory + 4 * at, 1);
		gdri_put64(plan, w->memory + 8 * at, 1);
		ck_assert_uint_eq(gdri_get64(plan, w->memory + 8 * at), 1);
		(void)gdri_get32(plan, w->memory + 4 * at);
		(void)gdri_wait(plan, w->memory + 4 * at, 4, BARCOPY_CMP_EQ, 7, 0, &(uint64_t){ 0 });
		gdri_flush_word(plan, w->memory + 4 * at);
		ck_assert_uint_gt(w->count, 8);
		check_shape(true);
	}
}

/* The test of the test: a vector access and one off its alignment are seen as what they are. */
static void watch_itself(void)
{
	uint64_t word;

	__asm__ volatile("str q0, [%0]" ::"r"(w->memory + 16) : "memory");
	__asm__ volatile("ldr %0, [%1]" : "=r"(word) : "r"(w->memory + 3) : "memory");
	__asm__ volatile("stp xzr, xzr, [%0]" ::"r"(w->memory + 64) : "memory");
	__asm__ volatile("strh wzr, [%0, %1]" ::"r"(w->memory), "r"((size_t)5) : "memory");
	ck_assert_uint_eq(w->count, 5);
	ck_assert(w->access[0].store && w->access[0].size == 16 && w->access[0].at == 16);
	ck_assert(!w->access[1].store && w->access[1].size == 8 && w->access[1].at == 3);
	ck_assert(w->access[2].pair && w->access[2].size == 8 && w->access[2].at == 64);
	ck_assert(w->access[3].pair && w->access[3].size == 8 && w->access[3].at == 72);
	ck_assert(w->access[4].store && w->access[4].size == 2 && w->access[4].at == 5);
}

static void setup(void)
{
	w = watch_new(4096);
}

static const struct unit_test tests[] = {
	{ "the watch", watch_itself },
	{ "write-combined, cached, device", each_row, .rows = 3 },
	{ "device, calls", device_calls },
};

UNIT_MAIN("copy: every access, watched", tests, unit_before = setup)
