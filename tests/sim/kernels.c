/* SPDX-License-Identifier: MIT */
/*
 * The kernels that the stand-in can run. It knows nothing of modules or launches.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "kernel.h"

/* (u64 address, u32 value): one store, visible to the whole system. */
static void store32(const struct sim_launch *launch)
{
	_Atomic(uint32_t) *at;
	uint64_t addr;
	uint32_t value;

	memcpy(&addr, launch->param[0], sizeof(addr));
	memcpy(&value, launch->param[1], sizeof(value));
	at = sim_kernel_reach(addr, sizeof(value));
	if (at)
		atomic_store(at, value);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Polls until *at is value; false: it is UINT32_MAX, or the time is over. */
static bool wait_for(_Atomic(uint32_t) *at, uint32_t value, uint64_t timeout_ns)
{
	uint64_t start = now_ns();
	uint32_t seen;

	while ((seen = atomic_load(at)) != value) {
		if (seen == UINT32_MAX || now_ns() - start >= timeout_ns)
			return false;
		sched_yield();
	}
	return true;
}

static void *reach_param(const struct sim_launch *launch, unsigned int n, size_t size)
{
	uint64_t addr;

	memcpy(&addr, launch->param[n], sizeof(addr));
	return sim_kernel_reach(addr, size);
}

/*
 * The kernel of perf/pplat.c: (u64 ping, pong, status, message, answer, u32 words, rounds,
 * u64 timeout_ns). Each round: wait until ping is the round, answer each word by itself plus the
 * round, then set status and pong.
 */
static void pplat(const struct sim_launch *launch)
{
	_Atomic(uint32_t) *ping, *pong, *status, *message, *answer;
	uint32_t words, rounds, round, i;
	uint64_t timeout_ns;

	memcpy(&words, launch->param[5], sizeof(words));
	memcpy(&rounds, launch->param[6], sizeof(rounds));
	memcpy(&timeout_ns, launch->param[7], sizeof(timeout_ns));
	ping = reach_param(launch, 0, sizeof(*ping));
	pong = reach_param(launch, 1, sizeof(*pong));
	status = reach_param(launch, 2, sizeof(*status));
	message = reach_param(launch, 3, words ? words * sizeof(*message) : 1);
	answer = reach_param(launch, 4, words ? words * sizeof(*answer) : 1);
	if (!ping || !pong || !status || !message || !answer)
		return;
	for (round = 1; round <= rounds; round++) {
		if (!wait_for(ping, round, timeout_ns))
			return;
		for (i = 0; i < words; i++)
			atomic_store(&answer[i], atomic_load(&message[i]) + round);
		atomic_store(status, round);
		atomic_store(pong, round);
	}
}

/* The kernel of examples/ring.c: (u64 ring, u32 messages). */
static void example_ring(const struct sim_launch *launch)
{
	enum { SLOTS = 16, WORDS = 64, SLOT_AT = 96, TAIL_AT = 32, SUM_AT = 32 };
	_Atomic(uint32_t) *ring = reach_param(launch, 0, (SLOT_AT + SLOTS * WORDS) * sizeof(*ring));
	uint32_t messages, tail;
	uint64_t sum = 0;

	memcpy(&messages, launch->param[1], sizeof(messages));
	if (!ring)
		return;
	for (tail = 0; tail < messages; tail++) {
		while (atomic_load(&ring[0]) == tail)
			sched_yield();
		for (uint32_t i = 0; i < WORDS; i++)
			sum += atomic_load(&ring[SLOT_AT + tail % SLOTS * WORDS + i]);
		atomic_store(&ring[TAIL_AT], tail + 1);
	}
	atomic_store(&((_Atomic(uint64_t) *)ring)[SUM_AT], sum);
}

const struct sim_kernel sim_kernels[] = {
	{ .name = "gdrapi_example_ring",
	  .n_params = 2,
	  .param_size = { 8, 4 },
	  .run = example_ring },
	{ .name = "gdrcopy_pplat",
	  .n_params = 8,
	  .param_size = { 8, 8, 8, 8, 8, 4, 4, 8 },
	  .run = pplat },
	{ .name = "gdrsim_store32", .n_params = 2, .param_size = { 8, 4 }, .run = store32 },
	{ .name = NULL },
};
