/* SPDX-License-Identifier: MIT */
/* The frame of every measurement: common options, device, NUMA node, one mapped buffer, facts. */
#ifndef PERF_BENCH_H
#define PERF_BENCH_H

#include "bench/timing.h"
#include "common/buffer.h"
#include "common/json.h"
#include "common/opts.h"

struct numa {
	int node; /* of the device; -1 if not known */
	const char *why_not; /* in words; NULL: this process runs there and allocates there */
};

struct bench {
	/* options */
	long device, cpu; /* cpu: -1: not chosen */
	int alloc; /* a mem_kind or ALLOC_ANY */
	int mapping; /* a gdr_map_flags_t */
	bool json;
	const char *sim_dir; /* NULL: the installed driver */

	struct gpu gpu;
	struct numa numa;
	struct buffer buf;
	char cpu_model[128];
};

/* The first call of main(): parses the tool's options and the common ones, and enters --sim. */
void bench_options(struct bench *b, const struct tool *tool, int argc, char **argv);

/* Everything up to a mapped buffer of `size` bytes; prints the facts unless --json. */
void bench_start(struct bench *b, size_t size);

/* Opens the document with the facts of bench_start(). */
void bench_json(const struct bench *b, struct json *j);

void bench_stop(struct bench *b);

/*
 * bench_stop(), after the end of the document or the last line: `rc` is the result of the
 * comparison of the data (copytest.h); without `copied` there were none to compare. Returns the
 * exit status.
 */
int bench_finish(struct bench *b, struct json *j, int rc, bool copied);

/* `asked` if that is not negative, else what moves `total` bytes: from `least` to 10000. */
long bench_iterations(long asked, size_t size, size_t total, long least);

/* Members of the open object. */
void bench_json_stats(struct json *j, const struct stats *st);

/* The next size of a sweep by powers of two that ends at `last`; 0 after that. Begins with 1. */
size_t bench_next_size(size_t size, size_t last);
/* How many sizes it gives from `first` on, that one too. */
size_t bench_size_count(size_t first, size_t last);

#endif
