// SPDX-License-Identifier: MIT
/*
 * compare OLD.so NEW.so [--sim DIR] [--rounds N]: the cost of small copies, of a get and its put that hit in the
 * cache or miss, of an invalidation that finds nothing, and of a pin and a map with their ends, in
 * two builds of the library; with GDRCOPY_STATS=1, of calls that are counted. Both
 * builds run in one process, in turn, on the same memory, since on a GPU two places differ by 10 %.
 * For developers: not installed.
 *
 * A figure is that of the fastest twentieth of N (1501) rounds, which other programs do not move. In a
 * round each build calls the function for 0.1 ms; the builds take turns to be first.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "bench/timing.h"
#include "barcopy.h"

enum { ROUNDS = 1501, ROUND_NS = 100000, BUILDS = 2 };

static size_t rounds = ROUNDS;

/* field, function */
#define CALLS(X)                                   \
	X(open, barcopy_open)                      \
	X(alloc, barcopy_mem_alloc)                \
	X(map_range, barcopy_map_range)            \
	X(to, gdr_copy_to_mapping)                 \
	X(from, gdr_copy_from_mapping)             \
	X(put, barcopy_put64)                      \
	X(get, barcopy_get64)                      \
	X(post_line, barcopy_post_line)            \
	X(vector_to, barcopy_copyv_to_mapping)     \
	X(vector_from, barcopy_copyv_from_mapping) \
	X(cache_create, barcopy_cache_create)      \
	X(cache_get, barcopy_cache_get)            \
	X(cache_put, barcopy_cache_put)            \
	X(invalidate, barcopy_cache_invalidate)    \
	X(pin, gdr_pin_buffer)                     \
	X(unpin, gdr_unpin_buffer)                 \
	X(map, gdr_map)                            \
	X(unmap, gdr_unmap)                        \
	X(last_error, barcopy_last_error)

struct build {
#define FIELD(field, function) __typeof__(&function) field;
	CALLS(FIELD)
	gdr_t g;
	barcopy_mem_t mem;
	barcopy_cache_t cache[2]; /* by validity */
	gdr_mh_t pinned;
};

/* Of a vector: so many pieces of 64 bytes. Of a hit or a miss: the validity. */
static const struct job {
	const char *name;
	enum {
		WRITE,
		PUT,
		POST,
		VECTOR_TO,
		READ,
		GET,
		VECTOR_FROM,
		HIT,
		MISS,
		INVALIDATE,
		PIN,
		MAP
	} call;
	size_t size;
} jobs[] = {
	{ "write 8 B", WRITE, 8 },
	{ "put 8 B", PUT, 8 },
	{ "write 24 B", WRITE, 24 },
	{ "write 64 B", WRITE, 64 },
	{ "write 256 B", WRITE, 256 },
	{ "write 1 KiB", WRITE, 1024 },
	{ "write 4 KiB", WRITE, 4096 },
	{ "post line", POST, 64 },
	{ "vector to, 16", VECTOR_TO, 16 },
	{ "read 8 B", READ, 8 },
	{ "get 8 B", GET, 8 },
	{ "read 24 B", READ, 24 },
	{ "read 64 B", READ, 64 },
	{ "read 256 B", READ, 256 },
	{ "read 1 KiB", READ, 1024 },
	{ "read 4 KiB", READ, 4096 },
	{ "vector from, 16", VECTOR_FROM, 16 },
	{ "hit", HIT, BARCOPY_CACHE_CHECK_TAG },
	{ "hit, notified", HIT, BARCOPY_CACHE_NOTIFIED },
	{ "invalidate", INVALIDATE, BARCOPY_CACHE_NOTIFIED },
	{ "miss", MISS, BARCOPY_CACHE_CHECK_TAG },
	{ "miss, notified", MISS, BARCOPY_CACHE_NOTIFIED },
	{ "pin, unpin", PIN, 65536 },
	{ "map, unmap", MAP, 65536 },
};

/* With memory of its own, or that of `other`. */
static void load(struct build *b, const char *path, const struct build *other)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void *fn;
	barcopy_cache_options_t o = { .struct_size = sizeof(o) };

#define LOOK_UP(field, function)                 \
	fn = lib ? dlsym(lib, #function) : NULL; \
	if (!fn)                                 \
		tool_fail("%s", dlerror());      \
	memcpy(&b->field, &fn, sizeof(fn));
	CALLS(LOOK_UP)
	b->g = b->open(BARCOPY_OPEN_ANY);
	if (other)
		b->mem = other->mem;
	if (!b->g ||
	    (other ? b->map_range(b->g, other->mem.device_ptr, 65536, 0, &b->mem.cpu_ptr,
				  &b->mem.handle)
		   : b->alloc(b->g, 0, 65536, 0, &b->mem)) ||
	    b->pin(b->g, b->mem.device_ptr, 65536, 0, 0, &b->pinned))
		tool_fail("%s: %s", path, b->last_error());
	for (; o.validity < ARRAY_SIZE(b->cache); o.validity++)
		if (b->cache_create(b->g, &o, &b->cache[o.validity]))
			tool_fail("%s: %s", path, b->last_error());
}

