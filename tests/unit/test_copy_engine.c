// SPDX-License-Identifier: MIT
/*
 * The copy engine by barcopy_set_copy_options(), on the stand-ins: which copies it does and which not,
 * failures of CUDA in the midst of one, and memory that is another's by now.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>

#include "common/resources.h"
#include "common/unit.h"
#include "copy/tune.h"
#include "core/offload.h"
#include "options_sim.h"

static void engine_by_size(void)
{
	unsigned long modes;
	struct mapped m;

	open_mapped(&m);
	both_ways(&m, 5, BIG);
	check_counts(&m, 0, 0);
	OK(set(&m, 4096, 65536));
	both_ways(&m, 3, 4095);
	check_counts(&m, 0, 0);
	modes = cuda_hooks.calls("cuThreadExchangeStreamCaptureMode");
	both_ways(&m, 3, 4096);
	check_counts(&m, 1, 0);
	/* Relaxed for the copy, and as it was after it; the address is looked at likewise. */
	ck_assert_uint_ge(cuda_hooks.calls("cuThreadExchangeStreamCaptureMode"), modes + 2);
	both_ways(&m, 77, 65536);
	check_counts(&m, 3, 0);
	/* Over several chunks, and to the last byte. */
	both_ways(&m, 1000, SIZE - 1000 - 2);
	check_counts(&m, 5, 0);
	start_counts(&m);
	/* AUTO with pageable memory: reads from the known size on, writes never. */
	gdri_offload_know(0, GDRI_ENGINE_MIN_FROM, GDRI_ENGINE_MIN_FROM_LOCKED);
	OK(set(&m, BARCOPY_COPY_ENGINE_AUTO, BARCOPY_COPY_ENGINE_AUTO));
	check_counts(&m, 0, 0);
	both_ways(&m, 9, GDRI_ENGINE_MIN_FROM - 1);
	check_counts(&m, 0, 0);
	both_ways(&m, 9, GDRI_ENGINE_MIN_FROM);
	check_counts(&m, 1, 0);
	start_counts(&m);
	OK(barcopy_set_copy_options(m.h, NULL));
	both_ways(&m, 9, BIG);
	check_counts(&m, 0, 0);
	close_mapped(&m);
}

/* One copy each way from and to that memory; how many the copy engine did. */
static uint64_t by_engine(struct mapped *m, uint8_t *host, size_t size)
{
	uint64_t before = stats_of(m).engine_copies;

	OK(gdr_copy_to_mapping(m->h, m->p + 7, buf + 3, size));
	memset(host, 0, size);
	OK(gdr_copy_from_mapping(m->h, host, m->p + 7, size));
	ck_assert_int_eq(memcmp(host, buf + 3, size), 0);
	OK(gdr_copy_to_mapping(m->h, m->p + 7, host, size));
	return stats_of(m).engine_copies - before;
}

/* AUTO knows page-locked memory, allocated or registered, and asks only where the answer decides. */
static void automatic(void)
{
	uint8_t *pageable, *locked, *registered;
	CUdeviceptr managed;
	unsigned long asked;
	struct mapped m;

	open_mapped(&m);
	pageable = malloc(BIG);
	locked = standin_host_alloc(BIG, 0);
	registered = aligned_alloc(4096, BIG);
	ck_assert(pageable && registered);
	CU(cuda.cuMemHostRegister_v2(registered, BIG, 0));
	gdri_offload_know(0, GDRI_ENGINE_MIN_FROM, GDRI_ENGINE_MIN_FROM_LOCKED);
	OK(set(&m, BARCOPY_COPY_ENGINE_AUTO, BARCOPY_COPY_ENGINE_AUTO));
	asked = cuda_hooks.calls("cuPointerGetAttributes");
	ck_assert_uint_eq(by_engine(&m, pageable, GDRI_ENGINE_MIN_FROM_LOCKED - 1), 0);
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_MIN_FROM_LOCKED - 1), 0);
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerGetAttributes"), asked);
	ck_assert_uint_eq(by_engine(&m, pageable, GDRI_ENGINE_MIN_FROM_LOCKED), 0);
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_MIN_FROM_LOCKED), 1);
	ck_assert_uint_eq(by_engine(&m, registered + 100, GDRI_ENGINE_MIN_FROM_LOCKED), 1);
	CU(cuda.cuMemAllocManaged(&managed, 65536, 1));
	ck_assert_uint_eq(by_engine(&m, (uint8_t *)(uintptr_t)managed, GDRI_ENGINE_MIN_FROM_LOCKED),
			  0);
	asked++;
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerGetAttributes"), asked + 3);
	ck_assert_uint_eq(by_engine(&m, pageable, GDRI_ENGINE_MIN_FROM), 1);
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_MIN_TO_LOCKED - 1), 1);
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_MIN_TO_LOCKED), 2);
	ck_assert_uint_eq(by_engine(&m, registered, BIG), 2);
	ck_assert_uint_eq(by_engine(&m, pageable, BIG), 1);
	/* A question that fails is as good as pageable memory. */
	cuda_hooks.set_fail("cuPointerGetAttributes:*=1");
	ck_assert_uint_eq(by_engine(&m, locked, BIG), 1);
	cuda_hooks.set_fail(NULL);
	/* A size that is asked for holds for every kind; how the end is waited for is another matter. */
	OK(set(&m, 4096, 4096));
	asked = cuda_hooks.calls("cuPointerGetAttributes");
	ck_assert_uint_eq(by_engine(&m, pageable, 4096), 3);
	ck_assert_uint_eq(by_engine(&m, locked, 4096), 3);
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerGetAttributes"), asked + 6);
	CU(cuda.cuMemHostUnregister(registered));
	CU(cuda.cuMemFreeHost(locked));
	free(registered);
	free(pageable);
	close_mapped(&m);
}

