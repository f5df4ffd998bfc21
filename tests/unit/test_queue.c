/* SPDX-License-Identifier: MIT */
/*
 * Queues between the CPU and kernels that run in the stand-in: full and empty rings, two threads,
 * and the life of a queue. Every size, laps, bulk data and a stop are in tests/gpu/test_queue.c, which
 * runs on the stand-in too, every interleaving of the protocol in test_queue_explorer.c, forked children in test_api.c.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "barcopy_queue.h"
#include "common/wrap.h"
#include "copy/impl.h"
#include "fixture.h"
#include "queue/queue.h"

#define SECOND	    UINT64_C(1000000000)
#define MILLISECOND UINT64_C(1000000)
#define WAIT	    (60 * SECOND) /* for messages that come unless the test fails */

static CUmodule module;
static CUstream stream;

static const char ptx[] = ".version 6.4\n.entry gdrcopy_queue_echo()\n";

static void start_stream(void)
{
	start();
	CU(cuda.cuModuleLoadData(&module, ptx));
	CU(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static barcopy_queue_t new_queue(uint32_t lines)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = lines };
	barcopy_queue_t q;

	OK(barcopy_queue_create(g, 0, &o, &q));
	return q;
}

static void echo(barcopy_queue_t q, unsigned long long count)
{
	barcopy_queue_view_t view;
	void *params[] = { &view, &count };
	CUfunction f;

	OK(barcopy_queue_get_view(q, &view));
	CU(cuda.cuModuleGetFunction(&f, module, "gdrcopy_queue_echo"));
	CU(cuda.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

/* A new queue with a kernel in `stream` that answers until it is stopped. */
static barcopy_queue_t new_echo(uint32_t lines)
{
	barcopy_queue_t q = new_queue(lines);

	echo(q, UINT64_MAX);
	return q;
}

/* The kernel in `stream` is this queue's. */
static void finish(barcopy_queue_t q)
{
	OK(barcopy_queue_stop(q, 0));
	CU(cuda.cuStreamSynchronize(stream));
	OK(barcopy_queue_destroy(q));
}

/* Message n, and the answer that the kernels give. */
static void fill(uint8_t *message, size_t size, uint64_t n)
{
	for (size_t i = 0; i < size; i++)
		message[i] = (uint8_t)(n * 131 + i * 7 + (n >> 8));
}

static void echo_of(uint8_t *message, size_t size)
{
	uint32_t words[BARCOPY_QUEUE_LINE / 4] = { 0 };

	memcpy(words, message, size);
	for (size_t i = 0; i < COUNT(words); i++)
		words[i]++;
	memcpy(message, words, size);
}

/* The library polls without a yield, but the stand-in's kernels need this CPU. */
static void receive(barcopy_queue_t q, void *message, size_t capacity, size_t *size)
{
	int rc;

	while ((rc = barcopy_queue_receive(q, message, capacity, size, 0)) == ETIMEDOUT)
		sched_yield();
	OK(rc);
}

static void send_to(barcopy_queue_t q, const void *message, size_t size)
{
	int rc;

	while ((rc = barcopy_queue_send(q, message, size, 0, 0)) == ETIMEDOUT)
		sched_yield();
	OK(rc);
}

static void expect_echo(barcopy_queue_t q, size_t size, uint64_t n)
{
	uint8_t want[BARCOPY_QUEUE_LINE], got[BARCOPY_QUEUE_LINE + 1];
	size_t got_size = 0;

	fill(want, size, n);
	echo_of(want, size);
	got[size] = 0x5a;
	receive(q, got, size, &got_size);
	ck_assert_uint_eq(got_size, size);
	ck_assert(!memcmp(want, got, size));
	ck_assert_uint_eq(got[size], 0x5a);
}

static void send_fill(barcopy_queue_t q, size_t size, uint64_t n)
{
	uint8_t message[BARCOPY_QUEUE_LINE];

	fill(message, size, n);
	send_to(q, message, size);
}

/* One message and its answer. */
static void round_trip(barcopy_queue_t q, size_t size, uint64_t n)
{
	send_fill(q, size, n);
	expect_echo(q, size, n);
}

static struct gdri_queue *find(barcopy_queue_t name)
{
	return (struct gdri_queue *)gdri_slots_find(&gdri_queues, (uintptr_t)name);
}

/* A full line of the first lap. */
static void put_line(char *ring, unsigned int line)
{
	for (uint64_t i = 0; i < 8; i++)
		gdri_store64(ring + line * 64 + i * 8,
			     i | UINT64_C(1) << BARCOPY_QUEUE_DATA_BITS | UINT64_C(48) << 56);
}

/* Time that passes by `tick` at each reading. */
static _Atomic uint64_t virtual_ns, tick;
static char *late; /* a ring, whose first line comes when its receiver's millisecond is over */

int clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t now = virtual_ns;

	if (!now)
		return (int)syscall(SYS_clock_gettime, id, t);
	virtual_ns += tick;
	if (late && now >= SECOND + MILLISECOND)
		put_line(late, 0);
	t->tv_sec = (time_t)(now / SECOND);
	t->tv_nsec = (long)(now % SECOND);
	return 0;
}

/* The call times out after a millisecond, neither before nor much later. */
#define TIMES_OUT(call)                                                          \
	do {                                                                     \
		virtual_ns = SECOND;                                             \
		tick = 1000;                                                     \
		FAILS(ETIMEDOUT, call);                                          \
		ck_assert_uint_ge(virtual_ns, SECOND + MILLISECOND);             \
		ck_assert_uint_lt(virtual_ns, SECOND + MILLISECOND + 10 * tick); \
		virtual_ns = tick = 0;                                           \
	} while (0)

/* A call of one second asks CUDA ten times whether the context works. */
#define ASKS_TEN_TIMES(call)                                                      \
	do {                                                                      \
		unsigned long asked = cuda_hooks.calls("cuStreamIsCapturing");    \
		virtual_ns += SECOND;                                             \
		tick = MILLISECOND;                                               \
		FAILS(ETIMEDOUT, call);                                           \
		asked = cuda_hooks.calls("cuStreamIsCapturing") - asked;          \
		ck_assert_msg(asked >= 9 && asked <= 11, "%lu questions", asked); \
		tick = 0;                                                         \
	} while (0)

static void full_and_empty(void)
{
	uint8_t message[BARCOPY_QUEUE_LINE + 1] = { 0 };
	barcopy_queue_t q = new_queue(16);
	unsigned int n = 0;

	while (!barcopy_queue_send(q, message, 48, 0, 0))
		n++;
	ck_assert_uint_eq(n, 15);
	FAILS(ETIMEDOUT, barcopy_queue_send(q, message, 1, 0, 0));
	TIMES_OUT(barcopy_queue_send(q, message, 1, 0, MILLISECOND));
	FAILS(ETIMEDOUT, barcopy_queue_receive(q, message, 1, NULL, 0));
	TIMES_OUT(barcopy_queue_receive(q, message, 1, NULL, MILLISECOND));
	ASKS_TEN_TIMES(barcopy_queue_send(q, message, 1, 0, SECOND));
	ASKS_TEN_TIMES(barcopy_queue_receive(q, message, 1, NULL, SECOND));
	virtual_ns = 0;
	/* this kernel ends by itself after 8 messages, the next one goes on */
	echo(q, 7);
	CU(cuda.cuStreamSynchronize(stream));
	for (n = 0; n < 8; n++) /* what it took is freed */
		OK(barcopy_queue_send(q, message, 48, 0, 0));
	FAILS(ETIMEDOUT, barcopy_queue_send(q, message, 48, 0, 0));
	echo(q, UINT64_MAX);
	for (n = 0; n < 23; n++)
		receive(q, message, 48, NULL);
	finish(q);
	/* what has come before the call returns is received */
	q = new_queue(16);
	late = find(q)->ring.incoming;
	virtual_ns = SECOND;
	tick = MILLISECOND;
	OK(barcopy_queue_receive(q, message, 48, NULL, MILLISECOND));
	virtual_ns = 0; /* Check takes the case's time */
}

/* The kernel waits for room for its replies; then they come in order, and nothing is lost. */
static void replies_wait(void)
{
	barcopy_queue_t q = new_echo(16);
	uint64_t n;
	uint8_t small[1];
	size_t size = 0;

	for (n = 0; n < 28; n++)
		send_fill(q, 40, n);
	for (int i = 0; i < 20; i++) {
		FAILS_WITH(EMSGSIZE, "has 40 bytes, the buffer only 1",
			   barcopy_queue_receive(q, small, 1, &size, WAIT));
		ck_assert_uint_eq(size, 40);
	}
	OK(barcopy_queue_stop(q, 0)); /* serves what was sent before */
	FAILS(ESHUTDOWN, barcopy_queue_send(q, small, 1, 0, WAIT));
	for (n = 0; n < 28; n++)
		expect_echo(q, 40, n);
	CU(cuda.cuStreamSynchronize(stream));
	FAILS(ETIMEDOUT, barcopy_queue_receive(q, small, 1, NULL, 0));
	OK(barcopy_queue_destroy(q));
}

/* ---- a sending and a receiving thread ------------------------------------ */

struct both {
	barcopy_queue_t q;
	CUstream stream;
	uint64_t count;
};

static size_t size_of(uint64_t n)
{
	return 1 + n * 37 % BARCOPY_QUEUE_LINE;
}

static void *sender(void *arg)
{
	const struct both *b = arg;

	for (uint64_t n = 0; n < b->count; n++)
		send_fill(b->q, size_of(n), n);
	return NULL;
}

static void two_threads(void)
{
	struct both b[2] = { { .count = unit_quick() ? 500 : 1000 } };
	pthread_t thread[2];

	b[1].count = b[0].count;
	for (int i = 0; i < 2; i++) {
		CU(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		b[i].q = new_echo(i ? 32 : 16);
		b[i].stream = stream;
		ck_assert(!pthread_create(&thread[i], NULL, sender, &b[i]));
	}
	for (uint64_t n = 0; n < b[0].count; n++)
		for (int i = 0; i < 2; i++)
			expect_echo(b[i].q, size_of(n), n);
	for (int i = 0; i < 2; i++) {
		ck_assert(!pthread_join(thread[i], NULL));
		OK(barcopy_queue_stop(b[i].q, 0));
	}
	for (int i = 0; i < 2; i++) {
		CU(cuda.cuStreamSynchronize(b[i].stream));
		OK(barcopy_queue_destroy(b[i].q));
	}
}

static pthread_barrier_t all_begin;

static void *makes_queues(void *arg)
{
	pthread_barrier_wait(&all_begin);
	for (int i = 0; i < 100; i++)
		OK(barcopy_queue_destroy(new_queue(16)));
	return arg;
}

/* Each thread with queues of its own, which use each other's memory again. */
static void threads_make_queues(void)
{
	pthread_barrier_init(&all_begin, NULL, 3);
	unit_start(3, makes_queues, NULL, 0);
	unit_join();
}

/* ---- the life of a queue ------------------------------------------------- */

static void arguments(void)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o) };
	barcopy_queue_view_t view;
	barcopy_queue_t q, stale;
	char byte = 0;

	FAILS(EINVAL, barcopy_queue_create(NULL, 0, NULL, &q));
	FAILS(EINVAL, barcopy_queue_create(g, 0, NULL, NULL));
	FAILS_WITH(EINVAL, "no CUDA device 99", barcopy_queue_create(g, 99, NULL, &q));
	for (uint32_t n = 1; n < 200000; n = n * 2 + 1) {
		o.lines = n;
		FAILS(EINVAL, barcopy_queue_create(g, 0, &o, &q));
	}
	o.lines = 8;
	FAILS_WITH(EINVAL, "power of two from 16", barcopy_queue_create(g, 0, &o, &q));
	o.lines = 131072;
	FAILS(EINVAL, barcopy_queue_create(g, 0, &o, &q));
	o.lines = 0;
	o.flags = 1;
	FAILS(EINVAL, barcopy_queue_create(g, 0, &o, &q));
	o.flags = 0;
	o.struct_size = 8;
	FAILS(EINVAL, barcopy_queue_create(g, 0, &o, &q));
	ck_assert_uint_eq(standin_device_bytes(0), 0);

	OK(barcopy_queue_create(g, 0, NULL, &q));
	FAILS(EINVAL, barcopy_queue_get_view(q, NULL));
	OK(barcopy_queue_get_view(q, &view));
	ck_assert_uint_eq(view.lines, 256);
	FAILS(EINVAL, barcopy_queue_send(q, NULL, 1, 0, 0));
	FAILS(EMSGSIZE, barcopy_queue_send(q, &byte, 0, 0, 0));
	FAILS_WITH(EMSGSIZE, "not 49", barcopy_queue_send(q, &byte, 49, 0, 0));
	FAILS_WITH(EINVAL, "flags 0x8", barcopy_queue_send(q, &byte, 1, 8, 0));
	FAILS(EINVAL, barcopy_queue_send(q, &byte, 1, BARCOPY_QUEUE_ABORT, 0));
	FAILS(EINVAL, barcopy_queue_receive(q, NULL, 1, NULL, 0));
	FAILS(EINVAL, barcopy_queue_stop(q, BARCOPY_QUEUE_ORDERED));
	OK(barcopy_queue_stop(q, 0));
	OK(barcopy_queue_stop(q, 0));
	FAILS(ESHUTDOWN, barcopy_queue_send(q, &byte, 1, 0, 0));
	stale = q;
	OK(barcopy_queue_destroy(q));
	FAILS(EINVAL, barcopy_queue_destroy(stale));
	FAILS(EINVAL, barcopy_queue_stop(stale, 0));
	FAILS_WITH(EINVAL, "is not a queue", barcopy_queue_stop(stale, 8));
	FAILS(EINVAL, barcopy_queue_send(stale, &byte, 1, 0, 0));
	FAILS(EINVAL, barcopy_queue_receive(stale, &byte, 1, NULL, 0));
	FAILS(EINVAL, barcopy_queue_get_view(stale, &view));
	FAILS(EINVAL, barcopy_queue_send(NULL, &byte, 1, 0, 0));
	/* the slot is used again: the old name stays invalid */
	OK(barcopy_queue_create(g, 0, NULL, &q));
	FAILS(EINVAL, barcopy_queue_send(stale, &byte, 1, 0, 0));
	end_now();
	FAILS(EINVAL, barcopy_queue_send(q, &byte, 1, 0, 0));
}

