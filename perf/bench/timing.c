/* SPDX-License-Identifier: MIT */
/* The clock, and percentiles, mean, histogram; see timing.h. */
#include "bench/timing.h"

#include <stdlib.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

struct timing timing = { .ns_per_tick = 1.0 };

#define CALIBRATION_NS	20000000u
#define OVERHEAD_ROUNDS 2000

/* CPUID 80000007h EDX bit 8: the counter keeps one rate in all power states. */
static bool tsc_is_invariant(void)
{
#ifdef __x86_64__
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
#else
	return false;
#endif
}

void timing_init(void)
{
	uint64_t t0, t1, n0, n1, least = UINT64_MAX;
	int i;

	timing.tsc = tsc_is_invariant();
	if (timing.tsc) {
		n0 = clock_raw_ns();
		t0 = timing_ticks();
		do
			n1 = clock_raw_ns();
		while (n1 - n0 < CALIBRATION_NS);
		t1 = timing_ticks();
		if (t1 > t0)
			timing.ns_per_tick = (double)(n1 - n0) / (double)(t1 - t0);
		else
			timing.tsc = false;
	}
	for (i = 0; i < OVERHEAD_ROUNDS; i++) {
		t0 = timing_ticks();
		t1 = timing_ticks();
		if (t1 - t0 < least)
			least = t1 - t0;
	}
	timing.name = timing.tsc ? "TSC" : "CLOCK_MONOTONIC_RAW";
	timing.overhead_ns = (double)least * timing.ns_per_tick;
}

int timing_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The smallest sample that at least p of 10000 are not above. */
static uint64_t nearest_rank(const uint64_t *sorted, size_t count, unsigned int p)
{
	size_t rank = (count * p + 9999) / 10000;

	return sorted[rank ? rank - 1 : 0];
}

void stats_compute(struct stats *st, uint64_t *sample, size_t count, double scale)
{
	double sum = 0;
	size_t i;

	*st = (struct stats){ .count = count };
	if (!count)
		return;
	qsort(sample, count, sizeof(*sample), by_value);
	for (i = 0; i < count; i++)
		sum += (double)sample[i];
	st->p0 = (double)sample[0] * scale;
	st->p50 = (double)nearest_rank(sample, count, 5000) * scale;
	st->p99 = (double)nearest_rank(sample, count, 9900) * scale;
	st->p999 = (double)nearest_rank(sample, count, 9990) * scale;
	st->p9999 = (double)nearest_rank(sample, count, 9999) * scale;
	st->max = (double)sample[count - 1] * scale;
	st->mean = sum / (double)count * scale;
}

void stats_histogram(struct stats_bin *bin, size_t bins, const uint64_t *sample, size_t count,
		     double scale)
{
	uint64_t low = sample[0], high = nearest_rank(sample, count, 9900);
	double width = (double)(high - low) / (double)bins;
	size_t i, at;

	for (i = 0; i <= bins; i++) {
		bin[i].from = ((double)low + width * (double)i) * scale;
		bin[i].to = ((double)low + width * (double)(i + 1)) * scale;
		bin[i].count = 0;
	}
	bin[bins - 1].to = bin[bins].from = (double)high * scale;
	bin[bins].to = (double)sample[count - 1] * scale;
	for (i = 0; i < count; i++) {
		at = bins;
		if (sample[i] <= high)
			at = width > 0 ? (size_t)((double)(sample[i] - low) / width) : 0;
		if (at >= bins && sample[i] <= high)
			at = bins - 1; /* P99 itself */
		bin[at].count++;
	}
}
