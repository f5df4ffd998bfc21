// SPDX-License-Identifier: MIT
/*
 * The fences, watched: every copy, word, wait and flush executes the barriers that its mapping's
 * type needs, where it needs them, and no other. copy_fences.h has the demands, step.h the watch.
 *
 * tests/mutants/mutants.py takes one fence after another out of the sources and wants this to fail.
 * GDRCOPY_TEST_QUICK=1 makes it smaller.
 */
#include "../copy_fences.h"

#include "step.h"

static struct fence_watch watch = { .begin = step_begin,
				    .end = step_end,
				    .set_before = step_set_before,
				    .keep_line = step_keep_line };

static void watch_itself(void)
{
	volatile uint8_t *map = watch.map;
	static const char *const want[] = { "r", "w", "msl", "rwr", "sw", "" };
	const char *got[6];
	char text[6][16];

	step_begin();
	(void)map[5], (void)map[4096];
	got[0] = strcpy(text[0], step_end());
	step_begin();
	map[5] = 1, map[8192] = 1;
	got[1] = strcpy(text[1], step_end());
	step_begin();
	__asm__ volatile("mfence\n\tsfence\n\tlfence" ::: "memory");
	got[2] = strcpy(text[2], step_end());
	step_begin();
	(void)map[0], map[0] = 7, (void)map[0];
	got[3] = strcpy(text[3], step_end());
	step_begin();
	__asm__ volatile("sfence" ::: "memory");
	map[3] = 1;
	got[4] = strcpy(text[4], step_end());
	step_begin();
	got[5] = strcpy(text[5], step_end());
	for (size_t i = 0; i < 6; i++)
		ck_assert_str_eq(got[i], want[i]);
}

static void every_call(void)
{
	watch.brief = unit_quick();
	copy_fences_all(&watch);
}

#define OLD 0x1111111111111111u
#define NEW 0x2222222222222222u

/* No aligned word of 2, 4 or 8 bytes of the mapping was read half old and half new. */
static bool is_torn(const uint8_t *host, size_t at, size_t n)
{
	for (size_t width = 2; width <= 8; width *= 2)
		for (size_t i = -at & (width - 1); i + width <= n; i += width)
			for (size_t j = 1; j < width; j++)
				if (host[i + j] != host[i])
					return true;
	return false;
}

/*
 * The words of a mapping are read whole, wherever both sides lie: a word becomes new before the
 * first access of a read, before the second, and so on.
 */
static void whole_words(void)
{
	static const size_t sizes[] = { 3, 8, 24 };
	_Alignas(64) static uint8_t host[256];
	volatile uint64_t *words = (volatile uint64_t *)(void *)watch.map;

	for (size_t i = 0; i < 64; i++)
		words[i] = OLD;
	for (int type = GDR_MAPPING_TYPE_WC; type <= GDR_MAPPING_TYPE_CACHING; type++) {
		const struct gdri_copy_plan *plan = gdri_copy_plan((gdr_mapping_type_t)type);

		for (size_t place = 0; place < COUNT(sizes) * 3; place++) {
			size_t n = sizes[place / 3], at = 61 + place % 3 * 3, to = 5 * place % 9;
			uint64_t *word = (uint64_t *)(void *)(watch.map + (at + n / 2) / 8 * 8);
			bool changed = true;

			for (unsigned int nth = 1; changed; nth++) {
				step_set_before(nth, word, NEW);
				step_begin();
				gdri_copy_from(plan, host + to, watch.map + at, n);
				step_end();
				step_set_before(0, NULL, 0);
				changed = *(volatile uint64_t *)word == NEW;
				*(volatile uint64_t *)word = OLD;
				ck_assert_msg(!is_torn(host + to, at, n),
					      "type %d, %zu bytes at %zu to %zu: a word in parts",
					      type, n, at, to);
			}
		}
	}
}

static void setup(void)
{
	watch.map = step_watch((size_t)1 << 20);
}

static const struct unit_test tests[] = {
	{ "the watch", watch_itself },
	{ "calls", every_call },
	{ "reads of whole words", whole_words },
};

UNIT_MAIN("copy: fences", tests, step_start(), unit_before = setup)