static void close_g(void)
{
	OK(gdr_close(g));
}

/* A close aborts, waits for no kernel, leaves the memory that one may use, and says so. */
static void closed(void)
{
	barcopy_queue_t q = new_echo(16);
	const char *said;

	for (int i = 0; i < 28; i++) /* more than fit into the replies */
		send_fill(q, 48, 1);
	said = unit_stderr_of(close_g);
	ck_assert_msg(strstr(said, "a queue was not destroyed") != NULL, "%s", said);
	CU(cuda.cuStreamSynchronize(stream));
	ck_assert_uint_gt(standin_device_bytes(0), 0);
	g = barcopy_open(BARCOPY_OPEN_DEFAULT);
}

/* A kernel that waits for room for its reply, and ends when nobody is to read it. */
static void aborted(void)
{
	barcopy_queue_t q = new_echo(16);
	unsigned int n = 0;
	uint8_t message[48];

	for (int i = 0; i < 28; i++)
		send_fill(q, 48, 1);
	OK(barcopy_queue_stop(q, 0));
	OK(barcopy_queue_stop(q, BARCOPY_QUEUE_ABORT));
	CU(cuda.cuStreamSynchronize(stream));
	while (!barcopy_queue_receive(q, message, sizeof(message), NULL, 0))
		n++;
	ck_assert_uint_le(n, 16);
	OK(barcopy_queue_destroy(q));
}

