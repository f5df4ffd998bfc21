// SPDX-License-Identifier: MIT
/* What two to four threads do at the same time, and what must hold after it. See scenarios.h. */
#include "explore/scenarios.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "barcopy_queue.h"
#include "cache/cache.h"

/* ---- memory and its uses --------------------------------------------------------------------- */

gdr_t g, other;
barcopy_cache_t a, b;
CUdeviceptr shared[SHARED], own[THREADS], three;
uint32_t own_tag[THREADS];
unsigned long long (*bar_used)(int);
void (*rm_fail)(const char *);
static uint32_t next_tag = 1000;
static unsigned int (*node_pins)(void);
static unsigned long long bar_before, bytes_before;
uint64_t pins_before;

uint64_t pinned(void)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	MUST(barcopy_get_stats(NULL, &s));
	return s.pins - s.unpins;
}

void remember(void)
{
	bytes_before = standin_device_bytes(0);
	bar_before = bar_used(0);
	pins_before = pinned();
}

void all_is_back_but(uint64_t bytes_kept)
{
	if (bar_used(0) != bar_before)
		ex_fail("%llu bytes of BAR1 in use, before it were %llu", bar_used(0), bar_before);
	if (pinned() != pins_before)
		ex_fail("%llu pins are left", (unsigned long long)(pinned() - pins_before));
	if (standin_device_bytes(0) > bytes_before + bytes_kept)
		ex_fail("%llu bytes are allocated, before it were %llu", standin_device_bytes(0),
			bytes_before);
	if (node_pins())
		ex_fail("%u pins of gdrdrv's are left", node_pins());
}

void fill(CUdeviceptr d, uint32_t tag)
{
	uint32_t words[2] = { tag, ~tag };

	CU_MUST(cuda.cuMemcpyHtoD_v2(d, words, sizeof(words)));
	CU_MUST(cuda.cuMemcpyHtoD_v2(d + CHUNK - 8, words, sizeof(words)));
}

void check_tag(const void *p, uint32_t tag, const char *what)
{
	const uint32_t *words = p;

	if (words[0] != tag || words[1] != ~tag)
		ex_fail("%s: the bytes of %u, not of %u", what, words[0], tag);
}

static CUdeviceptr new_chunks(unsigned int n)
{
	return standin_chunks(0, 0, n, CHUNK, STANDIN_EXPORTABLE);
}

barcopy_cache_t new_cache(gdr_t ctx, bool notified, uint64_t max_bytes)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o),
				      .max_bytes = max_bytes,
				      .validity = notified ? BARCOPY_CACHE_NOTIFIED
							   : BARCOPY_CACHE_CHECK_TAG };
	barcopy_cache_t c;

	MUST(barcopy_cache_create(ctx, &o, &c));
	return c;
}

static int by_cache(barcopy_cache_t c, CUdeviceptr at, uint32_t tag)
{
	barcopy_region_t r;
	int rc = barcopy_cache_get(c, at, 8, &r);

	if (rc)
		return rc;
	check_tag(r.cpu_ptr, tag, "a get");
	MUST(barcopy_cache_put(c, &r));
	return 0;
}

static int by_range(gdr_t ctx, CUdeviceptr at, uint32_t tag)
{
	uint32_t words[2];
	gdr_mh_t h;
	void *p;
	int rc = barcopy_map_range(ctx, at, 8, 0, &p, &h);

	if (rc)
		return rc;
	MUST(gdr_copy_from_mapping(h, words, p, 8));
	check_tag(words, tag, "a range");
	MUST(barcopy_unmap_range(ctx, h));
	return 0;
}

static int by_pin(gdr_t ctx, CUdeviceptr d, CUdeviceptr at, uint32_t tag)
{
	gdr_info_t info;
	gdr_mh_t h;
	void *p;
	int rc = gdr_pin_buffer_v2(ctx, d, CHUNK, 0, &h);

	if (rc)
		return rc;
	rc = gdr_map(ctx, h, &p, CHUNK);
	if (!rc) {
		MUST(gdr_get_info(ctx, h, &info));
		check_tag((char *)p + (at - info.va), tag, "a map");
		MUST(gdr_unmap(ctx, h, p, CHUNK));
	}
	MUST(gdr_unpin_buffer(ctx, h));
	return rc;
}

void all_is_back(void)
{
	all_is_back_but(0);
}

