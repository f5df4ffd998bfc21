/* SPDX-License-Identifier: MIT */
/* gdrcopy_copylat: latency of single CPU copies to and from GPU memory, by size. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "common/copytest.h"
#include "common/exit.h"
#include "common/progress.h"
#include "bench/timing.h"

static struct {
	size_t size;
	long writes, reads; /* -1: by the size */
	bool compare, cold, engine;
} opt = { .size = (size_t)4 << 20, .writes = -1, .reads = -1 };

static const struct opt options[] = {
	OPTION_SIZE('s', "size", &opt.size, "largest copy, and the buffer (4M)", 1, 0),
	OPTION_COUNT('w', "write-iters", &opt.writes,
		     "copies to the GPU a size (1 GiB in all, 100 to 10000);\n"
		     "0: none",
		     0, 100000000),
	OPTION_COUNT('r', "read-iters", &opt.reads,
		     "copies from the GPU a size (128 MiB in all, 100 to\n"
		     "10000); 0: none",
		     0, 100000000),
	OPTION_FLAG('c', "compare", &opt.compare,
		    "time cuMemcpy of the same sizes too, with pageable and\n"
		    "with page-locked host memory"),
	OPTION_FLAG('E', "engine", &opt.engine,
		    "let the GPU's copy engine do the copies that it does faster\n"
		    "(BARCOPY_COPY_ENGINE_AUTO), from page-locked host memory;\n"
		    "then find the sizes from which it is faster here"),
	OPTION_FLAG('C', "cold", &opt.cold,
		    "let CUDA overwrite the range before each copy, so that the\n"
		    "CPU's caches have none of it; for cached mappings only"),
};

static const struct tool tool = {
	"gdrcopy_copylat",
	"Measures the latency of single CPU copies to and from GPU memory, by size.",
	"  Each call is timed by itself, after 10 untimed ones; the cost of one reading of the\n"
	"  clock (in the JSON document) is part of each figure. Percentiles are measured values\n"
	"  (nearest rank), in microseconds; P99.99 needs 10000 calls to differ from the largest.\n"
	"  A write ends with the CPU's fence, not when the GPU has the data. cuMemcpy is called\n"
	"  synchronously and ends when it returns. With -c the last three are in the JSON\n"
	"  document alone.\n"
	"  Before each loop both sides get random bytes, through cuMemcpy on the GPU's side;\n"
	"  after it every byte of the buffer is compared.",
	options,
	ARRAY_SIZE(options),
	.examples = "  gdrcopy_copylat -s 64K\n"
		    "      single copies of 1 byte to 64 KiB, and the two variables that\n"
		    "      give UCX the measured figures\n"
		    "  gdrcopy_copylat -s 8 -w 20000 -r 20000\n"
		    "      the slowest of many short copies\n"
		    "  gdrcopy_copylat -s 4K -c\n"
		    "      and cuMemcpy of the same sizes\n"
		    "  gdrcopy_copylat -s 1M -E -w 0\n"
		    "      reads, large ones by the copy engine",
};

enum method { MAPPING, CUDA_PAGEABLE, CUDA_PINNED, METHODS };

static const char *const method_name[] = { "mapping", "cuMemcpy_pageable", "cuMemcpy_pinned" };

enum { COLD_BYTE = 0x5a }; /* what CUDA writes with -C */
enum { UCX_SHORT = 8, UCX_LONG = 65536 };

struct state {
	struct bench b;
	struct copytest test;
	uint8_t *pinned; /* host side of CUDA_PINNED, and of all with --engine */
	uint64_t *sample; /* one a call */
	size_t loops; /* measured so far */
	double us[DIRECTIONS][2]; /* of UCX_SHORT and UCX_LONG bytes, for UCX; 0: not measured */
};

static int methods(void)
{
	return opt.compare ? METHODS : 1;
}

/* Measured loops in all, without those that find the engine's sizes. */
static size_t loops(void)
{
	return bench_size_count(1, opt.size) * (size_t)methods() *
	       (size_t)((opt.writes != 0) + (opt.reads != 0));
}

