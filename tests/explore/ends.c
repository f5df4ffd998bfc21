// SPDX-License-Identifier: MIT
/*
 * Scenarios in which entries, memory, caches, pins and verdicts end during other calls. See
 * scenarios.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cache/cache.h"
#include "explore/scenarios.h"

/* ---- hit: what a get finds is evicted, and its entry is another region's --------------------- */

void hit_begin(void)
{
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = new_cache(g, true, UINT64_MAX);
	uses(GET, a, shared[0], 0);
}

void hit(int thread)
{
	barcopy_cache_t c = ex_random(2) ? a : b;
	barcopy_region_t r;

	in_context();
	for (uint32_t n = 10; n && !thread; n--)
		uses(GET, a, shared[0], 0);
	if (!thread)
		return;
	if (ex_random(2))
		MUST(barcopy_cache_trim(a, 0));
	else
		MUST(barcopy_cache_invalidate(a, shared[0], 1));
	MUST(barcopy_cache_get(c, shared[1], CHUNK, &r));
	ex_yield();
	check_tag(r.cpu_ptr, 1, "a get");
	MUST(barcopy_cache_put(c, &r));
}

/* ---- piece: the same in two places of one allocation, which no buffer ID tells apart ----------- */

static int began; /* threads: the last one replaces what the others hit */

void piece_begin(void)
{
	barcopy_region_t r;

	ex_patience = 16; /* with 1 the other thread always runs in the middle of the pin */
	shared[0] = standin_chunks(0, 0, 1, 4 * CHUNK, STANDIN_EXPORTABLE);
	shared[1] = shared[0] + 2 * CHUNK;
	fill(shared[0], 0);
	fill(shared[1], 1);
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = 0;
	MUST(barcopy_cache_get(a, shared[0], 8, &r));
	MUST(barcopy_cache_put(a, &r));
}

void piece(int thread)
{
	bool last = ++began == THREADS;
	barcopy_region_t r;

	(void)thread;
	in_context();
	if (last)
		MUST(barcopy_cache_trim(a, 0));
	for (uint32_t n = last ? 1 : 100; n; n--) {
		MUST(barcopy_cache_get(a, shared[last], 8, &r));
		if (last)
			ex_yield();
		check_tag(r.cpu_ptr, last, "a get");
		MUST(barcopy_cache_put(a, &r));
		ex_progress();
	}
}

/* ---- caches: made and ended in one context by all threads; none of its hits are lost ------------ */

void caches(int thread)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };
	uint64_t hits = 0;
	barcopy_cache_t c;

	in_context();
	for (uint32_t n = thread ? 1 + ex_random(3) : 20; n; n--) {
		if (thread) {
			c = new_cache(g, true, UINT64_MAX);
			for (int i = 0; i < 3; i++)
				uses(GET, c, shared[thread], (uint32_t)thread);
			MUST(barcopy_cache_destroy(c));
		} else {
			MUST(barcopy_get_stats(g, &s));
			if (s.cache_hits < hits)
				ex_fail("%d hits, before %d", (int)s.cache_hits, (int)hits);
			hits = s.cache_hits;
		}
		ex_progress();
	}
}

/* ---- fresh: a get without a lock has found an entry, which is made anew at the same address --- */

void fresh(int thread)
{
	barcopy_region_t r;

	in_context();
	for (uint32_t n = 1 + ex_random(3); n; n--) {
		if (!thread)
			MUST(barcopy_cache_trim(a, 0));
		MUST(barcopy_cache_get(a, shared[0], CHUNK, &r));
		check_tag(r.cpu_ptr, 0, "a get");
		MUST(barcopy_cache_put(a, &r));
		ex_progress();
	}
}

/* ---- joined: a get joins a region whose other memory is freed and made anew meanwhile ------------- */

void joined_begin(void)
{
	barcopy_region_t r;

	remember();
	a = new_cache(g, true, UINT64_MAX);
	fill(three, own_tag[1]);
	MUST(barcopy_cache_get(a, three + CHUNK - 8, 16, &r));
	MUST(barcopy_cache_put(a, &r));
}

