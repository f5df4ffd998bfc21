/* SPDX-License-Identifier: MIT */
/*
 * Ports on the GPU: posts and calls of several kernels at once, on full rings, posts that are waited
 * for, a stop in the middle, and the end. Every message is compared. The kernel is perf/queue/kernels.cu's.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "barcopy_queue.h"
#include "gpu_test.h"
#include "queue/ptx.h"

#define WAIT UINT64_C(20000000000)

enum {
	KERNELS = 4,
	ORDERED = 1,
	CALLS = 2,
	WAITS = 4,
	LIMITS = 8,
	TRIES = LIMITS + 32,
	SOME = 32,
	MOST = 4224
};

static CUmodule module;
static CUfunction kernel;
static CUstream stream[KERNELS];
static barcopy_port_t port;
static barcopy_port_view_t view;
static barcopy_mem_t sum;
static unsigned int blocks, threads; /* of each kernel */
static unsigned int seen[MOST]; /* of each thread */
static uint64_t total, calls_seen, numbers; /* numbers: the last post's */

static int start(uint32_t lines, uint32_t flags)
{
	barcopy_port_options_t o = { .struct_size = sizeof(o),
				     .lines = lines,
				     .flags = flags,
				     .spin_ns = 1000 }; /* the stand-in has few CPUs */

	if (!module) {
		if (cu.ModuleLoadData(&module, queue_ptx) ||
		    cu.ModuleGetFunction(&kernel, module, "gdrcopy_port_posts"))
			return -1;
		for (int i = 0; i < KERNELS; i++)
			if (cu.StreamCreate(&stream[i], CU_STREAM_NON_BLOCKING))
				return -1;
		blocks = *test_gpu.kernel_driver ? 32 : 2; /* the stand-in has few CPUs */
		threads = blocks * 32;
	}
	memset(seen, 0, sizeof(seen));
	total = calls_seen = numbers = 0;
	return barcopy_mem_alloc(test_g, 0, 4096, 0, &sum) ||
			       barcopy_put64(sum.handle, sum.cpu_ptr, 0) ||
			       barcopy_put64(sum.handle, (char *)sum.cpu_ptr + 8, 0) ||
			       barcopy_port_create(test_g, 0, &o, &port) ||
			       barcopy_port_get_view(port, &view)
		       ? -1
		       : 0;
}

static int launch_blocks(int i, unsigned int n, unsigned int count, unsigned int how)
{
	unsigned int all = n * 32, first = (unsigned int)i * all;
	void *params[] = { &view, &first, &all, &count, &how, &sum.device_ptr };

	return (int)cu.LaunchKernel(kernel, n, 1, 1, 32, 1, 1, 0, stream[i], params, NULL);
}

static int launch(int i, unsigned int count, unsigned int how)
{
	return launch_blocks(i, blocks, count, how);
}

static unsigned int word(unsigned int who, unsigned int n, unsigned int i)
{
	return i == 2 ? who : i == 3 ? n : (who * 2654435761u ^ n * 40503u) + i * 97;
}

/* Compares a message, and answers it if it is a call. */
static bool take(const barcopy_port_message_t *m)
{
	unsigned int got[12], want[12], who, n;
	uint64_t answer;

	memcpy(got, m->data, sizeof(got));
	who = got[2];
	n = got[3];
	if (who >= MOST || n != ++seen[who] || m->post <= numbers)
		return false;
	numbers = m->post;
	total++;
	for (unsigned int i = 0; i < 12; i++)
		want[i] = i || !m->call ? word(who, n, i) : m->call;
	if (m->size != (m->call ? 48 : 16 + (who + n) % 33) || memcmp(got, want, m->size))
		return false;
	answer = (uint64_t)want[5] << 16 ^ n;
	calls_seen += m->call != 0;
	return !m->call || !barcopy_port_answer(port, &m->call, &answer, 1);
}

