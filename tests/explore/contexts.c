// SPDX-License-Identifier: MIT
/*
 * Scenarios in which contexts, handles, queues and ports are made and end during other calls. See
 * scenarios.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "barcopy_queue.h"
#include "explore/scenarios.h"

/* ---- close: gdr_close() while other threads make calls on its caches, ranges and handles --------- */

static barcopy_region_t late[THREADS];
static gdr_mh_t handles[2];
static int closed;

void close_begin(void)
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

void closes(int thread)
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

void close_check(void)
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

void table_begin(void)
{
	remember();
	for (int i = 0; i < 2; i++)
		MUST(gdr_pin_buffer_v2(g, shared[i], CHUNK, 0, &handles[i]));
	a = new_cache(g, true, UINT64_MAX);
	b = 0;
}

void table(int thread)
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

void table_check(void)
{
	for (int i = 0; i < 2; i++) {
		int rc = gdr_unpin_buffer(g, handles[i]);

		if (ends[i] + !rc != 1)
			ex_fail("handle %d ended %d times", i, ends[i] + !rc);
	}
	end_caches();
}

/* ---- again: calls on a handle that ends meanwhile, and whose place the next one has -------------- */

static gdr_mh_t one;
static int calls_made;

void again_begin(void)
{
	void *p;

	remember();
	/* It keeps the region, so that a handle takes no pin. */
	MUST(barcopy_map_range(g, shared[0], 8, 0, &p, &handles[0]));
}

void again(int thread)
{
	gdr_info_t info;
	void *p;

	in_context();
	for (uint32_t n = 300; n && thread; n--)
		if (ex_random(2))
			gone(gdr_get_info(g, one, &info), "a gdr_get_info()");
		else
			gone(gdr_map(g, one, &p, PAGE), "a map");
	for (; !thread && !calls_made; ex_progress()) {
		MUST(barcopy_map_range(g, shared[0], 8, 0, &p, &one));
		ex_yield();
		MUST(barcopy_unmap_range(g, one));
	}
	calls_made |= thread;
}

void again_check(void)
{
	MUST(barcopy_unmap_range(g, handles[0]));
	all_is_back();
}

/* ---- fork in the middle: the child finds nothing of its parent's, and no lock that is held ------- */

static void nothing_is_inherited(void)
{
	int n = ex_open_devices();

	if (n)
		ex_fail("a child has %d devices of its parent's library open", n);
}

static void in_child(void)
{
	barcopy_region_t r;
	barcopy_cache_t c;
	gdr_mh_t h;
	gdr_t mine;

	alarm(10);
	nothing_is_inherited();
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
	nothing_is_inherited();
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

void forks(int thread)
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

/* ---- queue: each thread makes and ends queues, which use each other's memory --------------------- */

void queue(int thread)
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

void port_begin(void)
{
	barcopy_port_options_t o = { .struct_size = sizeof(o), .lines = 16, .spin_ns = 1 };

	MUST(barcopy_port_create(g, 0, &o, &port));
}

void ports(int thread)
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

void port_check(void)
{
	MUST(barcopy_port_destroy(port));
}

/* ---- next: a call during gdr_close() is none on the next cache in that place ------------------- */

static barcopy_cache_t former;
static uint64_t last_hits; /* of it, which the next cache may count */
static gdr_t follows;

void next_begin(void)
{
	remember();
	other = barcopy_open(BARCOPY_OPEN_ANY);
	if (!other)
		ex_fail("open: %s", barcopy_last_error());
	former = new_cache(other, ex_random(2), UINT64_MAX);
	uses(GET, former, shared[0], 0);
}

void next(int thread)
{
	barcopy_region_t r;

	in_context();
	if (thread) {
		for (uint32_t n = 1 + ex_random(2); n; n--)
			if (thread == 1)
				gone(barcopy_cache_invalidate(former, shared[0],
							      ex_random(2) ? CHUNK : SIZE_MAX),
				     "an invalidation");
			else if (!gone(barcopy_cache_get(former, shared[0], 8, &r), "a get")) {
				last_hits++;
				gone(barcopy_cache_put(former, &r), "a put");
			}
		return;
	}
	follows = ex_random(2) ? barcopy_open(BARCOPY_OPEN_ANY) : g;
	MUST(gdr_close(other));
	a = new_cache(follows, true, UINT64_MAX);
	uses(GET, a, shared[0], 0);
	uses(GET, a, shared[0], 0);
}

void next_check(void)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };

	MUST(barcopy_cache_get_stats(a, &s));
	if (s.invalidations || s.misses != 1 || !s.hits || s.hits > 1 + last_hits || s.regions != 1 ||
	    s.regions_in_use)
		ex_fail("%d invalidations, %d misses, %d hits, %d regions, %d in use, of a cache of one region",
			(int)s.invalidations, (int)s.misses, (int)s.hits, (int)s.regions,
			(int)s.regions_in_use);
	if (follows != g)
		MUST(gdr_close(follows));
	else
		MUST(barcopy_cache_destroy(a));
	all_is_back();
}