/* Thread 0 uses the second and the third chunk, thread 1 makes the first one anew. */
void joined(int thread)
{
	barcopy_region_t r;

	in_context();
	for (uint32_t n = 1 + ex_random(3); n; n--) {
		if (thread) {
			/* Many pages behind: the other thread often pins during the walk there. */
			MUST(barcopy_cache_invalidate(a, three, 8 * CHUNK));
			CU_MUST(cuda.cuMemUnmap(three, CHUNK));
			CU_MUST(cuda.cuMemRelease(
				standin_map_chunk(three, CHUNK, 0, STANDIN_EXPORTABLE)));
			fill(three, ++own_tag[1]);
		}
		MUST(barcopy_cache_get(a, three + (thread ? 1 : 2) * CHUNK - 8, 16, &r));
		if (thread)
			check_tag(r.cpu_ptr, own_tag[1], "a get");
		MUST(barcopy_cache_put(a, &r));
		ex_progress();
	}
}

/* ---- doom: what is invalidated and idle is unpinned when all calls have returned ------------- */

static bool doomed[2];

void doom_begin(void)
{
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = 0;
	for (uint32_t i = 0; i < 3; i++)
		uses(GET, a, shared[i], i);
}

void doom(int thread)
{
	in_context();
	if (thread < 2) {
		MUST(barcopy_cache_invalidate(a, shared[thread], ex_random(2) ? CHUNK : 1));
		doomed[thread] = true;
		return;
	}
	for (uint32_t n = 1 + ex_random(3); n; n--)
		if (ex_random(2))
			check_stats(a);
		else
			MUST(barcopy_cache_trim(a, UINT64_MAX));
}

void doom_check(void)
{
	uint64_t before = pinned();

	MUST(barcopy_cache_trim(a, UINT64_MAX));
	if (before != pinned())
		ex_fail("%d regions were invalidated, idle, and stayed pinned",
			(int)(before - pinned()));
	end_caches();
}

/* ---- once: a trim and an invalidation end the same region, which is released once --------------- */

static int trimming, trimmed;

void once_begin(void)
{
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = 0;
}

void once(int thread)
{
	in_context();
	for (uint32_t n = 50; n && thread; n--) {
		/* Two: an entry that was released twice would be both. */
		for (uint32_t i = 0; i < 2; i++)
			uses(GET, a, shared[i], i);
		trimming = 1;
		MUST(barcopy_cache_trim(a, 0));
		trimming = 0;
	}
	for (; !thread && !trimmed; ex_yield())
		if (trimming)
			MUST(barcopy_cache_invalidate(a, shared[ex_random(2)], 1));
	trimmed |= thread;
}

/* ---- elsewhere: what an invalidation finds in one cache is another cache's region by then ----- */

void elsewhere_begin(void)
{
	ex_patience = 16; /* with 1 the other thread always runs in the middle of the pin */
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = new_cache(g, true, UINT64_MAX);
	uses(GET, a, shared[0], 0);
}

void elsewhere(int thread)
{
	in_context();
	if (!thread) {
		MUST(barcopy_cache_invalidate(a, shared[0], 1));
		return;
	}
	MUST(barcopy_cache_trim(a, 0));
	uses(GET, b, shared[0], 0);
	ex_yield();
	MUST(barcopy_cache_invalidate(b, shared[0], CHUNK));
}

void elsewhere_check(void)
{
	if (pinned() != pins_before)
		ex_fail("a region was invalidated in both caches, idle, and stayed pinned");
	end_caches();
}

/* The same where it has become a range. */
void ranged(int thread)
{
	gdr_mh_t h;
	void *p;

	in_context();
	if (!thread) {
		MUST(barcopy_cache_invalidate(a, shared[0], 1));
		return;
	}
	MUST(barcopy_cache_trim(a, 0));
	MUST(barcopy_map_range(g, shared[0], 8, 0, &p, &h));
	ex_yield();
	MUST(barcopy_unmap_range(g, h));
}

void ranged_check(void)
{
	if (pinned() != pins_before)
		ex_fail("a range that an invalidation has found stayed pinned");
	end_caches();
}

/* ---- mid-pin: memory is freed and made anew in the middle of other threads' pins of it ------- */

void mid_pin_begin(void)
{
	remember();
	a = new_cache(g, ex_random(2), UINT64_MAX);
	b = new_cache(g, false, UINT64_MAX);
}