static void hit(const struct build *b, barcopy_cache_t cache)
{
	barcopy_region_t region;

	if (b->cache_get(cache, b->mem.device_ptr, 8, &region) || b->cache_put(cache, &region))
		tool_fail("a hit failed: %s", b->last_error());
}

static void miss(const struct build *b, barcopy_cache_t cache)
{
	if (b->invalidate(cache, b->mem.device_ptr, 8))
		tool_fail("an invalidation failed: %s", b->last_error());
	hit(b, cache);
}

static void pin(const struct build *b, size_t size)
{
	gdr_mh_t h;

	if (b->pin(b->g, b->mem.device_ptr, size, 0, 0, &h) || b->unpin(b->g, h))
		tool_fail("a pin failed: %s", b->last_error());
}

static void map(const struct build *b, size_t size)
{
	void *at;

	if (b->map(b->g, b->pinned, &at, size) || b->unmap(b->g, b->pinned, at, size))
		tool_fail("a map failed: %s", b->last_error());
}

static void calls(const struct build *b, const struct job *job, size_t count)
{
	static _Alignas(64) unsigned char host[4096];
	static barcopy_copy_seg_t seg[16]; /* 192 bytes apart */
	uint64_t word;

	for (size_t i = 0; i < ARRAY_SIZE(seg); i++)
		seg[i] = (barcopy_copy_seg_t){ .map_ptr = (char *)b->mem.cpu_ptr + i * 192,
					       .host_ptr = host + i * 64,
					       .size = 64 };
		/* A loop for each call: no branch on the kind of call inside the loop. */
#define LOOP(kind, call)                           \
	case kind:                                 \
		for (size_t i = 0; i < count; i++) \
			call;                      \
		break
	switch (job->call) {
		LOOP(WRITE, b->to(b->mem.handle, b->mem.cpu_ptr, host, job->size));
		LOOP(PUT, b->put(b->mem.handle, b->mem.cpu_ptr, i));
		LOOP(POST, b->post_line(b->mem.handle, b->mem.cpu_ptr, host));
		LOOP(VECTOR_TO, b->vector_to(b->mem.handle, seg, job->size, 0));
		LOOP(READ, b->from(b->mem.handle, host, b->mem.cpu_ptr, job->size));
		LOOP(GET, b->get(b->mem.handle, b->mem.cpu_ptr, &word));
		LOOP(VECTOR_FROM, b->vector_from(b->mem.handle, seg, job->size, 0));
		LOOP(HIT, hit(b, b->cache[job->size]));
		LOOP(MISS, miss(b, b->cache[job->size]));
		LOOP(INVALIDATE, b->invalidate(b->cache[job->size], 1 << 20, 8));
		LOOP(PIN, pin(b, job->size));
		LOOP(MAP, map(b, job->size));
	}
}

static double ns_of(const struct build *b, const struct job *job, size_t count)
{
	uint64_t start;

	calls(b, job, count / 16 + 1);
	start = timing_ticks();
	calls(b, job, count);
	return (double)(timing_ticks() - start) * timing.ns_per_tick / (double)count;
}

static void measure(const struct build *builds, const struct job *job)
{
	double ns[BUILDS][ROUNDS];
	size_t n = (size_t)(ROUND_NS / ns_of(&builds[0], job, 1000)) + 1;

	for (size_t round = 0; round < rounds; round++)
		for (size_t i = 0; i < BUILDS; i++) {
			size_t at = (i + round) % BUILDS;

			ns[at][round] = ns_of(&builds[at], job, n);
		}
	printf("%-15s", job->name);
	for (size_t i = 0; i < BUILDS; i++) {
		qsort(ns[i], rounds, sizeof(ns[i][0]), timing_by_value);
		printf("  %8.2f (%.2f .. %.2f)", ns[i][rounds / 20], ns[i][rounds / 100],
		       ns[i][rounds / 4]);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	struct build builds[BUILDS];
	const char *sim = NULL;
	int arg;

	tool_name = "compare";
	for (arg = 3; arg + 1 < argc; arg += 2) {
		if (!strcmp(argv[arg], "--sim"))
			sim = argv[arg + 1];
		else if (!strcmp(argv[arg], "--rounds"))
			rounds = strtoul(argv[arg + 1], NULL, 10);
		else
			break;
	}
	if (arg != argc || !rounds || rounds > ROUNDS) {
		fprintf(stderr,
			"usage: compare OLD.so NEW.so [--sim DIR] [--rounds N]\n"
			"N: 1 to %d\n",
			ROUNDS);
		return 2;
	}
	tool_guard_output();
	sim_enter(sim, argv);
	setvbuf(stdout, NULL, _IOLBF, 0); /* each line as soon as it is measured */
	timing_init();
	printf("ns per call: the fastest twentieth of %zu rounds (hundredth .. quarter)\n", rounds);
	printf("%-15s  %-24s  %-24s\n", "", "old", "new");
	for (size_t i = 0; i < BUILDS; i++)
		load(&builds[i], argv[1 + i], i ? &builds[0] : NULL);
	for (size_t i = 0; i < ARRAY_SIZE(jobs) && !ferror(stdout); i++)
		measure(builds, &jobs[i]);
	return 0;
}
