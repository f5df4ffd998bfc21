// SPDX-License-Identifier: MIT
/*
 * barcopy_get_stats() and the summary: what is counted and what is not, for a context and for the
 * process; threads and handles that end; forks.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "calls/calls.h"
#include "fixture.h"

#define SIZE STANDIN_GRANULE

/* Counts of g, those that are not named 0: COUNTED(.puts = 4). */
#define COUNTED(...) \
	counted(__LINE__, &(barcopy_stats_t){ .struct_size = sizeof(barcopy_stats_t), __VA_ARGS__ })

static void counted(int line, const barcopy_stats_t *want)
{
	barcopy_stats_t is = stats_of(g);

	for (size_t i = 0; i < sizeof(is) / 8; i++)
		ck_assert_msg(((uint64_t *)&is)[i] == ((const uint64_t *)want)[i],
			      "line %d: word %zu of the counts is %llu", line, i,
			      (unsigned long long)((uint64_t *)&is)[i]);
}

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

static void what_is_counted(void)
{
	barcopy_mem_t mem = open_memory();
	char buf[300];
	barcopy_copy_seg_t seg[3] = { { mem.cpu_ptr, buf, 10, 0, 0 },
				      { mem.cpu_ptr, buf, 0, 0, 0 },
				      { (char *)mem.cpu_ptr + 64, buf, 100, 0, 0 } };
	uint32_t w32;
	uint64_t w64;

	write_bytes(&mem, 4);
	write_bytes(&mem, 5);
	write_bytes(&mem, 16);
	write_bytes(&mem, 65536);
	write_bytes(&mem, 0);
	OK(gdr_copy_from_mapping(mem.handle, buf, mem.cpu_ptr, 300));
	OK(barcopy_copyv_to_mapping(mem.handle, seg, 3, 0));
	OK(barcopy_copyv_from_mapping(mem.handle, seg, 1, BARCOPY_COPY_NO_FENCE));
	OK(barcopy_put32(mem.handle, mem.cpu_ptr, 1));
	OK(barcopy_put64(mem.handle, mem.cpu_ptr, 1));
	OK(barcopy_post32(mem.handle, mem.cpu_ptr, 1));
	OK(barcopy_post64(mem.handle, mem.cpu_ptr, 1));
	OK(barcopy_get32(mem.handle, mem.cpu_ptr, &w32));
	OK(barcopy_get64(mem.handle, mem.cpu_ptr, &w64));
	OK(barcopy_get64(mem.handle, mem.cpu_ptr, &w64));
	OK(barcopy_wait32(mem.handle, mem.cpu_ptr, BARCOPY_CMP_EQ, 1, 0));
	OK(barcopy_wait64(mem.handle, mem.cpu_ptr, BARCOPY_CMP_EQ, 1, 0));
	OK(barcopy_fence(mem.handle, BARCOPY_FENCE_FULL));
	OK(barcopy_flush(mem.handle));
	/* calls that fail are not counted */
	FAILS(EINVAL, gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, NULL, 8));
	FAILS(EINVAL, gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, buf, SIZE + 1));
	FAILS(EINVAL, gdr_copy_from_mapping(mem.handle, NULL, mem.cpu_ptr, 8));
	FAILS(EINVAL, gdr_copy_from_mapping(mem.handle, buf, buf, 8));
	seg[2].reserved = 1;
	FAILS(EINVAL, barcopy_copyv_to_mapping(mem.handle, seg, 3, 0));
	FAILS(EINVAL, barcopy_put32(mem.handle, (char *)mem.cpu_ptr + 1, 1));
	FAILS(EINVAL, barcopy_put64(mem.handle, buf, 1));
	FAILS(EINVAL, barcopy_get32(mem.handle, mem.cpu_ptr, NULL));
	FAILS(EINVAL, barcopy_get64(mem.handle, (char *)mem.cpu_ptr + 4, &w64));
	FAILS(ETIMEDOUT, barcopy_wait32(mem.handle, mem.cpu_ptr, BARCOPY_CMP_EQ, 2, 0));
	FAILS(EINVAL, barcopy_wait32(mem.handle, mem.cpu_ptr, 77, 2, 0));
	COUNTED(.flags = BARCOPY_STATS_COPIES, .pins = 1, .maps = 1, .copies_to = 6,
		.bytes_to = 4 + 5 + 16 + 65536 + 10 + 100, .copies_from = 2, .bytes_from = 310,
		.puts = 4, .gets = 3, .waits = 2);
}

/* Without GDRCOPY_STATS, pins and maps are counted, copies and words are not. */
static void not_counted(void)
{
	barcopy_mem_t mem = open_memory();

	write_bytes(&mem, 8);
	OK(barcopy_put32(mem.handle, mem.cpu_ptr, 1));
	COUNTED(.pins = 1, .maps = 1);
}

