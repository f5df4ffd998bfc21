/* SPDX-License-Identifier: MIT */
/*
 * Queues between the CPU and kernels that run in the stand-in: full and empty rings, two threads,
 * and the life of a queue. Every size, laps, bulk data and a stop are in tests/gpu/test_queue.c, which
 * runs on the stand-in too, every interleaving of the protocol in test_queue_explorer.c, forked children in test_api.c.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "barcopy_queue.h"
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

/* A new queue with a kernel that answers until it is stopped. */
static barcopy_queue_t new_echo(uint32_t lines)
{
	barcopy_queue_t q = new_queue(lines);

	echo(q, UINT64_MAX);
	return q;
}

static void finish(barcopy_queue_t q)
{
	OK(barcopy_queue_stop(q, 0));
	OK(barcopy_queue_destroy(q, WAIT));
}

/* Message n, and the answer that the kernels give. */
static void fill(uint8_t *message, size_t size, uint64_t n)
{
	for (size_t i = 0; i < size; i++)
		message[i] = (uint8_t)(n * 131 + i * 7 + (n >> 8));
}

static void echo_of(uint8_t *message, size_t size)
{
	uint64_t words[BARCOPY_QUEUE_MESSAGE_MAX / 8] = { 0 };

	memcpy(words, message, size);
	for (size_t i = 0; i < COUNT(words); i++)
		words[i]++;
	memcpy(message, words, size);
}

/* The library polls without a yield, but the stand-in's kernels need this CPU. */
static void receive(barcopy_queue_t q, void *message, size_t capacity, size_t *size)
{
	int rc;

	while ((rc = barcopy_queue_receive(q, message, capacity, size, 0, 0)) == ETIMEDOUT)
		sched_yield();
	OK(rc);
}

static void send_to(barcopy_queue_t q, const void *message, size_t size)
{
	int rc;

	while ((rc = barcopy_queue_try_send(q, message, size, 0)) == EAGAIN)
		sched_yield();
	OK(rc);
}

