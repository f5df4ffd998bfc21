// SPDX-License-Identifier: MIT
/* The other side of the litmus tests; see litmus.h. */
#include "litmus.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "common/exit.h"
#include "ptx.h"

static const char *const kernel_name[PROTOCOLS] = {
	[PRODUCE] = "litmus_produce",
	[CONSUME] = "litmus_consume",
	[SEQLOCK] = "litmus_seqlock",
	[COUNT_UP] = "litmus_count_up",
};

void litmus_load(struct litmus_peer *peer)
{
	cuda_load_kernels(litmus_ptx, &peer->module, &peer->stream, ", or --peer thread");
	for (int i = 0; i < PROTOCOLS; i++)
		cuda_must(cu.ModuleGetFunction(&peer->kernel[i], peer->module, kernel_name[i]),
			  "cuModuleGetFunction");
}

/* ---- the thread in place of a GPU --------------------------------------------------------------
 * It uses cached host memory and, where the kernels use MEMBAR.SYS, C11 memory orders.
 */

#define AT32(addr) ((volatile uint32_t *)(uintptr_t)(addr))
#define AT64(addr) ((volatile uint64_t *)(uintptr_t)(addr))

static uint64_t twice(uint32_t v)
{
	return (uint64_t)v << 32 | v;
}

static void set32(uint64_t addr, uint32_t v)
{
	__atomic_store_n(AT32(addr), v, __ATOMIC_RELEASE);
}

static uint32_t get32(uint64_t addr)
{
	return __atomic_load_n(AT32(addr), __ATOMIC_ACQUIRE);
}

static void reach(uint64_t addr, uint32_t v)
{
	for (unsigned int polls = 0; get32(addr) < v; polls++)
		if (polls % 256 == 255)
			sched_yield();
}

/* Release stores, so that a sequence lock's odd number is visible before the block. */
static void store_block(const struct litmus_work *w, uint32_t v)
{
	for (uint32_t i = 0; i < w->words; i++)
		__atomic_store_n(AT64(w->data) + i, twice(v), __ATOMIC_RELEASE);
}

static void play_produce(const struct litmus_work *w)
{
	for (uint32_t round = 1; round <= w->rounds; round++) {
		store_block(w, round);
		set32(w->flag, round);
		reach(w->ack, round);
	}
}

static void play_consume(const struct litmus_work *w)
{
	uint32_t wrong = 0, torn = 0;

	for (uint32_t round = 1; round <= w->rounds; round++) {
		bool any_wrong = false, any_torn = false;

		reach(w->flag, round);
		for (uint32_t i = 0; i < w->words; i++) {
			uint64_t word = __atomic_load_n(AT64(w->data) + i, __ATOMIC_RELAXED);

			any_wrong |= word != twice(round);
			any_torn |= word != twice((uint32_t)word);
		}
		set32(w->report, wrong += any_wrong);
		set32(w->report + 4, torn += any_torn);
		set32(w->ack, round);
	}
}

static void play_seqlock(const struct litmus_work *w)
{
	for (uint32_t round = 0; !get32(w->ack);) {
		__atomic_store_n(AT32(w->flag), ++round, __ATOMIC_RELAXED);
		store_block(w, ++round);
		set32(w->flag, round);
		for (uint32_t pause = round * 0x9e3779b1u >> 20; pause; pause--)
			__asm__ volatile("" ::: "memory");
	}
}

static void play_count_up(const struct litmus_work *w)
{
	for (uint32_t round = 1; round <= w->rounds && !get32(w->ack); round++) {
		__atomic_store_n(AT64(w->data) + w->words - 1, twice(round), __ATOMIC_RELEASE);
		if (round % 64 == 0)
			sched_yield();
	}
}

static void *play(void *arg)
{
	static void (*const plays[PROTOCOLS])(const struct litmus_work *) = {
		[PRODUCE] = play_produce,
		[CONSUME] = play_consume,
		[SEQLOCK] = play_seqlock,
		[COUNT_UP] = play_count_up,
	};
	const struct litmus_work *w = &((struct litmus_peer *)arg)->work;

	plays[w->protocol](w);
	return NULL;
}

/* ---- GPU or thread ---- */

void litmus_start(struct litmus_peer *peer, const struct litmus_work *work)
{
	struct litmus_work w = *work;
	void *params[] = { &w.data, &w.flag, &w.ack, &w.report, &w.words, &w.rounds };
	unsigned int threads = w.words < 32 ? 32 : w.words > 256 ? 256 : w.words;

	peer->work = w;
	if (!peer->stream) {
		if (pthread_create(&peer->thread, NULL, play, peer))
			tool_fail("no thread could be started");
		return;
	}
	cuda_must(cu.LaunchKernel(peer->kernel[w.protocol], 1, 1, 1, threads, 1, 1, 0, peer->stream,
				  params, NULL),
		  "cuLaunchKernel");
}

void litmus_finish(struct litmus_peer *peer)
{
	if (peer->stream)
		cuda_must(cu.StreamSynchronize(peer->stream),
			  "a kernel failed: cuStreamSynchronize");
	else
		pthread_join(peer->thread, NULL);
}