/* The errno of the call that took it. */
int use(gdr_t ctx, enum how how, barcopy_cache_t c, CUdeviceptr d, uint32_t tag)
{
	static const int may[] = { 0, EINVAL, EACCES, ENODEV, ENOTSUP, ENOMEM, EIO };
	CUdeviceptr at = ex_random(2) ? d + CHUNK - 8 : d;
	int rc, known = 0;

	rc = how == GET	    ? by_cache(c, at, tag)
	     : how == RANGE ? by_range(ctx, at, tag)
			    : by_pin(ctx, d, at, tag);
	for (size_t i = 0; i < sizeof(may) / sizeof(may[0]); i++)
		known |= rc == may[i];
	if (!known)
		ex_fail("use %d: errno %d is not documented", how, rc);
	ex_note("use %d of 0x%llx: %d", how, (unsigned long long)at, rc);
	ex_progress();
	return rc;
}

/* The same where nothing may fail. */
void uses(enum how how, barcopy_cache_t c, CUdeviceptr d, uint32_t tag)
{
	int rc = use(g, how, c, d, tag);

	if (rc)
		ex_fail("use %d: errno %d, and %llu bytes of BAR1 in use: %s", how, rc, bar_used(0),
			barcopy_last_error());
}

void in_context(void)
{
	CU_MUST(cuda.cuCtxSetCurrent(standin_primary(0)));
}

void check_stats(barcopy_cache_t c)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };

	MUST(barcopy_cache_get_stats(c, &s));
	if (s.regions_in_use > s.regions || s.bytes_pinned > 64ull * CHUNK)
		ex_fail("statistics: %llu in use of %llu regions, %llu bytes",
			(unsigned long long)s.regions_in_use, (unsigned long long)s.regions,
			(unsigned long long)s.bytes_pinned);
	ex_progress();
}

void end_caches(void)
{
	ex_before_munmap = NULL;
	if (a)
		MUST(barcopy_cache_destroy(a));
	if (b)
		MUST(barcopy_cache_destroy(b));
	all_is_back();
}

/* ---- room: BAR1 holds as many regions as there are threads; idle ones make room for each call ---- */

static void room_begin(void)
{
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = new_cache(g, true, ex_random(2) ? PAGE : UINT64_MAX);
	for (uint32_t i = 0; i < 3; i++)
		uses(GET, ex_random(2) ? a : b, shared[i], i);
}

static void room(int thread)
{
	(void)thread;
	in_context();
	for (uint32_t n = 2 + ex_random(3); n; n--) {
		uint32_t i = ex_random(SHARED), what = ex_random(10);
		barcopy_cache_t c = ex_random(2) ? a : b;

		if (what < 7)
			uses(what < 4 ? GET : what < 6 ? PIN : RANGE, c, shared[i], i);
		else if (what < 8)
			MUST(barcopy_cache_trim(c, ex_random(2) ? 0 : CHUNK));
		else if (what < 9)
			MUST(barcopy_cache_invalidate(c, shared[i], CHUNK));
		else
			check_stats(c);
	}
}

/* ---- short: a full BAR1; a map needs room while another thread trims, or others get ------------- */

static void short_begin(void)
{
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = new_cache(g, true, UINT64_MAX);
	for (uint32_t i = 0; i < 3; i++)
		uses(GET, a, shared[i], i);
}

static void short_of_room(int thread)
{
	in_context();
	if (thread)
		MUST(barcopy_cache_trim(a, 0));
	else
		uses(PIN, NULL, shared[3], 3);
}

/* ---- returned: a full BAR1; a call needs what others unmap or unpin in turn with their gets -------- */

static gdr_mh_t to_map[3];

static void returned_begin(void)
{
	short_begin();
	for (int t = 0; t < 3; t++)
		MUST(gdr_pin_buffer_v2(g, shared[3], CHUNK, 0, &to_map[t]));
}

static void returned(int thread)
{
	void *p;

	in_context();
	for (uint32_t i = thread ? 8 : 4; i; i--) {
		if (!thread || ex_random(2)) {
			MUST(gdr_map(g, to_map[thread], &p, CHUNK));
			check_tag(p, 3, "a map");
			MUST(gdr_unmap(g, to_map[thread], p, CHUNK));
		} else {
			uses(RANGE, NULL, shared[3], 3);
		}
		if (thread)
			uses(GET, a, shared[thread], (uint32_t)thread);
	}
}