static void expect_echo(barcopy_queue_t q, size_t size, uint64_t n)
{
	uint8_t want[BARCOPY_QUEUE_MESSAGE_MAX], got[BARCOPY_QUEUE_MESSAGE_MAX + 1];
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
	uint8_t message[BARCOPY_QUEUE_MESSAGE_MAX];

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

/* Time that passes by nanosleep(), which a wait for kernels calls, and by `tick` at each reading. */
static _Atomic uint64_t virtual_ns, tick;
static char *late; /* a ring, whose first line comes when its receiver's millisecond is over */
static char *begins; /* the word of kernels that have begun, one when five seconds are over */

int clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t now = virtual_ns;

	if (!now)
		return (int)syscall(SYS_clock_gettime, id, t);
	virtual_ns += tick;
	if (late && now >= SECOND + MILLISECOND)
		put_line(late, 0);
	if (begins && now >= 6 * SECOND)
		gdri_store64(begins, 1);
	t->tv_sec = (time_t)(now / SECOND);
	t->tv_nsec = (long)(now % SECOND);
	return 0;
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
	if (!virtual_ns)
		return (int)syscall(SYS_nanosleep, t, left);
	virtual_ns += SECOND / 100;
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

static void full_and_empty(void)
{
	uint8_t message[BARCOPY_QUEUE_MESSAGE_MAX + 1] = { 0 };
	barcopy_queue_t q = new_queue(16);
	unsigned int n = 0;

	while (!barcopy_queue_try_send(q, message, 48, 0))
		n++;
	ck_assert_uint_eq(n, 15);
	FAILS(EAGAIN, barcopy_queue_try_send(q, message, 1, 0));
	FAILS(ETIMEDOUT, barcopy_queue_send(q, message, 1, 0, 0));
	TIMES_OUT(barcopy_queue_send(q, message, 1, 0, MILLISECOND));
	FAILS(ETIMEDOUT, barcopy_queue_receive(q, message, 1, NULL, 0, 0));
	TIMES_OUT(barcopy_queue_receive(q, message, 1, NULL, 0, MILLISECOND));
	/* this kernel ends by itself after 7 messages, the next one goes on */
	echo(q, 7);
	CU(cuda.cuStreamSynchronize(stream));
	echo(q, 8);
	for (n = 0; n < 15; n++)
		receive(q, message, 48, NULL);
	CU(cuda.cuStreamSynchronize(stream));
	OK(barcopy_queue_try_send(q, message, BARCOPY_QUEUE_MESSAGE_MAX, 0));
	FAILS(EAGAIN, barcopy_queue_try_send(q, message, BARCOPY_QUEUE_MESSAGE_MAX, 0));
	OK(barcopy_queue_destroy(q, 0)); /* no kernel is on it */
	/* what has come before the call returns is received */
	q = new_queue(16);
	late = find(q)->replies;
	virtual_ns = SECOND;
	tick = MILLISECOND;
	OK(barcopy_queue_receive(q, message, 48, NULL, 0, MILLISECOND));
	virtual_ns = 0; /* Check takes the case's time */
}

/* The kernel waits for room for its replies; then they come in order, and nothing is lost. */
static void replies_wait(void)
{
	barcopy_queue_t q = new_echo(16);
	uint64_t n, i;
	uint8_t small[1];
	size_t size = 0;

	for (n = 0; n < 6; n++)
		send_fill(q, 200, n); /* 5 lines: three fit into the replies */
	for (i = 0; i < 20; i++) {
		usleep(1000);
		FAILS(EMSGSIZE, barcopy_queue_receive(q, small, 1, &size, 0, WAIT));
		ck_assert_uint_eq(size, 200);
	}
	for (n = 0; n < 6; n++)
		expect_echo(q, 200, n);
	FAILS(ETIMEDOUT, barcopy_queue_receive(q, small, 1, NULL, 0, 1000000));
	/* stopped while it waits, the kernel drops its reply */
	for (n = 0; n < 6; n++)
		send_fill(q, 200, n);
	finish(q);
}

/* ---- a sending and a receiving thread ------------------------------------ */

struct both {
	barcopy_queue_t q;
	uint64_t count;
};

static size_t size_of(uint64_t n)
{
	return 1 + n * 37 % BARCOPY_QUEUE_MESSAGE_MAX;
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
		ck_assert(!pthread_create(&thread[i], NULL, sender, &b[i]));
	}
	for (uint64_t n = 0; n < b[0].count; n++)
		for (int i = 0; i < 2; i++)
			expect_echo(b[i].q, size_of(n), n);
	for (int i = 0; i < 2; i++) {
		ck_assert(!pthread_join(thread[i], NULL));
		OK(barcopy_queue_stop(b[i].q, 0)); /* both: a free may wait for a kernel */
	}
	for (int i = 0; i < 2; i++)
		OK(barcopy_queue_destroy(b[i].q, WAIT));
}

static pthread_barrier_t all_begin;

static void *makes_queues(void *arg)
{
	pthread_barrier_wait(&all_begin);
	for (int i = 0; i < 100; i++)
		OK(barcopy_queue_destroy(new_queue(16), 0));
	return arg;
}

/* Each thread with queues of its own, which use each other's memory again. */
static void threads_make_queues(void)
{
	pthread_barrier_init(&all_begin, NULL, 3);
	unit_start(3, makes_queues, NULL, 0);
	unit_join();
}

static void *waiting_sender(void *arg)
{
	return (void *)(intptr_t)barcopy_queue_send(arg, "x", 1, 0, WAIT);
}

