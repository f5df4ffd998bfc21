// SPDX-License-Identifier: MIT
/* See setup.h. */
#include "setup.h"

#include <stdio.h>
#include <string.h>

#include "common/exit.h"
#include "common/timing.h"
#include "copy/fence.h"

struct copybench st = { .rounds = 15, .max = 16 << 20 };

/* The first write to each page of a mapping costs more (docs/performance.md) and must not be measured. */
static void write_each_page(uint8_t *map)
{
	for (size_t off = 0; off < REGION; off += 4096)
		*(volatile uint32_t *)(map + off) = 0;
}

static struct helped with_options(size_t threshold)
{
	barcopy_copy_options_t options = { .struct_size = sizeof(options),
					   .engine_read_min = threshold,
					   .engine_write_min = threshold };
	struct helped helped = { .there = false };
	void *map;

	if (gdr_pin_buffer_v2(st.b.buf.g, st.b.buf.mem.dptr, REGION, 0, &helped.handle))
		return helped;
	if (gdr_map(st.b.buf.g, helped.handle, &map, REGION) ||
	    barcopy_set_copy_options(helped.handle, &options)) {
		gdr_unpin_buffer(st.b.buf.g, helped.handle);
		return helped;
	}
	write_each_page(map);
	helped.map = map;
	helped.there = true;
	return helped;
}

void setup_start(void)
{
	void *pinned;

	st.host = tool_alloc_pages(REGION);
	memset(st.host, 0x5a, REGION);
	if (st.host_only) {
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
	write_each_page(st.map);
	st.type = st.b.buf.info.mapping_type;
	cuda_must(cu.MemHostAlloc(&pinned, REGION, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
	st.pinned = pinned;
	memset(st.pinned, 0x5a, REGION);
	st.engine = with_options(1);
	st.automatic = with_options(BARCOPY_COPY_ENGINE_AUTO);
}

void setup_stop(void)
{
	if (st.host_only)
		return;
	if (st.engine.there)
		gdr_unpin_buffer(st.b.buf.g, st.engine.handle);
	if (st.automatic.there)
		gdr_unpin_buffer(st.b.buf.g, st.automatic.handle);
	cu.MemFreeHost(st.pinned);
	bench_stop(&st.b);
}

void show(const struct table *t)
{
	table_show(t, st.b.json ? &st.json : NULL);
}

void line(struct table *t, struct job *job, size_t count, const char *name)
{
	t->columns = count;
	for (size_t i = 0; i < count; i++)
		t->column[i] = job[i].name;
	snprintf(t->line[t->lines], sizeof(t->line[0]), "%s", name);
	measure(job, count, st.rounds, t->value[t->lines++]);
}

void size_line(struct table *t, struct job *job, size_t count, size_t size)
{
	char name[24];

	for (size_t i = 0; i < count; i++)
		job[i].size = size;
	size_text(name, sizeof(name), size);
	line(t, job, count, name);
}

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

/* A raw read between the library's fences: the cost of the baseline if it returned no stale data. */
static void run_fenced(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		gdri_fence_before_read(st.type);
		job->raw->from(job->host, place(job), job->size);
		gdri_fence_after_read(st.type);
	}
}

static void run_library(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		uint8_t *map = place(job);
		int rc = job->read ? gdr_copy_from_mapping(job->handle, job->host, map, job->size)
				   : gdr_copy_to_mapping(job->handle, map, job->host, job->size);

		if (rc)
			tool_fail("a copy: %s", barcopy_last_error());
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

	/* Without a GPU the job has no handle: it uses the plan. */
	if (st.host_only)
		return job;
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
			     .off = !helped->there };
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
	return (struct job){ .name = name,
			     .run = run_cuda,
			     .map = st.map,
			     .host = pinned ? st.pinned : st.host,
			     .off = st.host_only };
}