static void returned_check(void)
{
	for (int t = 0; t < 3; t++)
		MUST(gdr_unpin_buffer(g, to_map[t]));
	MUST(barcopy_cache_destroy(a));
	MUST(barcopy_cache_destroy(b));
	all_is_back_but(2 * CHUNK); /* a queue's memory stays for the next one */
}

/* ---- ended: the same for queues ------------------------------------------------------------------- */

static void ended(int thread)
{
	void *p;

	in_context();
	if (!thread)
		MUST(gdr_map(g, to_map[0], &p, CHUNK));
	for (uint32_t i = 3; thread && i; i--) {
		one_queue();
		uses(GET, a, shared[thread], (uint32_t)thread);
	}
}

/* ---- drained: a call needs the range that its thread ended, and that another thread unpins -------- */

static void drained(int thread)
{
	in_context();
	for (uint32_t i = 3; i; i--) {
		uses(RANGE, NULL, own[thread], own_tag[thread]);
		uses(PIN, NULL, own[thread], own_tag[thread]);
	}
}

static void moves(int thread)
{
	in_context();
	uses(thread ? GET : PIN, thread == 1 ? a : b, shared[3 - thread], (uint32_t)(3 - thread));
}

/* ---- evict, never: a call needs room, and others evict and fill without end; it ends ------------- */

static bool stop;
static gdr_mh_t held, large;

static void evict_begin(void)
{
	remember();
	a = new_cache(g, true, PAGE);
	b = 0;
}

static void evict(int thread)
{
	barcopy_region_t r;

	in_context();
	if (!thread) {
		(void)use(g, PIN, NULL, shared[3], 3);
		__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	}
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		if (!barcopy_cache_get(a, shared[thread - 1], 8, &r))
			MUST(barcopy_cache_put(a, &r));
		ex_yield(); /* by priorities alone the first one's call would never go on */
	}
}

static void never_begin(void)
{
	void *p;

	evict_begin();
	MUST(gdr_pin_buffer_v2(g, own[0], CHUNK, 0, &held));
	MUST(gdr_map(g, held, &p, CHUNK));
	MUST(gdr_pin_buffer_v2(g, three, 3 * CHUNK, 0, &large));
}

static void never(int thread)
{
	barcopy_mem_t mem;
	void *p;

	if (thread) {
		evict(thread);
		return;
	}
	in_context();
	if ((ex_random(2) ? gdr_map(g, large, &p, 3 * CHUNK)
			  : barcopy_mem_alloc(g, 0, 3 * CHUNK, 0, &mem)) != ENOMEM)
		ex_fail("three chunks fit where one is taken");
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
}

static void never_check(void)
{
	MUST(gdr_unpin_buffer(g, large));
	MUST(gdr_unpin_buffer(g, held));
	end_caches();
}

/* ---- stale: memory is freed and made anew at its address; no call finds the former bytes -------- */

static void stale_begin(void)
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

static void stale(int thread)
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

static void reuse_begin(void)
{
	remember();
	a = new_cache(g, true, PAGE);
	b = new_cache(g, true, PAGE);
}

static void reuse(int thread)
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

static void hook_begin(void)
{
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = new_cache(g, true, UINT64_MAX);
	for (uint32_t i = 0; i < SHARED; i++)
		uses(GET, ex_random(3) ? a : b, shared[i], i);
	ex_before_munmap = take_program_lock;
}

static void hook(int thread)
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

/* ---- forget: what is forgotten is unpinned when the call returns --------------------------------- */

static void *forgotten;

static void forget_begin(void)
{
	barcopy_region_t r;

	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = 0;
	for (int i = 0; i < 2; i++) {
		MUST(barcopy_cache_get(a, shared[i], CHUNK, &r));
		forgotten = r.cpu_ptr;
		MUST(barcopy_cache_put(a, &r));
	}
}

static void forget(int thread)
{
	unsigned char in_core;

	in_context();
	for (uint32_t n = thread ? 1 + ex_random(2) : 0; n; n--) {
		bool all = ex_random(2);

		MUST(barcopy_cache_trim(a, all ? 0 : CHUNK));
		if (all && bar_used(0) > bar_before)
			ex_fail("an idle region is in BAR1 after a trim");
	}
	if (thread)
		return;
	gdri_cache_forget((struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)a),
			  shared[1], shared[1] + CHUNK);
	if (!mincore(forgotten, 4096, &in_core) || bar_used(0) > bar_before + CHUNK)
		ex_fail("what was forgotten is still mapped, or in BAR1");
}