/* One copy between `host` and the start of the buffer. 0, or not. */
static inline __attribute__((always_inline)) int copy(struct state *s, enum direction dir,
						      bool mapping, uint8_t *host, size_t size)
{
	const struct buffer *buf = &s->b.buf;

	if (mapping)
		return dir == WRITE ? gdr_copy_to_mapping(buf->mh, buf->cpu, host, size)
				    : gdr_copy_from_mapping(buf->mh, host, buf->cpu, size);
	return (dir == WRITE ? cu.MemcpyHtoD(buf->mem.dptr, host, size)
			     : cu.MemcpyDtoH(host, buf->mem.dptr, size)) != CUDA_SUCCESS;
}

/* The GPU writes the range, which takes its lines out of the CPU's caches. */
static void make_cold(struct state *s, size_t size)
{
	cuda_must(cu.MemsetD8(s->b.buf.mem.dptr, COLD_BYTE, size), "cuMemsetD8");
	cuda_must(cu.CtxSynchronize(), "cuCtxSynchronize");
}

/* Inlined into each caller, where `dir` and `mapping` are constant: no branch is timed. */
static inline __attribute__((always_inline)) int timed_loop(struct state *s, enum direction dir,
							    bool mapping, uint8_t *host,
							    size_t size, long iters)
{
	int rc = 0;

	for (int i = 0; i < 10; i++)
		rc |= copy(s, dir, mapping, host, size);
	for (long i = 0; i < iters; i++) {
		uint64_t t0;

		if (opt.cold && mapping)
			make_cold(s, size);
		t0 = timing_ticks();
		rc |= copy(s, dir, mapping, host, size);
		s->sample[i] = timing_ticks() - t0;
	}
	return rc;
}

/* Measures and verifies one size by one method; st->count is 0 if the user wants no iterations. */
static int measure(struct state *s, enum direction dir, enum method method, size_t size,
		   struct stats *st)
{
	uint8_t *host = method == CUDA_PINNED || opt.engine ? s->pinned : s->test.host;
	bool mapping = method == MAPPING;
	long iters = dir == WRITE ? bench_iterations(opt.writes, size, (size_t)1 << 30, 100)
				  : bench_iterations(opt.reads, size, (size_t)128 << 20, 100);
	int rc;

	*st = (struct stats){ 0 };
	if (!iters)
		return 0;
	copytest_before(&s->test, dir, host, 0, size);
	if (dir == READ && mapping && opt.cold) { /* what the GPU writes is what has to arrive */
		memset(s->test.expect, COLD_BYTE, size);
		memset(host, ~COLD_BYTE, size);
	}
	if (dir == WRITE)
		rc = mapping ? timed_loop(s, WRITE, true, host, size, iters)
			     : timed_loop(s, WRITE, false, host, size, iters);
	else
		rc = mapping ? timed_loop(s, READ, true, host, size, iters)
			     : timed_loop(s, READ, false, host, size, iters);
	if (rc)
		tool_fail("%s of %zu byte%s, %s: a call failed: %s", direction_name[dir], size,
			  plural(size), method_name[method],
			  mapping ? lib_error_text(rc) : "cuMemcpy");
	stats_compute(st, s->sample, (size_t)iters, timing.ns_per_tick / 1000);
	return copytest_after(&s->test, dir, host, 0, size);
}

static void print_header(enum direction dir)
{
	if (opt.compare)
		printf("\n%-12s %29s   %29s   %29s", direction_name[dir], "mapping",
		       "cuMemcpy, pageable", "cuMemcpy, page-locked");
	else
		printf("\n%s", direction_name[dir]);
	printf("\n%12s", "bytes");
	for (int i = 0; i < methods(); i++)
		printf("%s %9s %9s %9s", i ? "  " : "", "P0 us", "P50 us", "P99 us");
	printf(opt.compare ? "\n" : " %9s %9s %9s %9s\n", "P99.9 us", "P99.99 us", "max us",
	       "mean us");
}

static void print_row(size_t size, const struct stats *st)
{
	printf("%12zu", size);
	for (int i = 0; i < methods(); i++)
		printf("%s %9.3f %9.3f %9.3f", i ? "  " : "", st[i].p0, st[i].p50, st[i].p99);
	if (!opt.compare)
		printf(" %9.3f %9.3f %9.3f %9.3f", st->p999, st->p9999, st->max, st->mean);
	printf("\n");
	fflush(stdout);
}

