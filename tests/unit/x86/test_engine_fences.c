// SPDX-License-Identifier: MIT
/*
 * The fences around a copy by the GPU's copy engine, watched (step.h): what core/offload.c adds to those of
 * the copies, which test_copy_fences.c is for.
 */
#include <stdio.h>

#include "common/standin.h"
#include "common/unit.h"
#include "copy/copy.h"
#include "core/offload.h"
#include "step.h"

/* The letters are those of copy_fences.h: m MFENCE, l LFENCE, s SFENCE. */

/*
 * What this CPU has written is out before the engine begins, and nothing that follows passes it.
 * The host's memory is watched too, so that the engine's own access is seen between; where the engine is
 * not asked after all, the mapping's own copy is behind both.
 */
START_TEST(test_both_ways)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = 1,
				     .engine_write_min = 1 };
	struct gdri_region region = { .low = 0 };
	uint8_t *map = step_watch((size_t)1 << 20);
	static uint8_t own[300];
	const struct gdri_copy_plan *plan;
	struct gdri_offload *offload;
	const char *got;

	standin_start();
	region.low = standin_alloc(GPU_PAGE_SIZE);
	region.high = region.low + GPU_PAGE_SIZE;
	region.pin = (struct gdri_pin){ .backend = &gdri_backend_rm,
					.va = region.low,
					.mapped_size = GPU_PAGE_SIZE,
					.map_length = GPU_PAGE_SIZE,
					.map_type = GDR_MAPPING_TYPE_WC,
					.map = map };
	ck_assert_int_eq(gdri_parts_take(&region, region.low, region.high), 0);
	for (int known = 1; known >= 0; known--) {
		uint8_t *host = known ? map + ((size_t)512 << 10) : own;

		ck_assert_int_eq(gdri_offload_new(&region, &region.pin, &o, &offload), 0);
		plan = gdri_offload_plan(offload);
		step_begin();
		gdri_copy_to(plan, map + 5, host, sizeof(own));
		got = step_end();
		ck_assert_str_eq(got, known ? "srm" : "smws");
		step_begin();
		gdri_copy_from(plan, host, map + 5, sizeof(own));
		got = step_end();
		ck_assert_str_eq(got, known ? "mswm" : "msmmrl");
		gdri_offload_free(offload);
		gdri_region_free_parts(&region); /* then nothing is proven */
	}
}
END_TEST

int main(void)
{
	const char *reason = step_impossible();
	Suite *suite;
	TCase *tc;

	if (reason) {
		fprintf(stderr, "skipped: %s\n", reason);
		return 77;
	}
	suite = suite_create("copy engine: fences");
	tc = tcase_create("copy engine");
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_both_ways);
	suite_add_tcase(suite, tc);
	return unit_suite(suite, CK_FORK_GETENV);
}
