/* SPDX-License-Identifier: MIT */
/*
 * What most unit tests share: a context for each test, its counts, a cache and its counts,
 * exportable memory, and a check that a CPU pointer and a device address are the same memory.
 */
#ifndef UNIT_FIXTURE_H
#define UNIT_FIXTURE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/expect.h"
#include "common/standin.h"
#include "common/unit.h"

#define FIXTURE __attribute__((unused)) static

enum { CHUNK = 2 << 20, PAGE = 65536 };

FIXTURE gdr_t g; /* the context of the running test; NULL after the test has closed it */

/* A context of every backend. */
FIXTURE gdr_t open_any(void)
{
	gdr_t ctx = barcopy_open(BARCOPY_OPEN_ANY);

	ck_assert_msg(ctx != NULL, "%s", barcopy_last_error());
	return ctx;
}

/* For unit_before and unit_after. */
FIXTURE void start(void)
{
	standin_start();
	g = open_any();
}

/* The test closes its context itself. */
FIXTURE void end_now(void)
{
	OK(gdr_close(g));
	g = NULL;
}

FIXTURE void end(void)
{
	if (g)
		end_now();
}

/* ctx NULL: the process. */
FIXTURE barcopy_stats_t stats_of(gdr_t ctx)
{
	barcopy_stats_t s;

	memset(&s, 0xaa, sizeof(s)); /* every count is written */
	s.struct_size = sizeof(s);
	OK(barcopy_get_stats(ctx, &s));
	ck_assert_uint_eq(s.struct_size, sizeof(s));
	return s;
}

/* Every call that touches what is mapped. */
FIXTURE void copies_refused(gdr_mh_t h, void *at, int err)
{
	barcopy_copy_seg_t seg = { .map_ptr = at, .host_ptr = &seg, .size = 1 };
	uint64_t value = 7, line[8] = { 0 };
	uint32_t word = 7;

	FAILS(err, gdr_copy_to_mapping(h, at, &value, 8));
	FAILS(err, gdr_copy_from_mapping(h, &value, at, 8));
	FAILS(err, gdr_copy_to_mapping(h, at, &value, 0));
	FAILS(err, barcopy_copyv_to_mapping(h, &seg, 1, 0));
	FAILS(err, barcopy_copyv_from_mapping(h, &seg, 1, 0));
	FAILS(err, barcopy_copyv_to_mapping(h, NULL, 0, 0));
	FAILS(err, barcopy_put32(h, at, 1));
	FAILS(err, barcopy_put64(h, at, 1));
	FAILS(err, barcopy_post32(h, at, 1));
	FAILS(err, barcopy_post64(h, at, 1));
	FAILS(err, barcopy_post_line(h, at, line));
	FAILS(err, barcopy_get32(h, at, &word));
	FAILS(err, barcopy_get64(h, at, &value));
	FAILS(err, barcopy_wait32(h, at, BARCOPY_CMP_EQ, 0, 0));
	FAILS(err, barcopy_wait64(h, at, BARCOPY_CMP_EQ, 0, 0));
	FAILS(err, barcopy_flush(h));
	FAILS(err, barcopy_fence(h, BARCOPY_FENCE_FULL));
	ck_assert_uint_eq(value, 7);
	ck_assert_uint_eq(word, 7);
}

/* ---- caches -------------------------------------------------------------- */

FIXTURE barcopy_cache_t new_cache(const barcopy_cache_options_t *o)
{
	barcopy_cache_t cache;

	OK(barcopy_cache_create(g, o, &cache));
	return cache;
}

#define OPTIONS(...) \
	(&(barcopy_cache_options_t){ .struct_size = sizeof(barcopy_cache_options_t), __VA_ARGS__ })

FIXTURE barcopy_cache_t cache_with(gdr_t ctx, barcopy_cache_validity_t validity, uint64_t max_bytes)
{
	barcopy_cache_t cache;

	OK(barcopy_cache_create(ctx, OPTIONS(.validity = validity, .max_bytes = max_bytes),
				&cache));
	return cache;
}

FIXTURE barcopy_cache_stats_t cache_stats(barcopy_cache_t cache)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };

	OK(barcopy_cache_get_stats(cache, &s));
	return s;
}

/* Gets 8 bytes and puts them back. */
FIXTURE void get_and_put(barcopy_cache_t cache, uint64_t addr)
{
	barcopy_region_t r;

	OK(barcopy_cache_get(cache, addr, 8, &r));
	OK(barcopy_cache_put(cache, &r));
}

/* ---- memory -------------------------------------------------------------- */

/* Exportable VMM memory of `count` chunks, at `hint` if that is free. */
FIXTURE CUdeviceptr vmm_new(CUdeviceptr hint, unsigned int count)
{
	return standin_chunks(hint, 0, count, CHUNK, STANDIN_EXPORTABLE);
}

FIXTURE void vmm_delete(CUdeviceptr ptr, unsigned int count)
{
	CU(cuda.cuMemUnmap(ptr, (size_t)count * CHUNK));
	CU(cuda.cuMemAddressFree(ptr, (size_t)count * CHUNK));
}

/* Other memory in the place of a chunk. */
FIXTURE void vmm_replace(CUdeviceptr at, int device)
{
	CU(cuda.cuMemUnmap(at, CHUNK));
	CU(cuda.cuMemRelease(standin_map_chunk(at, CHUNK, device, STANDIN_EXPORTABLE)));
}

/* cpu must be where the GPU has dptr: a word written on either side is read on the other. */
FIXTURE bool same_memory(gdr_mh_t mh, void *cpu, CUdeviceptr dptr)
{
	static _Atomic uint64_t next = 0x1234567800000000;
	uint64_t a = ++next, b = 0, c = ++next, d = 0;

	if (gdr_copy_to_mapping(mh, cpu, &a, 8) || cuda.cuMemcpyDtoH_v2(&b, dptr, 8) || a != b)
		return false;
	standin_to_gpu(dptr, &c, 8);
	return !gdr_copy_from_mapping(mh, &d, cpu, 8) && c == d;
}

#endif