/*
 * AUTO is measured when options meet a mapping, once: not by the next handle, not in a copy. Where the driver
 * cannot write words, copies end as they did.
 */
static void measured(void)
{
	unsigned long reads, waits;
	struct mapped m;
	uint8_t *locked;

	open_mapped(&m);
	locked = standin_host_alloc(BIG, 0);
	reads = cuda_hooks.calls("cuMemcpyDtoHAsync");
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	OK(set(&m, BARCOPY_COPY_ENGINE_AUTO, 0));
	ck_assert_uint_eq(cuda_hooks.calls("cuMemcpyDtoHAsync"), reads);
	map_now(&m);
	ck_assert_uint_gt(cuda_hooks.calls("cuMemcpyDtoHAsync"), reads);
	reads = cuda_hooks.calls("cuMemcpyDtoHAsync");
	OK(set(&m, BARCOPY_COPY_ENGINE_AUTO, BARCOPY_COPY_ENGINE_AUTO));
	ck_assert_uint_eq(cuda_hooks.calls("cuMemcpyDtoHAsync"), reads);
	/* Below what a trial can come to nothing is given away, beyond it all. */
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_LEAST - 1), 0);
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_MOST), 2);
	waits = cuda_hooks.calls("cuStreamSynchronize");
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_MOST), 2);
	if (cuda_hooks.calls("cuStreamWriteValue32"))
		ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize"), waits);
	cuda_hooks.set_fail("cuStreamWriteValue32:*=801");
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_MOST), 2);
	cuda_hooks.set_fail(NULL);
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize"), waits + 2);
	check_counts(&m, 6, 0);
	CU(cuda.cuMemFreeHost(locked));
	close_mapped(&m);
}

/*
 * A kernel runs in the legacy stream while the engine copies: neither waits for the other, since the engine's
 * stream is its own and does not block. A copy that waited would end with the kernel, which by then answers
 * nobody.
 */
