/* SPDX-License-Identifier: MIT */
/* The kernels that the stand-in can run. */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "kernel.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Polls until *at is value. Returns false if *at became UINT32_MAX, or the time is over. */
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

/* The parameters of the pplat kernels, whose blocks do the same and run one after the other. */
struct pplat {
	_Atomic(uint32_t) *ping, *pong, *status, *data;
	uint32_t blocks, words, rounds;
	uint64_t timeout_ns;
};

/* Both kernels begin with u64 ping, pong, status, data, other, u32 words, rounds. */
static bool take_pplat(const struct sim_launch *launch, struct pplat *p, unsigned int timeout_at)
{
	p->blocks = launch->grid[0];
	memcpy(&p->words, launch->param[5], sizeof(p->words));
	memcpy(&p->rounds, launch->param[6], sizeof(p->rounds));
	memcpy(&p->timeout_ns, launch->param[timeout_at], sizeof(p->timeout_ns));
	p->ping = reach_param(launch, 0, sizeof(*p->ping));
	p->pong = reach_param(launch, 1, p->blocks * sizeof(*p->pong));
	p->status = reach_param(launch, 2, p->blocks * sizeof(*p->status));
	p->data = reach_param(launch, 3, p->words ? p->words * sizeof(*p->data) : 1);
	return p->ping && p->pong && p->status && p->data;
}

static void finish_round(const struct pplat *p, _Atomic(uint32_t) *word, uint32_t round)
{
	for (uint32_t i = 0; i < p->blocks; i++)
		atomic_store(&word[i], round);
}

/*
 * The first kernel of perf/pplat/ptx.h: (u64 ping, pong, status, message, answer, u32 words,
 * rounds, u64 timeout_ns). Each round: wait until ping is the round, answer each word by itself
 * plus the round, then set every block's status and pong.
 */
static void pplat(const struct sim_launch *launch)
{
	struct pplat p;
	_Atomic(uint32_t) *answer;
	uint32_t round, i;

	if (!take_pplat(launch, &p, 7))
		return;
	answer = reach_param(launch, 4, p.words ? p.words * sizeof(*answer) : 1);
	if (!answer)
		return;
	for (round = 1; round <= p.rounds; round++) {
		if (!wait_for(p.ping, round, p.timeout_ns))
			return;
		for (i = 0; i < p.words; i++)
			atomic_store(&answer[i], atomic_load(&p.data[i]) + round);
		finish_round(&p, p.status, round);
		finish_round(&p, p.pong, round);
	}
}

/*
 * The second kernel of perf/pplat/ptx.h: (u64 ping, pong, status, data, times, u32 words, rounds,
 * from, to, u64 timeout_ns). Each round: word i of the data is i plus the round; set every block's
 * pong, wait until ping is the round, set every status. A block's two times are those after the
 * rounds `from` and `to`.
 */
static void pplat_produce(const struct sim_launch *launch)
{
	struct pplat p;
	_Atomic(uint64_t) *times;
	uint32_t round, from, to, i;

	if (!take_pplat(launch, &p, 9))
		return;
	memcpy(&from, launch->param[7], sizeof(from));
	memcpy(&to, launch->param[8], sizeof(to));
	times = reach_param(launch, 4, 2 * p.blocks * sizeof(*times));
	if (!times)
		return;
	for (round = 1; round <= p.rounds; round++) {
		for (i = 0; i < p.words; i++)
			atomic_store(&p.data[i], i + round);
		finish_round(&p, p.pong, round);
		if (!wait_for(p.ping, round, p.timeout_ns))
			return;
		finish_round(&p, p.status, round);
		for (i = 0; i < p.blocks && (round == from || round == to); i++)
			atomic_store(&times[2 * i + (round == to)], now_ns());
	}
}

/* The kernel of examples/results.c: (u64 request, u64 result, u32 requests). */
static void example_results(const struct sim_launch *launch)
{
	enum { WORDS = 16, WORD_AT = 32, SUM_AT = 8 };
	_Atomic(uint32_t) *request = reach_param(launch, 0, (WORD_AT + WORDS) * sizeof(*request));
	_Atomic(uint32_t) *result = reach_param(launch, 1, (SUM_AT + 1) * sizeof(uint64_t));
	uint32_t requests;

	memcpy(&requests, launch->param[2], sizeof(requests));
	if (!request || !result)
		return;
	for (uint32_t n = 1; n <= requests; n++) {
		uint64_t sum = 0;

		while (atomic_load(request) != n)
			sched_yield();
		for (uint32_t i = 0; i < WORDS; i++)
			sum += atomic_load(&request[WORD_AT + i]);
		atomic_store(&((_Atomic(uint64_t) *)result)[SUM_AT], sum);
		atomic_store(result, n);
	}
}

const struct sim_kernel sim_kernels[] = {
	{ "gdrapi_example_results", 3, { 8, 8, 4 }, example_results },
	{ "gdrcopy_pplat", 8, { 8, 8, 8, 8, 8, 4, 4, 8 }, pplat },
	{ "gdrcopy_pplat_produce", 10, { 8, 8, 8, 8, 8, 4, 4, 4, 4, 8 }, pplat_produce },
	{ "gdrcopy_queue_echo", 2, { 40, 8 }, sim_queue_echo },
	{ "gdrcopy_queue_bulk", 3, { 40, 8, 4 }, sim_queue_bulk },
	{ "gdrcopy_port_posts", 6, { 32, 4, 4, 4, 4, 8 }, sim_port_posts },
	{ "gdrcopy_queue_slots", 5, { 8, 8, 4, 8, 8 }, sim_queue_slots },
	{ .name = NULL },
};
