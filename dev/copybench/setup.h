/* SPDX-License-Identifier: MIT */
/*
 * The memory that copybench uses: one buffer of GPU memory, mapped by handles with different options, and
 * pageable and page-locked host memory. Also the jobs that make one copy per run.
 */
#ifndef PERF_COPYBENCH_SETUP_H
#define PERF_COPYBENCH_SETUP_H

#include "common/bench.h"
#include "jobs.h"

#define REGION	 ((size_t)64 << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Another handle of the buffer, with copy options. */
struct helped {
	gdr_mh_t handle;
	uint8_t *map;
	bool there;
};

extern struct copybench {
	struct bench b;
	long rounds;
	size_t max;
	bool host_only; /* no GPU */
	uint8_t *map, *host, *pinned; /* REGION bytes each; pinned: NULL without a GPU */
	gdr_mapping_type_t type;
	struct helped engine; /* every copy by the copy engine */
	struct helped automatic; /* BARCOPY_COPY_ENGINE_AUTO */
	struct json json;
} st;

void setup_start(void);
void setup_stop(void);

void show(const struct table *t);

/* Measures all jobs; adds their figures to the table as the next line, of that name. */
void line(struct table *t, struct job *job, size_t count, const char *name);
void size_line(struct table *t, struct job *job, size_t count, size_t size);

/* The address of the job's next copy: walks through the region, never the same lines twice in a row. */
uint8_t *place(struct job *job);

/* One copy by the job's plan or, if job->raw is set, by that implementation alone. */
void copy_once(const struct job *job, uint8_t *map, uint8_t *host);

/* The public call, on the buffer's handle without options. */
struct job library_job(const char *name);
/* The public call on a handle with options; off if that handle could not be made. */
struct job helped_job(const char *name, const struct helped *helped, bool pinned);
/* The copies without their entry point. impl NULL: the implementation that the library chooses. */
struct job impl_job(const char *name, const char *impl);
/* GDRCopy 2.6's copies, with their own fences. */
struct job baseline_job(const char *name);
/* The baseline's reads between the library's fences, which make them correct. */
struct job fenced_job(const char *name);
struct job cuda_job(const char *name, bool pinned);

#endif
