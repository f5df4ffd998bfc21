/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy_copylat: latency of single CPU copies to and from GPU memory, by size. It must not know
 * how the library copies.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/bench.h"
#include "common/cache.h"
#include "common/copytest.h"
#include "common/exit.h"
#include "common/progress.h"
#include "common/stats.h"
#include "common/timing.h"
#include "common/words.h"

static struct {
	size_t size;
	long writes, reads; /* -1: by the size */
	bool compare, cold, engine;
} opt = { .size = (size_t)4 << 20, .writes = -1, .reads = -1 };

static const struct opt options[] = {
	{ 's', "size", OPT_SIZE, &opt.size, "SIZE", "largest copy, and the buffer (4M)", 1, 0,
	  NULL },
	{ 'w', "write-iters", OPT_COUNT, &opt.writes, "N",
	  "copies to the GPU a size (1 GiB in all, 100 to 10000);\n"
	  "0: none",
	  0, 100000000, NULL },
	{ 'r', "read-iters", OPT_COUNT, &opt.reads, "N",
	  "copies from the GPU a size (128 MiB in all, 100 to\n"
	  "10000); 0: none",
	  0, 100000000, NULL },
	{ 'c', "compare", OPT_FLAG, &opt.compare, NULL,
	  "time cuMemcpy of the same sizes too, with pageable and\n"
	  "with page-locked host memory",
	  0, 0, NULL },
	{ 'E', "engine", OPT_FLAG, &opt.engine, NULL,
	  "let the GPU's copy engine have what it copies faster\n"
	  "(BARCOPY_COPY_ENGINE_AUTO), from page-locked host memory",
	  0, 0, NULL },
	{ 'C', "cold", OPT_FLAG, &opt.cold, NULL,
	  "flush the host buffer from the CPU's caches before each\n"
	  "copy",
	  0, 0, NULL },
};

static const struct tool tool = {
	"gdrcopy_copylat",
	"Measures the latency of single CPU copies to and from GPU memory, by size.",
	"  Each call is timed by itself, after 10 untimed ones; the cost of one reading of the\n"
	"  clock (-v prints it) is part of each figure. P0, P50 and P99 are values that were\n"
	"  seen (nearest rank), in microseconds. A write is over when the CPU's fence is, not "
	"when\n"
	"  the GPU has the data. cuMemcpy is called synchronously and over when it returns.\n"
	"  Before each loop both sides get random bytes, through cuMemcpy on the GPU's side; "
	"after\n"
	"  it every byte of the buffer is compared.",
	options,
	sizeof(options) / sizeof(options[0]),
};

static const char examples[] = "  gdrcopy_copylat -s 64K\n"
			       "      single copies of 1 byte to 64 KiB\n"
			       "  gdrcopy_copylat -s 4K -c\n"
			       "      and cuMemcpy of the same sizes beside them\n"
			       "  gdrcopy_copylat -s 1M -E -w 0\n"
			       "      reads, large ones by the copy engine";

enum direction { WRITE, READ };
enum way { MAPPING, CUDA_PAGEABLE, CUDA_PINNED, WAYS };

static const char *const direction_name[] = { "write", "read" };
static const char *const way_name[] = { "mapping", "cuMemcpy_pageable", "cuMemcpy_pinned" };

struct state {
	struct bench b;
	struct copytest test;
	uint8_t *pinned; /* host side of CUDA_PINNED, and of all with --engine */
	uint64_t *sample; /* one a call */
};

/* One copy of each kind; `host` and the start of the buffer. 0, or not. */
static inline int write_mapping(struct state *s, uint8_t *host, size_t size)
{
	return gdr_copy_to_mapping(s->b.buf.mh, s->b.buf.cpu, host, size);
}

static inline int read_mapping(struct state *s, uint8_t *host, size_t size)
{
	return gdr_copy_from_mapping(s->b.buf.mh, host, s->b.buf.cpu, size);
}

static inline int write_cuda(struct state *s, uint8_t *host, size_t size)
{
	return cu.MemcpyHtoD(s->b.buf.mem.dptr, host, size) != CUDA_SUCCESS;
}

static inline int read_cuda(struct state *s, uint8_t *host, size_t size)
{
	return cu.MemcpyDtoH(host, s->b.buf.mem.dptr, size) != CUDA_SUCCESS;
}

/* Inlined into each caller, where `copy` is a constant: no indirect call is timed. */
static inline __attribute__((always_inline)) int
timed_loop(struct state *s, int (*copy)(struct state *, uint8_t *, size_t), uint8_t *host,
	   size_t size, long iters)
{
	uint64_t t0, t1;
	int rc = 0;
	long i;

	for (i = 0; i < 10; i++)
		rc |= copy(s, host, size);
	for (i = 0; i < iters; i++) {
		if (opt.cold)
			cache_flush(host, size);
		t0 = timing_ticks();
		rc |= copy(s, host, size);
		t1 = timing_ticks();
		s->sample[i] = t1 - t0;
	}
	return rc;
}

/* Iterations for a size: the user's, or those that move `total` bytes, from 100 to 10000. */
static long iterations(long asked, size_t size, size_t total)
{
	size_t n = total / size;

	if (asked >= 0)
		return asked;
	return n < 100 ? 100 : n > 10000 ? 10000 : (long)n;
}

