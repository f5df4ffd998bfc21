/* SPDX-License-Identifier: MIT */
/* Threads, and leaks of descriptors, of mappings, and of the driver's pins. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/copytest.h"
#include "common/exit.h"
#include "sanity/sanity.h"

enum { THREADS = 8, ROUNDS = 30, SLICE = 65536 };

struct job {
	const struct buffer *b; /* THREADS slices */
	size_t id;
};

static void *copies(void *arg)
{
	const struct job *job = arg;
	uint8_t *p = job->b->cpu + job->id * SLICE, in[4000], out[4000];

	for (size_t i = 0; i < ROUNDS * 10; i++) {
		size_t offset = i * 97 % (SLICE - sizeof(in));

		copytest_random(in, sizeof(in), job->id * 1000 + i);
		OK(gdr_copy_to_mapping(job->b->mh, p + offset, in, sizeof(in)));
		OK(gdr_copy_from_mapping(job->b->mh, out, p + offset, sizeof(out)));
		SAME("one thread's slice of a mapping", in, out, sizeof(in));
	}
	return NULL;
}

static void *lives(void *arg)
{
	const struct job *job = arg;
	uint64_t addr = job->b->mem.dptr + job->id * SLICE, word, seen;

	CU(cu.CtxSetCurrent(sanity.gpu.ctx));
	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct buffer b;

		OK(sanity_view(&b, addr, SLICE, 0));
		word = job->id << 32 | i;
		OK(gdr_copy_to_mapping(b.mh, b.cpu, &word, sizeof(word)));
		OK(gdr_copy_from_mapping(b.mh, &seen, b.cpu, sizeof(seen)));
		SAME("one thread's handle", &word, &seen, sizeof(seen));
		if (i % 2)
			OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
		OK(gdr_unpin_buffer(b.g, b.mh));
	}
	return NULL;
}

static void *contexts(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);

		CHECK(g, "barcopy_open: %s", barcopy_last_error());
		OK(gdr_close(g));
	}
	return NULL;
}

static void run(void *(*fn)(void *), void *(*odd)(void *))
{
	pthread_t thread[THREADS];
	struct job job[THREADS];
	struct buffer b;

	sanity_make(&b, THREADS * SLICE);
	for (size_t i = 0; i < THREADS; i++) {
		job[i] = (struct job){ &b, i };
		CHECK(!pthread_create(&thread[i], NULL, i % 2 ? odd : fn, &job[i]),
		      "pthread_create fails");
	}
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	sanity_round_trip(&b, 0, b.mem.size, 1);
	sanity_unmake(&b);
}

static void threads_copy(void)
{
	run(copies, copies);
}

static void threads_pin(void)
{
	run(lives, lives);
}

static void threads_open(void)
{
	run(contexts, copies);
}

static unsigned int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	CHECK(dir, "/proc/self/fd: %s", strerror(errno));
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

struct mappings {
	unsigned int all, shared; /* those of a device are shared */
};

static void count_mappings(struct mappings *m)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4400], access[8];

	CHECK(f, "/proc/self/maps: %s", strerror(errno));
	memset(m, 0, sizeof(*m));
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %7s", access) != 1)
			continue;
		m->all++;
		m->shared += access[3] == 's';
	}
	fclose(f);
}

/* Every way to end a pin, and pins that fail. */
static void one_round(void)
{
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY), before = sanity.g;
	struct buffer b;
	gdr_mh_t h;
	void *map;

	CHECK(g, "barcopy_open: %s", barcopy_last_error());
	sanity.g = g;
	sanity_make(&b, 131072);
	sanity_unmake(&b);
	sanity_make(&b, 131072); /* unpinned while mapped */
	OK(gdr_unpin_buffer(g, b.mh));
	FAILS(EINVAL, gdr_pin_buffer_v2(g, (unsigned long)b.mem.dptr, 4096, 1u << 20, &h));
	OK(gdr_pin_buffer_v2(g, (unsigned long)b.mem.dptr, 4096, 0, &h));
	FAILS(EINVAL, gdr_map(g, h, &map, SIZE_MAX));
	if (!gdr_map_v2(g, h, &map, 4096, GDR_MAP_FLAG_REQ_CACHE_MAPPING))
		OK(gdr_unmap(g, h, map, 4096));
	OK(gdr_unpin_buffer(g, h));
	mem_free(&b.mem);
	if (!sanity_is_host()) { /* freed under its pin */
		sanity_make(&b, 131072);
		mem_free(&b.mem);
		OK(gdr_unpin_buffer(g, b.mh));
	}
	sanity_make(&b, 131072); /* left to the close */
	OK(gdr_close(g));
	mem_free(&b.mem);
	sanity.g = before;
}

static void leaks(void)
{
	struct mappings before, after;
	unsigned int fds, fds_after;

	for (int i = 0; i < 3; i++)
		one_round();
	fds = count_fds();
	count_mappings(&before);
	for (int i = 0; i < ROUNDS; i++)
		one_round();
	fds_after = count_fds();
	count_mappings(&after);
	sanity_note("descriptors %u, then %u; mappings %u (%u shared), then %u (%u)", fds,
		    fds_after, before.all, before.shared, after.all, after.shared);
	CHECK(fds_after <= fds, "%d rounds leave %u descriptor%s open", ROUNDS, fds_after - fds,
	      plural(fds_after - fds));
	CHECK(after.shared <= before.shared, "%d rounds leave %u shared mapping%s", ROUNDS,
	      after.shared - before.shared, plural(after.shared - before.shared));
	/* the allocator may add some; a leak of one mapping a round is more than that */
	CHECK(after.all < before.all + ROUNDS, "%d rounds leave %u mappings", ROUNDS,
	      after.all - before.all);
}

/* The pins of all tests so far have ended with their processes. */
static void kernel_pins(void)
{
	long now = sanity_kernel_pins();

	if (sanity.facts.kernel_pins < 0 || now < 0)
		sanity_waive("/proc/driver/gdrdrv/nv_get_pages_refcount cannot be read (gdrdrv is "
			     "not loaded, or this is not root)");
	for (int i = 0; now > sanity.facts.kernel_pins && i < 20; i++) {
		usleep(100000); /* killed processes may still be exiting */
		now = sanity_kernel_pins();
	}
	CHECK(now <= sanity.facts.kernel_pins,
	      "%ld pin%s in the driver, %ld before the first test: leaked, unless another process "
	      "has pinned since",
	      now, plural((unsigned long)now), sanity.facts.kernel_pins);
}

const struct sanity_test sanity_load[] = {
	TEST(threads_copy, "threads copy on one handle"),
	TEST(threads_pin, "threads pin, map, copy, unpin each their own"),
	TEST(threads_open, "threads open and close while others copy"),
	TEST(leaks, "descriptors and mappings are given back"),
	TEST(kernel_pins, "the driver's count of pins is as before the tests"),
	END_OF_TESTS,
};
