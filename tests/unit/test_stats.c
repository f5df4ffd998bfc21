// SPDX-License-Identifier: MIT
/*
 * barcopy_set_stats(), barcopy_get_stats() and the summary: what is counted and what is not, in which scope;
 * threads and handles that end, forks, no memory.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "barcopy.h"
#include "core/handle.h"
#include "core/stats.h"
#include "core/tally.h"

#define OK(call) ck_assert_msg(!(call), "%s: %s", #call, barcopy_last_error())
#define SIZE	 STANDIN_GRANULE

static gdr_t g;
static const gdr_mh_t none;

static barcopy_stats_t stats_of(gdr_t ctx, gdr_mh_t h)
{
	barcopy_stats_t s;

	memset(&s, 0xaa, sizeof(s));
	s.struct_size = sizeof(s);
	OK(barcopy_get_stats(ctx, h, &s));
	ck_assert_uint_eq(s.struct_size, sizeof(s));
	return s;
}

static uint64_t copies_of(const barcopy_stats_copies_t *c)
{
	uint64_t n = 0;

	for (int i = 0; i < BARCOPY_STATS_SIZES; i++)
		n += c->copies[i];
	return n;
}

static uint64_t bytes_of(const barcopy_stats_copies_t *c)
{
	uint64_t n = 0;

	for (int i = 0; i < BARCOPY_STATS_SIZES; i++)
		n += c->bytes[i];
	return n;
}

static barcopy_mem_t open_memory(void)
{
	barcopy_mem_t mem;

	if (!g) {
		standin_start();
		g = barcopy_open(BARCOPY_OPEN_ANY);
		ck_assert_msg(g != NULL, "%s", barcopy_last_error());
	}
	OK(barcopy_mem_alloc(g, 0, SIZE, 0, &mem));
	return mem;
}

static void write_bytes(const barcopy_mem_t *mem, size_t size)
{
	static char zeroes[65536];

	OK(gdr_copy_to_mapping(mem->handle, mem->cpu_ptr, zeroes, size));
}

/* Every size around the limits of the classes, against the words of the header. */
static void classes(void)
{
	size_t limit = 4;
	unsigned int class = 0;

	for (size_t size = 1; size <= (size_t)20 << 20; size += size < 70000 ? 1 : size / 3) {
		while (size > limit && class < BARCOPY_STATS_SIZES - 1) {
			limit *= 4;
			class ++;
		}
		ck_assert_uint_eq(gdri_tally_class(size), class);
	}
	ck_assert_uint_eq(class, BARCOPY_STATS_SIZES - 1);
	ck_assert_uint_eq(gdri_tally_class((size_t)4 << 20), 10);
	ck_assert_uint_eq(gdri_tally_class(((size_t)4 << 20) + 1), 11);
	ck_assert_uint_eq(gdri_tally_class(SIZE_MAX), 11);
}

