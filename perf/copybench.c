// SPDX-License-Identifier: MIT
/*
 * copybench: every row of the copy engine's table beside the one that the library chooses,
 * beside the way of old and beside CUDA's own copies, on one mapping in one process. What
 * src/copy/tune.h says rests on its output.
 *
 * It has the engine linked in and calls it directly; handles and backends are used only to get the
 * mapping.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bench.h"
#include "common/exit.h"
#include "common/progress.h"
#include "common/timing.h"
#include "copy/fence.h"
#include "copybench.h"

enum section { READ, WRITE, EDGES, VECTORS, DRAIN, CALL, THREADS, SECTIONS };
static const char *const section_choice[] = { "all",   "read", "write",	  "edges", "vectors",
					      "drain", "call", "threads", NULL };

struct copybench_opt opt = { .rounds = 15, .max = 16 << 20 };

static const struct opt options[] = {
	{ 's', "section", OPT_CHOICE, &opt.section, "NAME", "one section only (all)", 0, 0,
	  section_choice },
	{ 'n', "rounds", OPT_COUNT, &opt.rounds, "N", "rounds that medians are taken of (15)", 1,
	  101, NULL },
	{ 'm', "max", OPT_SIZE, &opt.max, "SIZE", "largest copy (16M)", 64, 64 << 20, NULL },
	{ 0, "host", OPT_FLAG, &opt.host, NULL,
	  "no GPU: on cached host memory, which tells what the\ninstructions cost and no more", 0,
	  0, NULL },
};

static const struct tool tool = {
	"copybench",
	"Measures every implementation of the copies.",
	"  All columns of a line are measured in turn, round by round, and the median of the "
	"rounds "
	"is\n"
	"  shown: nanoseconds a copy. `library` is what the library chooses here; other columns "
	"are\n"
	"  rows of its table with the same fences, save `baseline`, which has its own, and "
	"b.fenced,\n"
	"  the baseline's reads between the library's fences. `engine`: the library with the copy "
	"engine\n"
	"  for everything, pageable memory. Copies "
	"walk\n"
	"  through the mapping, so that no line is read twice in a row.",
	options,
	sizeof(options) / sizeof(options[0]),
};

struct copybench st;

void show(const struct table *t)
{
	progress_clear();
	table_show(t, st.b.json ? &st.json : NULL);
}

uint8_t *place(const struct job *job, size_t n)
{
	size_t stride = (job->size + 4095) / 4096 * 4096 + 64;
	size_t places = (st.region - job->offset - job->size) / stride;

	return st.map + (places ? n % places : 0) * stride + job->offset;
}

void run_copies(const struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++)
		copy_once(job, place(job, n), st.host);
}

/* A raw read between the fences of a right one: what the baseline costs when it is not stale. */
static void run_fenced(const struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		gdri_fence_before_read(st.type);
		job->raw->from(st.host, place(job, n), job->size);
		gdri_fence_after_read(st.type);
	}
}

/* gdr_copy_*_mapping() on a handle that lets the copy engine have everything. */
static void run_engine(const struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		uint8_t *map = place(job, n);
		int rc = job->read ? gdr_copy_from_mapping(st.b.buf.mh, st.host, map, job->size)
				   : gdr_copy_to_mapping(st.b.buf.mh, map, st.host, job->size);

		if (rc)
			tool_fail("a copy: %s", barcopy_last_error());
	}
}

static void run_cuda(const struct job *job, size_t times)
{
	uint8_t *host = job->how ? st.pinned : st.host;

	for (size_t n = 0; n < times; n++) {
		CUdeviceptr device = st.b.buf.mem.dptr + (size_t)(place(job, n) - st.map);

		cuda_must(job->read ? cu.MemcpyDtoH(host, device, job->size)
				    : cu.MemcpyHtoD(device, host, job->size),
			  "cuMemcpy");
	}
}

struct job copy_job(const char *name, const char *row)
{
	struct job job = { .name = name, .run = run_copies };

	if (gdri_copy_plan_init(&job.plan, st.type, gdri_cpu_features(),
				row ? row_named(row) : NULL))
		job.off = true;
	return job;
}

struct job baseline_job(const char *name)
{
	struct job job = copy_job(name, "baseline");

	job.raw = row_named("baseline");
	job.off = job.off || !job.raw;
	return job;
}

/* The library's choice, the baseline, then the rest of the table, then CUDA. */
static size_t contenders(struct job *job, bool read)
{
	size_t count = 0;

	job[count++] = copy_job("library", NULL);
	job[count++] = baseline_job("baseline");
	if (read) {
		job[count] = baseline_job("b.fenced");
		job[count++].run = run_fenced;
	}
	for (size_t i = 0; row_at(i); i++) {
		const struct gdri_copy_row *row = row_at(i);

		if ((read ? row->from : row->to) && strcmp(row->name, "baseline") != 0)
			job[count++] = copy_job(row->name, row->name);
	}
	if (!opt.host) {
		job[count++] = (struct job){ .name = "cuMemcpy", .run = run_cuda };
		job[count++] = (struct job){ .name = "cuMem.pin", .run = run_cuda, .how = 1 };
		job[count++] =
			(struct job){ .name = "engine", .run = run_engine, .off = !st.engine };
	}
	for (size_t i = 0; i < count; i++)
		job[i].read = read;
	return count;
}