static void json_row(struct json *j, size_t size, const struct stats *st)
{
	json_object(j, NULL);
	json_uint(j, "size", size);
	for (int i = 0; i < methods(); i++) {
		json_object(j, method_name[i]);
		bench_json_stats(j, &st[i]);
		json_end(j);
	}
	json_end(j);
}

static int run_direction(struct state *s, enum direction dir, struct json *j)
{
	struct stats st[METHODS];
	int rc = 0;

	if (s->b.json)
		json_array(j, direction_name[dir]);
	else if (dir == WRITE ? opt.writes : opt.reads)
		print_header(dir);
	for (size_t size = 1; size; size = bench_next_size(size, opt.size)) {
		for (int i = 0; i < methods() && !rc; i++) {
			progress_at(s->loops, loops(), "%ss of %zu byte%s, %s", direction_name[dir],
				    size, plural(size), method_name[i]);
			rc = measure(s, dir, (enum method)i, size, &st[i]);
			s->loops += st[i].count > 0;
		}
		progress_hide();
		if (rc || !st[0].count)
			break;
		if (size == UCX_SHORT)
			s->us[dir][0] = st[0].p50;
		if (size == UCX_LONG)
			s->us[dir][1] = st[0].p0;
		if (s->b.json)
			json_row(j, size, st);
		else
			print_row(size, st);
	}
	if (s->b.json)
		json_end(j);
	return rc;
}

/*
 * UCX's model of a copy of n bytes, by which it chooses its protocols: latency + n / bandwidth. The
 * latency is the median of a short copy. The bandwidth comes from the fastest long copy: the median
 * of long reads differed by 12% between five runs on one H200, and a bandwidth that is 20% too low
 * loses what the variables gain at 4 KiB (docs/results/clients.md). UCX's MB are 2^20 bytes.
 */
static void print_for_ucx(const struct state *s)
{
	const char *lead = cu.is_stand_in ? "# " : "";
	double mib_s[DIRECTIONS];

	if (opt.cold || opt.engine)
		return;
	for (int dir = 0; dir < DIRECTIONS; dir++) {
		if (s->us[dir][1] <= s->us[dir][0])
			return;
		mib_s[dir] = (UCX_LONG - UCX_SHORT) / 1.048576 / (s->us[dir][1] - s->us[dir][0]);
	}
	printf("\nfor UCX (docs/clients.md), from P50 of 8 bytes and P0 of 64 KiB%s:\n"
	       "%sexport UCX_GDR_COPY_BW=0MBs,get_dedicated:%.0fMBs,put_shared:%.0fMBs\n"
	       "%sexport UCX_GDR_COPY_LAT=get:%.2fus,put:%.2fus\n",
	       cu.is_stand_in ? "; these are the stand-in's, not for use" : "", lead, mib_s[READ],
	       mib_s[WRITE], lead, s->us[READ][0], s->us[WRITE][0]);
}

/* The median of some copies of that size, by the engine alone or by the mapping alone. */
static double median(struct state *s, enum direction dir, uint8_t *host, size_t size, bool engine)
{
	const barcopy_copy_options_t all = { .struct_size = sizeof(all),
					     .engine_read_min = 1,
					     .engine_write_min = 1 };
	enum { COPIES = 51 };
	struct stats st;
	int rc = barcopy_set_copy_options(s->b.buf.mh, engine ? &all : NULL);

	if (!rc)
		rc = dir == WRITE ? timed_loop(s, WRITE, true, host, size, COPIES)
				  : timed_loop(s, READ, true, host, size, COPIES);
	if (rc)
		tool_fail("--engine: %s", lib_error_text(rc));
	stats_compute(&st, s->sample, COPIES, timing.ns_per_tick / 1000);
	return st.p50;
}

/*
 * From which size on the engine is faster: the first of three in a row, four to each power of two.
 * 0: none up to the largest copy.
 */