static void what_is_counted(void)
{
	barcopy_mem_t mem = open_memory();
	char buf[300];
	barcopy_copy_seg_t seg[3] = { { mem.cpu_ptr, buf, 10, 0, 0 },
				      { mem.cpu_ptr, buf, 0, 0, 0 },
				      { (char *)mem.cpu_ptr + 64, buf, 100, 0, 0 } };
	barcopy_stats_t s;
	uint32_t w32;
	uint64_t w64;

	/* off: copies are not, the rest is */
	write_bytes(&mem, 8);
	OK(barcopy_put32(mem.handle, mem.cpu_ptr, 1));
	s = stats_of(g, none);
	ck_assert_uint_eq(s.flags, 0);
	ck_assert_uint_eq(copies_of(&s.to) + copies_of(&s.from) + s.puts, 0);
	ck_assert_uint_eq(s.pins, 1);
	ck_assert_uint_eq(s.maps, 1);

	OK(barcopy_set_stats(BARCOPY_STATS_COPIES));
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
	OK(barcopy_get32(mem.handle, mem.cpu_ptr, &w32));
	OK(barcopy_get64(mem.handle, mem.cpu_ptr, &w64));
	OK(barcopy_get64(mem.handle, mem.cpu_ptr, &w64));
	OK(barcopy_wait32(mem.handle, mem.cpu_ptr, BARCOPY_CMP_EQ, 1, 0));
	OK(barcopy_wait64(mem.handle, mem.cpu_ptr, BARCOPY_CMP_EQ, 1, 0));
	OK(barcopy_fence(mem.handle, BARCOPY_FENCE_FULL));
	OK(barcopy_flush(mem.handle));
	/* what fails is not */
	ck_assert_int_eq(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, NULL, 8), EINVAL);
	ck_assert_int_eq(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, buf, SIZE + 1), EINVAL);
	ck_assert_int_eq(gdr_copy_from_mapping(mem.handle, NULL, mem.cpu_ptr, 8), EINVAL);
	ck_assert_int_eq(gdr_copy_from_mapping(mem.handle, buf, buf, 8), EINVAL);
	seg[2].reserved = 1;
	ck_assert_int_eq(barcopy_copyv_to_mapping(mem.handle, seg, 3, 0), EINVAL);
	ck_assert_int_eq(barcopy_put32(mem.handle, (char *)mem.cpu_ptr + 1, 1), EINVAL);
	ck_assert_int_eq(barcopy_put64(mem.handle, buf, 1), EINVAL);
	ck_assert_int_eq(barcopy_get32(mem.handle, mem.cpu_ptr, NULL), EINVAL);
	ck_assert_int_eq(barcopy_get64(mem.handle, (char *)mem.cpu_ptr + 4, &w64), EINVAL);
	ck_assert_int_eq(barcopy_wait32(mem.handle, mem.cpu_ptr, BARCOPY_CMP_EQ, 2, 0), ETIMEDOUT);
	ck_assert_int_eq(barcopy_wait32(mem.handle, mem.cpu_ptr, 77, 2, 0), EINVAL);
	OK(barcopy_set_stats(0));
	write_bytes(&mem, 8);
	OK(barcopy_put32(mem.handle, mem.cpu_ptr, 1));

	s = stats_of(g, mem.handle);
	ck_assert_uint_eq(s.to.copies[0], 1);
	ck_assert_uint_eq(s.to.bytes[0], 4);
	ck_assert_uint_eq(s.to.copies[1], 3); /* 5, 16, and a piece of 10 */
	ck_assert_uint_eq(s.to.bytes[1], 31);
	ck_assert_uint_eq(s.to.copies[3], 1);
	ck_assert_uint_eq(s.to.bytes[3], 100);
	ck_assert_uint_eq(s.to.copies[7], 1);
	ck_assert_uint_eq(copies_of(&s.to), 6);
	ck_assert_uint_eq(bytes_of(&s.to), 4 + 31 + 100 + 65536);
	ck_assert_uint_eq(s.from.copies[4], 1);
	ck_assert_uint_eq(s.from.copies[1], 1);
	ck_assert_uint_eq(copies_of(&s.from), 2);
	ck_assert_uint_eq(bytes_of(&s.from), 310);
	ck_assert_uint_eq(s.puts, 2);
	ck_assert_uint_eq(s.gets, 3);
	ck_assert_uint_eq(s.waits, 2);
	ck_assert_uint_eq(s.uncounted, 0);
	OK(gdr_close(g));
}

static void arguments(void)
{
	barcopy_mem_t mem = open_memory();
	struct {
		barcopy_stats_t s;
		uint64_t later;
	} longer;
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	ck_assert_int_eq(barcopy_set_stats(2), EINVAL);
	ck_assert_int_eq(barcopy_get_stats(g, none, NULL), EINVAL);
	s.struct_size--;
	ck_assert_int_eq(barcopy_get_stats(g, none, &s), EINVAL);
	s.struct_size++;
	ck_assert_int_eq(barcopy_get_stats(NULL, mem.handle, &s), EINVAL);
	ck_assert_int_eq(barcopy_get_stats((gdr_t)(uintptr_t)77, none, &s), EINVAL);
	ck_assert_int_eq(barcopy_get_stats(g, (gdr_mh_t){ 77 }, &s), EINVAL);
	longer.s.struct_size = sizeof(longer);
	longer.later = 5;
	OK(barcopy_get_stats(g, mem.handle, &longer.s));
	ck_assert_uint_eq(longer.s.struct_size, sizeof(longer));
	ck_assert_uint_eq(longer.later, 5);
	OK(barcopy_mem_free(g, &(barcopy_mem_t){ .handle = mem.handle }));
	ck_assert_int_eq(barcopy_get_stats(g, mem.handle, &s), EINVAL);
	OK(gdr_close(g));
	ck_assert_int_eq(barcopy_get_stats(g, none, &s), EINVAL);
}