/* The same during an invalidation, which has doomed it and not pushed it yet. */
static void push(int thread)
{
	ex_patience = 16;
	if (thread)
		MUST(barcopy_cache_invalidate(a, shared[1], 1));
	else
		forget(0);
}

/* ---- close: gdr_close() while other threads make calls on its caches, ranges and handles --------- */

static barcopy_region_t late[THREADS];
static gdr_mh_t handles[2];
static int closed;

static void close_begin(void)
{
	remember();
	other = barcopy_open(BARCOPY_OPEN_ANY);
	if (!other)
		ex_fail("open: %s", barcopy_last_error());
	a = new_cache(other, true, UINT64_MAX);
	b = new_cache(other, false, ex_random(2) ? UINT64_MAX : PAGE);
	if (ex_random(2))
		uses(GET, a, shared[0], 0);
	MUST(gdr_pin_buffer_v2(other, shared[3], CHUNK, 0, &handles[0]));
}

int gone(int rc, const char *what)
{
	if (rc && rc != EINVAL && rc != EAGAIN)
		ex_fail("%s and gdr_close() at the same time: %d (%s)", what, rc,
			barcopy_last_error());
	ex_progress();
	return rc;
}

static void one_call_while_it_closes(int thread)
{
	barcopy_cache_t c = ex_random(2) ? a : b;
	uint32_t i = ex_random(SHARED), what = ex_random(9);
	barcopy_mem_t mem;
	gdr_mh_t h;
	void *p;

	if (what < 3) {
		if (late[thread].entry)
			gone(barcopy_cache_put(c, &late[thread]), "a put");
		if (!gone(barcopy_cache_get(c, shared[i], 8, &late[thread]), "a get") &&
		    ex_random(2))
			gone(barcopy_cache_put(c, &late[thread]), "a put");
	} else if (what < 4) {
		if (!gone(barcopy_map_range(other, shared[i] + 100, 8, 0, &p, &h), "a range") &&
		    ex_random(2))
			gone(barcopy_unmap_range(other, h), "an end of a range");
	} else if (what < 5) {
		if (!gone(gdr_map(other, handles[0], &p, CHUNK), "a map") && ex_random(2))
			gone(gdr_unmap(other, handles[0], p, CHUNK), "an unmap");
	} else if (what < 6) {
		gone(gdr_unpin_buffer(other, handles[0]), "an unpin");
	} else if (what < 7) {
		gone(barcopy_cache_invalidate(c, shared[i], 1), "an invalidation");
	} else if (what < 8) {
		gone(barcopy_cache_trim(c, 0), "a trim");
	} else if (!gone(barcopy_mem_alloc(other, 0, 4096, 0, &mem), "an allocation") &&
		   ex_random(2)) {
		gone(barcopy_mem_free(other, &mem), "a free");
	}
}

static void closes(int thread)
{
	gdr_t next;
	int rc;

	in_context();
	for (uint32_t n = 1 + ex_random(4); n; n--)
		one_call_while_it_closes(thread);
	if (thread && ex_random(4))
		return;
	rc = gdr_close(other);
	if (gone(rc, "gdr_close()"))
		return;
	__atomic_fetch_add(&closed, 1, __ATOMIC_SEQ_CST);
	if (ex_random(2)) { /* the next context in its slot */
		next = barcopy_open(BARCOPY_OPEN_ANY);
		if (!next || use(next, RANGE, NULL, shared[2], 2))
			ex_fail("the next context: %s", barcopy_last_error());
		MUST(gdr_close(next));
	}
}

static void close_check(void)
{
	if (closed != 1)
		ex_fail("%d calls of gdr_close() succeeded", closed);
	for (int i = 0; i < THREADS; i++)
		if (late[i].entry && (barcopy_cache_put(a, &late[i]) != EINVAL ||
				      barcopy_cache_put(b, &late[i]) != EINVAL))
			ex_fail("a put after gdr_close() is not EINVAL");
	all_is_back();
}

/* ---- table: the same handles are mapped and ended by all threads; each ends once ----------------- */

static int ends[2];

