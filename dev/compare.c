// SPDX-License-Identifier: MIT
/*
 * compare OLD.so NEW.so [--sim DIR]: the cost of small copies in two builds of the library; with
 * GDRCOPY_STATS=1, of copies that are counted. Both builds run in one process, in turn, on memory
 * of barcopy_mem_alloc(), so that only the code differs. For developers: not installed.
 *
 * Each figure is the median of 15 rounds. In a round each build calls the function for 20 ms; the
 * builds take turns to be first.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "bench/timing.h"
#include "barcopy.h"

enum { ROUNDS = 15, ROUND_NS = 20000000, BUILDS = 2 };

struct build {
	__typeof__(&barcopy_open) open;
	__typeof__(&barcopy_mem_alloc) alloc;
	__typeof__(&gdr_copy_to_mapping) to;
	__typeof__(&gdr_copy_from_mapping) from;
	__typeof__(&barcopy_put64) put;
	__typeof__(&barcopy_last_error) last_error;
	barcopy_mem_t mem;
};

/* In the order of struct build. */
static const char *const names[] = { "barcopy_open",	    "barcopy_mem_alloc",
				     "gdr_copy_to_mapping", "gdr_copy_from_mapping",
				     "barcopy_put64",	    "barcopy_last_error" };

static const struct job {
	const char *name;
	enum { WRITE, PUT, READ } call;
	size_t size;
} jobs[] = {
	{ "write 8 B", WRITE, 8 },   { "put 8 B", PUT, 8 },	     { "write 24 B", WRITE, 24 },
	{ "write 64 B", WRITE, 64 }, { "write 1 KiB", WRITE, 1024 }, { "read 8 B", READ, 8 },
	{ "read 64 B", READ, 64 },
};

static void load(struct build *b, const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	gdr_t g;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		void *fn = lib ? dlsym(lib, names[i]) : NULL;

		if (!fn)
			tool_fail("%s", dlerror());
		memcpy((void **)(void *)b + i, &fn, sizeof(fn));
	}
	g = b->open(BARCOPY_OPEN_ANY);
	if (!g || b->alloc(g, 0, 65536, 0, &b->mem))
		tool_fail("%s: %s", path, b->last_error());
}

static void calls(const struct build *b, const struct job *job, size_t count)
{
	static _Alignas(64) unsigned char host[1024];

	/* A loop for each call: no branch on the kind of call inside the loop. */
	if (job->call == WRITE)
		for (size_t i = 0; i < count; i++)
			b->to(b->mem.handle, b->mem.cpu_ptr, host, job->size);
	else if (job->call == PUT)
		for (size_t i = 0; i < count; i++)
			b->put(b->mem.handle, b->mem.cpu_ptr, i);
	else
		for (size_t i = 0; i < count; i++)
			b->from(b->mem.handle, host, b->mem.cpu_ptr, job->size);
}

static double ns_of(const struct build *b, const struct job *job, size_t count)
{
	uint64_t start;

	calls(b, job, count / 16 + 1);
	start = timing_ticks();
	calls(b, job, count);
	return (double)(timing_ticks() - start) * timing.ns_per_tick / (double)count;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const struct build *builds, const struct job *job)
{
	double ns[BUILDS][ROUNDS];
	size_t n = (size_t)(ROUND_NS / ns_of(&builds[0], job, 1000)) + 1;

	for (size_t round = 0; round < ROUNDS; round++)
		for (size_t i = 0; i < BUILDS; i++) {
			size_t at = (i + round) % BUILDS;

			ns[at][round] = ns_of(&builds[at], job, n);
		}
	printf("%-12s", job->name);
	for (size_t i = 0; i < BUILDS; i++) {
		qsort(ns[i], ROUNDS, sizeof(ns[i][0]), by_value);
		printf("  %8.2f (%.2f .. %.2f)", ns[i][ROUNDS / 2], ns[i][1], ns[i][ROUNDS - 2]);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	struct build builds[BUILDS];

	tool_name = "compare";
	if (argc != 3 && !(argc == 5 && !strcmp(argv[3], "--sim"))) {
		fprintf(stderr, "usage: compare OLD.so NEW.so [--sim DIR]\n");
		return 2;
	}
	tool_guard_output();
	sim_enter(argc == 5 ? argv[4] : NULL, argv);
	setvbuf(stdout, NULL, _IOLBF, 0); /* each line as soon as it is measured */
	timing_init();
	printf("ns per call: median of %d rounds, and the range without the two farthest\n",
	       ROUNDS);
	printf("%-12s  %-24s  %-24s\n", "", "old", "new");
	for (size_t i = 0; i < BUILDS; i++)
		load(&builds[i], argv[1 + i]);
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
		measure(builds, &jobs[i]);
	return 0;
}
