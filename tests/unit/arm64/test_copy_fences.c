// SPDX-License-Identifier: MIT
/*
 * The fences, watched by their instruction words: every copy, word, wait and flush executes the barriers
 * that its mapping's type needs, where it needs them, and no other. copy_fences.h has the demands.
 */
#include "../copy_fences.h"

#include "watch.h"

static struct fence_watch watched = { .begin = watch_begin, .end = watch_end };

/* The test of the test: each barrier is seen as what it is, between accesses and without. */
START_TEST(test_watch)
{
	volatile uint8_t *map = watched.map;

	watch_begin();
	__asm__ volatile("dmb osh\n\tdmb oshld\n\tdmb oshst\n\tdsb oshld" ::: "memory");
	ck_assert_str_eq(watch_end(), "fdsD");
	watch_begin();
	(void)map[0], (void)map[64], map[0] = 1, (void)map[0];
	__asm__ volatile("dmb oshst" ::: "memory");
	ck_assert_str_eq(watch_end(), "rwrs");
	watch_begin();
	ck_assert_str_eq(watch_end(), "");
}
END_TEST

START_TEST(test_calls)
{
	copy_fences_all(&watched);
}
END_TEST

static void setup(void)
{
	watched.map = watch_new(WATCHED)->memory;
	watch_barriers();
}

int main(void)
{
	Suite *suite = suite_create("copy: fences");
	TCase *tc = tcase_create("calls");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_watch);
	tcase_add_test(tc, test_calls);
	suite_add_tcase(suite, tc);
	return unit_suite(suite, CK_FORK_GETENV);
}