static void table_begin(void)
{
	remember();
	for (int i = 0; i < 2; i++)
		MUST(gdr_pin_buffer_v2(g, shared[i], CHUNK, 0, &handles[i]));
	a = new_cache(g, true, UINT64_MAX);
	b = 0;
}

static void table(int thread)
{
	(void)thread;
	in_context();
	for (uint32_t n = 2 + ex_random(4); n; n--) {
		barcopy_copy_options_t o = { .struct_size = sizeof(o),
					     .engine_read_min = ex_random(2) * 4096 };
		uint32_t i = ex_random(2), what = ex_random(7);
		gdr_info_t info;
		int rc = 0;
		void *p;

		if (what < 2) {
			rc = gdr_map(g, handles[i], &p, CHUNK);
			if (!rc && ex_random(3))
				rc = gdr_unmap(g, handles[i], p, CHUNK);
		} else if (what < 3) {
			rc = gdr_unpin_buffer(g, handles[i]);
			__atomic_fetch_add(&ends[i], !rc, __ATOMIC_SEQ_CST);
		} else if (what < 4) {
			rc = gdr_get_info(g, handles[i], &info);
			if (!rc && info.va != shared[i])
				ex_fail("the information of another handle");
		} else if (what < 5) {
			rc = barcopy_set_copy_options(handles[i], &o);
		} else {
			uses((enum how)ex_random(3), a, shared[2 + i], 2 + i);
		}
		if (rc && rc != EINVAL && rc != EAGAIN)
			ex_fail("call %u: errno %d (%s)", what, rc, barcopy_last_error());
		ex_progress();
	}
}

static void table_check(void)
{
	for (int i = 0; i < 2; i++) {
		int rc = gdr_unpin_buffer(g, handles[i]);

		if (ends[i] + !rc != 1)
			ex_fail("handle %d ended %d times", i, ends[i] + !rc);
	}
	end_caches();
}

/* ---- fork in the middle: the child finds nothing of its parent's, and no lock that is held ------- */

static void in_child(void)
{
	barcopy_region_t r;
	barcopy_cache_t c;
	gdr_mh_t h;
	gdr_t mine;

	alarm(10);
	if (barcopy_cache_get(a, shared[0], 8, &r) != EACCES ||
	    barcopy_cache_trim(a, 0) != EACCES ||
	    barcopy_cache_invalidate(a, 0, SIZE_MAX) != EACCES ||
	    gdr_pin_buffer_v2(g, shared[0], CHUNK, 0, &h) != EACCES || gdr_close(g) != EACCES)
		ex_fail("in a child a call on the parent's is not EACCES");
	mine = barcopy_open(BARCOPY_OPEN_ANY);
	if (!mine)
		ex_fail("in a child: open: %s", barcopy_last_error());
	c = new_cache(mine, true, UINT64_MAX);
	if (!barcopy_cache_get(c, shared[0], 8, &r))
		ex_fail("a child has memory of its parent's CUDA");
	MUST(barcopy_cache_destroy(c));
	MUST(gdr_close(mine));
	_exit(0);
}

/* A fork in any scenario. */
static void in_any_child(void)
{
	gdr_mh_t h;
	gdr_t mine;

	alarm(10);
	if (g && gdr_pin_buffer_v2(g, shared[0], CHUNK, 0, &h) != EACCES)
		ex_fail("in a child a pin by the parent's context is not EACCES");
	mine = barcopy_open(BARCOPY_OPEN_ANY);
	if (!mine)
		ex_fail("in a child: open: %s", barcopy_last_error());
	if (!gdr_pin_buffer_v2(mine, shared[0], CHUNK, 0, &h))
		ex_fail("a child has memory of its parent's CUDA");
	MUST(gdr_close(mine));
	_exit(0);
}

bool scenario_forks;

void scenario_fork(void)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		in_any_child();
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		ex_fail("a child ended with 0x%x", status);
	ex_progress();
}

static void forks(int thread)
{
	gdr_t another;
	int status = 0;
	pid_t pid;

	if (thread) {
		if (thread == 1) {
			another = barcopy_open(BARCOPY_OPEN_ANY);
			if (!another || gdr_close(another))
				ex_fail("open or close: %s", barcopy_last_error());
			ex_progress();
		}
		stale(thread);
		return;
	}
	in_context();
	for (uint32_t n = ex_random(4); n; n--)
		uses(GET, a, shared[0], 0);
	pid = fork();
	if (!pid)
		in_child();
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		ex_fail("a child ended with 0x%x", status);
	ex_progress();
	uses(GET, a, shared[0], 0);
}

