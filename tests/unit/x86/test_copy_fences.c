// SPDX-License-Identifier: MIT
/*
 * The fences, watched: every copy, word, wait and flush executes the barriers that its mapping's
 * type needs, where it needs them, and no other. copy_fences.h has the demands, step.h the watch.
 *
 * dev/mutants.py takes one fence after another out of the sources and wants this to fail.
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
	copy_fences_all(&watch);
}

static void setup(void)
{
	watch.map = step_watch((size_t)1 << 20);
}

static const struct unit_test tests[] = {
	{ "the watch", watch_itself },
	{ "calls", every_call },
};

int main(int argc, char **argv)
{
	const char *reason = step_impossible();

	(void)argc;
	if (reason) {
		fprintf(stderr, "skipped: %s\n", reason);
		return 77;
	}
	unit_before = setup;
	return unit_main(argv, "copy: fences", tests, COUNT(tests));
}