static size_t crossing(struct state *s, enum direction dir, uint8_t *host)
{
	size_t first = 0;
	int faster = 0;

	for (size_t step = 256; step < opt.size; step *= 2)
		for (size_t size = 4 * step; size < 8 * step && size <= opt.size; size += step) {
			bool now;

			progress_at(0, 0, "%ss of %zu bytes by the engine and by the CPU",
				    direction_name[dir], size);
			now = median(s, dir, host, size, true) <
			      median(s, dir, host, size, false);
			faster = now ? faster + 1 : 0;
			if (faster == 1)
				first = size;
			if (faster == 3)
				return first;
		}
	return 0;
}

/* This machine's sizes for barcopy_copy_options_t. */
static void find_crossings(struct state *s, struct json *j)
{
	if (s->b.json)
		json_object(j, "engine_faster_from");
	else
		printf("\nthe copy engine is faster from these sizes on "
		       "(barcopy_copy_options_t):\n");
	for (int dir = 0; dir < DIRECTIONS; dir++)
		for (int pinned = 0; pinned < 2; pinned++) {
			char name[64];
			size_t from;

			if (!(dir == WRITE ? opt.writes : opt.reads))
				continue;
			from = crossing(s, (enum direction)dir, pinned ? s->pinned : s->test.host);
			progress_hide();
			snprintf(name, sizeof(name), "engine_%s_min, %s",
				 dir == WRITE ? "write" : "read",
				 pinned ? "page-locked" : "pageable");
			if (s->b.json)
				json_uint(j, name, from);
			else if (from)
				printf("%-30s %9zu\n", name, from);
			else
				printf("%-30s %9s\n", name, "none");
		}
	if (s->b.json)
		json_end(j);
}

static void set_up(struct state *s)
{
	const barcopy_copy_options_t engine = { .struct_size = sizeof(engine),
						.engine_read_min = BARCOPY_COPY_ENGINE_AUTO,
						.engine_write_min = BARCOPY_COPY_ENGINE_AUTO };
	long most = opt.writes > opt.reads ? opt.writes : opt.reads;
	int rc = 0;
	void *p;

	bench_start(&s->b, opt.size);
	if (opt.cold && s->b.buf.info.mapping_type != GDR_MAPPING_TYPE_CACHING)
		tool_cannot("-C needs a cached mapping, this one is %s; ask for one with -M cache, "
			    "where the hardware has it",
			    mapping_name(s->b.buf.info.mapping_type));
	if (opt.cold && !cu.MemsetD8)
		tool_cannot("-C: libcuda has no cuMemsetD8; a newer NVIDIA driver is needed");
	copytest_init(&s->test, &s->b.buf.mem, opt.size);
	if (opt.engine)
		rc = barcopy_set_copy_options(s->b.buf.mh, &engine);
	if (rc)
		tool_fail("--engine: %s", lib_error_text(rc));
	if (opt.compare || opt.engine) {
		cuda_must(cu.MemHostAlloc(&p, copytest_host_size(opt.size), 0), "cuMemHostAlloc");
		s->pinned = p;
	}
	s->sample = tool_calloc((size_t)(most > 10000 ? most : 10000), sizeof(*s->sample));
}

int main(int argc, char **argv)
{
	static struct state s;
	struct json j;
	int rc;

	bench_options(&s.b, &tool, argc, argv);
	set_up(&s);
	if (s.b.json) {
		bench_json(&s.b, &j);
		json_bool(&j, "cold", opt.cold);
		json_bool(&j, "engine", opt.engine);
		json_string(&j, "unit", "us");
	}
	if (opt.engine && !s.b.json)
		printf("host:     page-locked, for the copy engine\n");
	if (opt.cold && !s.b.json)
		printf("cache:    cold: CUDA overwrites the range before each copy\n");
	rc = run_direction(&s, WRITE, &j);
	if (!rc)
		rc = run_direction(&s, READ, &j);
	if (opt.engine && !rc)
		find_crossings(&s, &j);
	if (!s.b.json && !rc)
		print_for_ucx(&s);
	if (s.pinned)
		cu.MemFreeHost(s.pinned);
	return bench_finish(&s.b, &j, rc, opt.writes || opt.reads);
}