static void beside_the_legacy_stream(void)
{
	static const char ptx[] = ".version 6.0\n.entry gdrcopy_pplat()";
	uint32_t *words, count = 0, rounds = 1;
	uint64_t timeout_ns = 3000000000u;
	CUdeviceptr ping, pong, status;
	void *params[] = { &ping, &pong, &status, &status, &status, &count, &rounds, &timeout_ns };
	struct mapped m;
	CUmodule module;
	CUfunction f;
	uint8_t *locked;

	open_mapped(&m);
	locked = standin_host_alloc(BIG, 0);
	words = standin_host_alloc(4096, 0);
	memset(words, 0, 4096);
	ping = (uintptr_t)words;
	pong = ping + 64;
	status = ping + 128;
	OK(set(&m, 4096, 4096));
	CU(cuda.cuModuleLoadData(&module, ptx));
	CU(cuda.cuModuleGetFunction(&f, module, "gdrcopy_pplat"));
	CU(cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	ck_assert_uint_eq(by_engine(&m, locked, BIG), 3);
	__atomic_store_n(words, 1, __ATOMIC_SEQ_CST);
	CU(cuda.cuCtxSynchronize());
	ck_assert_uint_eq(__atomic_load_n(&words[16], __ATOMIC_SEQ_CST), 1);
	close_mapped(&m);
}

/* A range may begin anywhere in its pages, the engine's address does so too. */
static void engine_in_a_range(void)
{
	static const size_t starts[] = { 1, 4096 + 3, 65536 + 77, STANDIN_GRANULE - 5 };
	struct mapped m;

	open_mapped(&m);
	OK(gdr_unpin_buffer(m.g, m.h));
	for (size_t i = 0; i < COUNT(starts); i++) {
		CUdeviceptr former = m.v.ptr;
		void *cpu;

		OK(barcopy_map_range(m.g, former + starts[i], 100000, 0, &cpu, &m.h));
		m.p = cpu;
		m.v.ptr += starts[i];
		OK(set(&m, 4096, 4096));
		both_ways(&m, 0, 100000);
		both_ways(&m, 70001, 4096);
		check_counts(&m, 4 * (i + 1), 0);
		m.v.ptr = former;
		OK(barcopy_unmap_range(m.g, m.h));
	}
	close_mapped(&m);
}

static void never_words_or_vectors(void)
{
	uint64_t word = 0x0123456789abcdef, back = 0;
	struct mapped m;
	barcopy_copy_seg_t seg = { .size = BIG };

	open_mapped(&m);
	OK(set(&m, 1, 1));
	OK(gdr_copy_to_mapping(m.h, m.p + 8, &word, 8));
	OK(gdr_copy_from_mapping(m.h, &back, m.p + 8, 8));
	ck_assert_uint_eq(back, word);
	OK(gdr_copy_to_mapping(m.h, m.p + 16, &word, 4));
	OK(gdr_copy_to_mapping(m.h, m.p + 16, &word, 0));
	OK(gdr_copy_from_mapping(m.h, &back, m.p + 16, 0));
	seg.map_ptr = m.p + 11;
	seg.host_ptr = buf;
	OK(barcopy_copyv_to_mapping(m.h, &seg, 1, 0));
	seg.host_ptr = got;
	OK(barcopy_copyv_from_mapping(m.h, &seg, 1, 0));
	ck_assert_int_eq(memcmp(got, buf, BIG), 0);
	check_counts(&m, 0, 0);
	close_mapped(&m);
}

/* Whatever CUDA refuses, the bytes arrive; the thread's context and capture mode are as they were. */
static void failures_of_cuda(void)
{
	static const char *const calls[] = { "cuMemcpyHtoDAsync:*=700", "cuMemcpyDtoHAsync:*=700",
					     "cuStreamSynchronize:*=700", "cuCtxPushCurrent:*=201",
					     "cuPointerGetAttribute:*=1" };
	struct resources before, after;
	struct mapped m;

	open_mapped(&m);
	OK(set(&m, 4096, 4096));
	for (size_t i = 0; i < COUNT(calls); i++) {
		unsigned long waited = cuda_hooks.calls("cuStreamSynchronize");
		uint64_t fallbacks = stats_of(&m).engine_fallbacks;

		resources_look(&before);
		cuda_hooks.set_fail(calls[i]);
		memset(got, 0, BIG);
		OK(gdr_copy_to_mapping(m.h, m.p + 5, buf + i, BIG));
		OK(gdr_copy_from_mapping(m.h, got, m.p + 5, BIG));
		cuda_hooks.set_fail(NULL);
		resources_look(&after);
		ck_assert_int_eq(memcmp(got, buf + i, BIG), 0);
		ck_assert_msg(!resources_differ(&before, &after), "%s: %s", calls[i],
			      resources_differ(&before, &after));
		ck_assert_uint_eq(stats_of(&m).engine_fallbacks - fallbacks, i < 2 ? 1 : 2);
		/* A copy that was refused is waited for too: some of it may be under way. */
		ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize") - waited, i < 3 ? 2 : 0);
	}
	/* The capture mode cannot be had: the copy does without. */
	cuda_hooks.set_fail("cuThreadExchangeStreamCaptureMode:*=801");
	both_ways(&m, 5, BIG);
	cuda_hooks.set_fail(NULL);
	both_ways(&m, 5, BIG);
	close_mapped(&m);
}

/* The primary context is taken by the first who needs it: with this backend the first engine. */
static void no_primary_context(void)
{
	struct mapped m;

	open_mapped(&m);
	cuda_hooks.set_fail("cuDevicePrimaryCtxRetain:*=2");
	FAILS(ENOMEM, set(&m, 4096, 0));
	cuda_hooks.set_fail(NULL);
	OK(set(&m, 4096, 0));
	both_ways(&m, 5, 5000);
	check_counts(&m, 1, 0);
	close_mapped(&m);
}

static void freed_memory(void)
{
	struct mapped m;

	open_mapped(&m);
	OK(set(&m, 4096, 4096));
	OK(gdr_copy_to_mapping(m.h, m.p, buf, BIG));
	standin_vmm_free(&m.v);
	OK(gdr_copy_from_mapping(m.h, got, m.p, BIG));
	ck_assert_int_eq(memcmp(got, buf, BIG), 0);
	check_counts(&m, 1, 1);
	OK(gdr_close(m.g));
	free(buf);
	free(got);
}

/* cudaMalloc memory, freed before its handle ends: the stream ends with the handle all the same. */
static void freed_before_the_unpin(void)
{
	struct mapped m;

	open_mapped(&m);
	for (int round = 0; round < 5; round++) {
		unsigned long made = cuda_hooks.calls("cuStreamCreate");
		unsigned long ended = cuda_hooks.calls("cuStreamDestroy");
		barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 1 };
		CUdeviceptr memory;
		gdr_mh_t h;

		CU(cuda.cuMemAlloc_v2(&memory, 65536));
		OK(gdr_pin_buffer_v2(m.g, memory, 65536, 0, &h));
		OK(barcopy_set_copy_options(h, &o));
		if (round % 2)
			OK(gdr_unpin_buffer(m.g, h));
		CU(cuda.cuMemFree_v2(memory));
		if (round % 2 == 0)
			OK(gdr_unpin_buffer(m.g, h));
		ck_assert_uint_eq(cuda_hooks.calls("cuStreamCreate") - made, 1);
		ck_assert_uint_eq(cuda_hooks.calls("cuStreamDestroy") - ended, 1);
	}
	close_mapped(&m);
}