/* A build with a sanitizer finds a second sender. */
static void second_sender(void)
{
	barcopy_queue_t q;
	pthread_t thread;
	void *rc;

	if (!GDRI_QUEUE_CHECK)
		SKIP("a build without a sanitizer does not look for a second sender");
	q = new_queue(16);
	while (!barcopy_queue_try_send(q, "x", 1, 0))
		;
	ck_assert(!pthread_create(&thread, NULL, waiting_sender, q));
	while (!atomic_load(&find(q)->sending))
		usleep(10);
	FAILS(EBUSY, barcopy_queue_send(q, "x", 1, 0, 0));
	gdri_store64(find(q)->state + BARCOPY_QUEUE_FREED_AT, 1);
	ck_assert(!pthread_join(thread, &rc));
	ck_assert_int_eq((int)(intptr_t)rc, 0);
}

/* ---- the life of a queue ------------------------------------------------- */

static void arguments(void)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o) };
	barcopy_queue_state_t state = { .struct_size = 8 };
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
	FAILS_WITH(EMSGSIZE, "not 481", barcopy_queue_try_send(q, &byte, 481, 0));
	FAILS(EINVAL, barcopy_queue_receive(q, NULL, 1, NULL, 0, 0));
	FAILS_WITH(EINVAL, "flags 0x8", barcopy_queue_send(q, &byte, 1, 8, 0));
	FAILS(EINVAL, barcopy_queue_try_send(q, &byte, 1, BARCOPY_QUEUE_ABORT));
	FAILS(EINVAL, barcopy_queue_receive(q, &byte, 1, NULL, BARCOPY_QUEUE_ORDERED, 0));
	FAILS(EINVAL, barcopy_queue_stop(q, BARCOPY_QUEUE_ORDERED));
	FAILS(EINVAL, barcopy_queue_get_state(q, NULL));
	FAILS(EINVAL, barcopy_queue_get_state(q, &state));
	OK(barcopy_queue_stop(q, 0));
	OK(barcopy_queue_stop(q, 0));
	FAILS(ESHUTDOWN, barcopy_queue_try_send(q, &byte, 1, 0));
	stale = q;
	OK(barcopy_queue_destroy(q, 0));
	FAILS(EINVAL, barcopy_queue_destroy(stale, 0));
	FAILS(EINVAL, barcopy_queue_stop(stale, 0));
	FAILS(EINVAL, barcopy_queue_try_send(stale, &byte, 1, 0));
	FAILS(EINVAL, barcopy_queue_receive(stale, &byte, 1, NULL, 0, 0));
	FAILS(EINVAL, barcopy_queue_get_view(stale, &view));
	FAILS(EINVAL, barcopy_queue_get_state(stale, &state));
	FAILS(EINVAL, barcopy_queue_send(NULL, &byte, 1, 0, 0));
	/* the slot is used again: the old name stays invalid */
	OK(barcopy_queue_create(g, 0, NULL, &q));
	FAILS(EINVAL, barcopy_queue_try_send(stale, &byte, 1, 0));
	end_now();
	FAILS(EINVAL, barcopy_queue_try_send(q, &byte, 1, 0));
}

/* As if a kernel had begun that never ends. */
static void pretend_kernel(barcopy_queue_t name)
{
	gdri_store64(find(name)->state + BARCOPY_QUEUE_BEGUN_AT, 1);
}

static enum barcopy_queue_phase phase_of(barcopy_queue_t q, bool refused)
{
	barcopy_queue_state_t state = { .struct_size = sizeof(state) };

	OK(barcopy_queue_get_state(q, &state));
	ck_assert_uint_eq(state.refused, refused);
	return (enum barcopy_queue_phase)state.phase;
}

