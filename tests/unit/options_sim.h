/* SPDX-License-Identifier: MIT */
/*
 * What the tests of copy options share: 8 MiB of exportable memory, mapped, a pattern, and what the
 * counters of the copy engine say.
 */
#ifndef OPTIONS_SIM_H
#define OPTIONS_SIM_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/expect.h"
#include "common/standin.h"
#include "barcopy.h"

#define SIZE ((size_t)8 << 20)
#define BIG  ((size_t)3 << 20)

struct mapped {
	struct standin_vmm v;
	gdr_t g;
	gdr_mh_t h;
	uint8_t *p;
	uint64_t copies, fallbacks; /* of the context, before those that are looked at */
};

static uint8_t *buf, *got; /* SIZE bytes each */

__attribute__((unused)) static void map_now(struct mapped *m)
{
	void *va;

	OK(gdr_map(m->g, m->h, &va, SIZE));
	m->p = va;
}

__attribute__((unused)) static void open_mapped(struct mapped *m)
{
	standin_start();
	standin_vmm_alloc(&m->v, 0, 4, STANDIN_GRANULE, true);
	m->g = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_ptr_nonnull(m->g);
	OK(gdr_pin_buffer_v2(m->g, m->v.ptr, SIZE, 0, &m->h));
	map_now(m);
	m->copies = m->fallbacks = 0;
	buf = malloc(SIZE);
	got = malloc(SIZE);
	ck_assert(buf && got);
	for (size_t i = 0; i < SIZE; i++)
		buf[i] = (uint8_t)(i * 7 + i / 251);
}

__attribute__((unused)) static void close_mapped(struct mapped *m)
{
	OK(gdr_close(m->g));
	standin_vmm_free(&m->v);
	free(buf);
	free(got);
}

__attribute__((unused)) static int set(struct mapped *m, size_t read_min, size_t write_min)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = read_min,
				     .engine_write_min = write_min };

	return barcopy_set_copy_options(m->h, &o);
}

__attribute__((unused)) static barcopy_stats_t stats_of(struct mapped *m)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	OK(barcopy_get_stats(m->g, &s));
	return s;
}

/* Copies that the copy engine has done since they were asked for last, and that came back. */
__attribute__((unused)) static void check_counts(struct mapped *m, uint64_t copies,
						 uint64_t fallbacks)
{
	barcopy_stats_t s = stats_of(m);

	ck_assert_uint_eq(s.engine_copies - m->copies, copies);
	ck_assert_uint_eq(s.engine_fallbacks - m->fallbacks, fallbacks);
}

/* From here on they are counted anew. */
__attribute__((unused)) static void start_counts(struct mapped *m)
{
	barcopy_stats_t s = stats_of(m);

	m->copies = s.engine_copies;
	m->fallbacks = s.engine_fallbacks;
}

/* Out, compared with CUDA's view, changed, and back. */
__attribute__((unused)) static void both_ways(struct mapped *m, size_t at, size_t size)
{
	memset(got, 0, size);
	OK(gdr_copy_to_mapping(m->h, m->p + at, buf + 1, size));
	CU(cuda.cuMemcpyDtoH_v2(got, m->v.ptr + at, size));
	ck_assert_int_eq(memcmp(got, buf + 1, size), 0);
	CU(cuda.cuMemcpyHtoD_v2(m->v.ptr + at, buf + 2, size));
	OK(gdr_copy_from_mapping(m->h, got, m->p + at, size));
	ck_assert_int_eq(memcmp(got, buf + 2, size), 0);
}

#endif