void line(struct table *t, struct job *job, size_t count)
{
	t->columns = count;
	for (size_t i = 0; i < count; i++)
		t->column[i] = job[i].name;
	progress_show(t->name, job[0].size);
	measure(job, count, opt.rounds, t->value[t->lines++]);
}

/* ---- sections --------------------------------------------------------------------------------------- */

static void sizes_section(bool read)
{
	static const size_t sizes[] = {
		4,	  8,	     32,	64,	 128,	  256,
		512,	  1 << 10,   2 << 10,	4 << 10, 8 << 10, 16 << 10,
		64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20
	};
	struct table t = { .name = read ? "read" : "write", .first = "bytes", .unit = "ns" };
	struct job job[MAX_COLUMNS];
	size_t count = contenders(job, read);

	for (size_t i = 0; i < COUNT(sizes) && sizes[i] <= opt.max; i++) {
		for (size_t c = 0; c < count; c++)
			job[c].size = sizes[i];
		size_text(t.line[t.lines], sizeof(t.line[0]), sizes[i]);
		line(&t, job, count);
	}
	show(&t);
}

/* Small copies at odd places: the library and the baseline, both ways. */
static void edges_section(void)
{
	static const size_t at[][2] = {
		{ 8, 0 },   { 1, 3 },	 { 7, 1 },   { 8, 5 },	 { 16, 9 },
		{ 31, 33 }, { 50, 5 },	 { 64, 0 },  { 64, 1 },	 { 64, 63 },
		{ 65, 0 },  { 100, 61 }, { 200, 7 }, { 511, 1 }, { 4000, 5 }
	};
	struct table t = { .name = "edges", .first = "bytes@offset", .unit = "ns" };
	struct job job[4] = { copy_job("read", NULL), baseline_job("r.baseline"),
			      copy_job("write", NULL), baseline_job("w.baseline") };

	job[0].read = job[1].read = true;
	for (size_t i = 0; i < COUNT(at); i++) {
		for (size_t c = 0; c < 4; c++)
			job[c].size = at[i][0], job[c].offset = at[i][1];
		snprintf(t.line[t.lines], sizeof(t.line[0]), "%zu@%zu", at[i][0], at[i][1]);
		line(&t, job, 4);
	}
	show(&t);
}

/* ---- set-up --------------------------------------------------------------------------------------- */

static void start(void)
{
	barcopy_copy_options_t all = { .struct_size = sizeof(all),
				       .engine_read_min = 1,
				       .engine_write_min = 1 };
	void *pinned;

	st.region = REGION;
	st.host = tool_alloc_pages(REGION);
	memset(st.host, 0x5a, REGION);
	if (opt.host) {
		st.map = tool_alloc_pages(REGION);
		memset(st.map, 0, REGION);
		st.type = GDR_MAPPING_TYPE_WC;
		st.b.numa.node = -1;
		timing_init();
		if (!st.b.json)
			printf("mapping:  none, cached host memory with the fences of a "
			       "write-combined one\n");
		return;
	}
	bench_start(&st.b, REGION);
	st.map = st.b.buf.cpu;
	st.type = st.b.buf.info.mapping_type;
	cuda_must(cu.MemHostAlloc(&pinned, opt.max, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
	st.pinned = pinned;
	st.engine = !barcopy_set_copy_options(st.b.buf.mh, &all);
}

int main(int argc, char **argv)
{
	bench_options(&st.b, &tool, argc, argv);
	start();
	if (st.b.json) {
		if (opt.host)
			json_start(&st.json);
		else
			bench_json(&st.b, &st.json);
		json_int(&st.json, "rounds", opt.rounds);
		json_array(&st.json, "tables");
	}
	for (int s = 0; s < SECTIONS; s++) {
		if (opt.section && opt.section - 1 != s)
			continue;
		switch ((enum section)s) {
		case READ:
		case WRITE:
			sizes_section(s == READ);
			break;
		case EDGES:
			edges_section();
			break;
		case VECTORS:
			vectors_section("vectors of 64 B", 256);
			vectors_section("vectors of 64 B, a page each", 4096 + 64);
			break;
		case DRAIN:
			drain_section();
			break;
		case CALL:
			call_section();
			break;
		case THREADS:
			threads_section();
			pool_section();
			break;
		case SECTIONS:
			break;
		}
	}
	if (st.b.json) {
		json_end(&st.json);
		json_finish(&st.json, stdout);
	}
	if (!opt.host) {
		cu.MemFreeHost(st.pinned);
		bench_stop(&st.b);
	}
	return TOOL_OK;
}
