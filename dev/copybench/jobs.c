// SPDX-License-Identifier: MIT
/* Times jobs in turn and prints their tables; see jobs.h. */
#include "jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/timing.h"

#define SAMPLE_NS   200000.0 /* a sample has as many runs as take about this long... */
#define MAX_TIMES   4000 /* ...but at most this many */
#define TOO_LONG_NS 40e6 /* a job whose single run takes longer is switched off */

static void show_figures(struct json *json, const char *name, const struct table *t, size_t at)
{
	json_object(json, name);
	for (size_t l = 0; l < t->lines; l++) {
		json_array(json, t->line[l]);
		for (size_t c = 0; c < t->columns; c++) {
			const struct figure *f = &t->value[l][c];
			double v = at == 0 ? f->median : at == 1 ? f->low : f->high;

			json_number(json, NULL, f->median != 0 ? v : NAN);
		}
		json_end(json);
	}
	json_end(json);
}

static void show_json(const struct table *t, struct json *json)
{
	json_object(json, NULL);
	json_string(json, "table", t->name);
	json_string(json, "unit", t->unit);
	json_array(json, "columns");
	for (size_t c = 0; c < t->columns; c++)
		json_string(json, NULL, t->column[c]);
	json_end(json);
	show_figures(json, "lines", t, 0);
	show_figures(json, "low_quartile", t, 1);
	show_figures(json, "high_quartile", t, 2);
	json_end(json);
}

/* The column that repeats the first one; 0: no column does. */
static size_t again(const struct table *t)
{
	for (size_t c = 1; c < t->columns; c++)
		if (!strcmp(t->column[c], "again"))
			return c;
	return 0;
}

void table_show(const struct table *t, struct json *json)
{
	size_t twin = again(t);

	if (json) {
		show_json(t, json);
		return;
	}
	printf("\n%s (%s)\n%-12s", t->name, t->unit, t->first);
	for (size_t c = 0; c < t->columns; c++)
		printf(" %10s", t->column[c]);
	printf("%s\n", twin ? "    apart" : "");
	for (size_t l = 0; l < t->lines; l++) {
		const struct figure *f = t->value[l];

		printf("%-12s", t->line[l]);
		for (size_t c = 0; c < t->columns; c++) {
			if (f[c].median == 0)
				printf(" %10s", "-");
			else
				printf(" %10.*f", f[c].median < 1000 ? 1 : 0, f[c].median);
		}
		if (twin && f[0].median != 0)
			printf(" %7.1f%%", 100 * fabs(f[twin].median / f[0].median - 1));
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

double time_job(struct job *job, size_t times)
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

void measure(struct job *job, size_t count, long rounds, struct figure *value)
{
	static double sample[MAX_COLUMNS][MAX_ROUNDS];
	size_t n = (size_t)rounds, times[MAX_COLUMNS];

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
	for (size_t round = 0; round < n; round++)
		for (size_t i = 0; i < count; i++) {
			size_t at = (i + round) % count;

			if (!job[at].off)
				sample[at][round] = time_job(&job[at], times[at]);
		}
	for (size_t i = 0; i < count; i++) {
		value[i] = (struct figure){ 0 };
		if (job[i].off)
			continue;
		qsort(sample[i], n, sizeof(double), by_value);
		value[i] = (struct figure){ sample[i][n / 2], sample[i][n / 4],
					    sample[i][n - 1 - n / 4] };
	}
}
