/* SPDX-License-Identifier: MIT */
/*
 * The memory that copybench measures on: one buffer of GPU memory, mapped by handles with different options, and
 * host memory of both kinds; and jobs of one copy each.
 */
#ifndef PERF_COPYBENCH_SETUP_H
#define PERF_COPYBENCH_SETUP_H

#include "common/bench.h"
#include "jobs.h"

#define REGION	 ((size_t)64 << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* A further handle of the buffer, with copy options. */
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
	struct helped engine; /* the copy engine for everything */
	struct helped automatic; /* BARCOPY_COPY_ENGINE_AUTO */
	struct json json;
} st;

void setup_start(void);
void setup_stop(void);

void show(const struct table *t);

/* All jobs of a line, measured, as the table's next one, of that name. */
void line(struct table *t, struct job *job, size_t count, const char *name);
void size_line(struct table *t, struct job *job, size_t count, size_t size);

/* Where the job's next copy goes: through the region, never the same lines twice in a row. */
uint8_t *place(struct job *job);

/* One copy as the job's plan has it; a raw one is the implementation alone. */
void copy_once(const struct job *job, uint8_t *map, uint8_t *host);

/* The public call, on the buffer's plain handle. */
struct job library_job(const char *name);
/* The same on a handle with options; off where there is none. */
struct job helped_job(const char *name, const struct helped *helped, bool pinned);
/* The copies without an entry point; impl: NULL: the library's choice. */
struct job impl_job(const char *name, const char *impl);
/* The baseline does everything by itself, words and fences too. */
struct job baseline_job(const char *name);
/* Its reads between the fences that make them right. */
struct job fenced_job(const char *name);
struct job cuda_job(const char *name, bool pinned);

#endif
