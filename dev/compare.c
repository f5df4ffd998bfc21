// SPDX-License-Identifier: MIT
/*
 * compare OLD.so NEW.so [--sim DIR]: the cost of small copies in two builds of the library; with
 * GDRCOPY_STATS=1, of copies that are counted. Both builds run in one process, in turn, on memory of
 * barcopy_mem_alloc(), so that only the code differs. For developers: not installed.
 *
 * Each figure is the median of 15 rounds. In a round each build calls the function for 20 ms; the builds
 * take turns to be first.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "common/timing.h"
#include "barcopy.h"

enum { ROUNDS = 15, ROUND_NS = 20000000, BUILDS = 2 };

struct build {
	const char *name;
	__typeof__(&barcopy_open) open;
	__typeof__(&barcopy_mem_alloc) alloc;
	__typeof__(&gdr_copy_to_mapping) to;
	__typeof__(&gdr_copy_from_mapping) from;
	__typeof__(&barcopy_put64) put;
	barcopy_mem_t mem;
};

enum call { WRITE, PUT, READ };

static const struct {
	const char *name;
	enum call call;
	size_t size;
} jobs[] = {
	{ "write 8 B", WRITE, 8 },   { "put 8 B", PUT, 8 },	     { "write 24 B", WRITE, 24 },
	{ "write 64 B", WRITE, 64 }, { "write 1 KiB", WRITE, 1024 }, { "read 8 B", READ, 8 },
	{ "read 64 B", READ, 64 },
};

static void *find(void *lib, const char *path, const char *name)
{
	void *fn = dlsym(lib, name);

	if (!fn) {
		fprintf(stderr, "compare: %s has no %s\n", path, name);
		exit(1);
	}
	return fn;
}

static void load(struct build *b, const char *path, const char *name)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *(*last_error)(void);
	gdr_t g;

	if (!lib) {
		fprintf(stderr, "compare: %s\n", dlerror());
		exit(1);
	}
	b->name = name;
	*(void **)&b->open = find(lib, path, "barcopy_open");
	*(void **)&b->alloc = find(lib, path, "barcopy_mem_alloc");
	*(void **)&b->to = find(lib, path, "gdr_copy_to_mapping");
	*(void **)&b->from = find(lib, path, "gdr_copy_from_mapping");
	*(void **)&b->put = find(lib, path, "barcopy_put64");
	*(void **)&last_error = find(lib, path, "barcopy_last_error");
	g = b->open(BARCOPY_OPEN_ANY);
	if (!g || b->alloc(g, 0, 65536, 0, &b->mem)) {
		fprintf(stderr, "compare: %s: %s\n", path, last_error());
		exit(1);
	}
}

static void calls(const struct build *b, size_t job, size_t count)
{
	static _Alignas(64) unsigned char host[1024];
	size_t size = jobs[job].size;

	/* A loop for each call: no branch on the kind of call inside the loop. */
	switch (jobs[job].call) {
	case WRITE:
		for (size_t i = 0; i < count; i++)
			b->to(b->mem.handle, b->mem.cpu_ptr, host, size);
		break;
	case PUT:
		for (size_t i = 0; i < count; i++)
			b->put(b->mem.handle, b->mem.cpu_ptr, i);
		break;
	case READ:
		for (size_t i = 0; i < count; i++)
			b->from(b->mem.handle, host, b->mem.cpu_ptr, size);
		break;
	}
}

static double ns_of(const struct build *b, size_t job, size_t count)
{
	uint64_t start;
	double ns;

	calls(b, job, count / 16 + 1);
	start = timing_ticks();
	calls(b, job, count);
	ns = (double)(timing_ticks() - start) * timing.ns_per_tick / (double)count;
	return ns;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const struct build *builds, size_t count, size_t job)
{
	double ns[BUILDS][ROUNDS];
	size_t n = (size_t)(ROUND_NS / ns_of(&builds[0], job, 1000)) + 1;

	for (size_t round = 0; round < ROUNDS; round++)
		for (size_t i = 0; i < count; i++) {
			size_t at = (i + round) % count;

			ns[at][round] = ns_of(&builds[at], job, n);
		}
	printf("%-12s", jobs[job].name);
	for (size_t i = 0; i < count; i++) {
		qsort(ns[i], ROUNDS, sizeof(ns[i][0]), by_value);
		printf("  %8.2f (%.2f .. %.2f)", ns[i][ROUNDS / 2], ns[i][1], ns[i][ROUNDS - 2]);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	struct build builds[BUILDS];
	size_t count = BUILDS;

	if (argc != 3 && !(argc == 5 && !strcmp(argv[3], "--sim"))) {
		fprintf(stderr, "usage: compare OLD.so NEW.so [--sim DIR]\n");
		return 2;
	}
	tool_name = "compare";
	tool_guard_output();
	sim_enter(argc == 5 ? argv[4] : NULL, argv);
	setvbuf(stdout, NULL, _IOLBF, 0); /* each line as soon as it is measured */
	timing_init();
	memset(builds, 0, sizeof(builds));
	load(&builds[0], argv[1], "old");
	load(&builds[1], argv[2], "new");
	printf("ns per call: median of %d rounds, and the range without the two farthest\n%-12s",
	       ROUNDS, "");
	for (size_t i = 0; i < count; i++)
		printf("  %-24s", builds[i].name);
	printf("\n");
	for (size_t job = 0; job < sizeof(jobs) / sizeof(jobs[0]); job++)
		measure(builds, count, job);
	return 0;
}
