// SPDX-License-Identifier: MIT
/*
 * The fences, watched by their instruction words: every copy, word, wait and flush executes the
 * barriers that its mapping's type needs, where it needs them, and no other. copy_fences.h has the
 * demands.
 */
#include "../copy_fences.h"

#include "watch.h"

static struct fence_watch watched = { .begin = watch_begin,
				      .end = watch_end,
				      .keep_line = watch_keep_line };

/* The test of the test: each barrier is seen as what it is, between accesses and without. */
static void watch_itself(void)
{
	volatile uint8_t *map = watched.map;

	watch_begin();
	__asm__ volatile("dmb osh\n\tdmb oshld\n\tdmb oshst\n\tdsb oshld\n\tdsb oshst" ::: "memory");
	ck_assert_str_eq(watch_end(), "fdsDS");
	watch_begin();
	(void)map[0], (void)map[64], map[0] = 1, (void)map[0];
	__asm__ volatile("dmb oshst" ::: "memory");
	ck_assert_str_eq(watch_end(), "rwrs");
	watch_begin();
	ck_assert_str_eq(watch_end(), "");
}

static void every_call(void)
{
	copy_fences_all(&watched);
}

static void setup(void)
{
	watched.map = watch_new(WATCHED)->memory;
	watch_barriers();
}

static const struct unit_test tests[] = {
	{ "the watch", watch_itself },
	{ "calls", every_call },
};

UNIT_MAIN("copy: fences", tests, unit_before = setup)
