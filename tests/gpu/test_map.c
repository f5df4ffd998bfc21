/* SPDX-License-Identifier: MIT */
/*
 * Pin, map and copy on real memory or the stand-in's: every small size at every offset both ways
 * against cuMemcpy, large copies, several chunks and handles, threads that copy (test_rm.c has
 * those that pin), fork, and memory freed before its unpin.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
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
			/* Such memory refuses SYNC_MEMOPS: the copy can still be under way. */
			CU(cu.CtxSynchronize());
			pattern(in, (size_t)size, (unsigned int)(size * 7 + offset * 3 + 1));
			OK(gdr_copy_to_mapping(m.h, m.p + at, in, (size_t)size));
			memcpy(expect + offset, in, (size_t)size);
			CU(cu.MemcpyDtoH(got, m.v.ptr + 4096 - 64, sizeof(got)));
			CHECK(!memcmp(got, expect, sizeof(got)), "to: size %d offset %d", size,
			      offset);

			/* GPU to CPU: the same, at an odd place in host memory. */
			memset(out, 0xa5, sizeof(out));
			OK(gdr_copy_from_mapping(m.h, out + 1, m.p + at, (size_t)size));
			CHECK(!memcmp(out + 1, in, (size_t)size) && out[0] == 0xa5 &&
				      out[size + 1] == 0xa5,
			      "from: size %d offset %d", size, offset);
		}
	OK(mapped_close(&m));
}

static void round_trip(void)
{
	const struct vmm *kind = test_arg;
	struct mapped m;

	if (mapped_open(&m, kind->size, kind->count))
		return;
	CHECK(m.v.count == kind->count, "%u chunks", m.v.count);
	CHECK(both_ways(m.h, m.p, m.v.ptr, m.v.size, 1), "other bytes");
	OK(mapped_close(&m));
}

/* From inside the first chunk to inside the third, unaligned at both ends. */
static void part_of_chunks(void)
{
	struct mapped m;
	size_t size;

	if (vmm_alloc(&m.v, (size_t)8 << 20, 4, EXPORTABLE))
		return;
	size = m.v.chunk + 7000;
	OK(pin_and_map(&m, m.v.ptr + m.v.chunk - 5000, size));
	CHECK(m.info.va == (m.addr & ~0xffffULL), "va 0x%llx", (unsigned long long)m.info.va);
	CHECK(m.info.mapped_size % 65536 == 0 && m.info.va + m.info.mapped_size >= m.addr + size,
	      "mapped_size %llu", (unsigned long long)m.info.mapped_size);
	CHECK(both_ways(m.h, m.p + 3000, m.addr + 3000, 4096, 3), "bytes across a chunk border");
	OK(gdr_unpin_buffer(test_g, m.h)); /* unmaps as well */
	vmm_free(&m.v);
}

static void two_handles(void)
{
	uint64_t a = 0x1122334455667788, b = 0;
	struct vmm v;
	gdr_mh_t h1, h2;
	void *p1, *p2;

	if (vmm_alloc(&v, 2 << 20, 1, EXPORTABLE))
		return;
	OK(gdr_pin_buffer_v2(test_g, v.ptr, 65536, 0, &h1));
	OK(gdr_pin_buffer_v2(test_g, v.ptr, 131072, 0, &h2));
	OK(gdr_map(test_g, h1, &p1, 65536));
	FAILS(EAGAIN, gdr_map(test_g, h1, &p2, 65536));
	OK(gdr_map(test_g, h2, &p2, 131072));
	CHECK(p1 != p2, "two mappings at one address");
	OK(gdr_copy_to_mapping(h1, (uint8_t *)p1 + 512, &a, sizeof(a)));
	OK(gdr_copy_from_mapping(h2, &b, (uint8_t *)p2 + 512, sizeof(b)));
	CHECK(a == b, "written by one handle, read by the other: 0x%llx", (unsigned long long)b);
	FAILS(EINVAL, gdr_unmap(test_g, h1, p2, 65536));
	OK(gdr_unpin_buffer(test_g, h1));
	OK(gdr_copy_from_mapping(h2, &b, (uint8_t *)p2 + 512, sizeof(b)));
	FAILS(EINVAL, gdr_copy_from_mapping(h1, &b, p1, 8));
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
		CHECK(!pthread_create(&t[i], NULL, thread_copies, &jobs[i]), "pthread_create");
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (unsigned int i = 0; i < THREADS; i++)
		CHECK(!jobs[i].error, "thread %u: %s", i, jobs[i].error);
	OK(mapped_close(&m));
}

