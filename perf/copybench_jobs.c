// SPDX-License-Identifier: MIT
/* Jobs timed in turn, and their tables; see copybench_jobs.h. */
#include "copybench_jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/timing.h"

#define SAMPLE_NS   100000.0 /* a sample is as many runs as take about this long, */
#define MAX_TIMES   2000 /* and no more than these */
#define TOO_LONG_NS 40e6 /* one run */

void table_show(const struct table *t, struct json *json)
{
	if (json) {
		json_object(json, NULL);
		json_string(json, "table", t->name);
		json_string(json, "unit", t->unit);
		json_array(json, "columns");
		for (size_t c = 0; c < t->columns; c++)
			json_string(json, NULL, t->column[c]);
		json_end(json);
		json_object(json, "lines");
		for (size_t l = 0; l < t->lines; l++) {
			json_array(json, t->line[l]);
			for (size_t c = 0; c < t->columns; c++)
				json_number(json, NULL, t->value[l][c] ? t->value[l][c] : NAN);
			json_end(json);
		}
		json_end(json);
		json_end(json);
		return;
	}
	printf("\n%s (%s)\n%-12s", t->name, t->unit, t->first);
	for (size_t c = 0; c < t->columns; c++)
		printf(" %10s", t->column[c]);
	printf("\n");
	for (size_t l = 0; l < t->lines; l++) {
		printf("%-12s", t->line[l]);
		for (size_t c = 0; c < t->columns; c++) {
			double v = t->value[l][c];

			if (v == 0)
				printf(" %10s", "-");
			else
				printf(" %10.*f", v < 1000 ? 1 : 0, v);
		}
		printf("\n");
	}
	fflush(stdout);
}

void size_text(char *text, size_t room, size_t size)
{
	if (size >= 1 << 20 && size % (1 << 20) == 0)
		snprintf(text, room, "%zuM", size >> 20);
	else if (size >= 1024 && size % 1024 == 0)
		snprintf(text, room, "%zuK", size >> 10);
	else
		snprintf(text, room, "%zu", size);
}

double time_job(const struct job *job, size_t times)
{
	uint64_t start = clock_raw_ns();

	job->run(job, times);
	return (double)(clock_raw_ns() - start) / (double)times;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void measure(struct job *job, size_t count, long rounds, double *value)
{
	static double sample[MAX_COLUMNS][101];
	size_t times[MAX_COLUMNS];

	for (size_t i = 0; i < count; i++) {
		double once;

		if (job[i].off)
			continue;
		once = time_job(&job[i], 1);
		once = once < TOO_LONG_NS ? time_job(&job[i], 1) : once;
		if (once > TOO_LONG_NS)
			job[i].off = true;
		times[i] = once < SAMPLE_NS ? (size_t)(SAMPLE_NS / once) + 1 : 1;
		if (times[i] > MAX_TIMES)
			times[i] = MAX_TIMES;
	}
	for (long round = 0; round < rounds; round++)
		for (size_t i = 0; i < count; i++)
			if (!job[i].off)
				sample[i][round] = time_job(&job[i], times[i]);
	for (size_t i = 0; i < count; i++) {
		value[i] = 0;
		if (job[i].off)
			continue;
		qsort(sample[i], (size_t)rounds, sizeof(double), by_value);
		value[i] = sample[i][rounds / 2];
	}
}