/* A call on memory that another thread may free: its bytes are of any time. */
static void any_use(barcopy_cache_t c, CUdeviceptr d)
{
	uint32_t what = ex_random(3);
	barcopy_region_t r;
	gdr_mh_t h;
	void *p;
	int rc;

	if (what < 1) {
		rc = barcopy_cache_get(c, d, CHUNK, &r);
		if (!rc)
			MUST(barcopy_cache_put(c, &r));
	} else if (what < 2) {
		rc = barcopy_map_range(g, d, CHUNK, 0, &p, &h);
		if (!rc)
			MUST(barcopy_unmap_range(g, h));
	} else {
		rc = gdr_pin_buffer_v2(g, d, CHUNK, 0, &h);
		if (!rc)
			MUST(gdr_unpin_buffer(g, h));
	}
	if (rc && rc != EINVAL && rc != ENOTSUP && rc != EIO && rc != ENODEV)
		ex_fail("call %u on memory that is freed: errno %d (%s)", what, rc,
			barcopy_last_error());
	ex_progress();
}

void mid_pin(int thread)
{
	in_context();
	for (uint32_t n = 1 + ex_random(3); n; n--) {
		if (thread) {
			any_use(ex_random(2) ? a : b, own[0]);
			continue;
		}
		renew(0);
		/* Once more: a get of memory while it is freed keeps the former. */
		MUST(barcopy_cache_invalidate(a, own[0], CHUNK));
		uses((enum how)ex_random(3), ex_random(2) ? a : b, own[0], own_tag[0]);
	}
}

/*
 * ---- engine: copies by the engine during ends of other handles on the same region, and while that
 * learns of an allocation beside the one that it was opened for
 */

static CUdeviceptr pieces[2]; /* of one GPU page */

void engine_begin(void)
{
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t words[2] = { i, ~i };

		pieces[i] = standin_alloc(4096);
		CU_MUST(cuda.cuMemcpyHtoD_v2(pieces[i], words, sizeof(words)));
	}
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = new_cache(g, true, UINT64_MAX);
}

void engine(int thread)
{
	static char page[THREADS][8192];

	in_context();
	for (uint32_t n = 1 + ex_random(2); n; n--) {
		barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 1024 };
		uint32_t i = ex_random(2), small = ex_random(2);
		uint32_t size = !ex_random(2) ? 64 : small ? 4096 : 8192;
		gdr_mh_t h;
		void *p;

		MUST(barcopy_map_range(g, small ? pieces[i] : shared[i], size, 0, &p, &h));
		for (uint32_t k = 1 + ex_random(2); k; k--) {
			MUST(barcopy_set_copy_options(h, ex_random(4) ? &o : NULL));
			memset(page[thread], 0xff, sizeof(page[thread]));
			MUST(gdr_copy_from_mapping(h, page[thread], p, size));
			check_tag(page[thread], i, "a copy");
			ex_progress();
		}
		MUST(barcopy_unmap_range(g, h));
		if (!thread && ex_random(2))
			renew(0);
		if (!thread)
			uses(RANGE, NULL, own[0], own_tag[0]);
	}
}

void engine_check(void)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	MUST(barcopy_get_stats(NULL, &s));
	if (s.engine_fallbacks)
		ex_fail("%d copies not by the engine", (int)s.engine_fallbacks);
	end_caches();
}

/* ---- client: a call does not reach rm's client, which ends during another thread's pin --------- */

void client_begin(void)
{
	ex_patience = 8; /* with 1 the other thread always runs in the middle of the pin */
	remember();
}

/* The pin that fails is made again, unless another one is under way. */
void client(int thread)
{
	in_context();
	for (int n = 8; n; n--) {
		if (!thread)
			rm_fail("RM_DUP_OBJECT:1=EBADF");
		(void)use(g, PIN, NULL, shared[thread], (uint32_t)thread);
	}
}

void client_check(void)
{
	rm_fail(NULL);
	uses(PIN, NULL, shared[0], 0);
	all_is_back();
}

/* ---- verdict: a trial of rm fails for what passes; a second later all memory is served --------- */

enum { SECOND = 1000000000 };

static CUdeviceptr plain; /* which a GPU with half a trial does not serve */
static gdr_t contexts[THREADS];
static bool fails, is_short; /* the first trial: for a second, or for one pin */
static uint64_t begin_ns, known_ns; /* when a first pin had returned */