/* Lines that are no message's. */
static void bad_lines(void)
{
	static const uint8_t heads[] = { 49, 63, 0, 0x80, 0x41, 0x7f, 0xb0, 0xf0 };
	uint8_t got[64];

	for (size_t r = 0; r < COUNT(heads); r++) {
		barcopy_queue_t q = new_echo(16);

		for (uint64_t i = 0; i < 8; i++) {
			uint64_t word = UINT64_C(1) << 48 | (uint64_t)heads[r] << 56;

			gdri_store64(find(q)->ring.incoming + i * 8, word);
			gdri_store64(find(q)->requests + i * 8, word);
		}
		memset(got, 0x5a, sizeof(got));
		FAILS(EBADMSG, barcopy_queue_receive(q, got, sizeof(got), NULL, 0));
		FAILS(EBADMSG, barcopy_queue_receive(q, got, sizeof(got), NULL, WAIT));
		ck_assert_uint_eq(got[0], 0x5a);
		CU(cuda.cuStreamSynchronize(stream)); /* the kernel takes it for a stop */
		OK(barcopy_queue_destroy(q));
	}
}

/* A wait asks CUDA, and ends with its context: by which errors, and by which not. */
static void dead_context(void)
{
	static const int dead[] = { 4,	 201, 214, 220, 226, 700, 702, 709, 710,
				    714, 715, 716, 717, 718, 719, 721, 810, 911 };
	static const int alive[] = { 1, 2, 3, 400, 600, 800, 801, 900, 901, 906, 999 };
	static const char *const calls[] = { "cuStreamIsCapturing", "cuCtxPushCurrent" };
	barcopy_queue_t q = new_queue(16);
	char byte, fail[64];

	while (!barcopy_queue_send(q, "x", 1, 0, 0))
		;
	virtual_ns = SECOND;
	tick = 10 * MILLISECOND;
	for (size_t i = 0; i < COUNT(calls) * (COUNT(alive) + COUNT(dead)); i++) {
		size_t k = i / COUNT(calls);
		bool ends = k >= COUNT(alive);

		snprintf(fail, sizeof(fail), "%s:*=%d", calls[i % COUNT(calls)],
			 ends ? dead[k - COUNT(alive)] : alive[k]);
		cuda_hooks.set_fail(fail);
		if (ends) {
			FAILS_WITH(EPIPE, "context has ended",
				   barcopy_queue_receive(q, &byte, 1, NULL, UINT64_MAX));
			FAILS_WITH(EPIPE, "context has ended",
				   barcopy_queue_send(q, "x", 1, 0, UINT64_MAX));
		} else {
			FAILS(ETIMEDOUT, barcopy_queue_receive(q, &byte, 1, NULL, SECOND));
			FAILS(ETIMEDOUT, barcopy_queue_send(q, "x", 1, 0, SECOND));
		}
	}
	virtual_ns = tick = 0;
	cuda_hooks.set_fail("");
	OK(barcopy_queue_destroy(q));
}

