// SPDX-License-Identifier: MIT
/* Help with large copies: the copy engine, several threads, the pool. See sections.h. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "common/exit.h"
#include "copy/pool.h"
#include "sections.h"
#include "setup.h"

static void run_question(struct job *job, size_t times)
{
	/* What the library asks of CUDA where page-locked memory decides (src/cuda/engine.c). */
	for (size_t n = 0; n < times; n++) {
		unsigned int type = 0;

		(void)cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					     (CUdeviceptr)(uintptr_t)job->host + n % 64 * 4096);
	}
}

/* Where the copy engine is ahead of the mapping, by what the host's memory is; AUTO's own choice. */
static void crossing(const char *name, bool read, const size_t *sizes, size_t n)
{
	struct table t = { .name = name, .first = "bytes", .unit = "ns" };
	struct job job[9] = { library_job("mapping"),
			      library_job("again"),
			      library_job("map.pin"),
			      helped_job("engine", &st.engine, false),
			      helped_job("eng.pin", &st.engine, true),
			      helped_job("auto", &st.automatic, false),
			      helped_job("auto.pin", &st.automatic, true),
			      cuda_job("question", false),
			      cuda_job("quest.pin", true) };

	job[2].host = st.pinned;
	job[7].run = job[8].run = run_question;
	for (size_t c = 0; c < COUNT(job); c++)
		job[c].read = read;
	for (size_t i = 0; i < n; i++)
		size_line(&t, job, COUNT(job), sizes[i]);
	show(&t);
}

void engine_section(void)
{
	static const size_t reads[] = { 2 << 10,  4 << 10,  6 << 10,  7 << 10,	8 << 10,
					9 << 10,  10 << 10, 11 << 10, 12 << 10, 16 << 10,
					24 << 10, 32 << 10, 64 << 10, 1 << 20 };
	static const size_t writes[] = { 64 << 10,  128 << 10, 192 << 10, 224 << 10, 256 << 10,
					 288 << 10, 320 << 10, 384 << 10, 512 << 10, 768 << 10,
					 1 << 20,   4 << 20,   16 << 20 };

	if (st.host_only)
		return;
	crossing("copy engine, reads", true, reads, COUNT(reads));
	crossing("copy engine, writes", false, writes, COUNT(writes));
}

/* Several threads, each on its own part: what the link gives to more than one core. */
struct worker {
	pthread_t thread;
	const struct job *job;
	uint8_t *map, *host;
};

enum { OWN_COPIES = 16 };

static void *work(void *arg)
{
	const struct worker *w = arg;

	for (size_t n = 0; n < OWN_COPIES; n++)
		copy_once(w->job, w->map, w->host);
	return NULL;
}

static void run_threads(struct job *job, size_t times)
{
	struct worker worker[16];

	for (; times; times--) {
		for (size_t i = 0; i < job->count; i++) {
			worker[i] = (struct worker){ .job = job,
						     .map = st.map + i * job->size,
						     .host = st.host + i * job->size };
			if (pthread_create(&worker[i].thread, NULL, work, &worker[i]))
				tool_fail("no thread could be started");
		}
		for (size_t i = 0; i < job->count; i++)
			pthread_join(worker[i].thread, NULL);
	}
}

/* One large copy, shared out to a pool. */
static void run_pool(struct job *job, size_t times)
{
	gdri_copy_pool_tune(job->pool, job->helpers, job->spin_ns, 0);
	for (size_t n = 0; n < times; n++) {
		uint8_t *map = place(job);

		if (job->read)
			gdri_copy_pool_copy(job->pool, &job->plan, job->host, map, job->size,
					    false);
		else
			gdri_copy_pool_copy(job->pool, &job->plan, map, job->host, job->size, true);
	}
}

