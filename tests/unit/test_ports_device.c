/* SPDX-License-Identifier: MIT */
/*
 * The kernels' side of a port over plain memory. One thread after another, while the CPU receives
 * nothing: a limit holds for each post, and tries of calls leave no lines out. And more threads than
 * test_queue_ports.c has, which has every interleaving of a few: all try, in random turns, while the
 * CPU retires each post at once.
 */
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "common/random.h"
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
#define barcopy_warp_now()	 (cycles += 10)

typedef unsigned long long u64;

static u64 cycles;
static unsigned int pauses;
static jmp_buf endless;

enum { CROWD = 256, STACK = 65536 };

/* Threads that take turns; `turn` is NULL where one runs by itself. */
static ucontext_t *turn, crowd[CROWD], scheduler;

static void next(void)
{
	if (turn)
		swapcontext(turn, &scheduler);
}

/* Of each access of a thread. */
static u64 *at(u64 addr)
{
	next();
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
	u64 *word = at(addr), before = *word;

	if (before == from)
		*word = to;
	return before;
}

static u64 barcopy_warp_add(u64 addr, u64 n)
{
	u64 *word = at(addr);

	*word += n;
	return *word - n;
}

static u64 barcopy_warp_or(u64 addr, u64 bits)
{
	u64 *word = at(addr), before = *word;

	*word |= bits;
	return before;
}

static void barcopy_warp_pause(void)
{
	cycles += 100;
	if (++pauses > 100000)
		longjmp(endless, 1);
}

#include "barcopy_queue.cuh"

static barcopy_port_view_t make_port(unsigned int lines)
{
	const size_t size = BARCOPY_PORT_CONTROL + (size_t)lines * BARCOPY_PORT_SLOT;
	char *control = aligned_alloc(64, size), *ring = aligned_alloc(64, (size_t)lines * 64);
	barcopy_port_view_t view = {
		.ring = (uintptr_t)ring,
		.control = (uintptr_t)control,
		.generation = (u64)BARCOPY_QUEUE_VERSION << 56 | 1ull << 32,
		.lines = lines,
	};

	memset(control, 0, size);
	memset(ring, 0, (size_t)lines * 64);
	*at(view.control + BARCOPY_PORT_STATE_AT) = view.generation;
	return view;
}

static void free_port(const barcopy_port_view_t *view)
{
	free((void *)(uintptr_t)view->ring);
	free((void *)(uintptr_t)view->control);
}

/* Each thread in turn makes its posts, which find space; then each makes a try of several at once. */
static void tries(void)
{
	static const struct {
		unsigned int lines, threads, many, posts;
	} table[] = { { 1024, 8, 256, 1 }, { 256, 32, 16, 1 }, { 16, 8, 4, 1 },
		      { 1024, 512, 1, 1 }, { 16, 16, 1, 1 },   { 16, 2, 1, 8 } };
	static const unsigned int data[12 * 256];

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const barcopy_port_view_t view = make_port(table[i].lines);
		barcopy_poster_t *p = calloc(table[i].threads, sizeof(*p));
		const unsigned int before = table[i].posts * table[i].threads;
		volatile unsigned int posts = 0;

		for (unsigned int t = 0; t < table[i].threads; t++)
			barcopy_port_open(&p[t], view);
		for (volatile unsigned int t = 0; t < before + table[i].threads; t++) {
			barcopy_poster_t *poster = &p[t < before ? t / table[i].posts : t - before];

			pauses = 0;
			if (setjmp(endless))
				ck_abort_msg("row %zu: post %u waits for ever", i, t);
			if (t < before)
				posts += !!barcopy_port_post(poster, data, 48, 0, 0);
			else if (barcopy_port_post_many(poster, data, 48, table[i].many, 0, 0))
				posts += table[i].many;
		}
		ck_assert_uint_le(posts, table[i].lines);
		ck_assert_uint_gt(posts, table[i].lines - table[i].many);
		free(p);
		free_port(&view);
	}
}

