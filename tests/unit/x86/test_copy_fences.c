// SPDX-License-Identifier: MIT
/*
 * The fences, watched: every copy, word, wait and flush executes the barriers that its mapping's type
 * needs, where it needs them, and no other. copy_fences.h has the demands, step.h the watch.
 *
 * tests/build/test_fences.sh takes one fence after another out of the sources and wants this to fail.
 */
#include "../copy_fences.h"

#include "copy/tune.h"
#include "step.h"

static struct fence_watch watch = { .begin = step_begin, .end = step_end };

START_TEST(test_watch)
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
END_TEST

START_TEST(test_calls)
{
	copy_fences_all(&watch);
}
END_TEST

/*
 * A job shared out: each thread that had a part of it has its own fences around it. Which threads do is
 * not up to us, so there are jobs until the worker has had its part; its first one goes unseen.
 */
static void shared_out(bool read, const char *want)
{
	const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_WC);
	size_t size = (read ? 4 : 2) * (read ? GDRI_POOL_PIECE_FROM : GDRI_POOL_PIECE_TO);
	uint8_t *host = calloc(1, size);
	struct gdri_copy_pool *pool;
	int parts = 0, unseen = 0;

	ck_assert_ptr_nonnull(host);
	ck_assert_int_eq(gdri_copy_pool_new(&pool, 2, -1), 0);
	gdri_copy_pool_tune(pool, 1, 0, 0); /* however small, it is shared */
	for (int job = 0; parts < 2 && job < 1000; job++) {
		parts = 0;
		step_others_begin();
		step_begin();
		if (read)
			gdri_copy_pool_copy(pool, plan, host, watch.map, size, false);
		else
			gdri_copy_pool_copy(pool, plan, watch.map, host, size, true);
		step_end();
		for (size_t i = 0; step_other(i); i++) {
			const char *got = step_other(i);

			/* A thread without a part has no fence either; the worker's first one goes half unseen. */
			if (!*got || (read && !unseen && i && !strcmp(got, "r" AFTER_READ))) {
				unseen += *got != 0;
				continue;
			}
			ck_assert_str_eq(got, want);
			parts++;
		}
	}
	step_stop();
	gdri_copy_pool_free(pool);
	ck_assert_int_eq(parts, 2);
	free(host);
}

START_TEST(test_pool_reads)
{
	shared_out(true, BEFORE_READ "r" AFTER_READ);
}
END_TEST

START_TEST(test_pool_writes)
{
	shared_out(false, "w" AFTER_WRITE);
}
END_TEST

static void setup(void)
{
	watch.map = step_watch((size_t)1 << 20);
}

int main(void)
{
	const char *reason = step_impossible();
	Suite *suite;
	TCase *tc;

	if (reason) {
		fprintf(stderr, "skipped: %s\n", reason);
		return 77;
	}
	suite = suite_create("copy: fences");
	tc = tcase_create("calls");
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_watch);
	tcase_add_test(tc, test_calls);
	suite_add_tcase(suite, tc);
	tc = tcase_create("pool");
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_pool_reads);
	tcase_add_test(tc, test_pool_writes);
	suite_add_tcase(suite, tc);
	return unit_suite(suite, CK_FORK_GETENV);
}