/* 0, or the error of receive. Retires, in manual mode, from the last on. */
static int receive(uint32_t flags, uint64_t timeout_ns)
{
	barcopy_port_message_t m[SOME];
	uint32_t n;
	int rc = barcopy_port_receive(port, m, SOME, &n, timeout_ns);

	if (rc == ETIMEDOUT)
		sched_yield();
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++)
		if (!take(&m[i]))
			return EBADMSG;
	for (uint32_t i = n; flags & BARCOPY_PORT_MANUAL && i--;)
		if (barcopy_port_retire(port, m[i].post, 1))
			return EBADMSG;
	return 0;
}

/* Ends a test: what the kernels counted is what came; then no post is left. */
static void finish(uint32_t flags)
{
	uint64_t wrong = 1, made = 0;
	int rc = receive(flags, 0); /* retires what came last: kernels wait for that */

	CHECK(!rc || rc == ETIMEDOUT || rc == EPIPE, "%d: %s", rc, barcopy_last_error());
	for (int i = 0; i < KERNELS; i++)
		CU(cu.StreamSynchronize(stream[i]));
	OK(barcopy_port_end(port));
	while (!(rc = receive(flags, WAIT)))
		;
	CHECK(rc == EPIPE, "%d: %s", rc, barcopy_last_error());
	OK(barcopy_get64(sum.handle, sum.cpu_ptr, &wrong));
	OK(barcopy_get64(sum.handle, (char *)sum.cpu_ptr + 8, &made));
	CHECK(!wrong && made == total, "%llu answers wrong, %llu posts of %llu",
	      (unsigned long long)wrong, (unsigned long long)total, (unsigned long long)made);
	OK(barcopy_port_destroy(port));
	OK(barcopy_mem_free(test_g, &sum));
}

/* Four kernels in four streams, each twice; rings that are full all the time, and roomy ones. */
static void test_kernels(void)
{
	static const unsigned int hows[] = { 0,		      ORDERED, CALLS,
					     CALLS | ORDERED, WAITS,   WAITS | ORDERED,
					     LIMITS,	      LIMITS | CALLS };

	for (unsigned int i = 0; i < 2 * sizeof(hows) / sizeof(hows[0]); i++) {
		uint32_t flags = i % 2 ? BARCOPY_PORT_MANUAL : 0;
		unsigned int count = hows[i / 2] ? 5 : 20;
		int rc = 0;

		CHECK(!start(i % 4 < 2 ? 16 : 1024, flags), "%s", barcopy_last_error());
		for (int k = 0; k < KERNELS; k++)
			CU(launch(k, count, hows[i / 2]));
		while (total < (uint64_t)KERNELS * threads * count && (!rc || rc == ETIMEDOUT))
			rc = receive(flags, 1000000);
		CHECK(!rc || rc == ETIMEDOUT, "%d: %s", rc, barcopy_last_error());
		CHECK(calls_seen == (hows[i / 2] & CALLS ? total : 0), "%llu calls",
		      (unsigned long long)calls_seen);
		finish(flags);
	}
}

/* Tries of more threads than the ring has lines: all succeed in the end. */
static void test_tries(void)
{
	static const struct {
		uint32_t lines;
		unsigned int blocks, how;
	} rows[] = { { 16, 8, TRIES },
		     { 16, 8, TRIES | CALLS },
		     { 1024, 132, TRIES },
		     { 1024, 132, TRIES | CALLS } };

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		/* The stand-in has 8 blocks. */
		unsigned int n = *test_gpu.kernel_driver ? rows[i].blocks : 8, count = 20;
		int rc = 0;

		CHECK(!start(rows[i].lines, 0), "%s", barcopy_last_error());
		CU(launch_blocks(0, n, count, rows[i].how));
		while (total < (uint64_t)n * 32 * count && !rc)
			rc = receive(0, WAIT);
		OK(barcopy_port_stop(port, 0)); /* ends tries that do not succeed */
		CHECK(!rc, "row %u: %llu of %llu: %d: %s", i, (unsigned long long)total,
		      (unsigned long long)n * 32 * count, rc, barcopy_last_error());
		finish(0);
	}
}

