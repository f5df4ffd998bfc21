// SPDX-License-Identifier: MIT
/* See setup.h. */
#include "setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "common/progress.h"
#include "bench/timing.h"
#include "copy/fence.h"

struct copybench st = { .rounds = 15, .max = 16 << 20 };

/* Not measured: the first write to each page of a mapping costs more (docs/performance.md). */
static void write_each_page(uint8_t *map, size_t size)
{
	for (size_t off = 0; off < size; off += 4096)
		*(volatile uint32_t *)(map + off) = 0;
}

struct helped pin_again(uint64_t addr, size_t size, size_t engine_min)
{
	barcopy_copy_options_t options = { .struct_size = sizeof(options),
					   .engine_read_min = engine_min,
					   .engine_write_min = engine_min };
	struct helped helped = { .works = false };
	void *map;

	if (gdr_pin_buffer_v2(st.b.buf.g, addr, size, 0, &helped.handle))
		return helped;
	if (gdr_map(st.b.buf.g, helped.handle, &map, size) ||
	    (engine_min && barcopy_set_copy_options(helped.handle, &options))) {
		gdr_unpin_buffer(st.b.buf.g, helped.handle);
		return helped;
	}
	write_each_page(map, size);
	helped.map = map;
	helped.works = true;
	return helped;
}

void unpin(const struct helped *helped)
{
	if (helped->works)
		must(gdr_unpin_buffer(st.b.buf.g, helped->handle));
}

void setup_start(void)
{
	void *pinned;

	st.host = tool_alloc_pages(REGION);
	memset(st.host, 0x5a, REGION);
	bench_start(&st.b, REGION);
	st.map = st.b.buf.cpu;
	write_each_page(st.map, REGION);
	st.type = st.b.buf.info.mapping_type;
	cuda_must(cu.MemHostAlloc(&pinned, REGION, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
	st.pinned = pinned;
	memset(st.pinned, 0x5a, REGION);
	st.engine = pin_again(st.b.buf.mem.dptr, REGION, 1);
	st.automatic = pin_again(st.b.buf.mem.dptr, REGION, BARCOPY_COPY_ENGINE_AUTO);
}

void setup_stop(void)
{
	unpin(&st.engine);
	unpin(&st.automatic);
	cu.MemFreeHost(st.pinned);
	bench_stop(&st.b);
}

/* ---- tables ---- */

#define SAMPLE_NS   200000.0 /* a sample has as many runs as take about this long... */
#define MAX_TIMES   4000 /* ...but at most this many */
#define TOO_LONG_NS 40e6 /* a job whose single run takes longer is switched off */

static void show_figures(struct json *json, const char *name, const struct table *t, size_t at)
{
	json_object(json, name);
	for (size_t l = 0; l < t->lines; l++) {
		json_array(json, t->line[l]);
		for (size_t c = 0; c < t->columns; c++) {
			const struct figure *f = &t->value[l][c];
			double v = at == 0 ? f->median : at == 1 ? f->low : f->high;

			json_number(json, NULL, f->median != 0 ? v : NAN);
		}
		json_end(json);
	}
	json_end(json);
}

void show(const struct table *t)
{
	json_object(&st.json, NULL);
	json_string(&st.json, "table", t->name);
	json_string(&st.json, "unit", t->unit);
	json_array(&st.json, "columns");
	for (size_t c = 0; c < t->columns; c++)
		json_string(&st.json, NULL, t->column[c]);
	json_end(&st.json);
	show_figures(&st.json, "lines", t, 0);
	show_figures(&st.json, "low_quartile", t, 1);
	show_figures(&st.json, "high_quartile", t, 2);
	json_end(&st.json);
}

static double time_job(struct job *job, size_t times)
{
	uint64_t start = clock_raw_ns();

	job->run(job, times);
	return (double)(clock_raw_ns() - start) / (double)times;
}

static void measure(struct job *job, size_t count, struct figure *value)
{
	static double sample[MAX_COLUMNS][MAX_ROUNDS];
	size_t n = (size_t)st.rounds, times[MAX_COLUMNS];

	for (size_t i = 0; i < count; i++) {
		double once;

		if (job[i].off)
			continue;
		once = time_job(&job[i], 1);
		once = once < TOO_LONG_NS ? time_job(&job[i], 1) : once;
		if (once > TOO_LONG_NS)
			job[i].off = true;
		times[i] = once < SAMPLE_NS ? (size_t)(SAMPLE_NS / once) + 1 : 1;
		if (times[i] > MAX_TIMES)
			times[i] = MAX_TIMES;
	}
	for (size_t round = 0; round < n; round++)
		for (size_t i = 0; i < count; i++) {
			size_t at = (i + round) % count;

			if (!job[at].off)
				sample[at][round] = time_job(&job[at], times[at]);
		}
	for (size_t i = 0; i < count; i++) {
		value[i] = (struct figure){ 0 };
		if (job[i].off)
			continue;
		qsort(sample[i], n, sizeof(double), timing_by_value);
		value[i] = (struct figure){ sample[i][n / 2], sample[i][n / 4],
					    sample[i][n - 1 - n / 4] };
	}
}

void line(struct table *t, struct job *job, size_t count, const char *name)
{
	t->columns = count;
	for (size_t i = 0; i < count; i++)
		t->column[i] = job[i].name;
	snprintf(t->line[t->lines], sizeof(t->line[0]), "%s", name);
	progress_at(st.section, st.sections, "%s: %s", t->name, name);
	measure(job, count, t->value[t->lines++]);
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

void size_line(struct table *t, struct job *job, size_t count, size_t size)
{
	char name[24];

	for (size_t i = 0; i < count; i++)
		job[i].size = size;
	size_text(name, sizeof(name), size);
	line(t, job, count, name);
}

/* ---- jobs ---- */

uint8_t *place(struct job *job)
{
	size_t stride = (job->size + 4095) / 4096 * 4096 + 64;
	size_t places = (REGION - job->offset - job->size) / stride;

	return job->map + (places ? job->next++ % places : 0) * stride + job->offset;
}

void copy_once(const struct job *job, uint8_t *map, uint8_t *host)
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

static void run_rows(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++)
		copy_once(job, place(job), job->host);
}

/* A raw read between the library's fences: what a baseline without stale data costs. */
static void run_fenced(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		gdri_fence_before_read(st.type);
		job->raw->from(job->host, place(job), job->size);
		gdri_fence_after_read(st.type);
	}
}

void must(int rc)
{
	if (rc)
		tool_fail("a copy: %s", barcopy_last_error());
}

static void run_library(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		uint8_t *map = place(job);

		must(job->read ? gdr_copy_from_mapping(job->handle, job->host, map, job->size)
			       : gdr_copy_to_mapping(job->handle, map, job->host, job->size));
	}
}