static struct job pool_job(const char *name, struct gdri_copy_pool *pool, bool read,
			   unsigned int helpers, unsigned int spin_ns)
{
	struct job job = row_job(name, NULL);

	if (helpers) {
		job.run = run_pool;
		job.pool = pool;
	}
	job.read = read;
	job.helpers = helpers;
	job.spin_ns = spin_ns;
	return job;
}

static struct gdri_copy_pool *pool_of(unsigned int threads)
{
	struct gdri_copy_pool *pool;

	if (gdri_copy_pool_new(&pool, threads, st.b.numa.node))
		tool_fail("no worker pool could be made");
	return pool;
}

/* GB/s of 16 copies of 1 MiB by each thread, the threads' beginning included; of one copy of 16 MiB. */
void threads_section(void)
{
	struct table t = { .name = "threads", .first = "threads", .unit = "GB/s" };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	for (unsigned int n = 1; n <= 16 && (long)n <= cpus; n *= 2) {
		struct gdri_copy_pool *pool = n > 1 ? pool_of(n) : NULL;
		struct job job[4] = { row_job("own read", NULL), row_job("own write", NULL),
				      pool_job("pool read", pool, true, n - 1, 0),
				      pool_job("pool write", pool, false, n - 1, 0) };
		double bytes[4];
		char name[24];

		for (size_t c = 0; c < 4; c++) {
			job[c].read = !(c & 1);
			job[c].size = c < 2 ? 1 << 20 : 16 << 20;
			bytes[c] = c < 2 ? (double)n * OWN_COPIES * (1 << 20) : 16 << 20;
			job[c].off = c >= 2 && n == 1;
			if (c < 2)
				job[c].run = run_threads, job[c].count = n;
		}
		snprintf(name, sizeof(name), "%u", n);
		line(&t, job, 4, name);
		for (size_t c = 0; c < 4; c++) {
			struct figure *f = &t.value[t.lines - 1][c], ns = *f;

			if (ns.median != 0)
				*f = (struct figure){ bytes[c] / ns.median, bytes[c] / ns.high,
						      bytes[c] / ns.low };
		}
		if (pool)
			gdri_copy_pool_free(pool);
	}
	show(&t);
}

/* The same copy alone and by a pool of eight, by size, with so many helpers and with or without a spin. */
static void pool_table(const char *name, bool read, const size_t *sizes, size_t n)
{
	static const struct {
		const char *name;
		unsigned int helpers, spin_ns;
	} ways[] = { { "alone", 0, 0 },	     { "again", 0, 0 },	     { "1", 1, 0 },
		     { "2", 2, 0 },	     { "3", 3, 0 },	     { "7", 7, 0 },
		     { "1 spin", 1, 50000 }, { "2 spin", 2, 50000 }, { "3 spin", 3, 50000 },
		     { "7 spin", 7, 50000 } };
	struct table t = { .name = name, .first = "bytes", .unit = "ns" };
	struct gdri_copy_pool *pool = pool_of(8), *spinning = pool_of(8);
	struct job job[COUNT(ways)];

	for (size_t c = 0; c < COUNT(ways); c++) {
		job[c] = pool_job(ways[c].name, ways[c].spin_ns ? spinning : pool, read,
				  ways[c].helpers, ways[c].spin_ns);
		job[c].off = read && ways[c].helpers && ways[c].helpers != 7;
	}
	for (size_t i = 0; i < n && sizes[i] <= st.max; i++)
		size_line(&t, job, COUNT(ways), sizes[i]);
	show(&t);
	gdri_copy_pool_free(pool);
	gdri_copy_pool_free(spinning);
}

void pool_section(void)
{
	static const size_t sizes[] = { 64 << 10, 128 << 10, 256 << 10, 384 << 10, 512 << 10,
					1 << 20,  2 << 20,   4 << 20,	16 << 20 };

	pool_table("pool, reads", true, sizes, COUNT(sizes));
	pool_table("pool, writes", false, sizes + 2, COUNT(sizes) - 2);
}
