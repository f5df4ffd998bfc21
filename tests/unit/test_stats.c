// SPDX-License-Identifier: MIT
/* barcopy_get_stats() among threads, and the summary. tests/model counts. */
#include <pthread.h>
#include <stdatomic.h>

#include "calls/calls.h"
#include "fixture.h"

#define SIZE STANDIN_GRANULE

static barcopy_mem_t open_memory(void)
{
	barcopy_mem_t mem;

	OK(barcopy_mem_alloc(g, 0, SIZE, 0, &mem));
	return mem;
}

static void write_bytes(const barcopy_mem_t *mem, size_t size)
{
	static char zeroes[65536];

	OK(gdr_copy_to_mapping(mem->handle, mem->cpu_ptr, zeroes, size));
}

static void arguments(void)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	FAILS(EINVAL, barcopy_get_stats(g, NULL));
	s.struct_size = FIRST_STATS - 1;
	FAILS(EINVAL, barcopy_get_stats(g, &s));
	s.struct_size = sizeof(s);
	FAILS(EINVAL, barcopy_get_stats((gdr_t)(uintptr_t)77, &s));
	OK(gdr_close(g));
	FAILS(EINVAL, barcopy_get_stats(g, &s));
	g = NULL;
}

/* ---- threads ------------------------------------------------------------- */

enum { THREADS = 8, TURNS = 20000 };

static barcopy_mem_t shared[2];
static pthread_barrier_t barrier;

static void *copy_much(void *arg)
{
	int turns = unit_quick() ? TURNS / 20 : TURNS;

	pthread_barrier_wait(&barrier);
	for (int i = 0; i < turns; i++) {
		uint64_t word = (uintptr_t)arg;

		OK(gdr_copy_to_mapping(shared[i & 1].handle,
				       (char *)shared[i & 1].cpu_ptr + 64 * (uintptr_t)arg, &word,
				       8));
		if (i % 100 == 0)
			OK(barcopy_get64(shared[0].handle, shared[0].cpu_ptr, &word));
	}
	return NULL;
}

/* Exact, although many threads count, and end, while another thread reads. */
static void many_threads(void)
{
	uint64_t turns = unit_quick() ? TURNS / 20 : TURNS, last = 0;
	barcopy_stats_t s;

	shared[0] = open_memory();
	shared[1] = open_memory();
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	unit_start(THREADS, copy_much, NULL, 1);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 50; i++) {
		uint64_t now = stats_of(NULL).copies_to;

		ck_assert_uint_ge(now, last);
		last = now;
	}
	unit_join();
	s = stats_of(g);
	ck_assert_uint_eq(s.copies_to, THREADS * turns);
	ck_assert_uint_eq(s.bytes_to, THREADS * turns * 8);
	ck_assert_uint_eq(s.gets, THREADS * turns / 100);
	OK(barcopy_mem_free(g, &shared[0]));
	ck_assert_uint_eq(stats_of(NULL).copies_to, THREADS * turns);
}

/* ---- the summary --------------------------------------------------------- */

/* In a child, which exits: with memory of its own, or without any use of the library. */
static int uses_and_exits(void *own)
{
	barcopy_mem_t mem;

	if (own) {
		start();
		mem = open_memory();
		write_bytes(&mem, 65536);
		write_bytes(&mem, 3);
		end();
	}
	exit(0);
}

static void child_without_use(void)
{
	ck_assert_int_eq(unit_in_child(uses_and_exits, NULL), 0);
}

static void child_with_memory(void)
{
	gdri_stats_note_stderr(); /* as if the child had loaded the library */
	ck_assert_int_eq(unit_in_child(uses_and_exits, &g), 0);
}

static void summary(void)
{
	const char *text;

	/* CUDA must not be initialised before the fork. */
	g = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_ptr_nonnull(g);
	ck_assert_uint_eq(stats_of(g).flags, BARCOPY_STATS_COPIES);
	ck_assert_str_eq(unit_stderr_of(child_without_use), "");
	text = unit_stderr_of(child_with_memory);
	ck_assert_msg(
		strstr(text, "GDRCOPY STATS: process ") &&
			strstr(text, "  pins 1, unpinned 1; maps 1, unmapped 1; revoked 0\n") &&
			strstr(text, "  copies to the GPU: 2, bytes 65539\n") &&
			strstr(text, "  copies from the GPU: 0, bytes 0\n"),
		"%s", text);
	OK(gdr_close(g));
}

/* The largest numbers fit into the text that is reserved for them. */
static void summary_room(void)
{
	struct gdri_text text = { .len = 0 };
	barcopy_stats_t s;

	memset(&s, 0xff, sizeof(s));
	gdri_stats_summary(&s, &text);
	ck_assert_uint_eq(strlen(text.s), text.len);
	ck_assert_uint_lt(text.len, sizeof(text.s) - 100);
	ck_assert_ptr_nonnull(strstr(text.s, "waited for 18446744073709551615\n"));
}

static const struct unit_test tests[] = {
	{ "arguments", arguments, "" },
	{ "many threads", many_threads, "GDRCOPY_STATS=1" },
	{ "summary", summary, "GDRCOPY_STATS=1", .bare = true },
	{ "room for the summary", summary_room },
};

UNIT_MAIN("stats", tests, unit_before = start, unit_after = end)