/* A read-only map: reads work, every kind of write is EACCES and writes nothing. */
static void read_only(void)
{
	barcopy_mem_t mem = open_memory();
	char buf[64] = "abcdefg", seen[64];
	barcopy_copy_seg_t seg[2] = { { NULL, buf, 8, 0, 0 }, { NULL, buf, 0, 0, 0 } };
	uint32_t word;
	gdr_mh_t h;
	void *p;

	write_bytes(&mem, 64);
	OK(barcopy_map_range(g, mem.device_ptr, 64, BARCOPY_MAP_RANGE_READ_ONLY, &p, &h));
	seg[0].map_ptr = p;
	for (size_t size = 1; size <= 64; size++)
		FAILS_WITH(EACCES, "read-only", gdr_copy_to_mapping(h, p, buf, size));
	FAILS(EACCES, barcopy_copyv_to_mapping(h, seg, 2, 0));
	FAILS(EACCES, barcopy_put32(h, p, 1));
	FAILS(EACCES, barcopy_put64(h, p, 1));
	FAILS(EACCES, barcopy_post32(h, p, 1));
	FAILS(EACCES, barcopy_post64(h, p, 1));
	FAILS(EINVAL, gdr_copy_to_mapping(h, p, NULL, 8));
	OK(gdr_copy_to_mapping(h, p, buf, 0));
	OK(barcopy_copyv_to_mapping(h, seg + 1, 1, 0));
	OK(gdr_copy_from_mapping(h, seen, p, 64));
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(seen[i], 0);
	OK(barcopy_copyv_from_mapping(h, seg, 1, 0));
	OK(barcopy_get32(h, p, &word));
	OK(barcopy_wait32(h, p, BARCOPY_CMP_EQ, 0, 0));
	OK(barcopy_flush(h));
	OK(barcopy_fence(h, BARCOPY_FENCE_FULL));
}

static void arguments(void)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	FAILS(EINVAL, barcopy_get_stats(g, NULL));
	s.struct_size--;
	FAILS(EINVAL, barcopy_get_stats(g, &s));
	s.struct_size++;
	FAILS(EINVAL, barcopy_get_stats((gdr_t)(uintptr_t)77, &s));
	OK(gdr_close(g));
	FAILS(EINVAL, barcopy_get_stats(g, &s));
	g = NULL;
}

/* Counts of a context and of the process; ended handles and contexts stay counted, once. */
static void scopes(void)
{
	barcopy_mem_t a = open_memory(), b = open_memory(), c;
	gdr_t other = barcopy_open(BARCOPY_OPEN_ANY);
	barcopy_stats_t s;

	ck_assert_ptr_nonnull(other);
	OK(barcopy_mem_alloc(other, 0, SIZE, 0, &c));
	for (int i = 0; i < 3; i++)
		write_bytes(&a, 8);
	for (int i = 0; i < 5; i++)
		write_bytes(&b, 8);
	for (int i = 0; i < 7; i++)
		write_bytes(&c, 8);
	ck_assert_uint_eq(stats_of(g).copies_to, 8);
	ck_assert_uint_eq(stats_of(other).copies_to, 7);
	ck_assert_uint_eq(stats_of(NULL).copies_to, 15);

	OK(barcopy_mem_free(g, &a));
	ck_assert_uint_eq(stats_of(g).copies_to, 8);
	a = open_memory();
	write_bytes(&a, 8);
	ck_assert_uint_eq(stats_of(g).copies_to, 9);
	ck_assert_uint_eq(stats_of(NULL).copies_to, 16);

	OK(gdr_close(g));
	s = stats_of(NULL);
	ck_assert_uint_eq(s.copies_to, 16);
	ck_assert_uint_eq(s.pins, 4);
	ck_assert_uint_eq(s.unpins, 3);
	g = barcopy_open(BARCOPY_OPEN_ANY);
	COUNTED(.flags = BARCOPY_STATS_COPIES);
}

