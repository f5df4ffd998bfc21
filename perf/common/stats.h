/* SPDX-License-Identifier: MIT */
/* Order statistics of a set of samples. It must not know what was sampled. */
#ifndef PERF_STATS_H
#define PERF_STATS_H

#include <stddef.h>
#include <stdint.h>

struct stats {
	size_t count;
	double p0, p50, p90, p99, max; /* nearest rank: always a value that was seen */
	double mean;
};

/* Sorts `sample` in place; each value is multiplied by `scale` for the result. */
void stats_compute(struct stats *st, uint64_t *sample, size_t count, double scale);

struct stats_bin {
	double from, to; /* from <= value < to; the last bin has its end too */
	size_t count;
};

/*
 * `bins` bins of one width from P0 to P99, and bin[bins] for what is above, up to the maximum.
 * `sample` as stats_compute() left it, count at least 1.
 */
void stats_histogram(struct stats_bin *bin, size_t bins, const uint64_t *sample, size_t count,
		     double scale);

#endif
