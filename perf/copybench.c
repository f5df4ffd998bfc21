// SPDX-License-Identifier: MIT
/*
 * gdrcopy_copybench: every row of the copy engine's table beside the one that the library chooses,
 * beside the way of old and beside CUDA's own copies, on one mapping in one process. What
 * src/copy/tune.h says rests on its output.
 *
 * It has the engine linked in and calls it directly; handles and backends are used only to get the
 * mapping.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/bench.h"
#include "common/exit.h"
#include "common/progress.h"
#include "common/timing.h"
#include "copy/engine.h"
#include "copy/fence.h"

enum section { READ, WRITE, EDGES, VECTORS, DRAIN, CALL, THREADS, SECTIONS };
static const char *const section_choice[] = { "all",   "read", "write",	  "edges", "vectors",
					      "drain", "call", "threads", NULL };

static struct {
	int section;
	long rounds;
	size_t max;
	bool host;
} opt = { .rounds = 15, .max = 16 << 20 };

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
	"gdrcopy_copybench",
	"Measures every implementation of the copies.",
	"  All columns of a line are measured in turn, round by round, and the median of the "
	"rounds "
	"is\n"
	"  shown: nanoseconds a copy. `library` is what the library chooses here; other columns "
	"are\n"
	"  rows of its table with the same fences, save `baseline`, which has its own. Copies "
	"walk\n"
	"  through the mapping, so that no line is read twice in a row.",
	options,
	sizeof(options) / sizeof(options[0]),
};

#define MAX_COLUMNS 16
#define MAX_LINES   24
#define REGION	    ((size_t)64 << 20)
#define SAMPLE_NS   100000.0 /* a sample is as many copies as take about this long */
#define TOO_LONG_NS 40e6 /* one copy: the column ends there */
#define COUNT(a)    (sizeof(a) / sizeof((a)[0]))

static struct {
	struct bench b;
	uint8_t *map, *host, *pinned;
	size_t region;
	gdr_mapping_type_t type;
	struct json json;
} st;

/* ---- tables --------------------------------------------------------------------------------------- */

struct table {
	const char *name, *first; /* first: what the lines are */
	const char *unit;
	size_t columns, lines;
	const char *column[MAX_COLUMNS];
	char line[MAX_LINES][24];
	double value[MAX_LINES][MAX_COLUMNS]; /* 0: not measured, null in JSON */
};

static void show(const struct table *t)
{
	progress_clear();
	if (st.b.json) {
		json_object(&st.json, NULL);
		json_string(&st.json, "table", t->name);
		json_string(&st.json, "unit", t->unit);
		json_array(&st.json, "columns");
		for (size_t c = 0; c < t->columns; c++)
			json_string(&st.json, NULL, t->column[c]);
		json_end(&st.json);
		json_object(&st.json, "lines");
		for (size_t l = 0; l < t->lines; l++) {
			json_array(&st.json, t->line[l]);
			for (size_t c = 0; c < t->columns; c++)
				json_number(&st.json, NULL, t->value[l][c] ? t->value[l][c] : NAN);
			json_end(&st.json);
		}
		json_end(&st.json);
		json_end(&st.json);
		return;
	}
	printf("\n%s (%s)\n%-12s", t->name, t->unit, t->first);
	for (size_t c = 0; c < t->columns; c++)
		printf(" %10s", t->column[c]);
	printf("\n");
	for (size_t l = 0; l < t->lines; l++) {
		printf("%-12s", t->line[l]);
		for (size_t c = 0; c < t->columns; c++) {
			double v = t->value[l][c];

			if (v == 0)
				printf(" %10s", "-");
			else
				printf(" %10.*f", v < 1000 ? 1 : 0, v);
		}
		printf("\n");
	}
	fflush(stdout);
}

static void size_text(char *text, size_t room, size_t size)
{
	if (size >= 1 << 20 && size % (1 << 20) == 0)
		snprintf(text, room, "%zuM", size >> 20);
	else if (size >= 1024 && size % 1024 == 0)
		snprintf(text, room, "%zuK", size >> 10);
	else
		snprintf(text, room, "%zu", size);
}

