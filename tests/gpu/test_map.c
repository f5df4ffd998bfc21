/* SPDX-License-Identifier: MIT */
/*
 * Pin, map and copy on real memory (or the stand-in's): every small size at every offset both
 * ways against cuMemcpy, large copies, several chunks and handles, threads that copy (those that pin: test_rm.c),
 * fork, and memory freed before its unpin.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_test.h"
#include "pplat/ptx.h"

enum { MAX_SIZE = 300, MAX_OFFSET = 130 };

static void every_size_and_offset(void)
{
	uint8_t in[MAX_SIZE], expect[512], got[512], out[MAX_SIZE + 2];
	struct mapped m;
	int max = getenv("GDRCOPY_TEST_QUICK") ? 70 : MAX_SIZE;

	if (mapped_open(&m, 1 << 20, 1))
		return;
	for (int size = 1; size <= max; size++)
		for (int offset = 0; offset <= MAX_OFFSET; offset++) {
			size_t at = 4096 - 64 + (size_t)offset; /* across a page too */

			/* CPU to GPU: the bytes, and none beside them. */
			pattern(expect, sizeof(expect), (unsigned int)(size * 131 + offset));
			CU(cu.MemcpyHtoD(m.v.ptr + 4096 - 64, expect, sizeof(expect)));
			/* VMM memory refuses SYNC_MEMOPS: the copy may still be under way. */
			CU(cu.CtxSynchronize());
			pattern(in, (size_t)size, (unsigned int)(size * 7 + offset * 3 + 1));
			OK(gdr_copy_to_mapping(m.h, m.p + at, in, (size_t)size));
			memcpy(expect + offset, in, (size_t)size);
			CU(cu.MemcpyDtoH(got, m.v.ptr + 4096 - 64, sizeof(got)));
			EXPECT(!memcmp(got, expect, sizeof(got)), "to: size %d offset %d", size,
			       offset);

			/* GPU to CPU: the same, at an odd place in host memory. */
			memset(out, 0xa5, sizeof(out));
			OK(gdr_copy_from_mapping(m.h, out + 1, m.p + at, (size_t)size));
			EXPECT(!memcmp(out + 1, in, (size_t)size) && out[0] == 0xa5 &&
				       out[size + 1] == 0xa5,
			       "from: size %d offset %d", size, offset);
		}
	OK(mapped_close(&m));
}

static void round_trip(size_t size, unsigned int chunks)
{
	uint8_t *a = malloc(size), *b = malloc(size);
	struct mapped m;

	EXPECT(a && b, "no memory");
	if (mapped_open(&m, size, chunks))
		return;
	EXPECT(m.v.count == chunks, "%u chunks", m.v.count);
	pattern(a, size, 1);
	OK(gdr_copy_to_mapping(m.h, m.p, a, size));
	CU(cu.MemcpyDtoH(b, m.v.ptr, size));
	EXPECT(!memcmp(a, b, size), "to: the GPU has other bytes");
	pattern(a, size, 2);
	CU(cu.MemcpyHtoD(m.v.ptr, a, size));
	CU(cu.CtxSynchronize());
	OK(gdr_copy_from_mapping(m.h, b, m.p, size));
	EXPECT(!memcmp(a, b, size), "from: the CPU has other bytes");
	OK(mapped_close(&m));
	free(a);
	free(b);
}

static void large(void)
{
	round_trip((size_t)64 << 20, 1);
}

static void several_chunks(void)
{
	round_trip((size_t)8 << 20, 4);
}