/* A kernel that begins after the end is refused; so is one that has the view of a destroyed port. */
static void test_refused(void)
{
	barcopy_port_view_t before;
	uint64_t made = 0;

	CHECK(!start(64, 0), "%s", barcopy_last_error());
	OK(barcopy_port_end(port));
	CU(launch(0, 10, WAITS));
	CU(cu.StreamSynchronize(stream[0]));
	before = view;
	finish(0);
	CHECK(!start(64, 0), "%s", barcopy_last_error());
	CHECK(view.control == before.control, "the memory is another");
	view = before;
	CU(launch(0, 10, CALLS));
	CU(cu.StreamSynchronize(stream[0]));
	OK(barcopy_get64(sum.handle, (char *)sum.cpu_ptr + 8, &made));
	CHECK(!made, "%llu posts", (unsigned long long)made);
	finish(0);
}

/* Posts without end; stopped in the middle, all that were accepted come. Then aborted calls. */
static void test_stop(void)
{
	int rc = 0;

	for (int i = 0; i < 4; i++) {
		CHECK(!start(256, 0), "%s", barcopy_last_error());
		for (int k = 0; k < 2; k++)
			CU(launch(k, ~0u, i % 2 ? WAITS : 0));
		while (total < 1000 && (!rc || rc == ETIMEDOUT))
			rc = receive(0, 1000000);
		OK(barcopy_port_stop(port, 0));
		/* Each thread may have one more post, and waits for it. */
		while (cu.StreamQuery(stream[0]) || cu.StreamQuery(stream[1])) {
			rc = receive(0, 1000000);
			CHECK(!rc || rc == ETIMEDOUT, "%d: %s", rc, barcopy_last_error());
		}
		finish(0);
	}
	CHECK(!start(256, 0), "%s", barcopy_last_error());
	CU(launch(0, ~0u, CALLS));
	while (!total && receive(0, WAIT) == ETIMEDOUT)
		;
	OK(barcopy_port_stop(port, BARCOPY_PORT_ABORT));
	CU(cu.StreamSynchronize(stream[0]));
	OK(barcopy_port_destroy(port));
	OK(barcopy_mem_free(test_g, &sum));
}

/* Children are forked while kernels post and call: each is refused and exits, and no message is lost. */
static void test_forks(void)
{
	uint64_t want = 2ull * 40;
	barcopy_port_message_t m;
	uint32_t n, call = 1;
	uint64_t answer = 0;
	int status, children = 0, rc = 0;
	pid_t pid;

	CHECK(!start(64, 0), "%s", barcopy_last_error());
	want *= threads;
	CU(launch(0, 40, 0));
	CU(launch(1, 40, CALLS));
	for (int i = 1; total < want && (!rc || rc == ETIMEDOUT); i++) {
		rc = receive(0, WAIT);
		if (i % 4 || children == 16)
			continue;
		children++;
		pid = fork();
		if (!pid)
			_exit(barcopy_port_receive(port, &m, 1, &n, 0) == EACCES &&
					      barcopy_port_answer(port, &call, &answer, 1) ==
						      EACCES &&
					      barcopy_port_destroy(port) == EACCES
				      ? 0
				      : 1);
		CHECK(waitpid(pid, &status, 0) == pid && !status, "a child: status 0x%x", status);
	}
	CHECK(children == 16 && total == want, "%d, %d children, %llu of %llu: %s", rc, children,
	      (unsigned long long)total, (unsigned long long)want, barcopy_last_error());
	finish(0);
}

static const struct gpu_test tests[] = {
	{ "posts and calls of four kernels", test_kernels },
	{ "tries of many threads", test_tries },
	{ "forked children", test_forks },
	{ "kernels that are refused", test_refused },
	{ "a stop and an abort", test_stop },
};

GPU_TEST_MAIN(tests)