/* What the call has waited for a kernel that had the queue and had not begun is of its limit. */
static void begins_late(void)
{
	barcopy_queue_t q = new_queue(16);
	char *owner = find(q)->control + BARCOPY_QUEUE_OWNER_AT;

	OK(barcopy_queue_stop(q, 0));
	gdri_store64(owner, 1);
	begins = find(q)->state + BARCOPY_QUEUE_BEGUN_AT;
	virtual_ns = SECOND;
	tick = 100 * MILLISECOND;
	FAILS(ETIMEDOUT, barcopy_queue_destroy(q, 10 * SECOND));
	ck_assert_uint_ge(virtual_ns, 11 * SECOND);
	ck_assert_uint_le(virtual_ns, 12 * SECOND);
	virtual_ns = tick = 0;
	gdri_store64(begins, 0);
	gdri_store64(owner, 0);
	OK(barcopy_queue_destroy(q, 0));
}

static void hangs(void)
{
	barcopy_queue_t q[4];

	for (size_t i = 0; i < COUNT(q); i++)
		pretend_kernel(q[i] = new_queue(16));
	FAILS_WITH(EBUSY, "barcopy_queue_stop", barcopy_queue_destroy(q[0], 0));
	ck_assert_int_eq(phase_of(q[0], false), BARCOPY_QUEUE_RUNNING);
	OK(barcopy_queue_stop(q[0], 0));
	ck_assert_int_eq(phase_of(q[0], false), BARCOPY_QUEUE_STOPPED);
	virtual_ns = SECOND;
	FAILS_WITH(ETIMEDOUT, "has not ended", barcopy_queue_destroy(q[0], 0));
	ck_assert_uint_eq(virtual_ns, SECOND);
	ck_assert_uint_eq(gdri_load64(find(q[0])->control + BARCOPY_QUEUE_ABORT_AT), 0);
	FAILS_WITH(ETIMEDOUT, "has not ended", barcopy_queue_destroy(q[0], SECOND));
	ck_assert_uint_eq(gdri_load64(find(q[0])->control + BARCOPY_QUEUE_ABORT_AT), 1);
	ck_assert_uint_le(virtual_ns, 2 * SECOND + SECOND / 5);
	/* gdr_close() waits once for all, and leaves the memory that these kernels use */
	virtual_ns = SECOND;
	end_now();
	ck_assert_uint_le(virtual_ns, 2 * SECOND + SECOND / 5);
	virtual_ns = 0;
	ck_assert_uint_gt(standin_device_bytes(0), 0);
}

/* Its successor is refused and ends at once: get_state says why. */
static void returned_without_end(void)
{
	barcopy_queue_t q = new_queue(16);

	gdri_store64(find(q)->control + BARCOPY_QUEUE_OWNER_AT, 1);
	echo(q, 1);
	CU(cuda.cuStreamSynchronize(stream));
	ck_assert_int_eq(phase_of(q, true), BARCOPY_QUEUE_NEVER_BEGUN);
	/* A kernel may be just about to begin: the queue stays as it is. */
	FAILS(EBUSY, barcopy_queue_destroy(q, 0));
	gdri_store64(find(q)->control + BARCOPY_QUEUE_OWNER_AT, 0);
	echo(q, 1);
	round_trip(q, 100, 1);
	CU(cuda.cuStreamSynchronize(stream));
	ck_assert_int_eq(phase_of(q, true), BARCOPY_QUEUE_ENDED);
	OK(barcopy_queue_destroy(q, 0));
}

/* A kernel that waits for room for its reply, and ends when nobody is to read it. */
static void aborted(void)
{
	barcopy_queue_t q = new_echo(16);
	uint8_t message[480] = { 0 };

	for (int i = 0; i < 3; i++) /* one reply fits */
		send_to(q, message, sizeof(message));
	OK(barcopy_queue_stop(q, 0));
	OK(barcopy_queue_stop(q, BARCOPY_QUEUE_ABORT));
	CU(cuda.cuStreamSynchronize(stream));
	for (int rc = 0, n = 0; rc != EPIPE; n++) {
		ck_assert_int_lt(n, 2);
		rc = barcopy_queue_receive(q, message, sizeof(message), NULL, 0, UINT64_MAX);
	}
	OK(barcopy_queue_destroy(q, 0));
}