static void part_of_chunks(void)
{
	uint8_t buf[4096], got[4096];
	uint64_t inside;
	gdr_info_t info;
	struct vmm v;
	gdr_mh_t h;
	void *va;

	if (vmm_alloc(&v, (size_t)8 << 20, 4, true))
		return;
	/* From inside the first chunk to inside the third, unaligned at both ends. */
	inside = v.ptr + v.chunk - 5000;
	OK(gdr_pin_buffer_v2(test_g, inside, v.chunk + 7000, 0, &h));
	OK(gdr_get_info(test_g, h, &info));
	EXPECT(info.va == (inside & ~0xffffULL), "va 0x%llx", (unsigned long long)info.va);
	EXPECT(info.mapped_size % 65536 == 0 &&
		       info.va + info.mapped_size >= inside + v.chunk + 7000,
	       "mapped_size %llu", (unsigned long long)info.mapped_size);
	OK(gdr_map(test_g, h, &va, info.mapped_size));
	pattern(buf, sizeof(buf), 3);
	/* Across the border of two chunks. */
	OK(gdr_copy_to_mapping(h, (uint8_t *)va + (v.ptr + v.chunk - 2000 - info.va), buf,
			       sizeof(buf)));
	CU(cu.MemcpyDtoH(got, v.ptr + v.chunk - 2000, sizeof(got)));
	EXPECT(!memcmp(buf, got, sizeof(buf)), "bytes across a chunk border");
	OK(gdr_unpin_buffer(test_g, h)); /* unmaps as well */
	vmm_free(&v);
}

static void two_handles(void)
{
	uint64_t a = 0x1122334455667788, b = 0;
	struct vmm v;
	gdr_mh_t h1, h2;
	void *p1, *p2;

	if (vmm_alloc(&v, 2 << 20, 1, true))
		return;
	OK(gdr_pin_buffer_v2(test_g, v.ptr, 65536, 0, &h1));
	OK(gdr_pin_buffer_v2(test_g, v.ptr, 131072, 0, &h2));
	OK(gdr_map(test_g, h1, &p1, 65536));
	EXPECT(gdr_map(test_g, h1, &p2, 65536) == EAGAIN, "a second map of one handle");
	OK(gdr_map(test_g, h2, &p2, 131072));
	EXPECT(p1 != p2, "two mappings at one address");
	OK(gdr_copy_to_mapping(h1, (uint8_t *)p1 + 512, &a, sizeof(a)));
	OK(gdr_copy_from_mapping(h2, &b, (uint8_t *)p2 + 512, sizeof(b)));
	EXPECT(a == b, "written by one handle, read by the other: 0x%llx", (unsigned long long)b);
	EXPECT(gdr_unmap(test_g, h1, p2, 65536) == EINVAL, "unmapped another handle's mapping");
	OK(gdr_unpin_buffer(test_g, h1));
	OK(gdr_copy_from_mapping(h2, &b, (uint8_t *)p2 + 512, sizeof(b)));
	EXPECT(gdr_copy_from_mapping(h1, &b, p1, 8) == EINVAL, "a copy on a stale handle");
	OK(gdr_unpin_buffer(test_g, h2));
	vmm_free(&v);
}

struct job {
	struct mapped *m;
	unsigned int id;
	const char *error;
};

enum { THREADS = 8, SLICE = 65536, ROUNDS = 50 };

static void *thread_copies(void *arg)
{
	struct job *job = arg;
	uint8_t *a = malloc(SLICE), *b = malloc(SLICE);
	uint8_t *place = job->m->p + job->id * SLICE;

	for (unsigned int i = 0; i < ROUNDS && !job->error; i++) {
		pattern(a, SLICE, job->id * 1000 + i);
		if (gdr_copy_to_mapping(job->m->h, place, a, SLICE) ||
		    gdr_copy_from_mapping(job->m->h, b, place, SLICE))
			job->error = "a copy failed";
		else if (memcmp(a, b, SLICE))
			job->error = "wrong bytes";
	}
	free(a);
	free(b);
	return NULL;
}