/* A handle, its context, the process: what has ended stays in the larger ones, once. */
static void scopes(void)
{
	barcopy_mem_t a = open_memory(), b = open_memory(), c;
	gdr_t other = barcopy_open(BARCOPY_OPEN_ANY);
	uint32_t slot = (uint32_t)a.handle.h;
	barcopy_stats_t s;

	ck_assert_ptr_nonnull(other);
	OK(barcopy_set_stats(BARCOPY_STATS_COPIES));
	OK(barcopy_mem_alloc(other, 0, SIZE, 0, &c));
	for (int i = 0; i < 3; i++)
		write_bytes(&a, 8);
	for (int i = 0; i < 5; i++)
		write_bytes(&b, 8);
	for (int i = 0; i < 7; i++)
		write_bytes(&c, 8);
	ck_assert_uint_eq(stats_of(g, a.handle).to.copies[1], 3);
	ck_assert_uint_eq(stats_of(g, b.handle).to.copies[1], 5);
	ck_assert_uint_eq(stats_of(g, none).to.copies[1], 8);
	ck_assert_uint_eq(stats_of(other, none).to.copies[1], 7);
	ck_assert_uint_eq(stats_of(NULL, none).to.copies[1], 15);

	OK(barcopy_mem_free(g, &a));
	ck_assert_uint_eq(stats_of(g, none).to.copies[1], 8);
	ck_assert_uint_eq(stats_of(NULL, none).to.copies[1], 15);
	/* the next handle in its place begins at 0 */
	a = open_memory();
	ck_assert_uint_eq((uint32_t)a.handle.h, slot);
	s = stats_of(g, a.handle);
	ck_assert_uint_eq(copies_of(&s.to), 0);
	write_bytes(&a, 8);
	ck_assert_uint_eq(stats_of(g, a.handle).to.copies[1], 1);
	ck_assert_uint_eq(stats_of(g, none).to.copies[1], 9);

	OK(gdr_close(g));
	s = stats_of(NULL, none);
	ck_assert_uint_eq(s.to.copies[1], 16);
	ck_assert_uint_eq(s.pins, 4);
	ck_assert_uint_eq(s.unpins, 3);
	g = barcopy_open(BARCOPY_OPEN_ANY);
	s = stats_of(g, none);
	ck_assert_uint_eq(copies_of(&s.to) + s.pins + s.maps, 0);
	OK(gdr_close(g));
	OK(gdr_close(other));
}

