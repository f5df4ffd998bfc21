/* SPDX-License-Identifier: MIT */
/*
 * The kernels' side of a port over plain memory, one thread after another, while the CPU receives
 * nothing: a limit holds for each post. test_queue_ports.c has every interleaving.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"

/* What barcopy_queue.cuh needs of CUDA C++ (sim/warp.h), without lanes and without a clock that runs. */
#define BARCOPY_WARP_FN		 static inline __attribute__((unused))
#define __ballot_sync(mask, yes) ((unsigned int)(yes))
#define __any_sync(mask, yes)	 (yes)
#define __all_sync(mask, yes)	 (yes)
#define __shfl_sync(mask, v, src) (v)
#define __syncwarp(mask)	 ((void)0)
#define __popc(bits)		 __builtin_popcount(bits)
#define barcopy_warp_lane()	 0u
#define barcopy_warp_hint()	 0u
#define barcopy_warp_fence()	 ((void)0)
#define barcopy_warp_cycles()	 (cycles += 10)
#define barcopy_warp_now()	 (cycles += 10)

typedef unsigned long long u64;

static u64 cycles;
static unsigned int pauses;
static jmp_buf endless;

static u64 *at(u64 addr)
{
	return (u64 *)(uintptr_t)addr;
}

static void barcopy_warp_load(u64 addr, unsigned int acquire, u64 *v)
{
	(void)acquire;
	memcpy(v, at(addr), 16);
}

static void barcopy_warp_store(int yes, u64 addr, u64 v0, u64 v1)
{
	if (yes)
		memcpy(at(addr), (u64[]){ v0, v1 }, 16);
}

static u64 barcopy_warp_claim(u64 addr, u64 from, u64 to)
{
	u64 before = *at(addr);

	if (before == from)
		*at(addr) = to;
	return before;
}

static u64 barcopy_warp_add(u64 addr, u64 n)
{
	*at(addr) += n;
	return *at(addr) - n;
}

static u64 barcopy_warp_or(u64 addr, u64 bits)
{
	u64 before = *at(addr);

	*at(addr) |= bits;
	return before;
}

static void barcopy_warp_pause(void)
{
	cycles += 100;
	if (++pauses > 100000)
		longjmp(endless, 1);
}

#include "barcopy_queue.cuh"

/* Each thread makes one post, which finds space, then a try of several at once. */
static void tries(void)
{
	static const struct {
		unsigned int lines, threads, many;
	} table[] = { { 1024, 8, 256 }, { 256, 32, 16 }, { 16, 8, 4 }, { 1024, 512, 1 } };
	static const unsigned int data[12 * 256];

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const size_t size = BARCOPY_PORT_CONTROL + (size_t)table[i].lines * BARCOPY_PORT_SLOT;
		char *control = aligned_alloc(64, size);
		char *ring = aligned_alloc(64, (size_t)table[i].lines * 64);
		barcopy_poster_t *p = calloc(table[i].threads, sizeof(*p));
		barcopy_port_view_t view = {
			.ring = (uintptr_t)ring,
			.control = (uintptr_t)control,
			.generation = (u64)BARCOPY_QUEUE_VERSION << 56 | 1ull << 32,
			.lines = table[i].lines,
		};
		volatile unsigned int posts = 0;

		memset(control, 0, size);
		memset(ring, 0, (size_t)table[i].lines * 64);
		*at(view.control + BARCOPY_PORT_STATE_AT) = view.generation;
		for (unsigned int t = 0; t < table[i].threads; t++)
			barcopy_port_open(&p[t], view);
		for (volatile unsigned int t = 0; t < 2 * table[i].threads; t++) {
			barcopy_poster_t *poster = &p[t % table[i].threads];

			pauses = 0;
			if (setjmp(endless))
				ck_abort_msg("row %zu: the try of thread %u waits for ever", i, t);
			if (t < table[i].threads)
				posts += !!barcopy_port_post(poster, data, 48, 0, 0);
			else if (barcopy_port_post_many(poster, data, 48, table[i].many, 0, 0))
				posts += table[i].many;
		}
		ck_assert_uint_le(posts, table[i].lines);
		ck_assert_uint_gt(posts, table[i].lines - table[i].many);
		free(p);
		free(ring);
		free(control);
	}
}

static const struct unit_test tests[] = {
	{ "a try of several posts", tries, NULL },
};

UNIT_MAIN("ports, kernels' side", tests)