/* ---- place: a map of several objects fails in the middle, while other threads call mmap() -------- */

static void place_begin(void)
{
	remember();
	MUST(gdr_pin_buffer_v2(g, three, 3 * CHUNK, 0, &large));
}

static void place(int thread)
{
	unsigned char in_core[CHUNK / 4096];
	char rule[40];
	int *p;
	void *map;

	in_context();
	if (!thread) {
		snprintf(rule, sizeof(rule), "MMAP:%u=EAGAIN", 1 + ex_random(3));
		rm_fail(ex_random(4) ? rule : NULL);
		if (!gdr_map(g, large, &map, 3 * CHUNK))
			MUST(gdr_unmap(g, large, map, 3 * CHUNK));
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

static void place_check(void)
{
	MUST(gdr_unpin_buffer(g, large));
	all_is_back();
}

/* ---- queue: each thread makes and ends queues, which use each other's memory --------------------- */

static void queue(int thread)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = 16 };
	barcopy_queue_t q;

	(void)thread;
	in_context();
	for (uint32_t n = 1 + ex_random(3); n; n--) {
		uint32_t word = 0;
		int rc;

		MUST(barcopy_queue_create(g, 0, &o, &q));
		rc = barcopy_queue_send(q, &word, sizeof(word), 0, ex_random(2) ? 0 : 1000000);
		if (rc && rc != ETIMEDOUT)
			ex_fail("a send: %d (%s)", rc, barcopy_last_error());
		if (ex_random(2))
			MUST(barcopy_queue_stop(q, 0));
		MUST(barcopy_queue_destroy(q));
		ex_progress();
	}
}

/*
 * ---- port: one thread receives from a port that others stop and end, and which use the memory of
 * each other's ports and queues
 */

static barcopy_port_t port;

static void port_begin(void)
{
	barcopy_port_options_t o = { .struct_size = sizeof(o), .lines = 16, .spin_ns = 1 };

	MUST(barcopy_port_create(g, 0, &o, &port));
}

static void ports(int thread)
{
	barcopy_port_options_t o = { .struct_size = sizeof(o),
				     .lines = 16,
				     .flags = BARCOPY_PORT_MANUAL };
	barcopy_port_message_t m;
	barcopy_port_t mine;
	uint32_t n;
	int rc;

	if (!thread) {
		while ((rc = barcopy_port_receive(port, &m, 1, &n, ex_random(2) ? 0 : 1000)) == ETIMEDOUT)
			ex_progress();
		if (rc != EPIPE)
			ex_fail("a receive: %d (%s)", rc, barcopy_last_error());
		return;
	}
	in_context();
	for (uint32_t i = 1 + ex_random(3); i; i--) {
		MUST(barcopy_port_create(g, 0, &o, &mine));
		if (barcopy_port_receive(mine, &m, 1, &n, 0) != ETIMEDOUT)
			ex_fail("a post of another port: %s", barcopy_last_error());
		if (barcopy_port_retire(mine, 1, 1) != EINVAL)
			ex_fail("a post that never came is retired");
		MUST(barcopy_port_stop(ex_random(2) ? mine : port, ex_random(2) ? BARCOPY_PORT_ABORT : 0));
		MUST(barcopy_port_destroy(mine));
		if (ex_random(2))
			queue(thread);
	}
	MUST(barcopy_port_end(port));
}

static void port_check(void)
{
	MUST(barcopy_port_destroy(port));
}

/* ---- unordered: two threads write the same bytes, and the scheduler says so ---------------------- */

static void unordered(int thread)
{
	static char bytes[64];
	volatile size_t n = sizeof(bytes); /* a call, which race.c sees */

	memset(bytes, thread, n);
}

