/* SPDX-License-Identifier: MIT */
/*
 * Queues to a kernel on the GPU: every size, more laps than a line can name, order against bulk
 * data, and the end of a queue. The kernels are perf/queue/kernels.cu.
 */
#include <errno.h>
#include <sched.h>

#include "barcopy_queue.h"
#include "gpu_test.h"
#include "queue/ptx.h"

#define WAIT UINT64_C(20000000000)

static CUmodule module;
static CUstream stream;
static barcopy_queue_t queue;
static barcopy_queue_view_t view;

/* Starts that kernel on a new queue; params[0] becomes its view. */
static int open_queue(const char *kernel, uint32_t lines, void **params)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = lines };
	CUfunction f;

	if (!module && (cu.ModuleLoadData(&module, queue_ptx) ||
			cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
		return -1;
	if (barcopy_queue_create(test_g, 0, &o, &queue) || barcopy_queue_get_view(queue, &view) ||
	    cu.ModuleGetFunction(&f, module, kernel))
		return -1;
	params[0] = &view;
	return cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL) ? -1 : 0;
}

static int send(const void *message, size_t size)
{
	int rc;

	while ((rc = barcopy_queue_try_send(queue, message, size)) == EAGAIN)
		sched_yield();
	return rc;
}

static int receive(void *message, size_t capacity, size_t *size)
{
	int rc;

	for (int i = 0; i < 1000000; i++) {
		rc = barcopy_queue_receive(queue, message, capacity, size, 0);
		if (rc != ETIMEDOUT)
			return rc;
		sched_yield();
	}
	return ETIMEDOUT;
}

static void test_sizes(void)
{
	uint64_t in[BARCOPY_QUEUE_MESSAGE_MAX / 8], out[BARCOPY_QUEUE_MESSAGE_MAX / 8];
	unsigned long long count = UINT64_MAX;
	void *params[] = { NULL, &count };
	size_t got;

	EXPECT(!open_queue("gdrcopy_queue_echo", 16, params), "%s", barcopy_last_error());
	for (size_t size = 1; size <= BARCOPY_QUEUE_MESSAGE_MAX; size++) {
		pattern(in, sizeof(in), (unsigned int)size);
		OK(send(in, size));
		OK(receive(out, sizeof(out), &got));
		EXPECT(got == size, "%zu bytes of %zu", got, size);
		for (size_t i = 0; i < sizeof(in) / 8; i++)
			in[i]++;
		/* Whole words only: the kernel adds 1 to a last word that is padded with 0. */
		EXPECT(!memcmp(in, out, size / 8 * 8), "%zu bytes", size);
	}
	EXPECT(barcopy_queue_destroy(queue, 0) == EBUSY, "%s", barcopy_last_error());
	OK(barcopy_queue_stop(queue));
	OK(barcopy_queue_destroy(queue, WAIT));
}

static void test_laps(void)
{
	uint64_t count = (uint64_t)16 * (BARCOPY_QUEUE_LAP_MASK + 3), sent = 0, received = 0, word;
	void *params[] = { NULL };

	EXPECT(!open_queue("gdrcopy_queue_lines", 16, params), "%s", barcopy_last_error());
	while (received < count) {
		if (sent < count && !barcopy_queue_try_send(queue, &sent, sizeof(sent)))
			sent++;
		word = 0;
		if (!barcopy_queue_receive(queue, &word, sizeof(word), NULL, 0)) {
			/* 4-byte words, each plus 1 */
			EXPECT(word == ((received + 1) | UINT64_C(1) << 32), "%llx",
			       (unsigned long long)word);
			received++;
		} else {
			sched_yield();
		}
	}
	OK(barcopy_queue_stop(queue));
	OK(barcopy_queue_destroy(queue, WAIT));
}

static void test_bulk_data(void)
{
	enum { WORDS = 512, ROUNDS = 2000 };
	uint64_t in[WORDS], answer[2];
	unsigned int words = WORDS;
	barcopy_mem_t mem;
	void *params[] = { NULL, &mem.device_ptr, &words };

	OK(barcopy_mem_alloc(test_g, 0, 2 * sizeof(in), 0, &mem));
	EXPECT(!open_queue("gdrcopy_queue_bulk", 0, params), "%s", barcopy_last_error());
	for (uint64_t n = 1; n <= ROUNDS; n++) {
		for (int i = 0; i < WORDS; i++)
			in[i] = n;
		OK(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, in, sizeof(in)));
		OK(send(&n, sizeof(n)));
		OK(receive(answer, sizeof(answer), NULL));
		EXPECT(answer[0] == n + 1 && !answer[1], "%llu words are stale",
		       (unsigned long long)answer[1]);
		OK(gdr_copy_from_mapping(mem.handle, in, (char *)mem.cpu_ptr + sizeof(in),
					 sizeof(in)));
		for (int i = 0; i < WORDS; i++)
			EXPECT(in[i] == n, "round %llu, word %d", (unsigned long long)n, i);
	}
	OK(barcopy_queue_stop(queue));
	OK(barcopy_queue_destroy(queue, WAIT));
	OK(barcopy_mem_free(test_g, &mem));
}

/* A thread that captures its own stream, in each mode: destroy asks CUDA and spoils nothing. */
static void test_capture(void)
{
	unsigned long long count = UINT64_MAX;
	void *params[] = { NULL, &count };
	CUgraph graph = NULL;
	uint64_t word = 0;

	if (!cu.StreamBeginCapture || !cu.StreamEndCapture || !cu.GraphDestroy)
		SKIP("no stream capture here");
	for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
	     mode++) {
		EXPECT(!open_queue("gdrcopy_queue_echo", 16, params), "%s", barcopy_last_error());
		OK(send(&word, sizeof(word)));
		OK(receive(&word, sizeof(word), NULL));
		CU(cu.StreamBeginCapture(CU_STREAM_PER_THREAD, (CUstreamCaptureMode)mode));
		EXPECT(barcopy_queue_destroy(queue, 0) == EBUSY, "%s", barcopy_last_error());
		OK(send(&word, sizeof(word)));
		OK(receive(&word, sizeof(word), NULL));
		OK(barcopy_queue_stop(queue));
		OK(barcopy_queue_destroy(queue, WAIT));
		CU(cu.StreamEndCapture(CU_STREAM_PER_THREAD, &graph));
		CU(cu.GraphDestroy(graph));
	}
}

static const struct gpu_test tests[] = {
	{ "every size", test_sizes },
	{ "more laps than a line can name", test_laps },
	{ "order against bulk data", test_bulk_data },
	{ "destroy beside a stream capture", test_capture },
};

GPU_TEST_MAIN(tests)
