/* SPDX-License-Identifier: MIT */
/* Percentiles and mean; see stats.h. */
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