/* ---- samples ---------------------------------------------------------------------------------------
 * A job does one thing `times` times. All jobs of a line are timed in turn, and that `rounds` times.
 */

struct job {
	const char *name;
	void (*run)(const struct job *job, size_t times);
	struct gdri_copy_plan plan;
	size_t size, offset, count; /* offset: into a line; count: of pieces */
	int how; /* what the job makes of it */
	bool read, off; /* off: not on this line */
};

static double time_job(const struct job *job, size_t times)
{
	uint64_t start = clock_raw_ns();

	job->run(job, times);
	return (double)(clock_raw_ns() - start) / (double)times;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(struct job *job, size_t count, double *value)
{
	static double sample[MAX_COLUMNS][101];
	size_t times[MAX_COLUMNS];

	for (size_t i = 0; i < count; i++) {
		double once;

		if (job[i].off)
			continue;
		once = time_job(&job[i], 1);
		once = once < TOO_LONG_NS ? time_job(&job[i], 1) : once;
		if (once > TOO_LONG_NS)
			job[i].off = true;
		times[i] = once < SAMPLE_NS ? (size_t)(SAMPLE_NS / once) + 1 : 1;
		if (times[i] > 2000)
			times[i] = 2000;
	}
	for (long round = 0; round < opt.rounds; round++)
		for (size_t i = 0; i < count; i++)
			if (!job[i].off)
				sample[i][round] = time_job(&job[i], times[i]);
	for (size_t i = 0; i < count; i++) {
		value[i] = 0;
		if (job[i].off)
			continue;
		qsort(sample[i], (size_t)opt.rounds, sizeof(double), by_value);
		value[i] = sample[i][opt.rounds / 2];
	}
}

/* Where the n-th copy of a size goes: through the region, never the same lines twice in a row. */
static uint8_t *place(const struct job *job, size_t n)
{
	size_t stride = (job->size + 4095) / 4096 * 4096 + 64;
	size_t places = (st.region - job->offset - job->size) / stride;

	return st.map + (places ? n % places : 0) * stride + job->offset;
}

static void run_copies(const struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		if (job->read)
			gdri_copy_from(&job->plan, st.host, place(job, n), job->size);
		else
			gdri_copy_to(&job->plan, place(job, n), st.host, job->size);
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

static struct job copy_job(const char *name, const char *row, bool fences)
{
	struct job job = { .name = name, .run = run_copies };

	if (gdri_copy_plan_init(&job.plan, st.type, gdri_cpu_features(), row))
		job.off = true;
	if (!fences)
		job.plan.fences = GDR_MAPPING_TYPE_NONE;
	return job;
}

/* The library's choice, the baseline, then the rest of the table, then CUDA. */
static size_t contenders(struct job *job, bool read)
{
	size_t count = 0;

	job[count++] = copy_job("library", NULL, true);
	if (gdri_copy_row_find("baseline"))
		job[count++] = copy_job("baseline", "baseline", false);
	for (size_t i = 0; i < gdri_copy_row_count; i++) {
		const struct gdri_copy_row *row = &gdri_copy_rows[i];

		if ((read ? row->from : row->to) && strcmp(row->name, "baseline") != 0)
			job[count++] = copy_job(row->name, row->name, true);
	}
	if (!opt.host) {
		job[count++] = (struct job){ .name = "cuMemcpy", .run = run_cuda };
		job[count++] = (struct job){ .name = "cuMem.pin", .run = run_cuda, .how = 1 };
	}
	for (size_t i = 0; i < count; i++)
		job[i].read = read;
	return count;
}

static void line(struct table *t, struct job *job, size_t count)
{
	t->columns = count;
	for (size_t i = 0; i < count; i++)
		t->column[i] = job[i].name;
	progress_show(t->name, job[0].size);
	measure(job, count, t->value[t->lines++]);
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
	struct job job[4] = { copy_job("read", NULL, true),
			      copy_job("r.baseline", "baseline", false),
			      copy_job("write", NULL, true),
			      copy_job("w.baseline", "baseline", false) };

	job[0].read = job[1].read = true;
	for (size_t i = 0; i < COUNT(at); i++) {
		for (size_t c = 0; c < 4; c++)
			job[c].size = at[i][0], job[c].offset = at[i][1];
		snprintf(t.line[t.lines], sizeof(t.line[0]), "%zu@%zu", at[i][0], at[i][1]);
		line(&t, job, 4);
	}
	show(&t);
}

enum { ONE_CALL, A_CALL_EACH };

/* Scattered pieces of one line, in pages of their own. */
static void run_pieces(const struct job *job, size_t times)
{
	static gdr_copy_seg_t seg[64];

	for (size_t n = 0; n < times; n++) {
		for (size_t i = 0; i < job->count; i++) {
			seg[i].map_ptr = place(job, n * job->count + i);
			seg[i].host_ptr = st.host + i * 64;
			seg[i].size = job->size;
		}
		if (job->how == ONE_CALL && job->read)
			gdri_copyv_from(&job->plan, seg, job->count, 0);
		else if (job->how == ONE_CALL)
			gdri_copyv_to(&job->plan, seg, job->count, 0);
		else
			for (size_t i = 0; i < job->count; i++) {
				if (job->read)
					gdri_copy_from(&job->plan, seg[i].host_ptr, seg[i].map_ptr,
						       seg[i].size);
				else
					gdri_copy_to(&job->plan, seg[i].map_ptr, seg[i].host_ptr,
						     seg[i].size);
			}
	}
}

static void vectors_section(void)
{
	static const size_t pieces[] = { 1, 2, 4, 8, 16, 32, 64 };
	struct table t = { .name = "vectors of 64 B", .first = "pieces", .unit = "ns" };
	struct job job[6];

	for (size_t c = 0; c < 6; c++) {
		static const char *const names[] = { "read 1call", "r.library", "r.baseline",
						     "write1call", "w.library", "w.baseline" };

		job[c] = copy_job(names[c], c % 3 == 2 ? "baseline" : NULL, c % 3 != 2);
		job[c].run = run_pieces;
		job[c].how = c % 3 ? A_CALL_EACH : ONE_CALL;
		job[c].read = c < 3;
		job[c].size = 64;
	}
	for (size_t i = 0; i < COUNT(pieces); i++) {
		for (size_t c = 0; c < 6; c++)
			job[c].count = pieces[i];
		snprintf(t.line[t.lines], sizeof(t.line[0]), "%zu", pieces[i]);
		line(&t, job, 6);
	}
	show(&t);
}

/* What ends a small write, and what it costs. */
enum { NOTHING, STORE_FENCE, FULL_FENCE, LOCKED };

static void run_drain(const struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		gdri_copy_to(&job->plan, place(job, n), st.host, job->size);
		switch (job->how) {
		case STORE_FENCE:
			gdri_fence_after_write(GDR_MAPPING_TYPE_WC);
			break;
		case FULL_FENCE:
			gdri_fence_full(GDR_MAPPING_TYPE_WC);
			break;
		case LOCKED: {
			int word = 0;

			__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
			break;
		}
		}
	}
}

static void drain_section(void)
{
	static const size_t sizes[] = { 4, 8, 16, 64, 128, 256, 1024, 4096 };
	static const char *const names[] = { "nothing", "sfence", "mfence", "locked" };
	struct table t = { .name = "ends of a write", .first = "bytes", .unit = "ns" };
	struct job job[8];

	for (size_t c = 0; c < 8; c++) {
		job[c] = copy_job(names[c % 4], c < 4 ? NULL : "movdir64b", false);
		job[c].run = run_drain;
		job[c].how = (int)(c % 4);
	}
	job[4].name = "mdir64+no", job[5].name = "mdir64+sf", job[6].name = "mdir64+mf";
	job[7].name = "mdir64+lk";
	for (size_t i = 0; i < COUNT(sizes); i++) {
		for (size_t c = 0; c < 8; c++)
			job[c].size = sizes[i];
		size_text(t.line[t.lines], sizeof(t.line[0]), sizes[i]);
		line(&t, job, 8);
	}
	show(&t);
}

/* A copy of 4 or 8 bytes on cached memory against the same by hand: what the call itself costs. */
static uint8_t words[64] __attribute__((aligned(64)));

static void run_call(const struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		if (job->how && job->size == 4)
			*(volatile uint32_t *)(void *)words = *(uint32_t *)(void *)st.host;
		else if (job->how)
			*(volatile uint64_t *)(void *)words = *(uint64_t *)(void *)st.host;
		else
			gdri_copy_to(&job->plan, words, st.host, job->size);
		if (job->how)
			gdri_fence_after_write(job->plan.fences);
	}
}