static void threads(void)
{
	struct job jobs[THREADS];
	pthread_t t[THREADS];
	struct mapped m;

	if (mapped_open(&m, THREADS * SLICE, 1))
		return;
	for (unsigned int i = 0; i < THREADS; i++) {
		jobs[i] = (struct job){ .m = &m, .id = i };
		EXPECT(!pthread_create(&t[i], NULL, thread_copies, &jobs[i]), "pthread_create");
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (unsigned int i = 0; i < THREADS; i++)
		EXPECT(!jobs[i].error, "thread %u: %s", i, jobs[i].error);
	OK(mapped_close(&m));
}

/* What a child that runs fn ends with: its exit status, or 128 + signal. */
static int in_child(void (*fn)(struct mapped *), struct mapped *m)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		fn(m);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void child_loads(struct mapped *m)
{
	/* No core, no sanitizer report: the fault is what is expected. */
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	(void)*(volatile uint8_t *)m->p;
}

static void child_calls(struct mapped *m)
{
	uint64_t v = 0;
	gdr_mh_t h;
	void *va;
	int flag;

	if (gdr_copy_from_mapping(m->h, &v, m->p, 8) != EACCES ||
	    gdr_copy_to_mapping(m->h, m->p, &v, 8) != EACCES ||
	    gdr_pin_buffer_v2(test_g, m->v.ptr, 65536, 0, &h) != EACCES ||
	    gdr_map(test_g, m->h, &va, 4096) != EACCES ||
	    gdr_unmap(test_g, m->h, m->p, m->v.size) != EACCES ||
	    gdr_get_callback_flag(test_g, m->h, &flag) != EACCES ||
	    gdr_unpin_buffer(test_g, m->h) != EACCES || gdr_close(test_g) != EACCES)
		_exit(1);
}

static void forked_child(void)
{
	uint64_t a = 42, b = 0;
	struct mapped m;
	int status;

	if (mapped_open(&m, 2 << 20, 1))
		return;
	OK(gdr_copy_to_mapping(m.h, m.p, &a, 8));
	status = in_child(child_calls, &m);
	EXPECT(status == 0, "a child's calls: status %d, not EACCES each", status);
	status = in_child(child_loads, &m);
	EXPECT(status == 128 + SIGSEGV || status == 128 + SIGBUS,
	       "a child's load from the mapping: status %d, not a fault", status);
	/* The parent goes on. */
	OK(gdr_copy_from_mapping(m.h, &b, m.p, 8));
	EXPECT(a == b, "0x%llx", (unsigned long long)b);
	OK(mapped_close(&m));
}

/* Of a map of 64 KiB out of a chunk, what is there in a child. */
static void child_looks_around(struct mapped *m)
{
	unsigned char resident;

	for (size_t at = 0; at < SLICE; at += 4096)
		if (!mincore(m->p + at, 4096, &resident))
			_exit(1);
}

/* A part of a chunk: none of what is mapped for it may be inherited. */
static void child_inherits_nothing(void)
{
	struct mapped m;
	int status;
	void *va;

	if (vmm_alloc(&m.v, 2 << 20, 1, true))
		return;
	OK(gdr_pin_buffer_v2(test_g, m.v.ptr + SLICE, SLICE, 0, &m.h));
	OK(gdr_map(test_g, m.h, &va, SLICE));
	m.p = va;
	status = in_child(child_looks_around, &m);
	EXPECT(status == 0, "a part of the chunk is mapped in a child: status %d", status);
	OK(gdr_unpin_buffer(test_g, m.h));
	vmm_free(&m.v);
}

static void free_before_unpin(void)
{
	uint64_t a = 0xfeedface, b = 0, persistent;
	struct mapped m;
	int flag = -1;

	if (mapped_open(&m, 2 << 20, 1))
		return;
	OK(gdr_copy_to_mapping(m.h, m.p, &a, 8));
	OK(barcopy_get_handle_attribute(test_g, m.h, BARCOPY_HANDLE_ATTR_PERSISTENT, &persistent));
	vmm_unmap(&m.v);
	OK(gdr_get_callback_flag(test_g, m.h, &flag));
	EXPECT(flag == !persistent, "callback flag %d", flag);
	if (persistent) {
		OK(gdr_copy_from_mapping(m.h, &b, m.p, 8));
		EXPECT(a == b, "memory changed after its free: 0x%llx", (unsigned long long)b);
	}
	OK(mapped_close(&m));
}

static void close_cleans_up(void)
{
	uint64_t v = 0;
	struct vmm vm;
	gdr_mh_t h;
	void *va;
	gdr_t g;

	if (vmm_alloc(&vm, 2 << 20, 1, true))
		return;
	g = barcopy_open(BARCOPY_OPEN_ANY);
	EXPECT(g, "%s", barcopy_last_error());
	OK(gdr_pin_buffer_v2(g, vm.ptr, 65536, 0, &h));
	OK(gdr_map(g, h, &va, 65536));
	OK(gdr_close(g));
	EXPECT(gdr_copy_from_mapping(h, &v, va, 8) == EINVAL, "a handle outlived its context");
	EXPECT(gdr_close(g) == EINVAL, "a second close");
	vmm_free(&vm);
}

static void atomics_through_the_pointer(void)
{
	_Atomic uint64_t *flag;
	uint64_t got = 0;
	struct mapped m;

	if (mapped_open(&m, 2 << 20, 1))
		return;
	flag = (_Atomic uint64_t *)(void *)(m.p + 64);
	*flag = 7;
	OK(barcopy_flush(m.h));
	CU(cu.MemcpyDtoH(&got, m.v.ptr + 64, 8));
	EXPECT(got == 7, "%llu", (unsigned long long)got);
	OK(mapped_close(&m));
}

enum { KERNEL_WORDS = 100, KERNEL_ROUNDS = 50 };

/* Message, fence and flag of a round by plain stores, until the kernel has answered. The count of wrong words. */
static unsigned int ask_kernel(struct mapped *m, volatile uint32_t *pong,
			       const volatile uint32_t *answer, uint32_t round)
{
	volatile uint32_t *ping = (uint32_t *)(void *)m->p, *message = ping + 1024;
	unsigned int wrong = 0;

	for (uint32_t i = 0; i < KERNEL_WORDS; i++)
		message[i] = i * 77 + round * 1000;
	barcopy_fence(m->h, BARCOPY_FENCE_AFTER_WRITE);
	*ping = round;
	barcopy_fence(m->h, BARCOPY_FENCE_AFTER_WRITE);
	for (int i = 0; *pong != round && i < 10000000; i++)
		sched_yield();
	for (uint32_t i = 0; i < KERNEL_WORDS; i++)
		wrong += answer[i] != i * 77 + round * 1000 + round;
	return wrong;
}

/* As UCCL and MSCCL++ do: the kernel runs already, and polls what the CPU stores. */
static void running_kernel_polls(void)
{
	uint32_t words = KERNEL_WORDS, rounds = KERNEL_ROUNDS, *host;
	uint64_t timeout = UINT64_C(10000000000);
	CUdeviceptr at, ping, pong, status, message, answer;
	void *args[] = { &ping, &pong, &status, &message, &answer, &words, &rounds, &timeout };
	struct mapped m;
	CUmodule module;
	CUfunction f;
	CUstream stream;
	void *memory;

	if (mapped_open(&m, 2 << 20, 1))
		return;
	CU(cu.MemsetD8(m.v.ptr, 0, 8192));
	CU(cu.MemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(memory, 0, 4096);
	CU(cu.MemHostGetDevicePointer(&at, memory, 0));
	host = memory;
	ping = m.v.ptr, message = m.v.ptr + 4096;
	pong = at, status = at + 64, answer = at + 1024;
	CU(cu.ModuleLoadData(&module, pplat_ptx));
	CU(cu.ModuleGetFunction(&f, module, "gdrcopy_pplat"));
	CU(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cu.CtxSynchronize());
	CU(cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
	for (uint32_t round = 1; round <= rounds; round++) {
		unsigned int wrong = ask_kernel(&m, host, host + 256, round);

		EXPECT(!wrong, "round %u: %u wrong words", round, wrong);
	}
	CU(cu.StreamSynchronize(stream));
	CU(cu.StreamDestroy(stream));
	CU(cu.ModuleUnload(module));
	CU(cu.MemFreeHost(memory));
	OK(mapped_close(&m));
}

static const struct gpu_test tests[] = {
	{ "every size 1 to 300 at every offset 0 to 130, both ways", every_size_and_offset },
	{ "64 MiB both ways", large },
	{ "several VMM chunks", several_chunks },
	{ "part of several chunks, unaligned", part_of_chunks },
	{ "two handles of one buffer", two_handles },
	{ "threads copy on one handle", threads },
	{ "a forked child can do nothing, the parent goes on", forked_child },
	{ "a forked child inherits nothing of a chunk", child_inherits_nothing },
	{ "memory freed before its unpin", free_before_unpin },
	{ "gdr_close cleans up", close_cleans_up },
	{ "stores through the pointer", atomics_through_the_pointer },
	{ "a running kernel polls plain stores", running_kernel_polls },
};

GPU_TEST_MAIN(tests)