/* ---- others: a map that is short of space evicts nothing of another context's next cache -------- */

static gdr_mh_t filling;

void others_begin(void)
{
	void *p;

	remember();
	other = barcopy_open(BARCOPY_OPEN_ANY);
	if (!other)
		ex_fail("open: %s", barcopy_last_error());
	MUST(gdr_pin_buffer_v2(g, three, 2 * CHUNK, 0, &filling));
	MUST(gdr_map(g, filling, &p, 2 * CHUNK));
	former = new_cache(other, true, UINT64_MAX);
	uses(GET, former, shared[0], 0); /* the last chunk of BAR1 */
}

void others(int thread)
{
	in_context();
	if (thread) {
		(void)use(other, PIN, NULL, shared[1], 1);
		return;
	}
	MUST(barcopy_cache_destroy(former));
	a = new_cache(g, true, UINT64_MAX);
	(void)use(g, GET, a, shared[2], 2);
}

void others_check(void)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };

	MUST(barcopy_cache_get_stats(a, &s));
	if (s.evictions)
		ex_fail("another context's map has evicted a region");
	MUST(barcopy_cache_destroy(a));
	MUST(gdr_close(other));
	MUST(gdr_unpin_buffer(g, filling));
	all_is_back();
}

/* ---- leftover: gdr_close() during the put that unpins what it releases, and a get elsewhere --- */

static barcopy_region_t last_use;

void leftover_begin(void)
{
	remember();
	other = barcopy_open(BARCOPY_OPEN_ANY);
	if (!other)
		ex_fail("open: %s", barcopy_last_error());
	former = new_cache(other, true, UINT64_MAX);
	MUST(barcopy_cache_get(former, shared[1], 8, &last_use));
	MUST(barcopy_cache_invalidate(former, shared[1], 8));
	uses(GET, former, shared[0], 0);
	a = new_cache(g, true, UINT64_MAX);
}

void leftover(int thread)
{
	barcopy_region_t r;

	in_context();
	if (!thread) {
		MUST(gdr_close(other));
	} else if (thread == 1) {
		gone(barcopy_cache_put(former, &last_use), "a put");
	} else {
		for (uint32_t i = 2; i < SHARED; i++) {
			MUST(barcopy_cache_get(a, shared[i], 8, &r));
			ex_yield();
			check_tag(r.cpu_ptr, i, "a get");
			MUST(barcopy_cache_put(a, &r));
			ex_progress();
		}
	}
}

void leftover_check(void)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };

	MUST(barcopy_cache_get_stats(a, &s));
	if (s.regions != 2 || s.bytes_pinned != 2 * CHUNK)
		ex_fail("%d regions, %d bytes of a cache of two chunks", (int)s.regions,
			(int)s.bytes_pinned);
	uses(GET, a, shared[2], 2);
	MUST(barcopy_cache_get_stats(a, &s));
	if (s.hits != 1)
		ex_fail("a region of a cache is not found any more");
	MUST(barcopy_cache_destroy(a));
	all_is_back();
}

/* ---- memory, queues: allocations and queues are made and ended during gdr_close() ------------ */

void memory_begin(void)
{
	remember();
	other = barcopy_open(BARCOPY_OPEN_ANY);
	if (!other)
		ex_fail("open: %s", barcopy_last_error());
}

