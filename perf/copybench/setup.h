/* SPDX-License-Identifier: MIT */
/*
 * What the sections of copybench share: jobs that are timed in turn, tables of their medians, and
 * the memory that they use: one buffer of GPU memory, mapped by handles with different options, and
 * pageable and page-locked host memory.
 */
#ifndef DEV_COPYBENCH_SETUP_H
#define DEV_COPYBENCH_SETUP_H

#include "bench/bench.h"
#include "impls/impls.h"

#define MAX_COLUMNS 16
#define MAX_LINES   32
#define MAX_ROUNDS  101
#define REGION	    ((size_t)64 << 20)
#define COUNT(a)    (sizeof(a) / sizeof((a)[0]))

/* A job on a line: the median and the quartiles of its rounds; zeroes: not measured. */
struct figure {
	double median, low, high;
};

struct table {
	const char *name, *unit;
	size_t columns, lines;
	const char *column[MAX_COLUMNS];
	char line[MAX_LINES][24];
	struct figure value[MAX_LINES][MAX_COLUMNS];
};

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

/* Another handle of the buffer. */
struct helped {
	gdr_mh_t handle;
	uint8_t *map;
	bool works;
};

extern struct copybench {
	struct bench b;
	long rounds;
	size_t max;
	uint8_t *map, *host, *pinned; /* REGION bytes each */
	gdr_mapping_type_t type;
	struct helped engine; /* every copy by the copy engine */
	struct helped automatic; /* BARCOPY_COPY_ENGINE_AUTO */
	struct json json;
	size_t section, sections; /* for the line of progress: which one is measured, of how many */
} st;

void setup_start(void);
void setup_stop(void);

/* One more handle, with the copy engine from that size on (0: no options), and its end. */
struct helped pin_again(uint64_t addr, size_t size, size_t engine_min);
void unpin(const struct helped *helped);

/* Adds the table to the document. */
void show(const struct table *t);

/*
 * Measures all jobs in turn, st.rounds times, each round beginning with another job, and adds their
 * figures to the table as the next line, of that name. A job that takes too long is switched off.
 */
void line(struct table *t, struct job *job, size_t count, const char *name);
void size_line(struct table *t, struct job *job, size_t count, size_t size);

/* The address of the job's next copy: through the region, never the same lines twice in a row. */
uint8_t *place(struct job *job);

/* One copy by the job's plan or, if job->raw is set, by that implementation alone. */
void copy_once(const struct job *job, uint8_t *map, uint8_t *host);

/* Ends the tool if a call of the library failed. */
void must(int rc);

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

/* The sections: sizes.c, small.c, help.c. Each measures and shows one table or several. */
void read_section(void);
void write_section(void);
void edges_section(void);
void vectors_section(void);
void flags_section(void);
void engine_section(void);
void threads_section(void);

#endif
