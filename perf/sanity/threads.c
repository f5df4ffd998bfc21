/* SPDX-License-Identifier: MIT */
/* Threads: different handles at the same time, and copies on one handle. */
#include <pthread.h>

#include "common/copytest.h"
#include "sanity/tests.h"

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
	sanity_round_trip(&b, 1);
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

const struct sanity_test sanity_threads[] = {
	TEST(threads_copy, "threads copy on one handle"),
	TEST(threads_pin, "threads pin, map, copy, unpin each their own"),
	TEST(threads_open, "threads open and close beside others that copy"),
	END_OF_TESTS,
};