enum end { BY_RETURN, BY_EXIT, BY_EXEC, BY_SIGNAL, BY_STORE, BY_LOAD, ENDS };

struct child {
	struct mapped *m;
	enum end end;
};

/* Every call fails and no page of the mapping is inherited; then the child ends. */
static int child(void *arg)
{
	struct mapped *m = ((struct child *)arg)->m;
	unsigned char resident;
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
		return 1;
	for (size_t at = 0; at < m->info.mapped_size; at += 4096)
		if (!mincore((char *)m->map + at, 4096, &resident) || errno != ENOMEM)
			return 2;
	/* No core, no sanitizer's report: the fault is expected. */
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	switch (((struct child *)arg)->end) {
	case BY_EXIT:
		exit(0);
	case BY_EXEC:
		execl("/bin/true", "true", (char *)NULL);
		return 3;
	case BY_SIGNAL:
		raise(SIGKILL);
		return 4;
	case BY_STORE:
		*(volatile uint8_t *)m->p = 1;
		return 5;
	case BY_LOAD:
		(void)*(volatile uint8_t *)m->p;
		return 6;
	default:
		return 0;
	}
}

/* Of a whole chunk, and of a part of one. */
static void children(void)
{
	static const size_t sizes[] = { 2 << 20, SLICE };
	struct mapped m;

	if (vmm_alloc(&m.v, 2 << 20, 1, EXPORTABLE))
		return;
	for (size_t i = 0; i < 2; i++) {
		OK(pin_and_map(&m, m.v.ptr + (i ? SLICE : 0), sizes[i]));
		for (int end = 0; end < ENDS; end++) {
			int status = in_child(child, &(struct child){ &m, (enum end)end });
			bool fault = status == 128 + SIGSEGV || status == 128 + SIGBUS;

			CHECK(end == BY_SIGNAL	? status == 128 + SIGKILL
			      : end < BY_SIGNAL ? !status
						: fault,
			      "%zu bytes, end %d: status %d", sizes[i], end, status);
			CHECK(both_ways(m.h, m.p, m.addr, 300, (unsigned int)end),
			      "the parent has other bytes after end %d", end);
		}
		OK(unmap_and_unpin(&m));
	}
	vmm_free(&m.v);
}

/* Its address is given out again, with other memory: a persistent mapping keeps the first. */
static void freed_before_unpin(void)
{
	const bool vmm = test_arg;
	size_t size = 2 << 20;
	uint8_t a[256], b[256];
	uint64_t persistent;
	struct mapped m;
	CUdeviceptr p, q;
	int flag = -1, rc;

	if (vmm && vmm_alloc(&m.v, size, 1, EXPORTABLE))
		return;
	if (!vmm)
		CU(cu.MemAlloc(&m.v.ptr, size));
	p = q = m.v.ptr;
	rc = pin_and_map(&m, p, size);
	if (rc == ENOTSUP && !vmm) {
		cu.MemFree(p);
		SKIP("%s", barcopy_last_error());
	}
	OK(rc);
	pattern(a, sizeof(a), 77);
	OK(gdr_copy_to_mapping(m.h, m.p, a, sizeof(a)));
	OK(barcopy_get_handle_attribute(test_g, m.h, BARCOPY_HANDLE_ATTR_PERSISTENT, &persistent));
	if (vmm) {
		vmm_unmap(&m.v);
		CU(vmm_map(q, size, EXPORTABLE));
		m.v.mapped = true;
	} else {
		CU(cu.MemFree(p));
		CU(cu.MemAlloc(&q, size));
	}
	OK(gdr_get_callback_flag(test_g, m.h, &flag));
	CHECK(flag == !persistent, "callback flag %d", flag);
	if (persistent) {
		pattern(b, sizeof(b), 78);
		CU(cu.MemcpyHtoD(q, b, sizeof(b)));
		CU(cu.CtxSynchronize());
		OK(gdr_copy_from_mapping(m.h, b, m.p, sizeof(b)));
		CHECK(!memcmp(a, b, sizeof(a)), "the pinned memory changed after its free");
		pattern(a, sizeof(a), 79);
		OK(gdr_copy_to_mapping(m.h, m.p, a, sizeof(a)));
		CU(cu.MemcpyDtoH(b, q, sizeof(b)));
		CHECK(memcmp(a, b, sizeof(a)), "a write after the free reached new memory");
	}
	OK(unmap_and_unpin(&m));
	if (vmm)
		vmm_free(&m.v);
	else
		CU(cu.MemFree(q));
}

