/* SPDX-License-Identifier: MIT */
/* Round trips; see rounds.h. */
#include "pplat/rounds.h"

#include <stdlib.h>

#include "common/copytest.h"
#include "common/exit.h"
#include "common/timing.h"

#define WARM_UP 10

static size_t words_of(const struct pplat *p)
{
	return p->size / sizeof(uint32_t);
}

static int check_answer(struct pplat *p, uint32_t round)
{
	for (size_t i = 0; i < words_of(p); i++)
		p->message[i] += round; /* now what the answer must be */
	return copytest_compare("answer", 0, (const uint8_t *)p->message,
				(const uint8_t *)p->answer, p->size);
}

int pplat_cpu_first(struct pplat *p, uint64_t *sample)
{
	CUdeviceptr ping = pplat_address(p, p->ping, PING_AT);
	CUdeviceptr pong = pplat_address(p, p->pong, PONG_AT);
	CUdeviceptr status = pplat_address(p, CPU, STATUS_AT);
	CUdeviceptr message = pplat_address(p, p->data, MESSAGE_AT);
	CUdeviceptr answer = pplat_address(p, p->data, p->answer_at);
	uint32_t words = (uint32_t)words_of(p), rounds = (uint32_t)(p->rounds + WARM_UP);
	uint64_t timeout_ns = pplat_timeout_ns(p), t0, t1;
	void *params[] = { &ping, &pong, &status, &message, &answer, &words, &rounds, &timeout_ns };
	int rc = 0;

	pplat_clear(p);
	pplat_launch(p, "gdrcopy_pplat", params);
	for (uint32_t i = 1; i <= rounds && !rc; i++) {
		if (p->size)
			copytest_random(p->message, p->size, i);
		t0 = timing_ticks();
		pplat_write_message(p);
		pplat_set_ping(p, i);
		pplat_wait_pongs(p, i);
		pplat_read_answer(p);
		t1 = timing_ticks();
		if (i > WARM_UP)
			sample[i - WARM_UP - 1] = t1 - t0;
		if (p->size)
			rc = check_answer(p, i);
	}
	if (rc)
		pplat_set_ping(p, PPLAT_STOP);
	return pplat_finish(p, rc, rounds);
}

/* Checks every word that the kernel wrote, or only the last one, which does not delay the next round. */
static int check_data(struct pplat *p, uint32_t round, bool all)
{
	size_t words = words_of(p), first = all ? 0 : words - 1, i;

	for (i = first; i < words; i++)
		p->message[i] = (uint32_t)i + round;
	return copytest_compare(
		"data", first * sizeof(uint32_t), (const uint8_t *)(p->message + first),
		(const uint8_t *)(p->answer + first), (words - first) * sizeof(uint32_t));
}

static double mean_us_of(const struct pplat *p)
{
	uint64_t from = UINT64_MAX, to = 0;

	for (long i = 0; i < p->blocks; i++) {
		uint64_t begin = pplat_time(p, i, 0), end = pplat_time(p, i, 1);

		from = begin < from ? begin : from;
		to = end > to ? end : to;
	}
	return (double)(to - from) / 1000 / (double)p->rounds;
}

int pplat_gpu_first(struct pplat *p, double *mean_us)
{
	CUdeviceptr ping = pplat_address(p, p->ping, PING_AT);
	CUdeviceptr pong = pplat_address(p, p->pong, PONG_AT);
	CUdeviceptr status = pplat_address(p, CPU, STATUS_AT);
	CUdeviceptr data = pplat_address(p, p->data, p->answer_at);
	CUdeviceptr times = pplat_address(p, CPU, TIMES_AT);
	uint32_t words = (uint32_t)words_of(p), from = WARM_UP;
	uint32_t to = from + (uint32_t)p->rounds, rounds = to + WARM_UP;
	uint64_t timeout_ns = pplat_timeout_ns(p);
	void *params[] = { &ping,  &pong,   &status, &data, &times,
			   &words, &rounds, &from,   &to,   &timeout_ns };
	int rc = 0;

	pplat_clear(p);
	pplat_launch(p, "gdrcopy_pplat_produce", params);
	for (uint32_t i = 1; i <= rounds && !rc; i++) {
		pplat_wait_pongs(p, i);
		pplat_read_answer(p);
		pplat_after_read(p);
		if (p->size)
			rc = check_data(p, i, i <= from || i > to);
		pplat_set_ping(p, rc ? PPLAT_STOP : i);
	}
	rc = pplat_finish(p, rc, rounds);
	if (!rc)
		*mean_us = mean_us_of(p);
	return rc;
}