/* Pins and maps that are a handle's own, and those that ranges and regions share. */
static void pins_and_maps(void)
{
	static const int in_turn[] = { 0, 0, 0, 1 };
	barcopy_cache_t cache;
	struct standin_vmm v;
	gdr_mh_t pin, range[2];
	void *p[2];

	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	OK(gdr_pin_buffer_v2(g, v.ptr, SIZE, 0, &pin));
	for (int i = 0; i < 2; i++) {
		OK(gdr_map(g, pin, &p[0], SIZE));
		FAILS(EAGAIN, gdr_map(g, pin, &p[1], SIZE));
		OK(gdr_unmap(g, pin, p[0], SIZE));
	}
	OK(gdr_map(g, pin, &p[0], SIZE));
	COUNTED(.pins = 1, .maps = 3, .unmaps = 2);
	OK(barcopy_map_range(g, v.ptr + 5, 10, 0, &p[0], &range[0]));
	OK(barcopy_map_range(g, v.ptr + 50, 10, 0, &p[1], &range[1]));
	COUNTED(.pins = 2, .maps = 4, .unmaps = 2);
	OK(barcopy_unmap_range(g, range[0]));
	COUNTED(.pins = 2, .maps = 4, .unmaps = 2);
	OK(barcopy_unmap_range(g, range[1]));
	COUNTED(.pins = 2, .unpins = 1, .maps = 4, .unmaps = 3);
	OK(gdr_unpin_buffer(g, pin));
	COUNTED(.pins = 2, .unpins = 2, .maps = 4, .unmaps = 4);
	cache = new_cache(OPTIONS(.max_regions = 1));
	for (size_t i = 0; i < COUNT(in_turn); i++)
		get_and_put(cache, v.ptr + (size_t)in_turn[i] * SIZE);
	COUNTED(.pins = 4, .unpins = 3, .maps = 6, .unmaps = 5, .cache_hits = 2, .cache_misses = 2,
		.cache_evictions = 1);
	OK(barcopy_cache_destroy(cache));
	COUNTED(.pins = 4, .unpins = 4, .maps = 6, .unmaps = 6, .cache_hits = 2, .cache_misses = 2,
		.cache_evictions = 1);
	OK(gdr_close(g));
	g = NULL; /* the process */
	COUNTED(.pins = 4, .unpins = 4, .maps = 6, .unmaps = 6, .cache_hits = 2, .cache_misses = 2,
		.cache_evictions = 1);
}

/* Copies and fallbacks of the copy engine; they stay counted when the options are replaced. */
static void engine(void)
{
	barcopy_mem_t mem = open_memory();
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_write_min = 4096 };

	OK(barcopy_set_copy_options(mem.handle, &o));
	write_bytes(&mem, 8192);
	write_bytes(&mem, 100);
	cuda_hooks.set_fail("cuMemcpyHtoDAsync:*=700");
	write_bytes(&mem, 8192);
	cuda_hooks.set_fail(NULL);
	OK(barcopy_set_copy_options(mem.handle, NULL));
	OK(barcopy_mem_free(g, &mem));
	COUNTED(.pins = 1, .unpins = 1, .maps = 1, .unmaps = 1, .engine_copies = 1,
		.engine_fallbacks = 1);
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

/* ---- fork, and the summary ----------------------------------------------- */

/* CUDA does not work in a forked child: it has nothing to copy. */
static int child_counts(void *arg)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };
	barcopy_mem_t *mem = arg;

	if (barcopy_get_stats(NULL, &s) || s.copies_to || s.pins || s.puts || s.cache_hits ||
	    s.cache_misses)
		return 1;
	if (barcopy_get_stats(g, &s) != EACCES)
		return 2;
	if (gdr_copy_to_mapping(mem->handle, mem->cpu_ptr, "12345678", 8) != EACCES)
		return 3;
	g = barcopy_open(BARCOPY_OPEN_ANY);
	if (!g || barcopy_get_stats(g, &s) || s.pins || s.flags != BARCOPY_STATS_COPIES)
		return 5;
	return gdr_close(g) ? 6 : 0;
}

static void forked(void)
{
	barcopy_mem_t mem = open_memory();
	barcopy_cache_t cache;
	barcopy_stats_t s;

	write_bytes(&mem, 8);
	OK(barcopy_put32(mem.handle, mem.cpu_ptr, 1));
	cache = new_cache(NULL);
	for (int i = 0; i < 2; i++)
		get_and_put(cache, mem.device_ptr);
	ck_assert_int_eq(unit_in_child(child_counts, &mem), 0);
	write_bytes(&mem, 8);
	s = stats_of(NULL);
	ck_assert_uint_eq(s.copies_to, 2);
	ck_assert_uint_eq(s.puts, 1);
	ck_assert_uint_eq(s.cache_hits, 1);
}

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
	{ "what is counted", what_is_counted, "GDRCOPY_STATS=1" },
	{ "not counted", not_counted, "GDRCOPY_STATS=0" },
	{ "read-only", read_only, "" },
	{ "read-only, counted", read_only, "GDRCOPY_STATS=1" },
	{ "arguments", arguments, "" },
	{ "scopes", scopes, "GDRCOPY_STATS=1" },
	{ "pins and maps", pins_and_maps, "" },
	{ "copy engine", engine, "" },
	{ "many threads", many_threads, "GDRCOPY_STATS=1" },
	{ "a forked child", forked, "GDRCOPY_STATS=1" },
	{ "summary", summary, "GDRCOPY_STATS=1", .bare = true },
	{ "room for the summary", summary_room },
};

UNIT_MAIN("stats", tests, unit_before = start, unit_after = end)