/* Queues that follow each other use the same memory. */
static void kept_memory(void)
{
	barcopy_queue_view_t first, view;
	barcopy_queue_t q = new_queue(0);
	unsigned long long bytes = standin_device_bytes(0);

	OK(barcopy_queue_get_view(q, &first));
	for (unsigned int i = 0; i < 3; i++) {
		OK(barcopy_queue_destroy(q));
		ck_assert_uint_eq(standin_device_bytes(0), bytes);
		q = new_echo(0);
		for (unsigned int n = 0; n < 70;
		     n++) /* beyond a page, and no line of the queue before */
			round_trip(q, 48, i * 100 + n);
		OK(barcopy_queue_get_view(q, &view));
		ck_assert(view.control == first.control && view.state == first.state);
		OK(barcopy_queue_stop(q, 0));
		CU(cuda.cuStreamSynchronize(stream));
	}
	OK(barcopy_queue_destroy(q));
}

/* A queue takes the smallest block that is large enough, in whatever order blocks were given back. */
static void kept_for_smaller(void)
{
	static const uint32_t lines[][3] = { { 4096, 1024, 16384 }, { 16384, 4096, 1024 } };
	barcopy_queue_view_t view[3], next;
	barcopy_queue_t q[3], taker;
	unsigned long long bytes;

	for (size_t order = 0; order < COUNT(lines); order++) {
		for (int i = 0; i < 3; i++) {
			q[i] = new_queue(lines[order][i]);
			OK(barcopy_queue_get_view(q[i], &view[i]));
		}
		for (int i = 0; i < 3; i++)
			OK(barcopy_queue_destroy(q[i]));
		bytes = standin_device_bytes(0);
		taker = new_echo(2048);
		OK(barcopy_queue_get_view(taker, &next));
		for (unsigned int n = 0; n < 3000; n++) /* more than a lap of it */
			round_trip(taker, 48, n);
		for (int i = 0; i < 3; i++) {
			bool takes = lines[order][i] == 4096;

			ck_assert((next.control == view[i].control) == takes);
			ck_assert((next.state == view[i].state) == takes);
		}
		finish(taker);
		/* the larger one has no line of the smaller one that had its memory */
		taker = new_echo(4096);
		for (unsigned int n = 0; n < 5000; n++)
			round_trip(taker, 48, n);
		finish(taker);
		ck_assert_uint_eq(standin_device_bytes(0), bytes);
	}
}