void verdict_begin(void)
{
	remember();
	plain = standin_alloc(CHUNK);
	fails = ex_random(3);
	is_short = !fails;
	if (fails || ex_random(2))
		rm_fail(fails ? "RM_MAP_MEMORY:1=EBUSY" : "RM_MAP_MEMORY:1=ENOMEM");
	begin_ns = ex_clock(0);
	if (!scenario_forks)
		return;
	/* The handlers of fork() come with the first open: a fork that has begun before has none. */
	setenv("GDRSIM_RM", "absent", 1);
	if (barcopy_open(0))
		ex_fail("a context without a driver");
	unsetenv("GDRSIM_RM");
}

static bool was_short(int rc)
{
	bool was = rc == ENOMEM && is_short;

	is_short &= !was;
	return was;
}

static void pin_plain(gdr_t ctx)
{
	uint64_t before = ex_clock(0);
	gdr_mh_t h;
	int rc = gdr_pin_buffer_v2(ctx, plain, CHUNK, 0, &h);

	ex_progress();
	if (was_short(rc))
		return;
	if (rc && (!fails || rc != ENOTSUP || (known_ns && before > known_ns + SECOND)))
		ex_fail("a pin after %llu ns: %d (%s)", (unsigned long long)(before - begin_ns), rc,
			barcopy_last_error());
	if (!rc && fails && ex_clock(0) < begin_ns + SECOND)
		ex_fail("rm was tried twice within a second");
	if (!rc)
		MUST(gdr_unpin_buffer(ctx, h));
	known_ns = known_ns ? known_ns : ex_clock(0);
}

void verdict(int thread)
{
	struct timespec pause = { 0 };

	in_context();
	contexts[thread] = barcopy_open(BARCOPY_OPEN_ANY);
	if (!contexts[thread])
		ex_fail("open: %s", barcopy_last_error());
	for (uint32_t n = 2 + ex_random(3); n; n--) {
		int rc = 0;

		if (ex_random(3))
			pin_plain(contexts[thread]);
		else
			rc = use(contexts[thread], PIN, NULL, shared[thread], (uint32_t)thread);
		if (rc && !was_short(rc))
			ex_fail("exportable memory: %s", barcopy_last_error());
		pause.tv_nsec = ex_random(8) * (SECOND / 10);
		nanosleep(&pause, NULL);
	}
}

void verdict_check(void)
{
	for (int i = 0; i < THREADS; i++)
		if (contexts[i])
			MUST(gdr_close(contexts[i]));
	CU_MUST(cuda.cuMemFree_v2(plain));
	all_is_back();
}
/* ---- stale: memory is freed and made anew at its address; no call finds the former bytes -------- */

void stale_begin(void)
{
	remember();
	a = new_cache(g, ex_random(2), ex_random(3) ? UINT64_MAX : CHUNK);
	b = new_cache(g, ex_random(2), ex_random(3) ? UINT64_MAX : CHUNK);
}

void renew(int thread)
{
	MUST(barcopy_cache_invalidate(a, own[thread], CHUNK));
	MUST(barcopy_cache_invalidate(b, own[thread], CHUNK));
	CU_MUST(cuda.cuMemUnmap(own[thread], CHUNK));
	CU_MUST(cuda.cuMemRelease(standin_map_chunk(own[thread], CHUNK, 0, STANDIN_EXPORTABLE)));
	fill(own[thread], own_tag[thread] = next_tag++);
	ex_progress();
}

void stale(int thread)
{
	in_context();
	for (uint32_t n = 3 + ex_random(4); n; n--) {
		uint32_t i = ex_random(SHARED), what = ex_random(12);
		barcopy_cache_t c = ex_random(2) ? a : b;

		if (what < 4)
			uses(GET, c, own[thread], own_tag[thread]);
		else if (what < 6)
			renew(thread);
		else if (what < 8)
			uses(GET, c, shared[i], i);
		else if (what < 9)
			uses(ex_random(2) ? RANGE : PIN, NULL, own[thread], own_tag[thread]);
		else if (what < 10)
			MUST(barcopy_cache_trim(c, ex_random(2) ? 0 : UINT64_MAX));
		else if (what < 11)
			MUST(barcopy_cache_invalidate(c, shared[i], ex_random(2) ? CHUNK : 1));
		else
			check_stats(c);
		ex_progress();
	}
}

/* ---- reuse: caches of one page, whose entries are made, doomed, evicted and made anew ------------ */

void reuse_begin(void)
{
	remember();
	a = new_cache(g, true, PAGE);
	b = new_cache(g, true, PAGE);
}