static void close_cleans_up(void)
{
	uint64_t v = 0;
	struct vmm vm;
	gdr_mh_t h;
	void *va;
	gdr_t g;

	if (vmm_alloc(&vm, 2 << 20, 1, EXPORTABLE))
		return;
	g = barcopy_open(BARCOPY_OPEN_ANY);
	CHECK(g, "%s", barcopy_last_error());
	OK(gdr_pin_buffer_v2(g, vm.ptr, 65536, 0, &h));
	OK(gdr_map(g, h, &va, 65536));
	OK(gdr_close(g));
	FAILS(EINVAL, gdr_copy_from_mapping(h, &v, va, 8));
	FAILS(EINVAL, gdr_close(g));
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
	CHECK(got == 7, "%llu", (unsigned long long)got);
	OK(mapped_close(&m));
}

enum { KERNEL_WORDS = 100, KERNEL_ROUNDS = 50 };

/* Stores a message, a fence and a flag; waits for the answer. Returns the number of wrong words. */
static unsigned int ask_kernel(struct mapped *m, const _Atomic uint32_t *pong, uint32_t round)
{
	const _Atomic uint32_t *answer = pong + 256;
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

/* As in UCCL and MSCCL++: the kernel runs already, and polls what the CPU stores. */
static void running_kernel_polls(void)
{
	uint32_t words = KERNEL_WORDS, rounds = KERNEL_ROUNDS;
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
	ping = m.v.ptr, message = m.v.ptr + 4096;
	pong = at, status = at + 64, answer = at + 1024;
	CU(cu.ModuleLoadData(&module, pplat_ptx));
	CU(cu.ModuleGetFunction(&f, module, "gdrcopy_pplat"));
	CU(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cu.CtxSynchronize());
	CU(cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
	for (uint32_t round = 1; round <= rounds; round++) {
		unsigned int wrong = ask_kernel(&m, memory, round);

		CHECK(!wrong, "round %u: %u wrong words", round, wrong);
	}
	CU(cu.StreamSynchronize(stream));
	CU(cu.StreamDestroy(stream));
	CU(cu.ModuleUnload(module));
	CU(cu.MemFreeHost(memory));
	OK(mapped_close(&m));
}

static const struct gpu_test tests[] = {
	{ "every size 1 to 300 at every offset 0 to 130, both ways", every_size_and_offset },
	{ "64 MiB both ways", round_trip, &(struct vmm){ .size = 64 << 20, .count = 1 } },
	{ "several VMM chunks", round_trip, &(struct vmm){ .size = 8 << 20, .count = 4 } },
	{ "part of several chunks, unaligned", part_of_chunks },
	{ "two handles of one buffer", two_handles },
	{ "threads copy on one handle", threads },
	{ "a forked child can do nothing, the parent goes on", children },
	{ "cuMemCreate memory freed before its unpin", freed_before_unpin, "vmm" },
	{ "cuMemAlloc memory freed before its unpin", freed_before_unpin },
	{ "gdr_close cleans up", close_cleans_up },
	{ "stores through the pointer", atomics_through_the_pointer },
	{ "a running kernel polls plain stores", running_kernel_polls },
};

GPU_TEST_MAIN(tests)