const struct scenario scenarios[] = {
	{ "room", 3, 8, room_begin, room, end_caches },
	{ "short", 2, 8, short_begin, short_of_room, end_caches },
	{ "returned", 3, 8, returned_begin, returned, returned_check },
	{ "ended", 3, 8, returned_begin, ended, returned_check },
	{ "drained", 3, 8, remember, drained, all_is_back },
	{ "covered", 3, 8, covered_begin, covered, all_is_back },
	{ "moves", 3, 8, short_begin, moves, end_caches },
	{ "evict", 3, 8, evict_begin, evict, end_caches },
	{ "never", 3, 8, never_begin, never, never_check },
	{ "stale", 3, 256, stale_begin, stale, end_caches },
	{ "reuse", 3, 256, reuse_begin, reuse, end_caches },
	{ "limit", 3, 256, limit_begin, limit, end_caches },
	{ "hook", 3, 256, hook_begin, hook, end_caches },
	{ "forget", 3, 256, forget_begin, forget, end_caches },
	{ "push", 2, 256, forget_begin, push, end_caches },
	{ "close", 3, 256, close_begin, closes, close_check },
	{ "table", 3, 256, table_begin, table, table_check },
	{ "fork", 3, 256, stale_begin, forks, end_caches },
	{ "place", 2, 256, place_begin, place, place_check },
	{ "queue", 3, 256, remember, queue, queues_check },
	{ "hit", 2, 256, hit_begin, hit, end_caches },
	{ "piece", 4, 256, piece_begin, piece, end_caches },
	{ "caches", 3, 256, remember, caches, all_is_back },
	{ "fresh", 2, 256, hit_begin, fresh, end_caches },
	{ "joined", 2, 256, joined_begin, joined, end_caches },
	{ "doom", 3, 256, doom_begin, doom, doom_check },
	{ "elsewhere", 2, 256, elsewhere_begin, elsewhere, elsewhere_check },
	{ "ranged", 2, 256, elsewhere_begin, ranged, ranged_check },
	{ "mid-pin", 3, 256, mid_pin_begin, mid_pin, end_caches },
	{ "next", 3, 256, next_begin, next, next_check },
	{ "others", 2, 8, others_begin, others, others_check },
	{ "leftover", 3, 256, leftover_begin, leftover, leftover_check },
	{ "engine", 3, 256, engine_begin, engine, engine_check },
	{ "memory", 3, 256, memory_begin, memory, memory_check },
	{ "queues", 3, 256, memory_begin, queues, queues_check },
	{ "opens", 3, 256, remember, opens, all_is_back, .fresh = true },
	{ "revoked", 3, 256, revoked_begin, revoked, revoked_check, "GDRSIM_NODE=present" },
	{ "listed", 2, 256, listed_begin, listed, listed_check, "GDRSIM_NODE=present" },
	{ "client", 2, 256, client_begin, client, client_check },
	{ "verdict", 3, 256, verdict_begin, verdict, verdict_check, .fresh = true },
	{ "port", 3, 256, port_begin, ports, port_check },
	{ "unordered", 2, 256, remember, unordered, all_is_back }, /* fails: a test of race.c */
};
const int scenario_count = sizeof(scenarios) / sizeof(scenarios[0]) - 1;

void scenario_start(const struct scenario *s)
{
	char text[20];
	gdr_mh_t taken;
	void *p;

	if (s->environment)
		putenv((char *)(uintptr_t)s->environment);
	snprintf(text, sizeof(text), "%d", s->bar_mib);
	setenv("GDRSIM_BAR1_MIB", text, 1);
	standin_start();
	*(void **)&bar_used = dlsym(RTLD_DEFAULT, "gdrsim_rm_bar1_used");
	*(void **)&rm_fail = dlsym(RTLD_DEFAULT, "gdrsim_rm_fail");
	*(void **)&node_pins = dlsym(RTLD_DEFAULT, "gdrsim_node_pins");
	if (!bar_used || !rm_fail || !node_pins)
		ex_fail("the stand-ins of the drivers are not preloaded");
	for (uint32_t i = 0; i < SHARED; i++)
		fill(shared[i] = new_chunks(1), i);
	for (int i = 0; i < THREADS; i++)
		fill(own[i] = new_chunks(1), own_tag[i] = next_tag++);
	three = new_chunks(3);
	if (s->fresh)
		return;
	g = barcopy_open(BARCOPY_OPEN_ANY);
	if (!g)
		ex_fail("open: %s", barcopy_last_error());
	uses(PIN, NULL, shared[0], 0); /* with rm's trial */
	uses(RANGE, NULL, shared[1], 1);
	if (s->bar_mib == 8) { /* space for three chunks is left */
		MUST(gdr_pin_buffer_v2(g, new_chunks(1), CHUNK, 0, &taken));
		MUST(gdr_map(g, taken, &p, CHUNK));
	}
}
