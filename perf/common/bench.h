/* SPDX-License-Identifier: MIT */
/*
 * The frame of every measurement: the common options, the device, its NUMA node (by libnuma if that
 * is installed), one mapped buffer, and the facts that belong to every figure.
 */
#ifndef PERF_BENCH_H
#define PERF_BENCH_H

#include "buffer.h"
#include "json.h"
#include "opts.h"
#include "timing.h"

struct numa {
	int node; /* of the device; -1 if not known */
	bool bound; /* this process runs there and allocates there */
	const char *why_not; /* in words; NULL if bound */
};

struct bench {
	/* options */
	long device;
	int alloc; /* a mem_kind or ALLOC_ANY */
	int mapping; /* a gdr_map_flags_t */
	bool json, no_numa;
	const char *sim_dir; /* NULL: the installed driver */

	struct gpu gpu;
	struct numa numa;
	struct buffer buf;
	char cpu_model[128];
};

/*
 * Parses the tool's options and the common ones; enters --sim. The first call of main(). With
 * --json every later failure prints a document too.
 */
void bench_options(struct bench *b, const struct tool *tool, int argc, char **argv);

/* Everything up to a mapped buffer of `size` bytes; prints the facts unless --json. */
void bench_start(struct bench *b, size_t size);

/* Opens the document with the facts of bench_start(). */
void bench_json(const struct bench *b, struct json *j);

void bench_stop(struct bench *b);

/*
 * bench_stop(), after the last member of the document, or the last line: the comparison of the
 * data, whose result is `rc` (copytest.h); without `copied` there were no data to compare. Returns
 * the exit status.
 */
int bench_finish(struct bench *b, struct json *j, int rc, bool copied);

/* `asked` if that is not negative, else what moves `total` bytes: from `least` to 10000. */
long bench_iterations(long asked, size_t size, size_t total, long least);

/* Members of the open object. */
void bench_json_stats(struct json *j, const struct stats *st);

/* The next size of a sweep by powers of two that ends at `last`; 0 after that. Begins with 1. */
size_t bench_next_size(size_t size, size_t last);

#endif