void reuse(int thread)
{
	barcopy_region_t r[2];
	barcopy_cache_t of[2];

	in_context();
	for (uint32_t n = 3 + ex_random(4); n; n--) {
		uint32_t held_now = 1 + ex_random(2);

		for (uint32_t i = 0; i < held_now; i++) {
			uint32_t which = ex_random(2 + (uint32_t)thread);

			of[i] = ex_random(2) ? a : b;
			MUST(barcopy_cache_get(of[i], shared[which], 8, &r[i]));
			check_tag(r[i].cpu_ptr, which, "a get");
			ex_progress();
		}
		if (!ex_random(4))
			MUST(barcopy_cache_invalidate(of[0], r[0].device_ptr, 1));
		for (uint32_t i = 0; i < held_now; i++)
			MUST(barcopy_cache_put(of[i], &r[i]));
		if (!ex_random(4))
			uses(RANGE, NULL, shared[1], 1);
		ex_progress();
	}
}

/* ---- hook: munmap() takes a lock of the program's, whose holders make calls that pin nothing ---- */

static pthread_mutex_t program = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool holds;

static void take_program_lock(void)
{
	if (holds || !ex_inside())
		return;
	pthread_mutex_lock(&program);
	pthread_mutex_unlock(&program);
}

void hook_begin(void)
{
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = new_cache(g, true, UINT64_MAX);
	for (uint32_t i = 0; i < SHARED; i++)
		uses(GET, ex_random(3) ? a : b, shared[i], i);
	ex_before_munmap = take_program_lock;
}

void hook(int thread)
{
	(void)thread;
	in_context();
	for (uint32_t n = 2 + ex_random(4); n; n--) {
		uint32_t i = ex_random(SHARED), what = ex_random(5);
		barcopy_cache_t c = ex_random(3) ? a : b;
		bool lock = ex_random(2);

		if (lock) {
			pthread_mutex_lock(&program);
			holds = true;
		}
		if (what < 2)
			MUST(barcopy_cache_invalidate(c, shared[i], CHUNK));
		else if (what < 3 && !lock) /* a trim waits for what others unmap */
			MUST(barcopy_cache_trim(c, ex_random(2) ? 0 : CHUNK));
		else if (what < 4)
			check_stats(c);
		else if (!lock)
			MUST(barcopy_cache_invalidate(c, 0, SIZE_MAX));
		holds = false;
		if (lock)
			pthread_mutex_unlock(&program);
		ex_progress();
	}
}

/* ---- trim: what a trim ends is out of BAR1 when the call returns --------------------------------- */

void trim_begin(void)
{
	barcopy_region_t r;

	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = 0;
	for (int i = 0; i < 2; i++) {
		MUST(barcopy_cache_get(a, shared[i], CHUNK, &r));
		MUST(barcopy_cache_put(a, &r));
	}
}

void trim(int thread)
{
	(void)thread;
	in_context();
	for (uint32_t n = 1 + ex_random(2); n; n--) {
		bool all = ex_random(2);

		MUST(barcopy_cache_trim(a, all ? 0 : CHUNK));
		if (all && bar_used(0) > bar_before)
			ex_fail("an idle region is in BAR1 after a trim");
	}
}

/* ---- place: a map of several objects fails in the middle, while other threads call mmap() -------- */

static gdr_mh_t whole;

void place_begin(void)
{
	remember();
	MUST(gdr_pin_buffer_v2(g, three, 3 * CHUNK, 0, &whole));
}

void place(int thread)
{
	unsigned char in_core[CHUNK / 4096];
	char rule[40];
	int *p;
	void *map;

	in_context();
	if (!thread) {
		snprintf(rule, sizeof(rule), "MMAP:%u=EAGAIN", 1 + ex_random(3));
		rm_fail(ex_random(4) ? rule : NULL);
		if (!gdr_map(g, whole, &map, 3 * CHUNK))
			MUST(gdr_unmap(g, whole, map, 3 * CHUNK));
		rm_fail(NULL);
	}
	for (int i = 0; thread && i < 3; i++) {
		p = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		*p = 4711 + thread;
		ex_point();
		ex_yield();
		if (mincore(p, CHUNK, in_core) || *p != 4711 + thread)
			ex_fail("another thread's pages were unmapped or replaced");
		munmap(p, CHUNK);
		ex_progress();
	}
}

void place_check(void)
{
	MUST(gdr_unpin_buffer(g, whole));
	all_is_back();
}
