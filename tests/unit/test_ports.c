/* SPDX-License-Identifier: MIT */
/*
 * Ports: arguments, waits, retiring, and the ends of a port, with kernels of the stand-in.
 * tests/gpu/test_ports.c has several kernels at once, test_queue_ports.c every interleaving.
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "barcopy_queue.h"
#include "common/resources.h"
#include "common/wrap.h"
#include "fixture.h"
#include "queue/port.h"

#define MILLISECOND UINT64_C(1000000)
#define WAIT	    (60000 * MILLISECOND) /* for what comes unless the test fails */

enum { ORDERED = 1, CALLS = 2, WAITS = 4, LIMITS = 8, UNAWAITED = 16 };

static CUmodule module;
static CUstream stream;
static barcopy_mem_t sum;
static barcopy_port_message_t m[64];
static uint32_t n;

static void start_stream(void)
{
	start();
	CU(cuda.cuModuleLoadData(&module, ".version 6.4\n.entry gdrcopy_port_posts()\n"));
	CU(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(barcopy_mem_alloc(g, 0, 4096, 0, &sum));
}

static barcopy_port_t new_port(uint32_t lines, uint32_t flags)
{
	barcopy_port_options_t o = {
		.struct_size = sizeof(o), .lines = lines, .flags = flags, .spin_ns = 1000
	};
	barcopy_port_t p;

	OK(barcopy_port_create(g, 0, &o, &p));
	return p;
}

/* A kernel of that many threads. */
static void launch(barcopy_port_t p, unsigned int threads, unsigned int count, unsigned int how)
{
	barcopy_port_view_t view;
	unsigned int first = 0;
	void *params[] = { &view, &first, &threads, &count, &how, &sum.device_ptr };
	CUfunction f;

	OK(barcopy_put64(sum.handle, (char *)sum.cpu_ptr + 8, 0));
	OK(barcopy_port_get_view(p, &view));
	CU(cuda.cuModuleGetFunction(&f, module, "gdrcopy_port_posts"));
	CU(cuda.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static uint64_t made(void)
{
	uint64_t value;

	CU(cuda.cuStreamSynchronize(stream));
	OK(barcopy_get64(sum.handle, (char *)sum.cpu_ptr + 8, &value));
	return value;
}

static void receive_all(barcopy_port_t p, uint32_t count)
{
	for (uint32_t i = 0; i < count; i += n)
		OK(barcopy_port_receive(p, m + i, count - i, &n, WAIT));
	n = count;
}

static void arguments(void)
{
	barcopy_port_options_t o = { .struct_size = sizeof(o), .lines = 48 };
	barcopy_port_view_t view;
	uint64_t answer = 0;
	uint32_t call = 1;
	barcopy_port_t p;
	size_t used;

	FAILS(EINVAL, barcopy_port_create(g, 0, &o, NULL));
	FAILS_WITH(EINVAL, "lines is 48", barcopy_port_create(g, 0, &o, &p));
	o.lines = 8;
	FAILS(EINVAL, barcopy_port_create(g, 0, &o, &p));
	o.lines = 131072;
	FAILS(EINVAL, barcopy_port_create(g, 0, &o, &p));
	o.lines = 0;
	o.flags = 2;
	FAILS_WITH(EINVAL, "flags 0x2", barcopy_port_create(g, 0, &o, &p));
	o.flags = 0;
	o.struct_size = 8;
	FAILS(EINVAL, barcopy_port_create(g, 0, &o, &p));
	FAILS(EINVAL, barcopy_port_create(NULL, 0, NULL, &p));
	wrap_reset();
	wrap_fail("aligned_alloc", 1, ENOMEM);
	FAILS_WITH(ENOMEM, "no memory for a port", barcopy_port_create(g, 0, NULL, &p));
	FAILS_WITH(EINVAL, "device 99", barcopy_port_create(g, 99, NULL, &p));
	used = resources_heap();
	for (int i = 0; i < 1000; i++)
		FAILS(EINVAL, barcopy_port_create(g, 99, NULL, &p));
	ck_assert_uint_lt(resources_heap(), used + 1000);
	OK(barcopy_port_create(g, 0, NULL, &p));
	FAILS(EINVAL, barcopy_port_get_view(p, NULL));
	OK(barcopy_port_get_view(p, &view));
	ck_assert_uint_eq(view.lines, 1024);
	FAILS(EINVAL, barcopy_port_receive(p, NULL, 1, &n, 0));
	FAILS(EINVAL, barcopy_port_receive(p, m, 1, NULL, 0));
	FAILS_WITH(EINVAL, "n is 0", barcopy_port_receive(p, m, 0, &n, 0));
	n = 7;
	FAILS(ETIMEDOUT, barcopy_port_receive(p, m, 1, &n, 0));
	ck_assert_uint_eq(n, 0);
	FAILS(EINVAL, barcopy_port_answer(p, NULL, &answer, 1));
	FAILS(EINVAL, barcopy_port_answer(p, &call, NULL, 1));
	FAILS(EINVAL, barcopy_port_answer(p, &call, &answer, 1));
	FAILS(EINVAL, barcopy_port_answer(p, &(uint32_t){ UINT32_MAX }, &answer, 1));
	OK(barcopy_port_answer(p, &call, &answer, 0));
	FAILS_WITH(EINVAL, "receive retires its posts", barcopy_port_retire(p, 1, 1));
	FAILS(EINVAL, barcopy_port_retire(p, 1, 0));
	FAILS(EINVAL, barcopy_port_stop(p, 1));
	OK(barcopy_port_stop(p, 0));
	OK(barcopy_port_destroy(p));
	FAILS_WITH(EINVAL, "a port", barcopy_port_destroy(p));
	FAILS(EINVAL, barcopy_port_receive(p, m, 1, &n, 0));
	FAILS(EINVAL, barcopy_port_end(p));
	FAILS(EINVAL, barcopy_port_get_view(NULL, &view));
}

/*
 * A wait spins, then yields, then sleeps, by the time since the last post; CUDA is asked each 0.1 s.
 * Each look at the clock is one step later.
 */
static void rests(void)
{
	static const struct {
		uint64_t spin_ns, yield_ns, sleep_ns, step, timeout_ns;
		unsigned int yields[2], sleeps[2],
			asked; /* of two waits: the second rests at once */
	} table[] = {
		{ 200000, 300000, 1000, 10000, MILLISECOND, { 30, 0 }, { 50, 100 }, 1 },
		{ 200000, 300000, 0, 10000, MILLISECOND, { 80, 100 }, { 0, 0 }, 1 },
		{ 1, 1, 1, 10 * MILLISECOND, 1000 * MILLISECOND, { 0, 0 }, { 99, 100 }, 21 },
		{ 0, 1, 1, 10000, MILLISECOND, { 0, 0 }, { 0, 0 }, 1 },
	};
	barcopy_port_options_t o = { .struct_size = sizeof(o), .lines = 16 };
	barcopy_port_t p;

	for (size_t i = 0; i < COUNT(table); i++) {
		unsigned long asked, yields = 0, sleeps = 0;

		o.spin_ns = table[i].spin_ns;
		o.yield_ns = table[i].yield_ns;
		o.sleep_ns = table[i].sleep_ns;
		OK(barcopy_port_create(g, 0, &o, &p));
		asked = cuda_hooks.calls("cuStreamIsCapturing");
		wrap_reset();
		wrap_clock_steps(table[i].step);
		for (int k = 0; k < 2; k++) {
			FAILS(ETIMEDOUT, barcopy_port_receive(p, m, 64, &n, table[i].timeout_ns));
			yields += table[i].yields[k];
			sleeps += table[i].sleeps[k];
			ck_assert_uint_eq(wrap_calls("sched_yield"), yields);
			ck_assert_uint_eq(wrap_calls("nanosleep"), sleeps);
		}
		ck_assert_uint_eq(wrap_slept(), sleeps * table[i].sleep_ns);
		ck_assert_uint_eq(cuda_hooks.calls("cuStreamIsCapturing") - asked, table[i].asked);
		wrap_reset();
		OK(barcopy_port_destroy(p));
	}
}

/* Each receive tells kernels of what those before gave: of posts that nobody waits for when there are 32. */
static void shown(void)
{
	static const struct {
		uint32_t take, shown, unawaited;
	} steps[] = { { 16, 0, 0 },  { 16, 16, 0 }, { 1, 32, 32 }, { 15, 33, 32 },
		      { 4, 48, 32 }, { 1, 52, 32 }, { 1, 53, 53 }, { 1, 53, 53 } };
	const struct gdri_port *port;
	unsigned int shows;
	uint64_t last;
	barcopy_port_t p;

	for (int unawaited = 0; unawaited < 2; unawaited++) {
		p = new_port(1024, 0);
		port = gdri_ring_find(&gdri_ports, p);
		shows = 0;
		last = 0;
		launch(p, 1, 52, unawaited ? UNAWAITED : 0);
		launch(p, 1, 1, 0);
		launch(p, 1, 20, UNAWAITED);
		CU(cuda.cuStreamSynchronize(stream));
		for (size_t i = 0; i < COUNT(steps); i++) {
			OK(barcopy_port_receive(p, m, steps[i].take, &n, WAIT));
			ck_assert_uint_eq(n, steps[i].take);
			ck_assert_uint_ge(m[0].size, 16);
			ck_assert_uint_eq(port->shown, unawaited ? steps[i].unawaited : steps[i].shown);
			/* Who has read line k waits for count k + 1 in the next line: at first k is 0. */
			shows += port->shown != last;
			last = port->shown;
			ck_assert_uint_eq(gdri_load64(port->ring.control + BARCOPY_PORT_TAKEN_AT + shows * 64), last);
		}
		receive_all(p, 18);
		FAILS(ETIMEDOUT, barcopy_port_receive(p, m, 1, &n, 0));
		ck_assert_uint_eq(port->shown, 73);
		OK(barcopy_port_destroy(p));
	}
}

/* In any order; a full ring waits for the first one, a range is refused as a whole. */
static void retire(void)
{
	barcopy_port_t p = new_port(16, BARCOPY_PORT_MANUAL);

	launch(p, 1, 40, 0);
	receive_all(p, 16);
	FAILS(ETIMEDOUT, barcopy_port_receive(p, m, 1, &n, 20 * MILLISECOND));
	FAILS_WITH(EINVAL, "cannot retire 2 from post 17 on: the last one received is 16",
		   barcopy_port_retire(p, 17, 2));
	FAILS(EINVAL, barcopy_port_retire(p, 16, 2));
	FAILS(EINVAL, barcopy_port_retire(p, 0, 1));
	FAILS(EINVAL, barcopy_port_retire(p, 1, UINT32_MAX));
	FAILS(EINVAL, barcopy_port_retire(p, UINT64_MAX, 1));
	OK(barcopy_port_retire(p, 99, 0));
	OK(barcopy_port_retire(p, 2, 15));
	FAILS(EINVAL, barcopy_port_retire(p, 2, 1));
	FAILS(EINVAL, barcopy_port_retire(p, 1, 2));
	FAILS(ETIMEDOUT, barcopy_port_receive(p, m, 1, &n, 20 * MILLISECOND));
	OK(barcopy_port_retire(p, 1, 1)); /* all 16 */
	FAILS(EINVAL, barcopy_port_retire(p, 1, 1));
	receive_all(p, 16);
	ck_assert_uint_eq(m[15].post, 32);
	OK(barcopy_port_retire(p, 17, 16));
	receive_all(p, 8);
	ck_assert_uint_eq(made(), 40);
	OK(barcopy_port_destroy(p));
}

/* Posts with a limit hold no number while the ring is full: a stop ends them, and what is there comes. */
static void limited(void)
{
	const struct timespec t = { .tv_nsec = 20 * 1000 * 1000 };
	barcopy_port_t p = new_port(16, 0);

	launch(p, 4, 20, LIMITS);
	nanosleep(&t, NULL);
	OK(barcopy_port_stop(p, 0));
	ck_assert_uint_le(made(), 16);
	receive_all(p, (uint32_t)made());
	FAILS(ETIMEDOUT, barcopy_port_receive(p, m, 1, &n, 0));
	OK(barcopy_port_destroy(p));
}

/* One answer of several is wrong: none is given. Each call once. */
static void answers(void)
{
	barcopy_port_t p = new_port(16, 0);
	uint64_t answer[3] = { 1, UINT64_C(1) << 56, 3 }, wrong;
	uint32_t call[3];

	OK(barcopy_put64(sum.handle, sum.cpu_ptr, 0));
	launch(p, 3, 1, CALLS);
	receive_all(p, 3);
	for (int i = 0; i < 3; i++) {
		call[i] = m[i].call;
		ck_assert_uint_eq(m[i].size, 48);
		ck_assert_uint_eq(call[i], (uint32_t)m[i].data[0]);
	}
	FAILS_WITH(EINVAL, "calls[1] is not an open call", barcopy_port_answer(p, call, answer, 3));
	for (int i = 0; i < 3; i++)
		answer[i] = (m[i].data[2] >> 32) << 16 ^ (m[i].data[1] >> 32);
	call[2] = call[0];
	FAILS_WITH(EINVAL, "calls[2] is not an open call", barcopy_port_answer(p, call, answer, 3));
	call[2] = m[2].call;
	OK(barcopy_port_answer(p, call, answer, 3));
	FAILS(EINVAL, barcopy_port_answer(p, call, answer, 1));
	FAILS(EINVAL, barcopy_port_answer(p, (uint32_t[]){ 16 << 8 | 1 }, answer, 1));
	ck_assert_uint_eq(made(), 3);
	OK(barcopy_get64(sum.handle, sum.cpu_ptr, &wrong));
	ck_assert_uint_eq(wrong, 0);
	OK(barcopy_port_destroy(p));
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A receive that sleeps takes little of the CPU, keeps its limit, and wakes for a post. */
static void idle(void)
{
	barcopy_port_options_t o = { .struct_size = sizeof(o),
				     .lines = 16,
				     .spin_ns = 20000,
				     .yield_ns = 20000,
				     .sleep_ns = 5 * MILLISECOND };
	uint64_t cpu = now_ns(CLOCK_THREAD_CPUTIME_ID), start = now_ns(CLOCK_MONOTONIC);
	barcopy_port_t p;

	OK(barcopy_port_create(g, 0, &o, &p));
	FAILS_WITH(ETIMEDOUT, "no post has come in time",
		   barcopy_port_receive(p, m, 1, &n, 200 * MILLISECOND));
	ck_assert_uint_ge(now_ns(CLOCK_MONOTONIC) - start, 200 * MILLISECOND);
	ck_assert_uint_lt(now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu, 100 * MILLISECOND);
	launch(p, 1, 1, 0);
	receive_all(p, 1);
	OK(barcopy_port_destroy(p));
}

static void *end_later(void *port)
{
	const struct timespec t = { .tv_nsec = 20 * 1000 * 1000 };

	nanosleep(&t, NULL);
	OK(barcopy_port_end(port));
	return NULL;
}

/* The end wakes a receive; what came before it is received. A kernel that follows posts nothing. */
static void ended(void)
{
	barcopy_port_t p = new_port(16, 0);
	pthread_t thread;

	launch(p, 4, 1, 0);
	ck_assert_uint_eq(made(), 4);
	ck_assert_int_eq(pthread_create(&thread, NULL, end_later, p), 0);
	receive_all(p, 4);
	FAILS_WITH(EPIPE, "barcopy_port_end() or gdr_close()",
		   barcopy_port_receive(p, m, 1, &n, UINT64_MAX));
	pthread_join(thread, NULL);
	launch(p, 4, 1, WAITS);
	ck_assert_uint_eq(made(), 0);
	FAILS(EPIPE, barcopy_port_receive(p, m, 1, &n, UINT64_MAX));
	OK(barcopy_port_destroy(p));
}

static void *receive_to_the_end(void *port)
{
	barcopy_port_message_t message;
	uint32_t count;

	FAILS(EPIPE, barcopy_port_receive(port, &message, 1, &count, UINT64_MAX));
	return NULL;
}

/* gdr_close() ends kernels that wait and a receive, and keeps the memory that they use. */
static void closed(void)
{
	barcopy_port_t p = new_port(16, 0), other = new_port(16, 0);
	unsigned long long bytes = standin_device_bytes(0);
	unsigned long asked;
	pthread_t thread;

	launch(p, 4, 1, CALLS);
	receive_all(p, 4);
	OK(barcopy_mem_free(g, &sum));
	asked = cuda_hooks.calls("cuStreamIsCapturing");
	ck_assert_int_eq(pthread_create(&thread, NULL, receive_to_the_end, other), 0);
	while (cuda_hooks.calls("cuStreamIsCapturing") == asked)
		sched_yield(); /* until it has polled in vain, and asks whether the context works */
	end_now();
	pthread_join(thread, NULL);
	CU(cuda.cuStreamSynchronize(stream));
	ck_assert_uint_gt(standin_device_bytes(0), 0);
	ck_assert_uint_le(standin_device_bytes(0), bytes);
	FAILS(EINVAL, barcopy_port_receive(p, m, 1, &n, 0));
	FAILS(EINVAL, barcopy_port_receive(other, m, 1, &n, 0));
}

/* However long it may sleep, a receive sees the end, and asks CUDA. */
static void long_sleeps(void)
{
	barcopy_port_options_t o = { .struct_size = sizeof(o),
				     .spin_ns = 1,
				     .sleep_ns = UINT64_MAX };
	pthread_t thread;
	barcopy_port_t p;

	OK(barcopy_port_create(g, 0, &o, &p));
	ck_assert_int_eq(pthread_create(&thread, NULL, end_later, p), 0);
	FAILS_WITH(EPIPE, "barcopy_port_end", barcopy_port_receive(p, m, 1, &n, UINT64_MAX));
	pthread_join(thread, NULL);
	OK(barcopy_port_destroy(p));
}

static void dead_context(void)
{
	barcopy_port_t p = new_port(16, 0);

	cuda_hooks.set_fail("cuStreamIsCapturing:*=700");
	FAILS_WITH(EPIPE, "context has ended", barcopy_port_receive(p, m, 1, &n, UINT64_MAX));
	OK(barcopy_port_destroy(p));
	cuda_hooks.set_fail("");
}

/* One after the other in the same memory, and a queue's; another port's view is refused there. */
static void kept_memory(void)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = 16 };
	barcopy_port_t p = new_port(16, 0);
	barcopy_port_view_t first, view;
	barcopy_queue_view_t queue_view;
	barcopy_queue_t q;

	OK(barcopy_port_get_view(p, &first));
	OK(barcopy_port_destroy(p));
	for (int i = 0; i < 3; i++) {
		OK(barcopy_queue_create(g, 0, &o, &q));
		OK(barcopy_queue_get_view(q, &queue_view));
		ck_assert_uint_eq(queue_view.control, first.control);
		OK(barcopy_queue_destroy(q));
		p = new_port(16, 0);
		OK(barcopy_port_get_view(p, &view));
		ck_assert_uint_eq(view.control, first.control);
		ck_assert_uint_ne(view.generation, first.generation);
		launch(p, 2, 20, 0);
		receive_all(p, 40);
		ck_assert_uint_eq(made(), 40);
		OK(barcopy_port_destroy(p));
	}
}

/* What a port has of the heap is freed with it. */
static void freed_memory(void)
{
	size_t used = 0;

	for (int i = 0; i < 40; i++) {
		OK(barcopy_port_destroy(new_port(4096, 0)));
		if (i == 20)
			used = resources_heap();
	}
	ck_assert_uint_lt(resources_heap(), used + 4096);
}

static int calls_in_child(void *p)
{
	barcopy_port_view_t view;
	uint64_t answer = 0;
	uint32_t call = 1;

	FAILS(EACCES, barcopy_port_create(g, 0, NULL, &(barcopy_port_t){ NULL }));
	FAILS(EACCES, barcopy_port_get_view(p, &view));
	FAILS(EACCES, barcopy_port_receive(p, m, 1, &n, 0));
	FAILS(EACCES, barcopy_port_retire(p, 1, 1));
	FAILS(EACCES, barcopy_port_answer(p, &call, &answer, 1));
	FAILS(EACCES, barcopy_port_stop(p, 0));
	FAILS(EACCES, barcopy_port_stop(p, 8));
	FAILS(EACCES, barcopy_port_end(p));
	FAILS(EACCES, barcopy_port_destroy(p));
	return 0;
}

static void forked_child(void)
{
	barcopy_port_t p = new_port(16, 0);

	ck_assert_int_eq(unit_in_child(calls_in_child, p), 0);
	launch(p, 1, 1, 0);
	receive_all(p, 1);
	OK(barcopy_port_destroy(p));
}

/* Writes a line of the first lap, as a kernel does. */
static void write_line(barcopy_port_t p, int line, uint64_t head, uint64_t first)
{
	barcopy_port_view_t v;

	OK(barcopy_port_get_view(p, &v));
	for (int i = 0; i < 8; i++)
		((uint64_t *)(uintptr_t)v.ring)[line * 8 + i] =
			head << 56 | UINT64_C(1) << 48 | (i ? 0 : first);
}

/* A call found its slot taken and has left its line out: a range with its number is refused. */
static void no_post(void)
{
	barcopy_port_t p = new_port(16, BARCOPY_PORT_MANUAL);

	write_line(p, 0, 63, 0); /* more than a line holds: no size */
	write_line(p, 1, BARCOPY_PORT_HEAD_CALL, 0);
	write_line(p, 2, 48, 0);
	receive_all(p, 2);
	ck_assert_uint_eq(m[1].post, 3);
	ck_assert(m[0].size == 0 && m[1].size == 48);
	FAILS_WITH(EINVAL, "was no post", barcopy_port_retire(p, 1, 3));
	FAILS_WITH(EINVAL, "was no post", barcopy_port_retire(p, 2, 1));
	OK(barcopy_port_retire(p, 3, 1));
	OK(barcopy_port_retire(p, 1, 1));
	OK(barcopy_port_destroy(p));
}

/* A kernel writes a line without a header: it is received as a post without a size. */
static void no_header(void)
{
	barcopy_port_t p = new_port(16, 0);

	write_line(p, 0, 0, 0);
	receive_all(p, 1);
	ck_assert_uint_eq(m[0].size, 0);
	OK(barcopy_port_destroy(p));
}

/* A kernel writes lines of no post without end: here, of every lap. A wait keeps its limit. */
static void no_post_without_end(void)
{
	for (uint32_t manual = 0; manual < 2; manual++) {
		barcopy_port_t p = new_port(16, manual);
		struct gdri_port *inside = gdri_ring_find(&gdri_ports, p);

		for (int i = 0; i < 16; i++)
			write_line(p, i, BARCOPY_PORT_HEAD_CALL, 0);
		inside->ring.shift = 63;
		FAILS(ETIMEDOUT, barcopy_port_receive(p, m, 1, &n, 0));
		ck_assert_uint_eq(inside->received, 16); /* no more than were there at once */
		/* The clock is read after each pass, and one more pass follows the limit. */
		FAILS(ETIMEDOUT, barcopy_port_receive(p, m, 1, &n, 1));
		ck_assert_uint_eq(inside->received, 16 + 3 * 16);
		FAILS(ETIMEDOUT, barcopy_port_receive(p, m, 1, &n, MILLISECOND));
		write_line(p, 3, 48, 0);
		OK(barcopy_port_receive(p, m, 1, &n, 0));
		OK(barcopy_port_end(p));
		write_line(p, 3, BARCOPY_PORT_HEAD_CALL, 0);
		FAILS(EPIPE, barcopy_port_receive(p, m, 1, &n, UINT64_MAX));
		OK(barcopy_port_destroy(p));
	}
}

/* A kernel names a slot that the port has not: the post is received, and can be retired. */
static void no_such_slot(void)
{
	barcopy_port_t p = new_port(16, BARCOPY_PORT_MANUAL);

	write_line(p, 0, BARCOPY_PORT_HEAD_CALL | 48, 16 << 8 | 1);
	receive_all(p, 1);
	ck_assert_uint_eq(m[0].call, 16 << 8 | 1);
	OK(barcopy_port_retire(p, 1, 1));
	OK(barcopy_port_destroy(p));
}

static const struct unit_test tests[] = {
	{ "arguments", arguments, NULL },
	{ "a call of no slot", no_such_slot, NULL },
	{ "a number that was no post", no_post, NULL },
	{ "a line without a header", no_header, NULL },
	{ "numbers that were no post, without end", no_post_without_end, NULL },
	{ "rests", rests, NULL },
	{ "what kernels hear", shown, NULL },
	{ "posts that are retired", retire, NULL },
	{ "a full ring and a limit", limited, NULL },
	{ "answers", answers, NULL },
	{ "answers by a fence", answers, "GDRCOPY_CPU_MASK=-movdiri" },
	{ "a receive that sleeps", idle, NULL },
	{ "the end", ended, NULL },
	{ "the end in a long sleep", long_sleeps, NULL },
	{ "gdr_close() with a port", closed, NULL },
	{ "a wait in a dead context", dead_context, NULL },
	{ "memory for the next one", kept_memory, NULL },
	{ "memory of the heap", freed_memory, NULL },
	{ "a forked child", forked_child, NULL },
};

UNIT_MAIN("ports", tests, unit_before = start_stream, unit_after = end)