/* Destroy drops the replies, so that the kernel serves all messages. */
static void replies_dropped(void)
{
	barcopy_queue_t q = new_echo(16);
	uint8_t message[480] = { 0 };
	const char *state = find(q)->state;

	for (int i = 0; i < 3; i++)
		send_to(q, message, sizeof(message));
	OK(barcopy_queue_stop(q, 0));
	OK(barcopy_queue_destroy(q, UINT64_MAX));
	ck_assert_uint_eq(gdri_load64(state + BARCOPY_QUEUE_FREED_AT), 30);
}

/* Lines that are no message's. */
static void bad_lines(void)
{
	static const uint8_t heads[][11] = {
		{ 49 },	     { 63 },	 { 0 },		     { 0x80 },	   { 0x41 }, { 0x7f }, { 0xf0 },
		{ 0x70, 49 }, { 0x70, 0x70, 0 }, { 0x70, 0x80 }, { [0 ... 9] = 0x70, 48 },
	};
	size_t size;
	uint8_t got[600];

	for (size_t r = 0; r < COUNT(heads); r++) {
		barcopy_queue_t q = new_echo(16);

		for (unsigned int line = 0; line < 11; line++)
			for (uint64_t i = 0; i < 8; i++) {
				gdri_store64(find(q)->replies + line * 64 + i * 8,
					     UINT64_C(1) << 48 | (uint64_t)heads[r][line] << 56);
				gdri_store64(find(q)->requests + line * 64 + i * 8,
					     UINT64_C(1) << 48 | (uint64_t)heads[r][line] << 56);
			}
		memset(got, 0x5a, sizeof(got));
		FAILS(EBADMSG, barcopy_queue_receive(q, got, sizeof(got), &size, 0, 0));
		FAILS(EBADMSG, barcopy_queue_receive(q, got, sizeof(got), &size, 0, WAIT));
		ck_assert_uint_eq(got[0], 0x5a);
		CU(cuda.cuStreamSynchronize(stream)); /* the kernel takes it for a stop */
		OK(barcopy_queue_destroy(q, 0));
	}
}

/* A wait asks CUDA, and ends with its context. */
static void dead_context(void)
{
	barcopy_queue_t q = new_queue(16);
	char byte;

	pretend_kernel(q);
	cuda_hooks.set_fail("cuStreamIsCapturing:*=700");
	FAILS_WITH(EPIPE, "context has ended",
		   barcopy_queue_receive(q, &byte, 1, NULL, 0, UINT64_MAX));
	ck_assert_int_eq(phase_of(q, false), BARCOPY_QUEUE_DEAD);
	while (!barcopy_queue_try_send(q, "x", 1, 0))
		;
	FAILS_WITH(EPIPE, "context has ended", barcopy_queue_send(q, "x", 1, 0, UINT64_MAX));
	OK(barcopy_queue_destroy(q, 0));
	cuda_hooks.set_fail("");
}

