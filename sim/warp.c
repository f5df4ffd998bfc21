/* SPDX-License-Identifier: MIT */
/* See warp.h. */
#define _GNU_SOURCE
#include "warp.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include "sim.h"

enum { LANES = 32, STACK = 65536, LOOKS = 64 };

#if defined(__SANITIZE_THREAD__)
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned int flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned int flags);
#else
#define __tsan_get_current_fiber()	  NULL
#define __tsan_create_fiber(flags)	  NULL
#define __tsan_destroy_fiber(fiber)	  ((void)(fiber))
#define __tsan_switch_to_fiber(fiber, no) ((void)(fiber))
#endif

struct lane {
	ucontext_t at;
	void *fiber;
	unsigned int turn; /* collective calls so far */
	bool done;
};

struct warp {
	struct lane lane[LANES], caller;
	unsigned int now, left; /* the lane that runs, and how many have not returned */
	uint64_t value[2][LANES]; /* a lane may be one collective call ahead of another */
	void (*fn)(void *arg);
	void *arg;
	unsigned long looks, stall;
	uint64_t random;
	bool any_order;
	bool threads; /* lanes take turns between collective calls too */
};

static _Thread_local struct warp *warp;

static void go(struct lane *from, struct lane *to)
{
	__tsan_switch_to_fiber(to->fiber, 0);
	swapcontext(&from->at, &to->at);
}

static uint64_t random_number(void)
{
	warp->random = warp->random * 6364136223846793005u + 1442695040888963407u;
	return warp->random >> 33;
}

/* Any of the lanes that wait for no other: those with the fewest collective calls. */
static unsigned int any_lane(void)
{
	unsigned int least = ~0u, n = 0, lanes[LANES];

	for (unsigned int i = 0; i < LANES; i++) {
		const struct lane *lane = &warp->lane[i];

		if (lane->done || lane->turn > least)
			continue;
		if (lane->turn < least)
			n = 0;
		least = lane->turn;
		lanes[n++] = i;
	}
	return lanes[random_number() % n];
}

static void next_lane(void)
{
	struct lane *from = &warp->lane[warp->now];

	warp->now = warp->any_order || warp->threads ? any_lane() : (warp->now + 1) % LANES;
	if (from != &warp->lane[warp->now])
		go(from, &warp->lane[warp->now]);
}

static void lane_main(void)
{
	struct lane *self = &warp->lane[warp->now];

	warp->fn(warp->arg);
	self->done = true;
	if (--warp->left)
		next_lane();
	else
		go(self, &warp->caller);
}

void sim_warp_run(void (*fn)(void *arg), void *arg)
{
	struct warp *w = calloc(1, sizeof(*w));
	const char *order = getenv("GDRSIM_WARP_ORDER");
	static atomic_ulong runs;
	char *stacks = mmap(NULL, (size_t)LANES * STACK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!w || stacks == MAP_FAILED)
		abort();
	w->fn = fn;
	w->arg = arg;
	w->left = LANES;
	w->stall = (unsigned long)sim_env("GDRSIM_WARP_STALL", 0);
	w->any_order = order && !strcmp(order, "random");
	w->random = 0x9e3779b97f4a7c15 * ++runs;
	w->caller.fiber = __tsan_get_current_fiber();
	for (unsigned int i = 0; i < LANES; i++) {
		getcontext(&w->lane[i].at);
		w->lane[i].at.uc_stack.ss_sp = stacks + (size_t)i * STACK;
		w->lane[i].at.uc_stack.ss_size = STACK;
		w->lane[i].fiber = __tsan_create_fiber(0);
		makecontext(&w->lane[i].at, lane_main, 0);
	}
	warp = w;
	w->now = w->any_order ? any_lane() : 0;
	go(&w->caller, &w->lane[w->now]);
	warp = NULL;
	for (unsigned int i = 0; i < LANES; i++)
		__tsan_destroy_fiber(w->lane[i].fiber);
	munmap(stacks, (size_t)LANES * STACK);
	free(w);
}

unsigned int sim_warp_lane(void)
{
	return warp->now;
}

const uint64_t *sim_warp_gather(uint64_t value)
{
	uint64_t *all = warp->value[warp->lane[warp->now].turn++ & 1];

	all[warp->now] = value;
	next_lane();
	return all;
}

/* A real GPU polls while the CPU runs; here it must let the CPU run. */
static void stall(void)
{
	const struct timespec pause = { .tv_nsec = 1000 };

	if (++warp->looks % LOOKS == 0) {
		sched_yield();
		if (warp->threads)
			next_lane();
	}
	if (!warp->stall)
		return;
	if (random_number() % warp->stall == 0)
		nanosleep(&pause, NULL);
}

uint64_t sim_warp_load(uint64_t addr)
{
	stall();
	return __atomic_load_n((const uint64_t *)(uintptr_t)addr, __ATOMIC_ACQUIRE);
}

void sim_warp_store(uint64_t addr, uint64_t value)
{
	stall();
	__atomic_store_n((uint64_t *)(uintptr_t)addr, value, __ATOMIC_RELEASE);
}

uint64_t sim_warp_add(uint64_t addr, uint64_t n)
{
	uint64_t before = __atomic_fetch_add((uint64_t *)(uintptr_t)addr, n, __ATOMIC_SEQ_CST);

	sim_warp_pause();
	return before;
}

uint64_t sim_warp_or(uint64_t addr, uint64_t bits)
{
	uint64_t before = __atomic_fetch_or((uint64_t *)(uintptr_t)addr, bits, __ATOMIC_SEQ_CST);

	sim_warp_pause();
	return before;
}

uint64_t sim_warp_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sim_warp_pause(void)
{
	warp->threads = true;
	stall();
	next_lane();
}

uint64_t sim_warp_claim(uint64_t addr, uint64_t from, uint64_t to)
{
	stall();
	__atomic_compare_exchange_n((uint64_t *)(uintptr_t)addr, &from, to, 0, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return from;
}
