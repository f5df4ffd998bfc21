/* SPDX-License-Identifier: MIT */
/*
 * A mapping of real memory or the stand-in's in a forked child, and during a running kernel that
 * polls it. Pins, maps and copies are in gdrcopy_sanity, threads that pin in test_rm.c.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu_test.h"
#include "pplat/ptx.h"

enum { SLICE = 65536 };

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
	{ "a forked child can do nothing, the parent goes on", children },
	{ "a running kernel polls plain stores", running_kernel_polls },
};

GPU_TEST_MAIN(tests)
