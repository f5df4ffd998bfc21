/* SPDX-License-Identifier: MIT */
/* Percentiles, mean, histogram; see stats.h. */
#include "stats.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The smallest sample that at least p percent of all are not above. */
static uint64_t nearest_rank(const uint64_t *sorted, size_t count, unsigned int p)
{
	size_t rank = (count * p + 99) / 100;

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
	st->p50 = (double)nearest_rank(sample, count, 50) * scale;
	st->p90 = (double)nearest_rank(sample, count, 90) * scale;
	st->p99 = (double)nearest_rank(sample, count, 99) * scale;
	st->max = (double)sample[count - 1] * scale;
	st->mean = sum / (double)count * scale;
}

void stats_histogram(struct stats_bin *bin, size_t bins, const uint64_t *sample, size_t count,
		     double scale)
{
	uint64_t low = sample[0], high = nearest_rank(sample, count, 99);
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