void memory(int thread)
{
	gdr_t ctx = thread == 2 && ex_random(2) ? g : other;
	barcopy_mem_t m;
	gdr_info_t info;

	in_context();
	for (uint32_t n = ex_random(4); n; n--) {
		uint32_t flags = ex_random(2) ? BARCOPY_MEM_SHAREABLE : 0;
		uint64_t tag = 0x1234567800000000ull + ex_random(1000), seen;

		if (gone(barcopy_mem_alloc(ctx, 0, 4096 << ex_random(5), flags, &m),
			 "an allocation"))
			continue;
		if (ctx == g) { /* nobody ends it */
			MUST(gdr_copy_to_mapping(m.handle, m.cpu_ptr, &tag, 8));
			CU_MUST(cuda.cuMemcpyDtoH_v2(&seen, m.device_ptr, 8));
			if (seen != tag)
				ex_fail("the GPU sees other memory");
		}
		gone(gdr_get_info(ctx, m.handle, &info), "a gdr_get_info()");
		if (ctx == g || ex_random(3))
			gone(barcopy_mem_free(ctx, &m), "a free");
	}
	if (thread)
		return;
	MUST(gdr_close(other));
}

void memory_check(void)
{
	all_is_back();
}

/* In the context that nobody closes: gdr_close() leaves an open queue's memory mapped, or a port's. */
void one_queue(void)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = 16 };
	barcopy_queue_t q;

	MUST(barcopy_queue_create(g, 0, &o, &q));
	if (ex_random(2))
		MUST(barcopy_queue_stop(q, 0));
	MUST(barcopy_queue_destroy(q));
}

static void one_port(void)
{
	barcopy_port_options_t o = { .struct_size = sizeof(o), .lines = 16 };
	barcopy_port_t p;

	MUST(barcopy_port_create(g, 0, &o, &p));
	if (ex_random(2))
		MUST(barcopy_port_end(p));
	MUST(barcopy_port_destroy(p));
}

void queues(int thread)
{
	in_context();
	for (uint32_t n = ex_random(3); n; n--)
		if (ex_random(2))
			one_queue();
		else
			one_port();
	if (thread)
		return;
	MUST(gdr_close(other));
}

/* A queue's memory stays for the next one of its size: one for each thread and of each kind. */
void queues_check(void)
{
	all_is_back_but(2 * THREADS * CHUNK);
}

/* ---- abandon: gdr_close() takes open queues from the list that the last puts take handles from --- */

void abandon_begin(void)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = 16 };
	barcopy_queue_t q;

	other = barcopy_open(BARCOPY_OPEN_ANY);
	if (!other)
		ex_fail("open: %s", barcopy_last_error());
	former = new_cache(other, true, UINT64_MAX);
	for (int i = 0; i < SHARED; i++) { /* neighbours in the list */
		MUST(barcopy_cache_get(former, shared[i], 8, &late[i]));
		MUST(barcopy_queue_create(other, 0, &o, &q));
	}
	MUST(barcopy_cache_invalidate(former, 0, SIZE_MAX));
	remember();
}

void abandon(int thread)
{
	in_context();
	if (!thread)
		MUST(gdr_close(other));
	else
		for (int i = SHARED; i--;)
			gone(barcopy_cache_put(former, &late[i]), "a put");
}

/* The queues' memory stays. */
void abandon_check(void)
{
	pins_before -= SHARED;
	bar_before -= SHARED * CHUNK;
	all_is_back();
}

/* ---- opens: contexts are opened and closed, also the first and the last ------------------------- */

void opens(int thread)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = 16 };
	barcopy_queue_t q;
	barcopy_mem_t m;

	(void)thread;
	in_context();
	for (uint32_t n = 1 + ex_random(2); n; n--) {
		gdr_t ctx = barcopy_open(BARCOPY_OPEN_ANY);

		if (!ctx)
			ex_fail("open: %s", barcopy_last_error());
		if (ex_random(2)) { /* its memory stays for the next one */
			MUST(barcopy_queue_create(ctx, 0, &o, &q));
			MUST(barcopy_queue_stop(q, 0));
			MUST(barcopy_queue_destroy(q));
		}
		if (ex_random(2))
			MUST(barcopy_mem_alloc(ctx, 0, 4096, 0, &m));
		MUST(gdr_close(ctx));
		ex_progress();
	}
}
