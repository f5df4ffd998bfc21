/* SPDX-License-Identifier: MIT */
/*
 * Jobs that are timed in turn, and the tables that their medians make. It knows what a copy plan
 * is, not what any job does with it.
 */
#ifndef PERF_COPYBENCH_JOBS_H
#define PERF_COPYBENCH_JOBS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/json.h"
#include "rows/rows.h"

#define MAX_COLUMNS 16
#define MAX_LINES   24

struct table {
	const char *name, *first; /* first: what the lines are */
	const char *unit;
	size_t columns, lines;
	const char *column[MAX_COLUMNS];
	char line[MAX_LINES][24];
	double value[MAX_LINES][MAX_COLUMNS]; /* 0: not measured, null in JSON */
};

/* Prints it; as a member of the open array of `json` if that is not NULL. */
void table_show(const struct table *t, struct json *json);

/* "64K" */
void size_text(char *text, size_t room, size_t size);

struct job {
	const char *name;
	void (*run)(const struct job *job, size_t times);
	struct gdri_copy_plan plan;
	const struct gdri_copy_row *raw; /* not NULL: the row alone, without the plan */
	struct gdri_copy_pool *pool; /* of a job that has one */
	size_t size, offset, count; /* offset: into a line; count: of pieces */
	int how; /* what the job makes of it */
	bool read, off; /* off: not on this line */
};

/* Nanoseconds that one of `times` runs takes. */
double time_job(const struct job *job, size_t times);

/*
 * All jobs of a line in turn, `rounds` times (101 at most); value[i] is the median in nanoseconds, 0
 * for a job that is off. A job that takes too long once is off from then on.
 */
void measure(struct job *job, size_t count, long rounds, double *value);

#endif
