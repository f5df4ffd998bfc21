/* SPDX-License-Identifier: MIT */
/*
 * Queues to a kernel on the GPU: every size, more laps than a line can name, order against bulk
 * data, kernels that follow each other, and memory. The kernels are perf/queue/kernels.cu.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "barcopy_queue.h"
#include "gpu_test.h"
#include "queue/ptx.h"

#define WAIT UINT64_C(20000000000)

static CUmodule module;
static CUstream stream;
static barcopy_queue_t queue;
static barcopy_queue_view_t view;

/* Makes a queue, and gets the kernel, which loads it. */
static int make_queue(const char *kernel, uint32_t lines, CUfunction *f)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = lines };

	if (!module && (cu.ModuleLoadData(&module, queue_ptx) ||
			cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
		return -1;
	return barcopy_queue_create(test_g, 0, &o, &queue) ||
			       barcopy_queue_get_view(queue, &view) ||
			       cu.ModuleGetFunction(f, module, kernel) ?
		       -1 :
		       0;
}

/* Starts that kernel on a new queue; params[0] becomes its view. */
static int open_queue(const char *kernel, uint32_t lines, void **params)
{
	CUfunction f;

	params[0] = &view;
	if (make_queue(kernel, lines, &f))
		return -1;
	return cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL) ? -1 : 0;
}

