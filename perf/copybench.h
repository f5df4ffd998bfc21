/* SPDX-License-Identifier: MIT */
/*
 * What the parts of copybench share: the options, the mapping, and jobs that are copies on it.
 */
#ifndef PERF_COPYBENCH_H
#define PERF_COPYBENCH_H

#include "common/bench.h"
#include "copybench_jobs.h"

#define REGION	 ((size_t)64 << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

extern struct copybench_opt {
	int section;
	long rounds;
	size_t max;
	bool host;
} opt;

extern struct copybench {
	struct bench b;
	uint8_t *map, *host, *pinned;
	size_t region;
	gdr_mapping_type_t type;
	bool engine; /* the handle may use the copy engine */
	struct json json;
} st;

void show(const struct table *t);

/* All jobs of a line, measured, as the table's next one. */
void line(struct table *t, struct job *job, size_t count);

/* Where the n-th copy of a size goes: through the region, never the same lines twice in a row. */
uint8_t *place(const struct job *job, size_t n);

/* One copy as the job's plan has it; a raw one is its row alone, with what fences the row has. */
static inline void copy_once(const struct job *job, uint8_t *map, uint8_t *host)
{
	if (!job->raw && job->read)
		gdri_copy_from(&job->plan, host, map, job->size);
	else if (!job->raw)
		gdri_copy_to(&job->plan, map, host, job->size);
	else if (job->read)
		job->raw->from(host, map, job->size);
	else
		job->raw->to(map, host, job->size);
}

void run_copies(const struct job *job, size_t times);

/* row: of the table; NULL: the library's choice. */
struct job copy_job(const char *name, const char *row);

/* The baseline does everything by itself, words and fences too. */
struct job baseline_job(const char *name);

/* copybench_calls.c: each a table or two */
void vectors_section(const char *name, size_t stride);
void drain_section(void);
void call_section(void);
void threads_section(void);
void pool_section(void);

#endif