/* Measures and verifies one size one way; *st has count 0 if the user wants no iterations. */
static int measure(struct state *s, enum direction dir, enum way way, size_t size, struct stats *st)
{
	uint8_t *host = way == CUDA_PINNED || opt.engine ? s->pinned : s->test.host;
	long iters = dir == WRITE ? iterations(opt.writes, size, (size_t)1 << 30)
				  : iterations(opt.reads, size, (size_t)128 << 20);
	int rc;

	*st = (struct stats){ 0 };
	if (!iters)
		return 0;
	progress_show(direction_name[dir], size);
	if (dir == WRITE) {
		copytest_before_write(&s->test, host, 0, size);
		rc = way == MAPPING ? timed_loop(s, write_mapping, host, size, iters)
				    : timed_loop(s, write_cuda, host, size, iters);
	} else {
		copytest_before_read(&s->test, host, 0, size);
		rc = way == MAPPING ? timed_loop(s, read_mapping, host, size, iters)
				    : timed_loop(s, read_cuda, host, size, iters);
	}
	if (rc)
		tool_fail("%s of %zu byte%s, %s: a call failed: %s", direction_name[dir], size,
			  plural(size), way_name[way],
			  way == MAPPING ? lib_error_text(rc) : "cuMemcpy");
	stats_compute(st, s->sample, (size_t)iters, timing.ns_per_tick / 1000);
	return dir == WRITE ? copytest_after_write(&s->test)
			    : copytest_after_read(&s->test, host, 0, size);
}

static void print_header(enum direction dir)
{
	int way;

	if (opt.compare)
		printf("\n%-12s %29s   %29s   %29s", direction_name[dir], "mapping",
		       "cuMemcpy, pageable", "cuMemcpy, page-locked");
	else
		printf("\n%s", direction_name[dir]);
	printf("\n%12s", "bytes");
	for (way = 0; way < (opt.compare ? WAYS : 1); way++)
		printf("%s %9s %9s %9s", way ? "  " : "", "P0 us", "P50 us", "P99 us");
	printf("\n");
}

static void print_row(size_t size, const struct stats *st)
{
	int way;

	printf("%12zu", size);
	for (way = 0; way < (opt.compare ? WAYS : 1); way++)
		printf("%s %9.3f %9.3f %9.3f", way ? "  " : "", st[way].p0, st[way].p50,
		       st[way].p99);
	printf("\n");
	fflush(stdout);
}

static void json_row(struct json *j, size_t size, const struct stats *st)
{
	int way;

	json_object(j, NULL);
	json_uint(j, "size", size);
	for (way = 0; way < (opt.compare ? WAYS : 1); way++) {
		json_object(j, way_name[way]);
		json_uint(j, "iterations", st[way].count);
		json_number(j, "p0", st[way].p0);
		json_number(j, "p50", st[way].p50);
		json_number(j, "p99", st[way].p99);
		json_number(j, "mean", st[way].mean);
		json_number(j, "max", st[way].max);
		json_end(j);
	}
	json_end(j);
}

static int run_direction(struct state *s, enum direction dir, struct json *j)
{
	struct stats st[WAYS];
	int rc = 0, way;
	size_t size;

	if (s->b.json)
		json_array(j, direction_name[dir]);
	else if (dir == WRITE ? opt.writes : opt.reads)
		print_header(dir);
	for (size = 1; size; size = bench_next_size(size, opt.size)) {
		for (way = 0; way < (opt.compare ? WAYS : 1) && !rc; way++)
			rc = measure(s, dir, (enum way)way, size, &st[way]);
		progress_clear();
		if (rc || !st[0].count)
			break;
		if (s->b.json)
			json_row(j, size, st);
		else
			print_row(size, st);
	}
	if (s->b.json)
		json_end(j);
	return rc;
}

static void use_engine(const struct bench *b)
{
	const barcopy_copy_options_t wish = { .struct_size = sizeof(wish),
					      .engine_read_min = BARCOPY_COPY_ENGINE_AUTO,
					      .engine_write_min = BARCOPY_COPY_ENGINE_AUTO };
	int rc = barcopy_set_copy_options(b->buf.mh, &wish);

	if (rc)
		tool_fail("--engine: %s", lib_error_text(rc));
}

int main(int argc, char **argv)
{
	struct state s = { 0 };
	long most;
	struct json j;
	void *p;
	int rc;

	opts_examples(examples);
	bench_options(&s.b, &tool, argc, argv);
	bench_start(&s.b, opt.size);
	copytest_init(&s.test, &s.b.buf.mem, opt.size);
	if (opt.engine)
		use_engine(&s.b);
	if (opt.compare || opt.engine) {
		cuda_must(cu.MemHostAlloc(&p, copytest_host_size(opt.size), 0), "cuMemHostAlloc");
		s.pinned = p;
	}
	most = opt.writes > opt.reads ? opt.writes : opt.reads;
	s.sample = tool_calloc((size_t)(most > 10000 ? most : 10000), sizeof(*s.sample));
	if (s.b.json) {
		bench_json(&s.b, &j);
		json_bool(&j, "cold", opt.cold);
		json_bool(&j, "engine", opt.engine);
		json_string(&j, "unit", "us");
	} else if (opt.cold || opt.engine) {
		printf("host:     %s%s%s\n", opt.engine ? "page-locked, for the copy engine" : "",
		       opt.cold && opt.engine ? "; " : "",
		       opt.cold ? "flushed from the caches before each copy" : "");
	}

	rc = run_direction(&s, WRITE, &j);
	if (!rc)
		rc = run_direction(&s, READ, &j);

	if (s.b.json) {
		bench_json_verified(&j, rc, opt.writes || opt.reads);
		json_finish(&j, stdout);
	} else if (!rc) {
		bench_print_verified(opt.writes || opt.reads);
	}
	if (s.pinned)
		cu.MemFreeHost(s.pinned);
	free(s.sample);
	copytest_free(&s.test);
	bench_stop(&s.b);
	return rc ? TOOL_FAIL : TOOL_OK;
}