static int send(const void *message, size_t size)
{
	int rc;

	while ((rc = barcopy_queue_send(queue, message, size, 0, 0)) == ETIMEDOUT)
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

/* The kernel in `stream` is the queue's. */
static int finish(void)
{
	int rc = barcopy_queue_stop(queue, 0);

	cu.StreamSynchronize(stream);
	return rc ? rc : barcopy_queue_destroy(queue);
}

static void test_sizes(void)
{
	uint32_t in[BARCOPY_QUEUE_LINE / 4], out[BARCOPY_QUEUE_LINE / 4 + 1];
	unsigned long long count = UINT64_MAX;
	void *params[] = { NULL, &count };
	uint8_t *end = mmap(NULL, 2 * GPU_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t got;

	CHECK(end != MAP_FAILED && !mprotect(end, GPU_PAGE_SIZE, PROT_READ | PROT_WRITE), "no memory");
	end += GPU_PAGE_SIZE; /* behind it nothing may be read */
	CHECK(!open_queue("gdrcopy_queue_echo", 16, params), "%s", barcopy_last_error());
	for (size_t size = 1; size <= BARCOPY_QUEUE_LINE; size++) {
		memset(in, 0, sizeof(in)); /* the last word is padded with 0 */
		memset(out, 0x5a, sizeof(out));
		pattern(in, size, (unsigned int)size);
		OK(send(memcpy(end - size, in, size), size));
		OK(receive(out, size, &got));
		CHECK(got == size, "%zu bytes of %zu", got, size);
		for (size_t i = 0; i < sizeof(in) / 4; i++)
			in[i]++;
		CHECK(!memcmp(in, out, size), "%zu bytes", size);
		CHECK(((uint8_t *)out)[size] == 0x5a, "a byte behind %zu was written", size);
	}
	OK(finish());
}

static void test_laps(void)
{
	uint64_t total = (uint64_t)16 * (BARCOPY_QUEUE_LAP_MASK + 3), sent = 0, received = 0, word;
	unsigned long long count = UINT64_MAX;
	void *params[] = { NULL, &count };

	CHECK(!open_queue("gdrcopy_queue_echo", 16, params), "%s", barcopy_last_error());
	while (received < total) {
		if (sent < total && !barcopy_queue_send(queue, &sent, sizeof(sent), 0, 0))
			sent++;
		word = 0;
		if (!barcopy_queue_receive(queue, &word, sizeof(word), NULL, 0)) {
			/* 4-byte words, each plus 1 */
			CHECK(word == ((received + 1) | UINT64_C(1) << 32), "%llx", (unsigned long long)word);
			received++;
		} else {
			sched_yield();
		}
	}
	OK(finish());
}

static void test_bulk_data(void)
{
	enum { WORDS = 512, ROUNDS = 2000 };
	uint64_t in[WORDS], answer[2];
	unsigned int words = WORDS;
	barcopy_mem_t mem;
	void *params[] = { NULL, &mem.device_ptr, &words };

	OK(barcopy_mem_alloc(test_g, 0, 2 * sizeof(in), 0, &mem));
	CHECK(!open_queue("gdrcopy_queue_bulk", 0, params), "%s", barcopy_last_error());
	for (uint64_t n = 1; n <= ROUNDS; n++) {
		for (int i = 0; i < WORDS; i++)
			in[i] = n;
		OK(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, in, sizeof(in)));
		OK(send(&n, sizeof(n)));
		OK(receive(answer, sizeof(answer), NULL));
		CHECK(answer[0] == n + 1 && !answer[1], "%llu words are stale", (unsigned long long)answer[1]);
		OK(gdr_copy_from_mapping(mem.handle, in, (char *)mem.cpu_ptr + sizeof(in),
					 sizeof(in)));
		for (int i = 0; i < WORDS; i++)
			CHECK(in[i] == n, "round %llu, word %d", (unsigned long long)n, i);
	}
	OK(finish());
	OK(barcopy_mem_free(test_g, &mem));
}

/* A thread that captures its own stream, in each mode: a wait asks CUDA and spoils nothing, nor does a port. */
static void test_capture(void)
{
	unsigned long long count = UINT64_MAX;
	void *params[] = { NULL, &count };
	CUgraph graph = NULL;
	barcopy_port_message_t m;
	barcopy_port_t port;
	uint64_t word = 0;
	uint32_t n;

	if (!cu.StreamBeginCapture || !cu.StreamEndCapture || !cu.GraphDestroy)
		SKIP("no stream capture here");
	for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
	     mode++) {
		CHECK(!open_queue("gdrcopy_queue_echo", 16, params), "%s", barcopy_last_error());
		OK(send(&word, sizeof(word)));
		OK(receive(&word, sizeof(word), NULL));
		CU(cu.StreamBeginCapture(CU_STREAM_PER_THREAD, (CUstreamCaptureMode)mode));
		FAILS(ETIMEDOUT, barcopy_queue_receive(queue, &word, sizeof(word), NULL, 150000000));
		OK(send(&word, sizeof(word)));
		OK(receive(&word, sizeof(word), NULL));
		OK(barcopy_port_create(test_g, 0, NULL, &port));
		FAILS(ETIMEDOUT, barcopy_port_receive(port, &m, 1, &n, 150000000));
		OK(barcopy_port_destroy(port));
		CU(cu.StreamEndCapture(CU_STREAM_PER_THREAD, &graph));
		CU(cu.GraphDestroy(graph));
		OK(finish());
	}
}

/* The kernel serves what was sent before the stop, also what it has no room to answer at once. */
static void test_stop(void)
{
	unsigned long long count = UINT64_MAX;
	void *params[] = { NULL, &count };
	uint64_t word, n;

	CHECK(!open_queue("gdrcopy_queue_echo", 16, params), "%s", barcopy_last_error());
	for (n = 0; n < 28; n++) /* 13 to 15 are taken and wait for room, or for the next read */
		if (barcopy_queue_send(queue, &n, sizeof(n), 0, n < 14 ? WAIT : 10000000))
			break;
	CHECK(n >= 14, "%llu were sent", (unsigned long long)n);
	OK(barcopy_queue_stop(queue, 0));
	for (uint64_t i = 0; i < n; i++) {
		OK(receive(&word, sizeof(word), NULL));
		CHECK(word == (i | UINT64_C(1) << 32) + 1, "%llx instead of %llu", (unsigned long long)word,
		      (unsigned long long)i);
	}
	OK(finish());
}