static void call_section(void)
{
	struct table t = { .name = "call, cached memory", .first = "bytes", .unit = "ns" };
	struct job job[4];

	for (size_t c = 0; c < 4; c++) {
		static const char *const names[] = { "cached", "by hand", "wc fence", "by hand" };

		job[c] = (struct job){ .name = names[c], .run = run_call, .how = (int)(c & 1) };
		gdri_copy_plan_init(&job[c].plan,
				    c < 2 ? GDR_MAPPING_TYPE_CACHING : GDR_MAPPING_TYPE_WC,
				    gdri_cpu_features(), NULL);
	}
	for (size_t size = 4; size <= 8; size += 4) {
		for (size_t c = 0; c < 4; c++)
			job[c].size = size;
		size_text(t.line[t.lines], sizeof(t.line[0]), size);
		line(&t, job, 4);
	}
	show(&t);
}

/* Several threads, each on its own part: what the link gives to more than one core. */
struct worker {
	pthread_t thread;
	const struct job *job;
	uint8_t *map, *host;
	size_t times;
};

static void *work(void *arg)
{
	const struct worker *w = arg;

	for (size_t n = 0; n < w->times; n++) {
		if (w->job->read)
			gdri_copy_from(&w->job->plan, w->host, w->map, w->job->size);
		else
			gdri_copy_to(&w->job->plan, w->map, w->host, w->job->size);
	}
	return NULL;
}