/* A context of the program's own that has gone took the stream along: nobody enters it for that. */
static void context_gone(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 1 };
	unsigned long ended, entered;
	CUdeviceptr memory;
	struct mapped m;
	CUcontext own;
	gdr_mh_t h;

	open_mapped(&m);
	CU(cuda.cuCtxCreate_v2(&own, 0, 0));
	CU(cuda.cuMemAlloc_v2(&memory, 65536));
	OK(gdr_pin_buffer_v2(m.g, memory, 65536, 0, &h));
	OK(barcopy_set_copy_options(h, &o));
	CU(cuda.cuCtxDestroy_v2(own));
	ended = cuda_hooks.calls("cuStreamDestroy");
	entered = cuda_hooks.calls("cuCtxPushCurrent");
	OK(barcopy_set_copy_options(h, NULL));
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamDestroy"), ended);
	ck_assert_uint_eq(cuda_hooks.calls("cuCtxPushCurrent"), entered);
	OK(gdr_unpin_buffer(m.g, h));
	close_mapped(&m);
}

/* A range that is not to be written is not, whoever would do it. */
static sigjmp_buf fault;

static void on_fault(int sig)
{
	(void)sig;
	siglongjmp(fault, 1);
}

static void write_refused(gdr_mh_t h, void *cpu)
{
	struct sigaction action = { .sa_handler = on_fault }, former;

	ck_assert_int_eq(sigaction(SIGSEGV, &action, &former), 0);
	if (!sigsetjmp(fault, 1))
		FAILS(EACCES, gdr_copy_to_mapping(h, cpu, buf, 65536));
	else
		ck_abort_msg("tried, and not refused");
	ck_assert_int_eq(sigaction(SIGSEGV, &former, NULL), 0);
}

static void read_only_ranges(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = 4096,
				     .engine_write_min = 4096 };
	uint8_t *now = malloc(65536);
	struct mapped m;
	gdr_mh_t h;
	void *cpu;

	open_mapped(&m);
	ck_assert_ptr_nonnull(now);
	OK(barcopy_map_range(m.g, m.v.ptr, 65536, BARCOPY_MAP_RANGE_READ_ONLY, &cpu, &h));
	OK(barcopy_set_copy_options(h, &o));
	CU(cuda.cuMemcpyHtoD_v2(m.v.ptr, buf + 5, 65536));
	write_refused(h, cpu);
	CU(cuda.cuMemcpyDtoH_v2(now, m.v.ptr, 65536));
	ck_assert_int_eq(memcmp(now, buf + 5, 65536), 0);
	memset(got, 0, 65536);
	OK(gdr_copy_from_mapping(h, got, cpu, 65536));
	ck_assert_int_eq(memcmp(got, buf + 5, 65536), 0);
	OK(barcopy_unmap_range(m.g, h));
	close_mapped(&m);
	free(now);
}