/* Pins and maps that are a handle's own, and those that ranges and regions share. */
static void events(void)
{
	struct standin_vmm v;
	barcopy_cache_t cache;
	barcopy_region_t region;
	gdr_mh_t pin, range[2];
	void *p[2];
	barcopy_stats_t s;

	standin_start();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	g = barcopy_open(BARCOPY_OPEN_ANY);
	OK(gdr_pin_buffer_v2(g, v.ptr, SIZE, 0, &pin));
	for (int i = 0; i < 2; i++) {
		OK(gdr_map(g, pin, &p[0], SIZE));
		ck_assert_int_eq(gdr_map(g, pin, &p[1], SIZE), EAGAIN);
		OK(gdr_unmap(g, pin, p[0], SIZE));
	}
	OK(gdr_map(g, pin, &p[0], SIZE));
	s = stats_of(g, pin);
	ck_assert_uint_eq(s.pins, 1);
	ck_assert_uint_eq(s.maps, 3);
	ck_assert_uint_eq(s.unmaps, 2);
	OK(barcopy_map_range(g, v.ptr + 5, 10, 0, &p[0], &range[0]));
	OK(barcopy_map_range(g, v.ptr + 50, 10, 0, &p[1], &range[1]));
	s = stats_of(g, range[0]);
	ck_assert_uint_eq(s.pins + s.maps, 0);
	s = stats_of(g, none);
	ck_assert_uint_eq(s.pins, 2);
	ck_assert_uint_eq(s.maps, 4);
	OK(barcopy_unmap_range(g, range[0]));
	ck_assert_uint_eq(stats_of(g, none).unpins, 0);
	OK(barcopy_unmap_range(g, range[1]));
	s = stats_of(g, none);
	ck_assert_uint_eq(s.unpins, 1);
	ck_assert_uint_eq(s.unmaps, 3);
	OK(gdr_unpin_buffer(g, pin));
	s = stats_of(g, none);
	ck_assert_uint_eq(s.unpins, 2);
	ck_assert_uint_eq(s.unmaps, 4);

	OK(barcopy_cache_create(
		g,
		&(barcopy_cache_options_t){ .struct_size = sizeof(barcopy_cache_options_t),
					    .max_regions = 1 },
		&cache));
	for (int i = 0; i < 3; i++) {
		OK(barcopy_cache_get(cache, v.ptr, 8, &region));
		OK(barcopy_cache_put(cache, &region));
	}
	OK(barcopy_cache_get(cache, v.ptr + SIZE, 8, &region));
	OK(barcopy_cache_put(cache, &region));
	s = stats_of(g, none);
	ck_assert_uint_eq(s.cache_hits, 2);
	ck_assert_uint_eq(s.cache_misses, 2);
	ck_assert_uint_eq(s.cache_evictions, 1);
	ck_assert_uint_eq(stats_of(NULL, none).cache_hits, 2);
	OK(barcopy_cache_destroy(cache));
	ck_assert_uint_eq(stats_of(g, none).cache_hits, 2);
	OK(gdr_close(g));
	s = stats_of(NULL, none);
	ck_assert_uint_eq(s.cache_hits, 2);
	ck_assert_uint_eq(s.pins, 4);
	ck_assert_uint_eq(s.unpins, 4);
	ck_assert_uint_eq(s.maps, s.unmaps);
	standin_vmm_free(&v);
}

/* The copy engine: what it copied, and what came back; still there when the options are replaced. */
static void engine(void)
{
	barcopy_mem_t mem = open_memory();
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_write_min = 4096 };
	barcopy_stats_t s;

	OK(barcopy_set_copy_options(mem.handle, &o));
	write_bytes(&mem, 8192);
	write_bytes(&mem, 100);
	cuda_hooks.set_fail("cuMemcpyHtoDAsync:*=700");
	write_bytes(&mem, 8192);
	cuda_hooks.set_fail(NULL);
	OK(barcopy_set_copy_options(mem.handle, NULL));
	s = stats_of(g, mem.handle);
	ck_assert_uint_eq(s.engine_copies, 1);
	ck_assert_uint_eq(s.engine_fallbacks, 1);
	OK(barcopy_mem_free(g, &mem));
	s = stats_of(g, none);
	ck_assert_uint_eq(s.engine_copies, 1);
	ck_assert_uint_eq(s.engine_fallbacks, 1);
	OK(gdr_close(g));
	ck_assert_uint_eq(stats_of(NULL, none).engine_fallbacks, 1);
}

/* ---- threads ----------------------------------------------------------------------------------- */

enum { THREADS = 8, TURNS = 20000 };

static barcopy_mem_t shared[2];
static pthread_barrier_t start;

static void *copy_much(void *arg)
{
	int turns = unit_quick() ? TURNS / 20 : TURNS;

	pthread_barrier_wait(&start);
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

/* Exact, though counted by many threads, which have ended; and while somebody reads. */
static void many_threads(void)
{
	uint64_t turns = unit_quick() ? TURNS / 20 : TURNS, last = 0;
	pthread_t t[THREADS];
	barcopy_stats_t s;

	shared[0] = open_memory();
	shared[1] = open_memory();
	OK(barcopy_set_stats(BARCOPY_STATS_COPIES));
	pthread_barrier_init(&start, NULL, THREADS + 1);
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, copy_much, (void *)i), 0);
	pthread_barrier_wait(&start);
	for (int i = 0; i < 50; i++) {
		uint64_t now = stats_of(NULL, none).to.copies[1];

		ck_assert_uint_ge(now, last);
		last = now;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 2; i++) {
		s = stats_of(g, shared[i].handle);
		ck_assert_uint_eq(s.to.copies[1], THREADS * turns / 2);
		ck_assert_uint_eq(s.to.bytes[1], THREADS * turns / 2 * 8);
	}
	ck_assert_uint_eq(stats_of(g, none).gets, THREADS * turns / 100);
	OK(barcopy_mem_free(g, &shared[0]));
	ck_assert_uint_eq(stats_of(NULL, none).to.copies[1], THREADS * turns);
	OK(gdr_close(g));
}