/* Kernels that end by themselves: each goes on where the one before stopped, and frees what it took. */
static void test_kernels(void)
{
	enum { KERNELS = 300, EACH = 3, ALL = 15 };
	uint32_t word[2], sent = 0, received = 0;
	unsigned long long count = EACH;
	void *params[] = { &view, &count };
	CUfunction f;

	CHECK(!make_queue("gdrcopy_queue_echo", 16, &f), "%s", barcopy_last_error());
	FAILS(ETIMEDOUT, barcopy_queue_receive(queue, word, sizeof(word), NULL, 0));
	for (int i = 0; i <= KERNELS; i++) {
		if (i == KERNELS) {
			CU(cu.StreamSynchronize(stream));
			count = ALL;
		}
		if (i % 2)
			CU(cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
		for (unsigned long long k = 0; k < count; k++) {
			word[0] = word[1] = sent++;
			OK(i < KERNELS ? send(word, sizeof(word)) :
					 barcopy_queue_send(queue, word, sizeof(word), 0, 0));
		}
		if (i % 2 == 0)
			CU(cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
		for (unsigned long long k = 0; k < count; k++) {
			OK(receive(word, sizeof(word), NULL));
			received++;
			CHECK(word[0] == received && word[1] == received, "%u instead of %u", word[0], received);
		}
	}
	OK(finish());
}

/* Makes and destroys queues, closes the process's last context, and opens another one. */
static int use_queues(unsigned int count)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = 65536 };
	barcopy_queue_t q[200];
	int rc = 0;

	for (unsigned int i = 0; !rc && i < count; i++)
		rc = barcopy_queue_create(test_g, 0, &o, &q[i]);
	for (unsigned int i = 0; !rc && i < count; i++)
		rc = barcopy_queue_destroy(q[i]);
	rc = rc ? rc : gdr_close(test_g);
	test_g = barcopy_open(BARCOPY_OPEN_ANY);
	return rc;
}

/* Of queues that were destroyed the last gdr_close() frees the GPU's memory, without a wait. */
static void test_memory(void)
{
	unsigned int count = *test_gpu.kernel_driver ? 200 : 20, words = 2;
	unsigned long long in, out, round = 1;
	uint64_t word[2] = { 0 };
	void *params[] = { &in, &out, &words, &round, &round };
	size_t before, after, total;
	CUstream other;
	CUfunction f;

	if (!cu.MemGetInfo || !cu.MemcpyHtoDAsync)
		SKIP("no cuMemGetInfo here");
	CHECK(!make_queue("gdrcopy_queue_slots", 0, &f), "%s", barcopy_last_error());
	OK(barcopy_queue_destroy(queue));
	CU(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU(cu.MemAlloc(&in, 4096));
	CU(cu.MemcpyHtoD(in, word, sizeof(word)));
	out = in + 2048;
	for (int resident = 0; resident < 2; resident++) {
		OK(gdr_close(test_g));
		CU(cu.MemGetInfo(&before, &total));
		test_g = barcopy_open(BARCOPY_OPEN_ANY);
		if (resident) /* polls until its words arrive */
			CU(cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
		OK(use_queues(count));
		CU(cu.MemGetInfo(&after, &total));
		printf("# %u queues%s: %lld KiB of the GPU's memory stay\n", count,
		       resident ? " while a kernel runs" : "", ((long long)before - (long long)after) >> 10);
		CHECK(resident || before <= after + (16 << 20), "%zu bytes of %zu are free", after, before);
	}
	CHECK(cu.StreamQuery(stream), "the kernel has ended");
	word[0] = word[1] = (uint64_t)1 << BARCOPY_QUEUE_DATA_BITS;
	CU(cu.MemcpyHtoDAsync(in, word, sizeof(word), other));
	CU(cu.StreamSynchronize(stream));
	CU(cu.StreamDestroy(other));
	CU(cu.MemFree(in));
}

static const struct gpu_test tests[] = {
	{ "every size", test_sizes },
	{ "more laps than a line can name", test_laps },
	{ "order against bulk data", test_bulk_data },
	{ "a wait during a stream capture", test_capture },
	{ "a stop serves what was sent", test_stop },
	{ "kernels that follow each other", test_kernels },
	{ "memory after the last close", test_memory },
};

GPU_TEST_MAIN(tests)
