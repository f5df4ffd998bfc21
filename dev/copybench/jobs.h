/* SPDX-License-Identifier: MIT */
/*
 * Jobs that are timed in turn, and tables of their medians.
 */
#ifndef PERF_COPYBENCH_JOBS_H
#define PERF_COPYBENCH_JOBS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/json.h"
#include "impls/impls.h"

#define MAX_COLUMNS 16
#define MAX_LINES   32
#define MAX_ROUNDS  101

/* One job on one line: the median and the quartiles of its rounds; zeroes: not measured. */
struct figure {
	double median, low, high;
};

struct table {
	const char *name, *first; /* first: what the lines are */
	const char *unit;
	size_t columns, lines;
	const char *column[MAX_COLUMNS];
	char line[MAX_LINES][24];
	struct figure value[MAX_LINES][MAX_COLUMNS];
};

/*
 * Prints the table; if `json` is not NULL, adds it to the open array instead. If a column is called "again"
 * (the first column's job, repeated), the last column shows by how many percent the two differ.
 */
void table_show(const struct table *t, struct json *json);

/* "64K" */
void size_text(char *text, size_t room, size_t size);

struct job {
	const char *name;
	void (*run)(struct job *job, size_t times);
	struct gdri_copy_plan plan;
	const struct gdri_copy_impl *raw; /* not NULL: the implementation alone, without the plan */
	gdr_mh_t handle; /* 0: none, the job uses the plan */
	uint8_t *map; /* the mapping */
	uint8_t *host;
	size_t size, offset, count; /* offset: into a cache line; count: pieces or threads */
	size_t next; /* number of the next copy; place() computes its address */
	int how; /* which variant; each run() has its own */
	bool read, off; /* off: not measured on this line */
};

/* Runs the job `times` times; returns nanoseconds per run. */
double time_job(struct job *job, size_t times);

/*
 * Measures all jobs of a line in turn, `rounds` times (at most MAX_ROUNDS); each round begins with another
 * job. A job that is off gets zeroes. A job that takes too long is switched off.
 */
void measure(struct job *job, size_t count, long rounds, struct figure *value);

#endif