static void *copy_one(void *arg)
{
	write_bytes(arg, 8);
	return NULL;
}

/* Threads one after the other count in one block; all of them stay counted. */
static void threads_that_end(void)
{
	barcopy_mem_t mem = open_memory();
	long long mapped = 0;
	pthread_t t;

	OK(barcopy_set_stats(BARCOPY_STATS_COPIES));
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(pthread_create(&t, NULL, copy_one, &mem), 0);
		pthread_join(t, NULL);
		if (!i)
			mapped = wrap_mapped();
	}
	ck_assert_int_eq(wrap_mapped(), mapped);
	ck_assert_uint_eq(stats_of(g, mem.handle).to.copies[1], 50);
	OK(gdr_close(g));
	ck_assert_uint_eq(stats_of(NULL, none).to.copies[1], 50);
}

static void copy_at_end(void *arg)
{
	write_bytes(arg, 8);
}

static pthread_key_t late_key;

static void *copy_late(void *arg)
{
	pthread_setspecific(late_key, arg);
	write_bytes(arg, 8);
	return NULL;
}

/* A copy in a destructor of the thread, before or after ours, is counted and leaks nothing. */
static void copy_while_ending(void)
{
	barcopy_mem_t mem = open_memory();
	long long mapped = 0;
	pthread_t t;

	OK(barcopy_set_stats(BARCOPY_STATS_COPIES));
	ck_assert_int_eq(pthread_key_create(&late_key, copy_at_end), 0);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(pthread_create(&t, NULL, copy_late, &mem), 0);
		pthread_join(t, NULL);
		if (!i)
			mapped = wrap_mapped();
	}
	ck_assert_int_eq(wrap_mapped(), mapped);
	ck_assert_uint_eq(stats_of(g, mem.handle).to.copies[1], 40);
	OK(gdr_close(g));
}

static _Atomic bool stop;

static void *switch_often(void *arg)
{
	while (!atomic_load(&stop)) {
		gdr_mh_t h;

		OK(barcopy_set_stats(BARCOPY_STATS_COPIES));
		OK(gdr_pin_buffer_v2(g, ((barcopy_mem_t *)arg)->device_ptr, 65536, 0, &h));
		OK(barcopy_set_stats(0));
		OK(gdr_unpin_buffer(g, h));
	}
	return NULL;
}

/* The switch in the midst of copies and pins; afterwards every handle's bit is as it was left. */
static void switched_meanwhile(void)
{
	pthread_t t[2], s;

	shared[0] = open_memory();
	shared[1] = open_memory();
	pthread_barrier_init(&start, NULL, 2);
	ck_assert_int_eq(pthread_create(&s, NULL, switch_often, &shared[0]), 0);
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, copy_much, (void *)i), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	atomic_store(&stop, true);
	pthread_join(s, NULL);
	for (uint32_t i = 0; i < gdri_handles.count; i++) {
		struct gdri_handle *h =
			(struct gdri_handle *)((char *)atomic_load(&gdri_handles.chunks[0]) +
					       i * gdri_handles.object_size);

		ck_assert(i < GDRI_SLOTS_PER_CHUNK && !(h->owner & GDRI_HANDLE_COUNTED));
	}
	OK(gdr_close(g));
}

