// SPDX-License-Identifier: MIT
/* Scenarios in which BAR1 or a limit is full and calls need what others have. See scenarios.h. */
#include <errno.h>

#include "explore/scenarios.h"

/* ---- room: BAR1 holds as many regions as there are threads; idle ones make room for each call ---- */

void room_begin(void)
{
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = new_cache(g, true, ex_random(2) ? PAGE : UINT64_MAX);
	for (uint32_t i = 0; i < 3; i++)
		uses(GET, ex_random(2) ? a : b, shared[i], i);
}

void room(int thread)
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

void short_begin(void)
{
	remember();
	a = new_cache(g, true, UINT64_MAX);
	b = new_cache(g, true, UINT64_MAX);
	for (uint32_t i = 0; i < 3; i++)
		uses(GET, a, shared[i], i);
}

void short_of_room(int thread)
{
	in_context();
	if (thread)
		MUST(barcopy_cache_trim(a, 0));
	else
		uses(PIN, NULL, shared[3], 3);
}

/* ---- returned: a full BAR1; a call needs what others unmap or unpin in turn with their gets -------- */

static gdr_mh_t to_map[3];

void returned_begin(void)
{
	short_begin();
	for (int t = 0; t < 3; t++)
		MUST(gdr_pin_buffer_v2(g, shared[3], CHUNK, 0, &to_map[t]));
}

void returned(int thread)
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

void returned_check(void)
{
	for (int t = 0; t < 3; t++)
		MUST(gdr_unpin_buffer(g, to_map[t]));
	MUST(barcopy_cache_destroy(a));
	MUST(barcopy_cache_destroy(b));
	all_is_back_but(2 * CHUNK); /* a queue's memory stays for the next one */
}

/* ---- ended: the same for queues ------------------------------------------------------------------- */

void ended(int thread)
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

void drained(int thread)
{
	in_context();
	for (uint32_t i = 3; i; i--) {
		uses(RANGE, NULL, own[thread], own_tag[thread]);
		uses(PIN, NULL, own[thread], own_tag[thread]);
	}
}

/* ---- lost: an unmap fails in one of the calls that end ranges, or that drain for them ------------ */

static int lost_times;

void lost_begin(void)
{
	other = barcopy_open(BARCOPY_OPEN_ANY);
	if (!other)
		ex_fail("%s", barcopy_last_error());
	rm_fail("RM_UNMAP_MEMORY:2=EIO,RM_UNMAP_MEMORY:3=EIO");
}

void lost(int thread)
{
	gdr_mh_t h;
	void *p;
	int rc;

	in_context();
	for (uint32_t i = 3; i; i--) {
		MUST(barcopy_map_range(other, own[thread], 8, 0, &p, &h));
		rc = barcopy_unmap_range(other, h);
		if (rc && rc != EIO)
			ex_fail("an end: errno %d (%s)", rc, barcopy_last_error());
		if (rc)
			__atomic_add_fetch(&lost_times, 1, __ATOMIC_RELAXED);
		ex_progress();
	}
}

/* Each is returned, and once; the second may come before the first was. */
void lost_check(void)
{
	lost_times += gdr_close(other) == EIO;
	if (lost_times < 1 || lost_times > 2)
		ex_fail("%d calls have returned a failure, of two", lost_times);
	rm_fail(NULL);
}

void moves(int thread)
{
	in_context();
	uses(thread ? GET : PIN, thread == 1 ? a : b, shared[3 - thread], (uint32_t)(3 - thread));
}

/* ---- evict, never: a call needs room, and others evict and fill without end; it ends ------------- */

static bool stop;
static gdr_mh_t held, large;

void evict_begin(void)
{
	remember();
	a = new_cache(g, true, PAGE);
	b = 0;
}

void evict(int thread)
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

void never_begin(void)
{
	void *p;

	evict_begin();
	MUST(gdr_pin_buffer_v2(g, own[0], CHUNK, 0, &held));
	MUST(gdr_map(g, held, &p, CHUNK));
	MUST(gdr_pin_buffer_v2(g, three, 3 * CHUNK, 0, &large));
}

void never(int thread)
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

void never_check(void)
{
	MUST(gdr_unpin_buffer(g, large));
	MUST(gdr_unpin_buffer(g, held));
	end_caches();
}

/* ---- limit: beyond it is what each thread has in use, and what it evicts in one call --------- */

/* An unpin takes so long that other threads miss again and again meanwhile. */
static void unpin_slowly(void)
{
	for (int i = 0; i < 150; i++)
		ex_yield();
}

void limit_begin(void)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o), .validity = BARCOPY_CACHE_NOTIFIED };

	remember();
	*(ex_random(2) ? &o.max_bytes : &o.max_regions) = 1;
	MUST(barcopy_cache_create(g, &o, &a));
	b = 0;
	ex_before_munmap = unpin_slowly;
}

void limit(int thread)
{
	in_context();
	for (uint32_t n = 12; n; n--) {
		uint32_t i = (n + (uint32_t)thread) % SHARED;
		int64_t more;

		uses(GET, a, shared[i], i);
		more = (int64_t)(pinned() - pins_before); /* below 0: a count of another moment */
		if (more > 2 * 3) /* of each thread */
			ex_fail("%d regions are pinned where one may be", (int)more);
	}
}

/* ---- covered: a full BAR1; ranges in a longer one, which another thread ends, need its pages ----- */

static gdr_mh_t long_one;

void covered_begin(void)
{
	void *p;

	remember();
	MUST(barcopy_map_range(g, three, (size_t)3 * CHUNK, 0, &p, &long_one));
}

void covered(int thread)
{
	gdr_mh_t h;
	void *p;
	int rc;

	in_context();
	for (uint32_t i = 0; i < 2; i++) {
		if (!thread && i)
			MUST(barcopy_unmap_range(g, long_one));
		rc = barcopy_map_range(g, three + ex_random(3) * CHUNK, 8, 0, &p, &h);
		if (!rc)
			MUST(barcopy_unmap_range(g, h));
		else if (rc != ENOMEM)
			ex_fail("a range: errno %d (%s)", rc, barcopy_last_error());
		ex_progress();
	}
}
