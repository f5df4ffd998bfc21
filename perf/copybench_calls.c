// SPDX-License-Identifier: MIT
/*
 * The parts of copybench beside its tables by size: vectored copies, what ends a write, what a call
 * costs, threads and the pool. See copybench.h.
 */
#include "copybench.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "common/exit.h"
#include "common/progress.h"
#include "copy/fence.h"
#include "copy/pool.h"

/*
 * Scattered pieces of one line, a stride apart. Made beforehand, as many vectors as keep a line from
 * being met again soon: finding the places is not part of a copy.
 */
#define SETS 32
static barcopy_copy_seg_t vector[SETS][64];

static void make_vectors(size_t count, size_t stride)
{
	for (size_t n = 0; n < SETS * count; n++)
		vector[n / count][n % count] =
			(barcopy_copy_seg_t){ .map_ptr = st.map + n * stride,
					      .host_ptr = st.host + n % count * 64,
					      .size = 64 };
}

enum { ONE_CALL, A_CALL_EACH };

static void run_pieces(const struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		const barcopy_copy_seg_t *seg = vector[n % SETS];

		if (job->how == ONE_CALL && job->read)
			gdri_copyv_from(&job->plan, seg, job->count, 0);
		else if (job->how == ONE_CALL)
			gdri_copyv_to(&job->plan, seg, job->count, 0);
		else
			for (size_t i = 0; i < job->count; i++)
				copy_once(job, seg[i].map_ptr, seg[i].host_ptr);
	}
}

