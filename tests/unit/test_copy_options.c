// SPDX-License-Identifier: MIT
/*
 * barcopy_set_copy_options() where memory is freed, and its environment. Its arguments and failures
 * are rules of tests/model, the copy engine's own tests are in test_copy_engine.c.
 */

#include "mapped.h"

/* Ranges that share a pin: the options of each depend on its own memory alone. */
static void freed_neighbour(void)
{
	CUdeviceptr at[3];
	bool freed[3] = { false };
	gdr_mh_t range[3];
	void *cpu;

	for (int i = 0; i < 3; i++)
		at[i] = standin_alloc(256);
	ck_assert_uint_eq(at[0] / GPU_PAGE_SIZE, at[2] / GPU_PAGE_SIZE);
	for (int i = 0; i < 3; i++)
		OK(barcopy_map_range(g, at[i], 256, 0, &cpu, &range[i]));
	for (int next = 2; next >= 0; next -= 2) { /* the pin was made for the first */
		CU(cuda.cuMemFree_v2(at[next]));
		freed[next] = true;
		for (int i = 0; i < 3; i++) {
			h = range[i];
			FAILS(freed[i] ? EINVAL : 0, set(64, 64));
		}
	}
	for (int i = 0; i < 3; i++)
		OK(barcopy_unmap_range(g, range[i]));
}

/* Of a plain pin and of a range, the memory behind bytes that are no memory. */
static void freed_behind_hole(void)
{
	CUdeviceptr at[3];
	gdr_mh_t both[2];
	size_t size;
	void *cpu;

	for (int i = 0; i < 3; i++)
		at[i] = standin_alloc(4096);
	CU(cuda.cuMemFree_v2(at[1]));
	size = at[2] + 4096 - at[0];
	OK(gdr_pin_buffer_v2(g, at[0], size, 0, &both[0]));
	OK(barcopy_map_range(g, at[0], size, 0, &cpu, &both[1]));
	for (int freed = 0; freed < 2; freed++) {
		for (int i = 0; i < 2; i++) {
			h = both[i];
			FAILS(freed ? EINVAL : 0, set(64, 64));
		}
		if (!freed)
			CU(cuda.cuMemFree_v2(at[2]));
	}
	OK(gdr_unpin_buffer(g, both[0]));
	OK(barcopy_unmap_range(g, both[1]));
}

static void map_twice(void)
{
	start_mapped();
	OK(gdr_unmap(g, h, p, SIZE));
	map_now();
}

/* An invalid value is logged once and ignored; a variable without meaning is not read. */
static void wrong_environment(void)
{
	const char *text = "GDRCOPY_COPY_IMPL names no implementation";
	const char *first = strstr(unit_stderr_of(map_twice), text);

	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_null(strstr(first + 1, "GDRCOPY_COPY_IMPL"));
	both_ways(1, BIG);
	end();
}

static const struct unit_test tests[] = {
	{ "a neighbour is freed", freed_neighbour, "" },
	{ "freed behind a hole", freed_behind_hole, "" },
	{ "wrong environment", wrong_environment,
	  "GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=3 GDRCOPY_COPY_THREADS=lots "
	  "GDRCOPY_COPY_IMPL=best",
	  .bare = true },
};

UNIT_MAIN("copy options", tests, unit_before = start_mapped, unit_after = end)
