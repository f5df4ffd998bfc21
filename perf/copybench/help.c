// SPDX-License-Identifier: MIT
/* Large copies by more than one CPU core: the copy engine, and several threads. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "common/exit.h"
#include "setup.h"

/* From which size on the copy engine is faster than the mapping, and what AUTO chooses. */
static void crossing(const char *name, bool read, const size_t *sizes, size_t n)
{
	struct table t = { .name = name, .unit = "ns" };
	struct job job[] = { library_job("mapping"),
			     library_job("again"),
			     library_job("map.pin"),
			     helped_job("engine", &st.engine, false),
			     helped_job("eng.pin", &st.engine, true),
			     helped_job("auto", &st.automatic, false),
			     helped_job("auto.pin", &st.automatic, true) };

	job[2].host = st.pinned;
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

	crossing("copy engine, reads", true, reads, COUNT(reads));
	crossing("copy engine, writes", false, writes, COUNT(writes));
}

/* Several threads, each on its own part of the region. */
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

/* GB/s of 16 copies of 1 MiB by each thread, including the start of the threads. */
void threads_section(void)
{
	struct table t = { .name = "threads", .unit = "GB/s" };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	for (unsigned int n = 1; n <= 16 && (long)n <= cpus; n *= 2) {
		struct job job[2] = { impl_job("read", NULL), impl_job("write", NULL) };
		double bytes = (double)n * OWN_COPIES * (1 << 20);
		char name[24];

		for (size_t c = 0; c < 2; c++) {
			job[c].read = !c;
			job[c].size = 1 << 20;
			job[c].run = run_threads;
			job[c].count = n;
		}
		snprintf(name, sizeof(name), "%u", n);
		line(&t, job, 2, name);
		for (size_t c = 0; c < 2; c++) {
			struct figure *f = &t.value[t.lines - 1][c], ns = *f;

			if (ns.median != 0)
				*f = (struct figure){ bytes / ns.median, bytes / ns.high,
						      bytes / ns.low };
		}
	}
	show(&t);
}