void vectors_section(const char *name, size_t stride)
{
	static const size_t pieces[] = { 1, 2, 4, 8, 16, 32, 64 };
	struct table t = { .name = name, .first = "pieces", .unit = "ns" };
	struct job job[6];

	for (size_t c = 0; c < 6; c++) {
		static const char *const names[] = { "read 1call", "r.library", "r.baseline",
						     "write1call", "w.library", "w.baseline" };

		job[c] = c % 3 == 2 ? baseline_job(names[c]) : copy_job(names[c], NULL);
		job[c].run = run_pieces;
		job[c].how = c % 3 ? A_CALL_EACH : ONE_CALL;
		job[c].read = c < 3;
		job[c].size = 64;
	}
	for (size_t i = 0; i < COUNT(pieces); i++) {
		for (size_t c = 0; c < 6; c++)
			job[c].count = pieces[i];
		make_vectors(pieces[i], stride);
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

void drain_section(void)
{
	static const size_t sizes[] = { 4, 8, 16, 64, 128, 256, 1024, 4096 };
	static const char *const names[] = { "nothing", "sfence", "mfence", "locked" };
	struct table t = { .name = "ends of a write", .first = "bytes", .unit = "ns" };
	struct job job[8];

	for (size_t c = 0; c < 8; c++) {
		job[c] = copy_job(names[c % 4], c < 4 ? NULL : "movdir64b");
		job[c].plan.fences = GDR_MAPPING_TYPE_NONE;
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

/*
 * A copy of 4 or 8 bytes to cached memory against the same by hand: what the call itself costs; the
 * engine's own, and the library's on a handle of host memory.
 */
static uint8_t words[64] __attribute__((aligned(64)));
static struct {
	gdr_mh_t handle;
	uint8_t *map;
} host_pin;

enum { ENGINE, BY_HAND, ENTRY };

static void run_call(const struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		if (job->how == ENTRY)
			gdr_copy_to_mapping(host_pin.handle, host_pin.map, st.host, job->size);
		else if (job->how == ENGINE)
			gdri_copy_to(&job->plan, words, st.host, job->size);
		else if (job->size == 4)
			*(volatile uint32_t *)(void *)words = *(uint32_t *)(void *)st.host;
		else
			*(volatile uint64_t *)(void *)words = *(uint64_t *)(void *)st.host;
		if (job->how == BY_HAND)
			gdri_fence_after_write(job->plan.fences);
	}
}

/* Memory of cuMemHostAlloc, pinned and mapped; false where the library cannot. */
static bool pin_host(void)
{
	void *map;

	if (opt.host || gdr_pin_buffer_v2(st.b.buf.g, (unsigned long)(uintptr_t)st.pinned, 4096, 0,
					  &host_pin.handle))
		return false;
	if (gdr_map(st.b.buf.g, host_pin.handle, &map, 4096)) {
		gdr_unpin_buffer(st.b.buf.g, host_pin.handle);
		return false;
	}
	host_pin.map = map;
	return true;
}

void call_section(void)
{
	static const struct {
		const char *name;
		int how;
		gdr_mapping_type_t type;
	} calls[] = { { "cached", ENGINE, GDR_MAPPING_TYPE_CACHING },
		      { "by hand", BY_HAND, GDR_MAPPING_TYPE_CACHING },
		      { "wc fence", ENGINE, GDR_MAPPING_TYPE_WC },
		      { "by hand", BY_HAND, GDR_MAPPING_TYPE_WC },
		      { "entry", ENTRY, GDR_MAPPING_TYPE_CACHING } };
	struct table t = { .name = "call, cached memory", .first = "bytes", .unit = "ns" };
	struct job job[COUNT(calls)];
	bool pinned = pin_host();

	for (size_t c = 0; c < COUNT(calls); c++) {
		job[c] =
			(struct job){ .name = calls[c].name, .run = run_call, .how = calls[c].how };
		job[c].off = calls[c].how == ENTRY && !pinned;
		gdri_copy_plan_init(&job[c].plan, calls[c].type, gdri_cpu_features(), NULL);
	}
	for (size_t size = 4; size <= 8; size += 4) {
		for (size_t c = 0; c < COUNT(calls); c++)
			job[c].size = size;
		size_text(t.line[t.lines], sizeof(t.line[0]), size);
		line(&t, job, COUNT(calls));
	}
	show(&t);
	if (pinned)
		gdr_unpin_buffer(st.b.buf.g, host_pin.handle);
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

/* One large copy, shared out to a pool. */
static void run_pool(const struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		uint8_t *map = place(job, n);

		if (job->read)
			gdri_copy_pool_from(job->pool, &job->plan, st.host, map, job->size);
		else
			gdri_copy_pool_to(job->pool, &job->plan, map, st.host, job->size);
	}
}

static double best_rate(const struct job *job, size_t bytes, size_t times)
{
	double best = 0;

	for (long round = 0; round < (opt.rounds + 2) / 3; round++) {
		double rate = (double)bytes / time_job(job, times);

		best = rate > best ? rate : best;
	}
	return best;
}

void threads_section(void)
{
	struct table t = { .name = "threads", .first = "threads", .unit = "GB/s" };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	for (size_t n = 1; n <= 16 && (long)n <= cpus; n *= 2) {
		double *value = t.value[t.lines];
		struct gdri_copy_pool *pool = NULL;

		if (n > 1 && gdri_copy_pool_new(&pool, (unsigned int)n, st.b.numa.node))
			tool_fail("no worker pool could be made");
		for (size_t c = 0; c < 4; c++) {
			static const char *const names[] = { "own read", "own write", "pool read",
							     "pool write" };
			struct job job = copy_job(names[c], NULL);

			job.read = !(c & 1);
			t.column[c] = names[c];
			progress_show(names[c], n);
			if (c < 2) {
				job.run = run_threads, job.count = n, job.size = 1 << 20;
				value[c] = best_rate(&job, n << 20, job.read ? 8 : 64);
			} else if (n > 1) {
				job.run = run_pool, job.size = 16 << 20, job.pool = pool;
				value[c] = best_rate(&job, job.size, 4);
			}
		}
		snprintf(t.line[t.lines++], sizeof(t.line[0]), "%zu", n);
		gdri_copy_pool_free(pool);
	}
	t.columns = 4;
	show(&t);
}

/* The same copy alone and by a pool, by size: where the pool begins to be worth waking. */
void pool_section(void)
{
	static const size_t sizes[] = { 64 << 10, 128 << 10, 256 << 10, 512 << 10,
					1 << 20,  2 << 20,   4 << 20,	8 << 20 };
	static const unsigned int threads[] = { 2, 4, 8 };
	struct table t = { .name = "pool by size", .first = "bytes", .unit = "ns" };
	struct gdri_copy_pool *pools[COUNT(threads)];
	struct job job[2 * COUNT(threads) + 2];
	size_t count = 0;

	for (size_t i = 0; i < COUNT(threads); i++)
		if (gdri_copy_pool_new(&pools[i], threads[i], st.b.numa.node))
			tool_fail("no worker pool could be made");
	for (int read = 1; read >= 0; read--) {
		static const char *const names[][4] = {
			{ "write 1", "write 2", "write 4", "write 8" },
			{ "read 1", "read 2", "read 4", "read 8" }
		};

		for (size_t i = 0; i <= COUNT(threads); i++) {
			job[count] = copy_job(names[read][i], NULL);
			job[count].read = read;
			if (i) {
				job[count].run = run_pool;
				job[count].pool = pools[i - 1];
			}
			count++;
		}
	}
	for (size_t i = 0; i < COUNT(sizes) && sizes[i] <= opt.max; i++) {
		for (size_t c = 0; c < count; c++)
			job[c].size = sizes[i];
		size_text(t.line[t.lines], sizeof(t.line[0]), sizes[i]);
		line(&t, job, count);
	}
	show(&t);
	for (size_t i = 0; i < COUNT(threads); i++)
		gdri_copy_pool_free(pools[i]);
}