static void run_threads(const struct job *job, size_t times)
{
	struct worker worker[16];

	for (size_t i = 0; i < job->count; i++) {
		worker[i].job = job;
		worker[i].map = st.map + i * job->size;
		worker[i].host = st.host + i * job->size;
		worker[i].times = times;
		if (pthread_create(&worker[i].thread, NULL, work, &worker[i]))
			tool_fail("no thread could be started");
	}
	for (size_t i = 0; i < job->count; i++)
		pthread_join(worker[i].thread, NULL);
}

static void threads_section(void)
{
	struct table t = { .name = "threads, 1 MiB each", .first = "threads", .unit = "GB/s" };
	struct job job[2] = { copy_job("read", NULL, true), copy_job("write", NULL, true) };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	job[0].read = true;
	for (size_t n = 1; n <= 16 && (long)n <= cpus; n *= 2) {
		double *value = t.value[t.lines];

		for (size_t c = 0; c < 2; c++) {
			double best = 0;

			job[c].run = run_threads, job[c].count = n, job[c].size = 1 << 20;
			for (long round = 0; round < (opt.rounds + 2) / 3; round++) {
				double ns = time_job(&job[c], c ? 64 : 8);
				double rate = (double)n * (double)job[c].size / ns;

				best = rate > best ? rate : best;
			}
			value[c] = best;
			t.column[c] = job[c].name;
		}
		snprintf(t.line[t.lines++], sizeof(t.line[0]), "%zu", n);
	}
	t.columns = 2;
	show(&t);
}

/* ---- set-up --------------------------------------------------------------------------------------- */

static void start(void)
{
	void *pinned;

	st.region = REGION;
	st.host = tool_alloc_pages(REGION);
	memset(st.host, 0x5a, REGION);
	if (opt.host) {
		st.map = tool_alloc_pages(REGION);
		memset(st.map, 0, REGION);
		st.type = GDR_MAPPING_TYPE_WC;
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
			vectors_section();
			break;
		case DRAIN:
			drain_section();
			break;
		case CALL:
			call_section();
			break;
		case THREADS:
			threads_section();
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