/*
 * All slots are taken. A try of a call that has a number, and finds its slot taken, leaves a line out,
 * which the CPU has to read: a thread does that once, and one that has not posted before not at all.
 */
static void no_slots(void)
{
	for (unsigned int posts = 0; posts < 2; posts++) {
		const barcopy_port_view_t view = make_port(16);
		const u64 ticket = view.control + BARCOPY_PORT_TICKET_AT;
		unsigned int data[12] = { 0 };
		barcopy_poster_t p;

		for (unsigned int i = 0; i < view.lines; i++)
			*at(view.control + BARCOPY_PORT_CONTROL + i * BARCOPY_PORT_SLOT +
			    BARCOPY_PORT_CLAIM_AT) = 1;
		barcopy_port_open(&p, view);
		if (posts)
			ck_assert_uint_eq(barcopy_port_post(&p, data, 48, 0, 0), 1);
		for (int i = 0; i < 100; i++) {
			pauses = 0;
			ck_assert_uint_eq(barcopy_port_ask(&p, data, 48, 0, 0), 0);
			*at(view.control + BARCOPY_PORT_RETIRED_AT) = *at(ticket);
		}
		/* A search looks at the clock at one of 16 polls. */
		pauses = 0;
		ck_assert_uint_eq(barcopy_port_ask(&p, data, 48, 500, 0), 0);
		ck_assert_uint_eq(pauses, 16);
		ck_assert_uint_eq(*at(ticket), 2 * posts);
		ck_assert_uint_eq(*at(view.control + BARCOPY_PORT_RESERVED_AT), *at(ticket));
		free_port(&view);
	}
}

/* ---- threads that take turns -------------------------------------------------- */

static barcopy_port_view_t crowded;
static unsigned int crowd_posts;

/* One of two threads begins anew with each try. */
static void try_on(void)
{
	static const unsigned int data[12];
	const bool anew = (turn - crowd) % 2;
	barcopy_poster_t p;

	for (bool open = false;; open = !anew) {
		if (!open)
			barcopy_port_open(&p, crowded);
		crowd_posts += !!barcopy_port_post(&p, data, 48, 0, 0);
	}
}

/*
 * Sixteen threads for each line. The CPU retires each post before the next access of any thread, so in
 * nearly all of the time the ring is empty. Questions in vain would make one another be in vain.
 */
static void many_tries(void)
{
	static const unsigned int steps = 400000;
	char *stacks = malloc((size_t)CROWD * STACK);
	unsigned int half = 0;
	unsigned long long random = 1;
	u64 *retired, *ticket;

	crowded = make_port(CROWD / 16);
	retired = at(crowded.control + BARCOPY_PORT_RETIRED_AT);
	ticket = at(crowded.control + BARCOPY_PORT_TICKET_AT);
	for (int i = 0; i < CROWD; i++) {
		getcontext(&crowd[i]);
		crowd[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
		crowd[i].uc_stack.ss_size = STACK;
		makecontext(&crowd[i], try_on, 0);
	}
	crowd_posts = 0;
	for (unsigned int i = 0; i < steps; i++) {
		if (i == steps / 2)
			half = crowd_posts;
		pauses = 0;
		turn = &crowd[unit_random(&random) % CROWD];
		swapcontext(&scheduler, turn);
		*retired = *ticket;
	}
	turn = NULL;
	/* Of 100 accesses one is a post's last; with questions in vain no post ends after the first ones. */
	ck_assert_uint_gt(crowd_posts - half, steps / 2 / 400);
	free(stacks);
	free_port(&crowded);
}

static const struct unit_test tests[] = {
	{ "a try of several posts", tries, NULL },
	{ "tries of calls without a slot", no_slots, NULL },
	{ "tries of many threads", many_tries, NULL },
};

UNIT_MAIN("ports, kernels' side", tests)
