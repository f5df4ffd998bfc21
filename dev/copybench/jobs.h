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

/* Of the rounds of one job on one line: the median and the quartiles; zeroes: not measured. */
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
 * Prints it; as a member of the open array of `json` if that is not NULL. Where a column is called
 * "again", which is the first one's job a second time, a last column says how far the two are apart.
 */
void table_show(const struct table *t, struct json *json);

/* "64K" */
void size_text(char *text, size_t room, size_t size);

struct job {
	const char *name;
	void (*run)(struct job *job, size_t times);
	struct gdri_copy_plan plan;
	const struct gdri_copy_impl *raw; /* not NULL: the implementation alone, without the plan */
	gdr_mh_t handle; /* of a job that goes through one, */
	uint8_t *map; /* and where it is mapped */
	uint8_t *host;
	size_t size, offset, count; /* offset: into a line; count: of pieces */
	size_t next; /* the copy's number, from which its place comes */
	int how; /* what the job makes of it */
	bool read, off; /* off: not on this line */
};

/* Nanoseconds that one of `times` runs takes. */
double time_job(struct job *job, size_t times);

/*
 * All jobs of a line in turn, `rounds` times (MAX_ROUNDS at most), each round beginning with another
 * one; zeroes for a job that is off. A job that takes too long once is off from then on.
 */
void measure(struct job *job, size_t count, long rounds, struct figure *value);

#endif