/* Handles beyond the first chunk, some of which were made while it was on, some before. */
static void many_handles(void)
{
	struct standin_vmm v;
	gdr_mh_t h[200];

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	g = barcopy_open(BARCOPY_OPEN_ANY);
	for (unsigned int i = 0; i < COUNT(h); i++) {
		void *p;

		if (i == 30)
			OK(barcopy_set_stats(BARCOPY_STATS_COPIES));
		OK(barcopy_map_range(g, v.ptr + i, 8, 0, &p, &h[i]));
	}
	for (unsigned int i = 0; i < COUNT(h); i++) {
		struct gdri_window w;

		ck_assert_int_eq(gdri_handle_for_copy(h[i], &w), GDRI_COUNTED);
		for (unsigned int k = 0; k < i; k++)
			OK(gdr_copy_to_mapping(h[i], (void *)w.start, "12", 2));
	}
	for (unsigned int i = 0; i < COUNT(h); i++)
		ck_assert_uint_eq(stats_of(g, h[i]).to.copies[0], i);
	ck_assert_uint_eq(stats_of(g, none).to.copies[0], COUNT(h) * (COUNT(h) - 1) / 2);
	OK(gdr_close(g));
	ck_assert_uint_eq(stats_of(NULL, none).to.copies[0], COUNT(h) * (COUNT(h) - 1) / 2);
	standin_vmm_free(&v);
}

/* Without memory the copies are done, and it is said how many were not counted. */
static void no_memory(void)
{
	barcopy_mem_t mem = open_memory();
	barcopy_stats_t s;
	uint64_t word;

	OK(barcopy_set_stats(BARCOPY_STATS_COPIES));
	wrap_reset();
	wrap_fail("mmap", 0, ENOMEM);
	write_bytes(&mem, 8);
	OK(barcopy_put64(mem.handle, mem.cpu_ptr, 42));
	OK(barcopy_get64(mem.handle, mem.cpu_ptr, &word));
	ck_assert_uint_eq(word, 42);
	wrap_reset();
	wrap_fail("mmap", 2, ENOMEM); /* a block, but no chunk */
	write_bytes(&mem, 8);
	wrap_reset();
	write_bytes(&mem, 8);
	s = stats_of(g, mem.handle);
	ck_assert_uint_eq(s.to.copies[1], 1);
	ck_assert_uint_eq(s.gets + s.puts, 0);
	ck_assert_uint_eq(s.uncounted, 4);
	OK(gdr_close(g));
}

/* ---- fork, and the summary --------------------------------------------------------------------- */

/* CUDA itself is of no use in such a child, so it has nothing to copy on. */
static int child_counts(void *arg)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };
	barcopy_mem_t *mem = arg;

	if (barcopy_get_stats(NULL, none, &s) || copies_of(&s.to) || s.pins || s.puts ||
	    s.cache_hits || s.cache_misses)
		return 1;
	if (barcopy_get_stats(g, mem->handle, &s) != EACCES ||
	    barcopy_get_stats(g, none, &s) != EACCES)
		return 2;
	if (gdr_copy_to_mapping(mem->handle, mem->cpu_ptr, "12345678", 8) != EACCES)
		return 3;
	if (gdri_tally_mine || wrap_mapped() >= *(long long *)(mem + 1))
		return 4;
	g = barcopy_open(BARCOPY_OPEN_ANY);
	if (!g || barcopy_get_stats(g, none, &s) || s.pins || s.flags != BARCOPY_STATS_COPIES)
		return 5;
	return gdr_close(g) ? 6 : 0;
}

static void forked(void)
{
	struct {
		barcopy_mem_t mem;
		long long mapped;
	} parent = { .mem = open_memory() };
	barcopy_cache_t cache;
	barcopy_region_t region;
	barcopy_stats_t s;

	OK(barcopy_set_stats(BARCOPY_STATS_COPIES));
	write_bytes(&parent.mem, 8);
	OK(barcopy_put32(parent.mem.handle, parent.mem.cpu_ptr, 1));
	OK(barcopy_cache_create(g, NULL, &cache));
	for (int i = 0; i < 2; i++) {
		OK(barcopy_cache_get(cache, parent.mem.device_ptr, 8, &region));
		OK(barcopy_cache_put(cache, &region));
	}
	parent.mapped = wrap_mapped();
	ck_assert_int_eq(unit_in_child(child_counts, &parent), 0);
	write_bytes(&parent.mem, 8);
	s = stats_of(NULL, none);
	ck_assert_uint_eq(copies_of(&s.to), 2);
	ck_assert_uint_eq(s.puts, 1);
	ck_assert_uint_eq(s.cache_hits, 1);
	OK(gdr_close(g));
}

