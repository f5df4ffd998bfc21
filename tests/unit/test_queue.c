/* SPDX-License-Identifier: MIT */
/*
 * Queues between the CPU and kernels that run in the stand-in: full and empty rings, two threads,
 * and the life of a queue. Every size, laps, bulk data, a stop and posts that are all received are
 * in tests/gpu/test_queue.c, which runs on the stand-in too, every interleaving of the protocol in
 * the two explorers, forked children in test_api.c.
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

static const char ptx[] =
	".version 6.4\n.entry gdrcopy_queue_echo()\n.entry gdrcopy_queue_posts()\n";

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

/* ---- posts and calls ----------------------------------------------------- */

enum { PORT_BLOCKS = 2, ORDERED = 1, CALLS = 2, WARPS = 4 };

static barcopy_queue_t new_posts(uint32_t lines)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o),
				      .lines = lines,
				      .flags = BARCOPY_QUEUE_POSTS };
	barcopy_queue_t q;

	OK(barcopy_queue_create(g, 0, &o, &q));
	return q;
}

struct posts {
	barcopy_queue_t q;
	barcopy_mem_t wrong;
	unsigned int producers, count, how;
	unsigned int seen[PORT_BLOCKS * 32];
	uint64_t total;
};

static void launch_posts(struct posts *p, barcopy_queue_t q, unsigned int count, unsigned int how)
{
	barcopy_queue_view_t view;
	void *params[] = { &view, &p->producers, &p->count, &p->how, &p->wrong.device_ptr };
	CUfunction f;

	if (!p->wrong.cpu_ptr)
		OK(barcopy_mem_alloc(g, 0, 4096, 0, &p->wrong));
	OK(barcopy_put64(p->wrong.handle, p->wrong.cpu_ptr, 0));
	p->q = q;
	p->producers = PORT_BLOCKS * (how & WARPS ? 1 : 32);
	p->count = count;
	p->how = how;
	p->total = 0;
	memset(p->seen, 0, sizeof(p->seen));
	OK(barcopy_queue_get_view(q, &view));
	CU(cuda.cuModuleGetFunction(&f, module, "gdrcopy_queue_posts"));
	CU(cuda.cuLaunchKernel(f, PORT_BLOCKS, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

/* Its words are looked at in tests/gpu/test_queue.c. */
static void take_post(struct posts *p, const unsigned int *got, size_t size, uint64_t call)
{
	unsigned int who = got[2], n = got[3];

	if (call)
		OK(barcopy_queue_answer(p->q, &call, &(uint64_t){ n }, 1));
	if (who >= p->producers || n != ++p->seen[who] || !call != !(p->how & CALLS) ||
	    size != (call ? 48 : 16 + (who + n) % 33))
		ck_abort_msg("message %u of producer %u, %zu bytes", n, who, size);
	p->total++;
}

static int one_post(struct posts *p)
{
	unsigned int got[12];
	uint32_t which = 0;
	uint64_t call;
	size_t size;
	int rc = barcopy_queue_receive_any(&p->q, 1, &which, got, sizeof(got), &size, &call, 0, 0);

	ck_assert(!rc || rc == ETIMEDOUT || rc == EPIPE);
	if (!rc)
		take_post(p, got, size, call);
	else
		sched_yield();
	return rc;
}

/* No line of the ring that a kernel has written is one that was not received; a mark may be. */
static void expect_all_received(const struct gdri_queue *q)
{
	for (uint64_t line = q->received; line < q->received + q->lines; line++) {
		uint64_t word = gdri_load64(q->replies + line % q->lines * GDRI_LINE);

		ck_assert((word >> BARCOPY_QUEUE_DATA_BITS & BARCOPY_QUEUE_LAP_MASK) !=
				  line / q->lines + 1 ||
			  word >> 56 == BARCOPY_QUEUE_HEAD_CALL);
	}
}

/* Stopped in the middle: what was accepted comes, each producer's without a gap, then the end. */
static void stopped_posts(void)
{
	static const unsigned int hows[] = { 0, WARPS, CALLS };
	struct posts p = { 0 };

	for (unsigned int i = 0; i < 12; i++) {
		barcopy_queue_t q = new_posts(16);

		launch_posts(&p, q, UINT32_MAX, hows[i % 3]);
		while (p.total < i * 5)
			one_post(&p);
		OK(barcopy_queue_stop(q, 0));
		while (one_post(&p) != EPIPE)
			;
		ck_assert_uint_le(p.total, i * 5 + 16);
		while (gdri_queue_has_kernel(find(q))) /* for ever, if a call is lost */
			expect_all_received(find(q));
		expect_all_received(find(q));
		CU(cuda.cuStreamSynchronize(stream));
		/* stopped at once, the grid is refused */
		if (i)
			ck_assert_int_eq(phase_of(q, false), BARCOPY_QUEUE_ENDED);
		OK(barcopy_queue_destroy(q, 0));
	}
	OK(barcopy_mem_free(g, &p.wrong));
}

/* The end is a ring behind the credit that the kernel was shown, also if it goes on. */
static void stopped_beside_a_kernel(void)
{
	barcopy_queue_t q = new_posts(16);
	uint64_t got[6];

	pretend_kernel(q);
	for (unsigned int n = 0; n < 16; n++)
		put_line(find(q)->replies, n);
	for (unsigned int n = 0; n < 16; n++) {
		OK(barcopy_queue_receive(q, got, 48, NULL, 0, 0));
		if (n == 2) /* less than a quarter */
			OK(barcopy_queue_stop(q, 0));
	}
	FAILS(EPIPE, barcopy_queue_receive(q, got, 48, NULL, 0, 0));
	cuda_hooks.set_fail("cuStreamIsCapturing:*=700");
	OK(barcopy_queue_destroy(q, 0));
	cuda_hooks.set_fail("");
}

/* A call that is not answered holds its kernel until an abort; so destroy's deadline is one. */
static void aborted_calls(void)
{
	struct posts p = { 0 };

	for (int i = 0; i < 2; i++) {
		barcopy_queue_t q = new_posts(256);
		unsigned int got[12];
		uint32_t which = 7;
		uint64_t call;
		int rc;

		launch_posts(&p, q, 1, CALLS);
		FAILS_WITH(EMSGSIZE, "48 bytes",
			   barcopy_queue_receive_any(&q, 1, &which, got, 47, NULL, &call, 0, WAIT));
		FAILS(EBADMSG, barcopy_queue_receive(q, got, sizeof(got), NULL, 0, WAIT));
		OK(barcopy_queue_receive_any(&q, 1, &which, got, sizeof(got), NULL, &call, 0,
					     WAIT));
		ck_assert_uint_eq(which, 0);
		FAILS(EBUSY, barcopy_queue_destroy(q, 0));
		OK(barcopy_queue_stop(q, 0));
		FAILS(ETIMEDOUT, barcopy_queue_destroy(q, 0));
		if (i)
			OK(barcopy_queue_stop(q, BARCOPY_QUEUE_ABORT));
		do /* an aborted kernel has 100 ms, the stand-in's needs a CPU */
			rc = barcopy_queue_destroy(q, i ? WAIT : SECOND / 20);
		while (rc == ETIMEDOUT);
		OK(rc);
	}
	OK(barcopy_mem_free(g, &p.wrong));
}

/* Lines as a kernel with errors would write them, and answers that are none. */
static void wrong_calls(void)
{
	static const struct {
		uint64_t name, head;
		int err;
	} lines[] = { { 5, 0x80 | 6, EBADMSG }, /* the first sequence is 1 */
		      { UINT64_C(2) << 32 | 5, 0x80 | 6, EBADMSG },
		      { UINT64_C(1) << 32 | 64, 0x80 | 6, EBADMSG }, /* 16 lines have 64 slots */
		      { UINT64_C(1) << 32 | UINT32_MAX, 0x80 | 6, EBADMSG },
		      { UINT64_C(1) << 32 | 5, 0x80 | 5, EBADMSG },
		      { UINT64_C(1) << 32 | 5, 0x80 | 49, EBADMSG },
		      { UINT64_C(1) << 32 | 5, 0x80 | 6, 0 } };
	const uint64_t bit48 = UINT64_C(1) << 48, bits = bit48 - 1;
	uint64_t call, two[2], answers[2] = { bits, 7 };
	barcopy_queue_t q = new_posts(16), other = new_queue(16);
	uint32_t which = 0;
	char *line = find(q)->replies, *slot = find(q)->requests, got[48];

	for (size_t i = 0; i < COUNT(lines); i++) {
		for (int w = 0; w < 8; w++)
			gdri_store64(line + 8 * w,
				     (w ? 0 : lines[i].name) | bit48 | lines[i].head << 56);
		FAILS(lines[i].err,
		      barcopy_queue_receive_any(&q, 1, &which, got, 48, NULL, &call, 0, 0));
	}
	two[0] = call;
	for (uint64_t bad = 0; bad < 3; bad++) {
		two[1] = bad ? call : call + 1;
		answers[0] = bad == 2 ? bits + 1 : bits;
		FAILS(EINVAL, barcopy_queue_answer(q, two, answers, 2));
		ck_assert_uint_eq(gdri_load64(slot + 5 * GDRI_LINE), 0);
	}
	answers[0] = bits;
	FAILS(EINVAL, barcopy_queue_answer(other, &call, answers, 1));
	FAILS(EINVAL, barcopy_queue_answer(q, NULL, answers, 1));
	FAILS(EINVAL, barcopy_queue_answer(q, &call, NULL, 1));
	OK(barcopy_queue_answer(q, &call, answers, 1));
	ck_assert_uint_eq(gdri_load64(slot + 5 * GDRI_LINE), bit48 | bits);
	FAILS(EINVAL, barcopy_queue_answer(q, &call, answers, 1));
	FAILS_WITH(EINVAL, "takes no messages", barcopy_queue_send(q, got, 8, 0, WAIT));
	FAILS(EINVAL, barcopy_queue_try_send(q, got, 8, 0));
	OK(barcopy_queue_destroy(q, 0));
	FAILS(EINVAL, barcopy_queue_answer(q, &call, answers, 1));
	OK(barcopy_queue_destroy(other, 0));
}

/* The kinds of queues and of kernels; a grid that is launched, and begins after the end. */
static void kinds(void)
{
	barcopy_queue_t q = new_posts(16);
	struct posts p = { 0 };
	char got[48];

	echo(q, UINT64_MAX);
	CU(cuda.cuStreamSynchronize(stream));
	ck_assert_int_eq(phase_of(q, false), BARCOPY_QUEUE_NEVER_BEGUN);
	OK(barcopy_queue_stop(q, 0));
	FAILS(EPIPE, barcopy_queue_receive(q, got, 48, NULL, 0, WAIT));
	launch_posts(&p, q, 10, 0);
	CU(cuda.cuStreamSynchronize(stream));
	ck_assert_int_eq(phase_of(q, false), BARCOPY_QUEUE_NEVER_BEGUN);
	OK(barcopy_queue_destroy(q, 0));
	q = new_queue(16);
	launch_posts(&p, q, 10, WARPS);
	CU(cuda.cuStreamSynchronize(stream));
	FAILS(ETIMEDOUT, barcopy_queue_receive(q, got, 48, NULL, 0, 0));
	OK(barcopy_queue_destroy(q, 0));
	OK(barcopy_mem_free(g, &p.wrong));
}

/* Of two queues none waits for the other; and what the end of one, or of both, is. */
static void any_queue(void)
{
	barcopy_queue_t q[2] = { new_posts(16), new_queue(16) };
	uint32_t which = 1;
	uint64_t call = 1;
	char got[48];

	FAILS(EINVAL, barcopy_queue_receive_any(q, 0, &which, got, 48, NULL, &call, 0, 0));
	FAILS(EINVAL, barcopy_queue_receive_any(NULL, 2, &which, got, 48, NULL, &call, 0, 0));
	FAILS(EINVAL, barcopy_queue_receive_any(q, 2, &which, got, 48, NULL, NULL, 0, 0));
	FAILS(EINVAL, barcopy_queue_receive_any(q, 2, &which, NULL, 48, NULL, &call, 0, 0));
	FAILS(EINVAL, barcopy_queue_receive_any(q, 2, NULL, got, 48, NULL, &call, 0, 0));
	FAILS(EINVAL, barcopy_queue_receive_any(q, 2, &which, got, 48, NULL, &call, 1, 0));
	TIMES_OUT(barcopy_queue_receive_any(q, 2, &which, got, 48, NULL, &call, 0, MILLISECOND));
	for (unsigned int i = 0; i < 2; i++)
		for (unsigned int n = 0; n < 5; n++)
			put_line(find(q[i])->replies, n);
	for (unsigned int n = 0; n < 10; n++) {
		OK(barcopy_queue_receive_any(q, 2, &which, got, 48, NULL, &call, 0, 0));
		ck_assert_uint_eq(which, n % 2);
		ck_assert_uint_eq(call, 0);
	}
	OK(barcopy_queue_stop(q[0], 0));
	TIMES_OUT(barcopy_queue_receive_any(q, 2, &which, got, 48, NULL, &call, 0, MILLISECOND));
	FAILS(EPIPE, barcopy_queue_receive_any(q, 1, &which, got, 48, NULL, &call, 0, WAIT));
	pretend_kernel(q[1]);
	cuda_hooks.set_fail("cuStreamIsCapturing:*=700");
	FAILS(EPIPE, barcopy_queue_receive_any(q, 2, &which, got, 48, NULL, &call, 0, UINT64_MAX));
	OK(barcopy_queue_destroy(q[0], 0));
	FAILS(EINVAL, barcopy_queue_receive_any(q, 2, &which, got, 48, NULL, &call, 0, 0));
	OK(barcopy_queue_destroy(q[1], 0));
	cuda_hooks.set_fail("");
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
	{ "an error of the context", context_error, NULL },
	{ "destroy while a kernel runs", destroy_beside_a_kernel, NULL },
	{ "a reset of the device", device_reset, NULL },
	{ "posts that are stopped", stopped_posts, "GDRSIM_WARP_STALL=20" },
	{ "posts that are stopped beside a kernel", stopped_beside_a_kernel, NULL },
	{ "calls that are aborted", aborted_calls, NULL },
	{ "calls that are wrong", wrong_calls, NULL },
	{ "kinds of queues and kernels", kinds, NULL },
	{ "any of two queues", any_queue, NULL },
	{ "many messages in one call", batches, NULL },
	{ "pages of a context that was reported dead", reported_dead, NULL },
	{ "out of memory", out_of_memory, NULL },
	{ "host pointers that the GPU cannot take", batches, "GDRSIM_HOST_POINTER=0" },
	{ "an integrated GPU", batches, "GDRSIM_INTEGRATED=1" },
};

UNIT_MAIN("queue", tests, unit_before = start_stream, unit_after = end)