/* The last close frees the memory of ended queues, where that waits for no kernel. */
static void last_close(void)
{
	unsigned long at_once = cuda_hooks.calls("cuMemFree");
	gdr_t second = barcopy_open(BARCOPY_OPEN_DEFAULT);

	OK(barcopy_queue_destroy(new_queue(4096)));
	OK(gdr_close(second));
	ck_assert_uint_gt(standin_device_bytes(0), 0);
	for (int fails = 1; fails >= 0; fails--) {
		cuda_hooks.set_fail(fails ? "cuMemFreeAsync:*=801" : "");
		OK(gdr_close(g));
		ck_assert_int_eq(standin_device_bytes(0) > 0, fails);
		g = barcopy_open(BARCOPY_OPEN_DEFAULT);
	}
	ck_assert_uint_eq(cuda_hooks.calls("cuMemFree"), at_once);
	finish(new_echo(4096));
}

/* Host memory can be unregistered only while no kernel runs: a destroy must not wait for that. */
static void destroy_while_a_kernel_runs(void)
{
	CUstream first = stream;
	barcopy_queue_t other = new_echo(16), q;

	round_trip(other, 10, 1);
	cuda_hooks.set_fail("cuMemHostRegister:2=2"); /* memory is used again */
	for (unsigned int n = 0; n < 3; n++) {
		CU(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		q = new_echo(16);
		round_trip(q, 48, n);
		finish(q);
	}
	FAILS(ENOMEM, barcopy_queue_create(g, 0, NULL, &q)); /* 256 lines need more */
	round_trip(other, 10, 2);
	stream = first;
	finish(other);
}

static void device_reset(void)
{
	CUcontext primary;
	barcopy_queue_t q = new_queue(16);
	char byte;

	CU(cuda.cuDevicePrimaryCtxReset_v2(0));
	/* what the CPU reads is still mapped */
	FAILS(ETIMEDOUT, barcopy_queue_receive(q, &byte, 1, NULL, 0));
	while (!barcopy_queue_send(q, "x", 1, 0, 0))
		;
	/* with a driver the mapping may be gone: a destroy stores nothing there */
	ck_assert(!mprotect(find(q)->ring.control, 4096, PROT_NONE));
	OK(barcopy_queue_destroy(q));
	/* a new queue does not use this memory, whose registration has ended */
	CU(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuda.cuCtxSetCurrent(primary));
	CU(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuda.cuModuleLoadData(&module, ptx));
	q = new_echo(16);
	round_trip(q, 40, 1);
	finish(q);
}

/* The program's memory that lies where a reset of the device has freed a queue's is not the library's. */
static void another_memory_there(void)
{
	barcopy_queue_view_t view, next;
	barcopy_queue_t q = new_queue(16);
	CUcontext primary;
	CUdeviceptr ptr;

	OK(barcopy_queue_get_view(q, &view));
	CU(cuda.cuDevicePrimaryCtxReset_v2(0));
	CU(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuda.cuCtxSetCurrent(primary));
	CU(cuda.cuMemAlloc_v2(&ptr, BARCOPY_QUEUE_CONTROL + 16 * 64));
	ck_assert_uint_eq(ptr, view.control);
	OK(barcopy_queue_destroy(q));
	q = new_queue(16);
	OK(barcopy_queue_get_view(q, &next));
	ck_assert_uint_ne(next.control, ptr);
	OK(barcopy_queue_destroy(q));
	OK(gdr_close(g));
	CU(cuda.cuMemFree_v2(ptr)); /* it was not freed by the close */
	g = barcopy_open(BARCOPY_OPEN_DEFAULT);
}

/* Of a context that works and was reported dead: the pages are given up, not left with CUDA. */
static void reported_dead(void)
{
	unsigned long registered;
	barcopy_queue_t q;

	OK(barcopy_queue_destroy(new_queue(0)));
	registered = cuda_hooks.calls("cuMemHostRegister");
	cuda_hooks.set_fail("cuStreamIsCapturing:1=201"); /* CUDA_ERROR_INVALID_CONTEXT */
	q = new_queue(0);
	ck_assert_uint_eq(cuda_hooks.calls("cuMemHostRegister"), registered + 1);
	cuda_hooks.set_fail("");
	OK(barcopy_queue_destroy(q));
}

static void out_of_memory(void)
{
	static const char *const fails[] = { "cuMemAlloc:*=2", "cuMemHostRegister:*=2",
					     "cuMemHostGetDevicePointer:*=2" };
	barcopy_queue_t q;

	for (size_t i = 0; i < COUNT(fails); i++) {
		cuda_hooks.set_fail(fails[i]);
		FAILS(ENOMEM, barcopy_queue_create(g, 0, NULL, &q));
		cuda_hooks.set_fail("");
		/* the GPU's memory is kept for the next attempt */
		ck_assert_uint_eq(standin_device_bytes(0), i ? STANDIN_GRANULE : 0);
	}
	/* It has no arrays: an allocator may have no memory of 0 bytes. */
	wrap_reset();
	wrap_fail("calloc", 1, ENOMEM);
	finish(new_queue(0));
	ck_assert_str_eq(wrap_failed(), "calloc");
	wrap_reset();
}

#ifndef GDRI_TSAN /* which does not see MOVDIR64B: `direct` is not set */
/* Where the CPU writes whole lines a send needs no fence. */
static void whole_lines(void)
{
	for (int i = 0; i < 2; i++) {
		barcopy_queue_t q = new_queue(0);
		struct gdri_queue *queue = gdri_ring_find(&gdri_queues, q);
		struct gdri_copy_plan *plan = (void *)(uintptr_t)queue->ring.plan;

		ck_assert_int_eq(queue->direct, plan->posts_lines);
		queue->direct &= i == 0; /* this CPU may have no such instruction */
		OK(barcopy_queue_destroy(q));
		plan->posts_lines = !plan->posts_lines;
	}
}
#endif

static const struct unit_test tests[] = {
	{ "full and empty", full_and_empty, NULL },
	{ "replies wait for room", replies_wait, NULL },
	{ "threads make queues", threads_make_queues, NULL },
	{ "two threads, two queues", two_threads, NULL },
	{ "stalls at every access", two_threads, "GDRSIM_WARP_STALL=20" },
	{ "lanes in any order", two_threads, "GDRSIM_WARP_ORDER=random" },
	{ "arguments", arguments, NULL },
	{ "a close while a kernel runs", closed, "GDRCOPY_ENABLE_LOGGING=1" },
	{ "an abort", aborted, NULL },
	{ "lines that are no message's", bad_lines, NULL },
	{ "a wait in a dead context", dead_context, NULL },
	{ "memory for the next queue", kept_memory, NULL },
	{ "memory for a smaller queue", kept_for_smaller, NULL },
	{ "memory after the last close", last_close, NULL },
	{ "destroy while a kernel runs", destroy_while_a_kernel_runs, NULL },
	{ "a reset of the device", device_reset, NULL },
	{ "another memory after a reset", another_memory_there, NULL },
	{ "pages of a context that was reported dead", reported_dead, NULL },
	{ "out of memory", out_of_memory, NULL },
#ifndef GDRI_TSAN
	{ "whole lines", whole_lines, NULL },
#endif
	{ "host pointers that the GPU cannot take", two_threads, "GDRSIM_HOST_POINTER=0" },
	{ "an integrated GPU", two_threads, "GDRSIM_INTEGRATED=1" },
};

UNIT_MAIN("queue", tests, unit_before = start_stream, unit_after = end)