/* What a child that does `use` and exits writes to standard error. */
static void output_of_child(void (*use)(void), char *text, size_t room)
{
	int ends[2], status;
	size_t length = 0;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		dup2(ends[1], 2);
		close(ends[0]);
		close(ends[1]);
		use();
		exit(0);
	}
	close(ends[1]);
	while ((n = read(ends[0], text + length, room - 1 - length)) > 0)
		length += (size_t)n;
	text[length] = '\0';
	close(ends[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status 0x%x: %s", status, text);
}

static void use_nothing(void)
{
}

static void use_own(void)
{
	barcopy_mem_t mem;

	g = barcopy_open(BARCOPY_OPEN_ANY);
	if (!g || barcopy_mem_alloc(g, 0, SIZE, 0, &mem)) {
		fputs(barcopy_last_error(), stderr);
		_exit(1);
	}
	write_bytes(&mem, 65536);
	write_bytes(&mem, 3);
	if (gdr_close(g))
		_exit(1);
}

static void summary(void)
{
	char text[4096];
	barcopy_mem_t mem;

	/* The parent has opened a context, but CUDA must not be initialised before the fork. */
	g = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_ptr_nonnull(g);
	ck_assert_uint_eq(stats_of(g, none).flags, BARCOPY_STATS_COPIES);
	output_of_child(use_nothing, text, sizeof(text));
	ck_assert_str_eq(text, "");
	output_of_child(use_own, text, sizeof(text));
	ck_assert_msg(strstr(text, "GDRCOPY STATS: process "), "%s", text);
	ck_assert_msg(strstr(text, "  pins 1, unpinned 1; maps 1, unmapped 1; revoked 0\n"), "%s",
		      text);
	ck_assert_msg(strstr(text, "  4 B                     1                  3 "), "%s", text);
	ck_assert_msg(!strstr(text, "16 B"), "%s", text);
	ck_assert_msg(strstr(text, "  total                   2              65539 "), "%s", text);

	/* The environment decided at the first open: a later call is not undone by a later open. */
	OK(gdr_close(g));
	g = NULL;
	mem = open_memory();
	write_bytes(&mem, 8);
	ck_assert_uint_eq(stats_of(g, none).to.copies[1], 1);
	OK(barcopy_set_stats(0));
	OK(gdr_close(g));
	g = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_uint_eq(stats_of(g, none).flags, 0);
	OK(gdr_close(g));
}

/* The largest numbers fit into the text that is reserved for them. */
static void summary_room(void)
{
	barcopy_stats_t s;
	char text[4096], small[40];
	size_t length;

	memset(&s, 0xff, sizeof(s));
	length = gdri_stats_summary(&s, text, sizeof(text));
	ck_assert_uint_eq(strlen(text), length);
	ck_assert_uint_lt(length, sizeof(text) - 200);
	ck_assert_ptr_nonnull(strstr(text, "not counted for lack of memory"));
	ck_assert_uint_eq(gdri_stats_summary(&s, small, sizeof(small)), sizeof(small) - 1);
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
}

static const struct unit_test tests[] = {
	{ "classes of sizes", classes, "" },
	{ "what is counted", what_is_counted, "" },
	{ "arguments", arguments, "" },
	{ "scopes", scopes, "" },
	{ "events", events, "" },
	{ "copy engine", engine, "" },
	{ "many threads", many_threads, "" },
	{ "threads that end", threads_that_end, "" },
	{ "a copy while a thread ends", copy_while_ending, "" },
	{ "switched meanwhile", switched_meanwhile, "" },
	{ "many handles", many_handles, "" },
	{ "no memory", no_memory, "" },
	{ "a forked child", forked, "" },
	{ "summary", summary, "GDRCOPY_STATS=1" },
	{ "room for the summary", summary_room, "" },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "stats", tests, COUNT(tests));
}