/* Another allocation at the address of chunk `at`, full of `fill`; the former chunk is gone. */
static void replace_chunk(struct mapped *m, unsigned int at, uint8_t fill)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = access.location };
	CUdeviceptr va = m->v.ptr + at * m->v.chunk;
	uint8_t *bytes = malloc(m->v.chunk);

	ck_assert_ptr_nonnull(bytes);
	memset(bytes, fill, m->v.chunk);
	CU(cuda.cuMemUnmap(va, m->v.chunk));
	CU(cuda.cuMemRelease(m->v.handles[at]));
	CU(cuda.cuMemCreate(&m->v.handles[at], m->v.chunk, &prop, 0));
	CU(cuda.cuMemMap(va, m->v.chunk, 0, m->v.handles[at], 0));
	CU(cuda.cuMemSetAccess(va, m->v.chunk, &access, 1));
	CU(cuda.cuMemcpyHtoD_v2(va, bytes, m->v.chunk));
	free(bytes);
}

/* What is at chunk `at` of CUDA's address is still all `fill`. */
static void chunk_is(struct mapped *m, unsigned int at, uint8_t fill)
{
	uint8_t *bytes = malloc(m->v.chunk);

	ck_assert_ptr_nonnull(bytes);
	CU(cuda.cuMemcpyDtoH_v2(bytes, m->v.ptr + at * m->v.chunk, m->v.chunk));
	/* All bytes are the first one's. */
	ck_assert_msg(bytes[0] == fill && !memcmp(bytes, bytes + 1, m->v.chunk - 1),
		      "somebody else's chunk was written");
	free(bytes);
}

/* One chunk of a pinned range is another allocation's by now: no copy there goes by the copy engine. */
static void one_chunk_replaced(void)
{
	struct mapped m;
	uint8_t *third;

	open_mapped(&m);
	OK(set(&m, 4096, 4096));
	third = m.p + 2 * STANDIN_GRANULE;
	memset(third, 0x11, STANDIN_GRANULE);
	replace_chunk(&m, 2, 0x77);
	OK(gdr_copy_to_mapping(m.h, third, buf, 65536));
	chunk_is(&m, 2, 0x77);
	ck_assert_int_eq(memcmp(third, buf, 65536), 0);
	OK(gdr_copy_from_mapping(m.h, got, third, 65536));
	ck_assert_int_eq(memcmp(got, buf, 65536), 0);
	check_counts(&m, 0, 2);
	/* Nor one that only ends there, or begins. */
	OK(gdr_copy_to_mapping(m.h, third - 4096, buf, 8192));
	OK(gdr_copy_to_mapping(m.h, third + STANDIN_GRANULE - 4096, buf, 8192));
	chunk_is(&m, 2, 0x77);
	check_counts(&m, 0, 4);
	/* The others are what they were. */
	both_ways(&m, 5, STANDIN_GRANULE);
	check_counts(&m, 2, 4);
	close_mapped(&m);
}

/* All of it freed and its address another's before the copy engine is asked for. */
static void replaced_before_the_options(void)
{
	struct mapped m;

	open_mapped(&m);
	for (unsigned int i = 0; i < 4; i++)
		replace_chunk(&m, i, 0x77);
	FAILS(EINVAL, set(&m, 4096, 4096));
	ck_assert_ptr_nonnull(strstr(barcopy_last_error(), "freed"));
	OK(gdr_copy_to_mapping(m.h, m.p, buf, BIG));
	for (unsigned int i = 0; i < 4; i++)
		chunk_is(&m, i, 0x77);
	/* Threads are no matter of whose the memory is. */
	OK(set(&m, 0, 0));
	close_mapped(&m);
}

static const struct unit_test tests[] = {
	{ "copy engine by size", engine_by_size, "" },
	{ "AUTO and page-locked memory", automatic, "" },
	{ "AUTO is measured", measured, "" },
	{ "beside the legacy stream", beside_the_legacy_stream, "" },
	{ "copy engine in a range", engine_in_a_range, "" },
	{ "never for words or vectors", never_words_or_vectors, "" },
	{ "CUDA fails in a copy", failures_of_cuda, "" },
	{ "no primary context for an engine", no_primary_context,
	  "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
	{ "freed memory", freed_memory, "" },
	{ "memory freed before the unpin", freed_before_the_unpin, "" },
	{ "a context of the program's has gone", context_gone, "" },
	{ "read-only ranges", read_only_ranges, "" },
	{ "one chunk is another's", one_chunk_replaced, "" },
	{ "another's before the options", replaced_before_the_options, "" },
};

UNIT_MAIN("copy engine", tests)