static void run_cuda(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		CUdeviceptr device = st.b.buf.mem.dptr + (size_t)(place(job) - st.map);

		cuda_must(job->read ? cu.MemcpyDtoH(job->host, device, job->size)
				    : cu.MemcpyHtoD(device, job->host, job->size),
			  "cuMemcpy");
	}
}

struct job impl_job(const char *name, const char *impl)
{
	struct job job = { .name = name, .run = run_rows, .map = st.map, .host = st.host };

	if (gdri_copy_plan_init(&job.plan, st.type, gdri_cpu_features(),
				impl ? impl_named(impl) : NULL))
		job.off = true;
	return job;
}

struct job library_job(const char *name)
{
	struct job job = impl_job(name, NULL);

	job.run = run_library;
	job.handle = st.b.buf.mh;
	return job;
}

struct job helped_job(const char *name, const struct helped *helped, bool pinned)
{
	return (struct job){ .name = name,
			     .run = run_library,
			     .handle = helped->handle,
			     .map = helped->map,
			     .host = pinned ? st.pinned : st.host,
			     .off = !helped->works };
}

struct job baseline_job(const char *name)
{
	struct job job = impl_job(name, "baseline");

	job.raw = impl_named("baseline");
	job.off = job.off || !job.raw;
	return job;
}

struct job fenced_job(const char *name)
{
	struct job job = baseline_job(name);

	job.run = run_fenced;
	return job;
}

struct job cuda_job(const char *name, bool pinned)
{
	return (struct job){
		.name = name, .run = run_cuda, .map = st.map, .host = pinned ? st.pinned : st.host
	};
}
