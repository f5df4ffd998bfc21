/* SPDX-License-Identifier: MIT */
/*
 * What the tests of copies share: 8 MiB of exportable memory, pinned and mapped, for each test; a
 * pattern; and how many copies the copy engine has done.
 */
#ifndef UNIT_MAPPED_H
#define UNIT_MAPPED_H

#include "fixture.h"

#define SIZE ((size_t)8 << 20)
#define BIG  ((size_t)3 << 20)

FIXTURE struct standin_vmm v;
FIXTURE gdr_mh_t h;
FIXTURE uint8_t *p; /* the mapping */
FIXTURE uint8_t buf[SIZE], got[SIZE];
FIXTURE barcopy_stats_t counted; /* what check_counts() subtracts */

FIXTURE void map_now(void)
{
	void *va;

	OK(gdr_map(g, h, &va, SIZE));
	p = va;
}

FIXTURE void start_mapped(void)
{
	start();
	standin_vmm_alloc(&v, 0, 4, STANDIN_GRANULE, true);
	OK(gdr_pin_buffer_v2(g, v.ptr, SIZE, 0, &h));
	map_now();
	for (size_t i = 0; i < SIZE; i++)
		buf[i] = (uint8_t)(i * 7 + i / 251);
}

FIXTURE int set(size_t read_min, size_t write_min)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = read_min,
				     .engine_write_min = write_min };

	return barcopy_set_copy_options(h, &o);
}

/* Copies by the engine, and those that it gave back, since start_counts(). */
FIXTURE void check_counts(uint64_t copies, uint64_t fallbacks)
{
	barcopy_stats_t s = stats_of(g);

	ck_assert_uint_eq(s.engine_copies - counted.engine_copies, copies);
	ck_assert_uint_eq(s.engine_fallbacks - counted.engine_fallbacks, fallbacks);
}

FIXTURE void start_counts(void)
{
	counted = stats_of(g);
}

/* To the mapping, compared with CUDA's view, changed by CUDA, and back. */
FIXTURE void both_ways(size_t at, size_t size)
{
	memset(got, 0, size);
	OK(gdr_copy_to_mapping(h, p + at, buf + 1, size));
	CU(cuda.cuMemcpyDtoH_v2(got, v.ptr + at, size));
	ck_assert_mem_eq(got, buf + 1, size);
	standin_to_gpu(v.ptr + at, buf + 2, size);
	OK(gdr_copy_from_mapping(h, got, p + at, size));
	ck_assert_mem_eq(got, buf + 2, size);
}

#endif
