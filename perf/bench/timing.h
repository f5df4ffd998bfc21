/* SPDX-License-Identifier: MIT */
/*
 * A clock for calls of some tens of ns, the TSC where its rate is constant, and order statistics.
 */
#ifndef PERF_TIMING_H
#define PERF_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct timing {
	bool tsc;
	const char *name;
	double ns_per_tick;
	double overhead_ns; /* least cost of one reading, which is part of each sample */
};

/* Constant after timing_init(). */
extern struct timing timing;

/* Chooses the clock, calibrates it (20 ms) and measures its overhead. */
void timing_init(void);

static inline uint64_t clock_raw_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t timing_ticks(void)
{
#ifdef __x86_64__
	if (__builtin_expect(timing.tsc, 1)) {
		uint32_t lo, hi;

		/* LFENCE: RDTSC waits until every instruction before it has completed, and no
		 * later one starts before the second (Intel SDM volume 2, RDTSC). */
		__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(lo), "=d"(hi)::"memory");
		return ((uint64_t)hi << 32) | lo;
	}
#endif
	return clock_raw_ns();
}

/* For qsort() of doubles. */
int timing_by_value(const void *a, const void *b);

struct stats {
	size_t count;
	double p0, p50, p99, p999, p9999, max; /* nearest rank: always a value that was seen */
	double mean;
};

/* Sorts `sample` in place; each value is multiplied by `scale` for the result. */
void stats_compute(struct stats *st, uint64_t *sample, size_t count, double scale);

struct stats_bin {
	double from, to; /* from <= value < to; the last bin has its end too */
	size_t count;
};

/* `bins` bins of one width from P0 to P99; bin[bins]: above. `sample` is sorted and not empty. */
void stats_histogram(struct stats_bin *bin, size_t bins, const uint64_t *sample, size_t count,
		     double scale);

#endif