/* Queues that follow each other use the same memory; that of a context's end is used again too. */
static void kept_memory(void)
{
	barcopy_queue_view_t first, view;
	barcopy_queue_t q = new_queue(0);
	uint64_t word = 1;
	unsigned long long bytes = standin_device_bytes(0);

	OK(barcopy_queue_get_view(q, &first));
	for (int i = 0; i < 3; i++) {
		OK(barcopy_queue_destroy(q, 0));
		CU(cuda.cuMemcpyDtoH_v2(&word, first.control + BARCOPY_QUEUE_GENERATION_AT, 8));
		ck_assert_uint_eq(word, 0); /* no kernel can begin any more */
		ck_assert_uint_eq(standin_device_bytes(0), bytes);
		q = new_echo(0);
		for (unsigned int n = 0; n < 70;
		     n++) /* beyond a page, and no line of the queue before */
			round_trip(q, 48, i * 100u + n);
		OK(barcopy_queue_get_view(q, &view));
		ck_assert(view.control == first.control && view.state == first.state);
		ck_assert_uint_ne(view.generation, first.generation);
		OK(barcopy_queue_stop(q, 0));
		if (i == 1) {
			OK(gdr_close(g));
			g = barcopy_open(BARCOPY_OPEN_DEFAULT);
			q = new_queue(0);
			ck_assert_uint_eq(standin_device_bytes(0), bytes);
		} else {
			OK(barcopy_queue_destroy(q, WAIT));
			q = new_queue(0);
		}
	}
	OK(barcopy_queue_destroy(q, 0));
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
			OK(barcopy_queue_destroy(q[i], 0));
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

	OK(barcopy_queue_destroy(new_queue(4096), 0));
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

/* Errors that end a context end its kernels; after any other the queue's memory may be in use. */
static void context_error(void)
{
	static const int dead[] = { 4,	 201, 214, 220, 226, 700, 702, 709, 710,
				    714, 715, 716, 717, 718, 719, 721, 810, 911 };
	static const int alive[] = { 1, 2, 3, 400, 600, 800, 801, 900, 901, 906, 999 };
	static const char *const calls[] = { "cuStreamIsCapturing", "cuCtxPushCurrent" };
	char fail[64];

	for (size_t c = 0; c < COUNT(calls); c++) {
		barcopy_queue_t q = new_queue(16);

		pretend_kernel(q);
		for (size_t i = 0; i < COUNT(alive); i++) {
			snprintf(fail, sizeof(fail), "%s:*=%d", calls[c], alive[i]);
			cuda_hooks.set_fail(fail);
			FAILS(EBUSY, barcopy_queue_destroy(q, 0));
		}
		for (size_t i = 0; i < COUNT(dead); i++) {
			cuda_hooks.set_fail("");
			if (i)
				pretend_kernel(q = new_queue(16));
			snprintf(fail, sizeof(fail), "%s:1=%d,%s:2=%d", calls[c], dead[i], calls[c],
				 dead[i]);
			cuda_hooks.set_fail(fail);
			OK(barcopy_queue_destroy(q, 0));
		}
	}
	cuda_hooks.set_fail("");
}

/* Host memory can be unregistered only while no kernel runs: a destroy must not wait for that. */
static void destroy_beside_a_kernel(void)
{
	barcopy_queue_t other = new_echo(16), q;

	round_trip(other, 10, 1);
	cuda_hooks.set_fail("cuMemHostRegister:2=2"); /* memory is used again */
	for (unsigned int n = 0; n < 3; n++) {
		CU(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		q = new_echo(16);
		round_trip(q, 100, n);
		finish(q);
	}
	FAILS(ENOMEM, barcopy_queue_create(g, 0, NULL, &q)); /* 256 lines need more */
	round_trip(other, 10, 2);
	finish(other);
}

static void device_reset(void)
{
	CUcontext primary;
	barcopy_queue_t q = new_queue(16);
	char byte;

	pretend_kernel(q);
	CU(cuda.cuDevicePrimaryCtxReset_v2(0));
	/* what the CPU reads is still mapped */
	FAILS(ETIMEDOUT, barcopy_queue_receive(q, &byte, 1, NULL, 0, 0));
	while (!barcopy_queue_try_send(q, "x", 1, 0))
		;
	OK(barcopy_queue_destroy(q, 0));
	/* a new queue does not use this memory, whose registration has ended */
	CU(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuda.cuCtxSetCurrent(primary));
	CU(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuda.cuModuleLoadData(&module, ptx));
	q = new_echo(16);
	round_trip(q, 100, 1);
	finish(q);
}

static void batches(void)
{
	barcopy_queue_t q = new_echo(64);
	uint8_t m[48 * BARCOPY_QUEUE_MESSAGE_MAX];

	for (size_t size = 1; size <= BARCOPY_QUEUE_MESSAGE_MAX; size += 47) {
		uint32_t n = 48 / (uint32_t)((size + 47) / 48); /* 3/4 of the ring */

		for (uint32_t i = 0; i < n; i++)
			fill(m + i * size, size, i);
		FAILS(EMSGSIZE, barcopy_queue_send_batch(q, m, size, n + 1, 0, WAIT));
		OK(barcopy_queue_send_batch(q, m, size, n, 0, WAIT));
		for (uint32_t i = 0; i < n; i++)
			expect_echo(q, size, i);
	}
	OK(barcopy_queue_send_batch(q, m, 8, 0, 0, 0));
	FAILS_WITH(EMSGSIZE, "not 481", barcopy_queue_send_batch(q, m, 481, 2, 0, 0));
	FAILS(EMSGSIZE, barcopy_queue_send_batch(q, m, 0, 2, 0, 0));
	FAILS(EMSGSIZE, barcopy_queue_send_batch(q, m, 8, UINT32_MAX, 0, 0));
	FAILS(EINVAL, barcopy_queue_send_batch(q, NULL, 8, 2, 0, 0));
	FAILS(EINVAL, barcopy_queue_send_batch(q, m, 8, 2, BARCOPY_QUEUE_ABORT, 0));
	OK(barcopy_queue_stop(q, 0));
	FAILS(ESHUTDOWN, barcopy_queue_send_batch(q, m, 8, 2, 0, 0));
	OK(barcopy_queue_destroy(q, WAIT));
}

/* Of a context that works and was reported dead: the pages are given up, not left with CUDA. */
static void reported_dead(void)
{
	unsigned long registered;
	barcopy_queue_t q;

	OK(barcopy_queue_destroy(new_queue(0), 0));
	registered = cuda_hooks.calls("cuMemHostRegister");
	cuda_hooks.set_fail("cuStreamIsCapturing:1=201"); /* CUDA_ERROR_INVALID_CONTEXT */
	q = new_queue(0);
	ck_assert_uint_eq(cuda_hooks.calls("cuMemHostRegister"), registered + 1);
	cuda_hooks.set_fail("");
	OK(barcopy_queue_destroy(q, 0));
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
	finish(new_queue(0));
}

static const struct unit_test tests[] = {
	{ "full and empty", full_and_empty, NULL },
	{ "replies wait for room", replies_wait, NULL },
	{ "threads make queues", threads_make_queues, NULL },
	{ "two threads, two queues", two_threads, NULL },
	{ "stalls at every access", two_threads, "GDRSIM_WARP_STALL=20" },
	{ "lanes in any order", two_threads, "GDRSIM_WARP_ORDER=random" },
	{ "a second sender", second_sender, NULL },
	{ "arguments", arguments, NULL },
	{ "kernels that hang", hangs, NULL },
	{ "a kernel that begins late", begins_late, NULL },
	{ "a kernel that returned without end", returned_without_end, NULL },
	{ "an abort", aborted, NULL },
	{ "replies that are dropped", replies_dropped, NULL },
	{ "lines that are no message's", bad_lines, NULL },
	{ "a wait in a dead context", dead_context, NULL },
	{ "memory for the next queue", kept_memory, NULL },
	{ "memory for a smaller queue", kept_for_smaller, NULL },
	{ "memory after the last close", last_close, NULL },
	{ "an error of the context", context_error, NULL },
	{ "destroy while a kernel runs", destroy_beside_a_kernel, NULL },
	{ "a reset of the device", device_reset, NULL },
	{ "many messages in one call", batches, NULL },
	{ "pages of a context that was reported dead", reported_dead, NULL },
	{ "out of memory", out_of_memory, NULL },
	{ "host pointers that the GPU cannot take", batches, "GDRSIM_HOST_POINTER=0" },
	{ "an integrated GPU", batches, "GDRSIM_INTEGRATED=1" },
};

UNIT_MAIN("queue", tests, unit_before = start_stream, unit_after = end)
