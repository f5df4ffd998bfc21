// SPDX-License-Identifier: MIT
/*
 * The copy engine by barcopy_set_copy_options(), on the stand-ins: which copies it does and which
 * not, failures of CUDA in the midst of one, and memory that is another's by now.
 */

#include <signal.h>

#include "common/resources.h"
#include "common/wrap.h"
#include "core/handle.h"
#include "core/offload.h"
#include "cuda/private.h"
#include "mapped.h"

/* AUTO's sizes where the end of copies is polled; the largest read by a block. */
enum { READ = 8 << 10, READ_LOCKED = 7 << 10, WRITE_LOCKED = 320 << 10, BLOCK = 64 << 10 };

static void device_memory_only(void)
{
	void *host = standin_host_alloc(65536, 0);
	struct gdri_cuda_engine *e;

	FAILS_WITH(-ENOTSUP, "device memory only",
		   gdri_cuda_engine_new((uintptr_t)host, 65536, &e, NULL));
	FAILS_WITH(-ENOTSUP, "device memory only: pageable host memory",
		   gdri_cuda_engine_new((uintptr_t)&e, 1, &e, NULL));
}

static void engine_by_size(void)
{
	unsigned long modes;

	both_ways(5, BIG);
	check_counts(0, 0);
	OK(set(4096, 65536));
	both_ways(3, 4095);
	check_counts(0, 0);
	modes = cuda_hooks.calls("cuThreadExchangeStreamCaptureMode");
	both_ways(3, 4096);
	check_counts(1, 0);
	/* The capture mode is relaxed for the copy and the question before it, then restored. */
	ck_assert_uint_ge(cuda_hooks.calls("cuThreadExchangeStreamCaptureMode"), modes + 2);
	both_ways(77, 65536);
	check_counts(3, 0);
	/* Over several chunks, and to the last byte. */
	both_ways(1000, SIZE - 1000 - 2);
	check_counts(5, 0);
	start_counts();
	/* AUTO with pageable memory: large reads, and never writes. */
	OK(set(BARCOPY_COPY_ENGINE_AUTO, BARCOPY_COPY_ENGINE_AUTO));
	check_counts(0, 0);
	both_ways(9, READ - 1);
	check_counts(0, 0);
	both_ways(9, READ);
	check_counts(1, 0);
	start_counts();
	/* The stream ends in the mode that copies have. */
	modes = cuda_hooks.calls("cuThreadExchangeStreamCaptureMode");
	OK(barcopy_set_copy_options(h, NULL));
	ck_assert_uint_eq(cuda_hooks.calls("cuThreadExchangeStreamCaptureMode"), modes + 2);
	both_ways(9, BIG);
	check_counts(0, 0);
}

/* A read to that memory and two writes, one of them from it: so many by the engine. */
static void by_engine(int line, uint8_t *host, size_t size, uint64_t copies,
		      unsigned long questions)
{
	unsigned long asked = cuda_hooks.calls("cuPointerGetAttributes");
	uint64_t before = stats_of(g).engine_copies;

	OK(gdr_copy_to_mapping(h, p + 7, buf + 3, size));
	memset(host, 0, size);
	OK(gdr_copy_from_mapping(h, host, p + 7, size));
	ck_assert_mem_eq(host, buf + 3, size);
	OK(gdr_copy_to_mapping(h, p + 7, host, size));
	copies -= stats_of(g).engine_copies - before;
	questions -= cuda_hooks.calls("cuPointerGetAttributes") - asked;
	ck_assert_msg(!copies && !questions, "line %d: %ld copies and %ld questions too few", line,
		      (long)copies, (long)questions);
}
#define BY_ENGINE(...) by_engine(__LINE__, __VA_ARGS__)

/* AUTO knows page-locked memory, and asks CUDA only where the answer decides. */
static void automatic(void)
{
	static uint8_t pageable[BIG], registered[BIG + 4096] __attribute__((aligned(4096)));
	uint8_t *locked = standin_host_alloc(BIG, 0);
	CUdeviceptr managed;

	CU(cuda.cuMemHostRegister_v2(registered, BIG, 0));
	CU(cuda.cuMemAllocManaged(&managed, 65536, 1));
	OK(set(BARCOPY_COPY_ENGINE_AUTO, BARCOPY_COPY_ENGINE_AUTO));
	BY_ENGINE(pageable, READ_LOCKED - 1, 0, 0);
	BY_ENGINE(locked, READ_LOCKED - 1, 0, 0);
	BY_ENGINE(pageable, READ_LOCKED, 0, 1);
	BY_ENGINE(locked, READ_LOCKED, 1, 1);
	BY_ENGINE(registered + 100, READ_LOCKED, 1, 1);
	BY_ENGINE((uint8_t *)(uintptr_t)managed, READ_LOCKED, 0, 1);
	BY_ENGINE(pageable, READ, 1, 1);
	BY_ENGINE(locked, WRITE_LOCKED - 1, 1, 1);
	BY_ENGINE(locked, WRITE_LOCKED, 2, 3);
	BY_ENGINE(registered, BIG, 2, 3);
	BY_ENGINE(pageable, BIG, 1, 3);
	/* Memory that CUDA gives no answer about is treated as pageable. */
	cuda_hooks.set_fail("cuPointerGetAttributes:*=1");
	BY_ENGINE(locked, BIG, 1, 3);
	cuda_hooks.set_fail(NULL);
	/* The caller's size holds for every kind; the kind decides how to wait for the end. */
	OK(set(4096, 4096));
	BY_ENGINE(pageable, 4096, 3, 3);
	BY_ENGINE(locked, 4096, 3, 3);
}

/*
 * The sizes of engines whose copies end by a synchronisation, in a context that spins there and in
 * one that sleeps: `read` and `read_locked` bytes. Setting options copies nothing.
 */
static void synchronized_sizes(CUcontext ctx, size_t read, size_t read_locked, size_t write_locked)
{
	unsigned long reads = cuda_hooks.calls("cuMemcpyDtoHAsync");
	unsigned long written;
	const struct {
		size_t size;
		bool locked, write;
	} rows[] = { { read, false, false },
		     { read_locked, true, false },
		     { write_locked, true, true } };
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = BARCOPY_COPY_ENGINE_AUTO,
				     .engine_write_min = BARCOPY_COPY_ENGINE_AUTO };
	static uint8_t pageable[BIG];
	CUdeviceptr memory;
	gdr_mh_t other;
	uint8_t *locked;
	void *map;

	CU(cuda.cuCtxSetCurrent(ctx));
	locked = standin_host_alloc(BIG, 0);
	CU(cuda.cuMemAlloc_v2(&memory, BIG));
	OK(gdr_pin_buffer_v2(g, memory, BIG, 0, &other));
	OK(gdr_map(g, other, &map, BIG));
	OK(barcopy_set_copy_options(other, &o));
	written = cuda_hooks.calls("cuStreamWriteValue32");
	ck_assert_uint_eq(cuda_hooks.calls("cuMemcpyDtoHAsync"), reads);
	for (size_t i = 0; i < COUNT(rows); i++)
		for (size_t below = 0; below < 2; below++) {
			uint8_t *host = rows[i].locked ? locked : pageable;
			uint64_t before = stats_of(g).engine_copies;

			if (rows[i].write)
				OK(gdr_copy_to_mapping(other, map, host, rows[i].size - below));
			else
				OK(gdr_copy_from_mapping(other, host, map, rows[i].size - below));
			ck_assert_msg(stats_of(g).engine_copies - before == !below,
				      "row %zu, %zu below", i, below);
		}
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamWriteValue32"), written);
	OK(gdr_unpin_buffer(g, other));
}

static void without_polled_words(void)
{
	CUcontext own, sleeps;

	CU(cuda.cuCtxCreate_v2(&own, 0, 0));
	CU(cuda.cuCtxCreate_v2(&sleeps, CU_CTX_SCHED_BLOCKING_SYNC, 0));
	synchronized_sizes(own, 10 << 10, 8 << 10, 384 << 10);
	synchronized_sizes(sleeps, 24 << 10, 20 << 10, 2 << 20);
	gdri_cu.cuStreamWriteValue32_v2 = NULL; /* an older driver */
	synchronized_sizes(standin_primary(0), 10 << 10, 8 << 10, 384 << 10);
}

/* A mapping of a coherent link is the CPU's at every size, unless the caller gives one. */
static void coherent_link(void)
{
	gdr_info_v2_t info;

	OK(gdr_get_info_v2(g, h, &info));
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_CACHING);
	OK(set(BARCOPY_COPY_ENGINE_AUTO, BARCOPY_COPY_ENGINE_AUTO));
	both_ways(9, BIG);
	BY_ENGINE(standin_host_alloc(BIG, 0), BIG, 0, 0);
	OK(set(4096, 4096));
	both_ways(9, BIG);
	check_counts(2, 0);
}

/* The words that streams were to write, and the call that does it. */
static struct {
	uint32_t *at, value;
} polled[3];
static unsigned int n_polled;
static __typeof__(gdri_cu.cuStreamWriteValue32_v2) write_word;

/* The first word does not come by itself. */
static CUresult note_word(CUstream stream, CUdeviceptr at, uint32_t value, unsigned int flags)
{
	uint32_t *word = (uint32_t *)(uintptr_t)at;

	if (!value) /* a new engine asks whether this driver writes words */
		return write_word(stream, at, value, flags);
	ck_assert_uint_lt(n_polled, COUNT(polled));
	ck_assert_uint_ne(*word, value);
	polled[n_polled].at = word;
	polled[n_polled].value = value;
	return n_polled++ ? write_word(stream, at, value, flags) : CUDA_SUCCESS;
}

static void read_to(uint8_t *host, gdr_mh_t handle, const uint8_t *map, size_t size)
{
	memset(host, 0, size);
	OK(gdr_copy_from_mapping(handle, host, map, size));
	ck_assert_mem_eq(host, buf, size);
}

/* A driver may refuse to write words: copies end by a synchronisation, from other sizes on. */
static void refused_word(void)
{
	cuda_hooks.set_fail("cuStreamWriteValue32:*=801");
	synchronized_sizes(standin_primary(0), 10 << 10, 8 << 10, 384 << 10);
	cuda_hooks.set_fail(NULL);
	/* Refused later: the mapping does that copy, when nothing of the engine's is under way. */
	OK(set(4096, 4096));
	start_counts();
	cuda_hooks.set_fail("cuStreamWriteValue32:*=801");
	BY_ENGINE(standin_host_alloc(BIG, 0), BIG, 1, 3);
	OK(gdr_copy_to_mapping(h, p, buf, 4096));
	read_to(got, h, p, 4096);
	cuda_hooks.set_fail(NULL);
	check_counts(2, 3);
}

/* While a copy polls its word, another one is done. */
static void while_polling(void)
{
	read_to(standin_host_alloc(4096, 0), h, p, 4096);
	ck_assert_uint_eq(n_polled, 2);
	ck_assert_ptr_ne(polled[0].at, polled[1].at);
	__atomic_store_n(polled[0].at, polled[0].value, __ATOMIC_RELEASE);
}

static int touch_word(void *word)
{
	return unit_touch(word, false);
}

/* Each copy under way polls a word of its own, on its device's page, which no child inherits. */
static void polled_words(void)
{
	uint8_t *locked = standin_host_alloc(4096, 0);
	unsigned long waits = cuda_hooks.calls("cuStreamSynchronize");
	struct standin_vmm second;
	void *map;

	OK(set(4096, 0));
	OK(gdr_copy_to_mapping(h, p, buf, 4096));
	write_word = gdri_cu.cuStreamWriteValue32_v2;
	gdri_cu.cuStreamWriteValue32_v2 = note_word;
	wrap_reset();
	wrap_before("clock_gettime", while_polling);
	read_to(locked, h, p, 4096);
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize"), waits);
	if (!test_emulator_lacks("a word of its own, in a child", "MADV_DONTFORK"))
		ck_assert_int_eq(unit_in_child(touch_word, polled[0].at), SIGSEGV);

	CU(cuda.cuCtxSetCurrent(standin_primary(1)));
	standin_vmm_alloc(&second, 1, 1, STANDIN_GRANULE, true);
	OK(gdr_unpin_buffer(g, h));
	OK(gdr_pin_buffer_v2(g, second.ptr, 65536, 0, &h));
	OK(gdr_map(g, h, &map, 65536));
	OK(set(4096, 0));
	OK(gdr_copy_to_mapping(h, map, buf, 4096));
	read_to(locked, h, map, 4096);
	ck_assert_uint_eq(n_polled, 3);
	ck_assert_ptr_ne(polled[0].at, polled[2].at);
	ck_assert_ptr_ne(polled[1].at, polled[2].at);
}

/* Where CUDA was to put what it reads, and the call that does it. */
static void *places[8];
static unsigned int n_places;
static __typeof__(gdri_cu.cuMemcpyDtoHAsync_v2) read_async;

static CUresult note_place(void *host, CUdeviceptr from, size_t size, CUstream stream)
{
	ck_assert_uint_lt(n_places, COUNT(places));
	places[n_places++] = host;
	return read_async(host, from, size, stream);
}

/* VmFlags of its mapping has dd (proc(5), /proc/pid/smaps). */
static bool is_not_dumped(const void *place)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	uintptr_t start, end;
	bool in = false, dd = false;
	char line[4096];

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			in = (uintptr_t)place >= start && (uintptr_t)place < end;
		else if (in && !strncmp(line, "VmFlags:", 8))
			dd = strstr(line, " dd");
	}
	fclose(f);
	return dd;
}

static bool is_in_got(const void *place)
{
	return (uintptr_t)place - (uintptr_t)got < sizeof(got);
}

static void note_places(size_t read_min)
{
	OK(gdr_copy_to_mapping(h, p, buf, SIZE));
	OK(set(read_min, 0));
	read_async = gdri_cu.cuMemcpyDtoHAsync_v2;
	gdri_cu.cuMemcpyDtoHAsync_v2 = note_place;
	wrap_reset();
}

/* A read into pageable memory that the engine makes at once: by a block, whose end is polled. */
static void by_block(void)
{
	unsigned long waits = cuda_hooks.calls("cuStreamSynchronize"), registered, pushed;

	note_places(4096);
	registered = cuda_hooks.calls("cuMemHostRegister");
	pushed = cuda_hooks.calls("cuCtxPushCurrent");
	read_to(got + 1, h, p, 4096);
	read_to(got + 3, h, p, BLOCK);
	ck_assert_ptr_eq(places[0], places[1]);
	ck_assert(!is_in_got(places[0]));
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize"), waits);
	/* A larger one goes to its place, as does a write. */
	read_to(got + 5, h, p, BLOCK + 1);
	ck_assert_ptr_eq(places[2], got + 5);
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize"), waits + 1);
	/* A copy makes nothing, and enters no context that is current. */
	ck_assert_uint_eq(cuda_hooks.calls("cuMemHostRegister"), registered);
	ck_assert_uint_eq(cuda_hooks.calls("cuCtxPushCurrent"), pushed);
	check_counts(3, 0);
	if (!test_emulator_lacks("a block, in a child", "MADV_DONTFORK"))
		ck_assert_int_eq(unit_in_child(touch_word, places[0]), SIGSEGV);
	/* A core dump has no block, and what was read stays for no longer than the engine. */
	if (!test_emulator_lacks("a block, in a core dump", "MADV_DONTDUMP"))
		ck_assert(is_not_dumped(places[0]));
	ck_assert_mem_eq(places[0], got + 5, 4096);
	OK(set(0, 0));
	for (size_t i = 0; i < BLOCK; i++)
		ck_assert_uint_eq(((const uint8_t *)places[0])[i], 0);
}

/* Without memory for words and blocks copies end by a synchronisation; the next engine has them. */
static void no_memory_for_blocks(void)
{
	unsigned long waits = cuda_hooks.calls("cuStreamSynchronize");

	for (unsigned int i = 0; i < 3; i++) {
		long long mapped = wrap_mapped();

		wrap_reset();
		/* MADV_DONTFORK or MADV_DONTDUMP is refused. */
		wrap_fail(i ? "madvise" : "mmap", i ? i : 1, ENOMEM);
		OK(set(4096, 0));
		ck_assert_str_eq(wrap_failed(), i ? "madvise" : "mmap");
		ck_assert_int_eq(wrap_mapped(), mapped);
	}
	wrap_reset();
	both_ways(5, 5000);
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize"), waits + 1);
	OK(set(4096, 0));
	both_ways(5, 5000);
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize"), waits + 1);
	check_counts(2, 0);
}

/* While a copy waits for its block, another one begins: each has its own, the fifth none. */
static void while_waiting(void)
{
	if (n_places < 5)
		wrap_before("clock_gettime", while_waiting);
	read_to(got + (size_t)n_places * BLOCK, h, p, BLOCK);
}

static void blocks_at_once(void)
{
	unsigned long waits = cuda_hooks.calls("cuStreamSynchronize");

	note_places(4096);
	wrap_before("clock_gettime", while_waiting);
	read_to(got, h, p, BLOCK);
	ck_assert_uint_eq(n_places, 5);
	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int j = 0; j < i; j++)
			ck_assert_uint_ge(labs((uint8_t *)places[i] - (uint8_t *)places[j]), BLOCK);
	ck_assert_ptr_eq(places[4], got + 4 * BLOCK);
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize"), waits + 1);
	check_counts(5, 0);
	read_to(got, h, p, BLOCK);
	ck_assert(!is_in_got(places[5]));
}

/* The device may still write a block whose copy was not seen to end: nobody uses it again. */
static void lost_blocks(void)
{
	note_places(4096);
	cuda_hooks.set_fail("cuStreamWriteValue32:*=801,cuStreamSynchronize:*=700");
	for (int i = 0; i < 5; i++)
		read_to(got, h, p, BLOCK);
	check_counts(0, 5);
	for (unsigned int i = 0; i < 4; i++) {
		ck_assert(!is_in_got(places[i]));
		for (unsigned int j = 0; j < i; j++)
			ck_assert_ptr_ne(places[i], places[j]);
	}
	cuda_hooks.set_fail(NULL);
	read_to(got, h, p, BLOCK);
	ck_assert_ptr_eq(places[4], got);
	ck_assert_ptr_eq(places[5], got);
	check_counts(1, 5);
}

/* The 17th GPU has no page for words: its copies wait as CUDA does. */
static void more_gpus_than_pages(void)
{
	unsigned long pages = cuda_hooks.calls("cuMemHostRegister");
	struct standin_vmm last;
	void *map;

	CU(cuda.cuCtxSetCurrent(standin_primary(16)));
	standin_vmm_alloc(&last, 16, 1, STANDIN_GRANULE, true);
	OK(gdr_unpin_buffer(g, h));
	OK(gdr_pin_buffer_v2(g, last.ptr, 65536, 0, &h));
	OK(gdr_map(g, h, &map, 65536));
	OK(set(4096, 4096));
	OK(gdr_copy_to_mapping(h, map, buf, 4096));
	read_to(buf + 8192, h, map, 4096);
	ck_assert_mem_eq(buf + 8192, buf, 4096);
	check_counts(2, 0);
	ck_assert_uint_eq(cuda_hooks.calls("cuMemHostRegister"), pages);
}

/*
 * A kernel runs in the legacy stream while the engine copies: neither waits for the other, since
 * the engine's stream is its own and does not block. A copy that waited would end with the kernel,
 * which by then answers nobody.
 */
static void with_the_legacy_stream(void)
{
	static const char ptx[] = ".version 6.0\n.entry gdrcopy_pplat()";
	uint32_t *words = standin_host_alloc(4096, 0), count = 0, rounds = 1;
	CUdeviceptr ping = (uintptr_t)words, pong = ping + 64, status = ping + 128;
	uint64_t timeout_ns = 3000000000u;
	void *params[] = { &ping, &pong, &status, &status, &status, &count, &rounds, &timeout_ns };
	CUmodule module;
	CUfunction f;

	memset(words, 0, 4096);
	OK(set(4096, 4096));
	CU(cuda.cuModuleLoadData(&module, ptx));
	CU(cuda.cuModuleGetFunction(&f, module, "gdrcopy_pplat"));
	CU(cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	BY_ENGINE(standin_host_alloc(BIG, 0), BIG, 3, 3);
	__atomic_store_n(words, 1, __ATOMIC_SEQ_CST);
	CU(cuda.cuCtxSynchronize());
	ck_assert_uint_eq(__atomic_load_n(&words[16], __ATOMIC_SEQ_CST), 1);
}

/* A range may begin anywhere in its pages, and so may the engine's address. */
static void engine_in_a_range(void)
{
	static const size_t starts[] = { 1, 4096 + 3, 65536 + 77, STANDIN_GRANULE - 5 };

	OK(gdr_unpin_buffer(g, h));
	for (size_t i = 0; i < COUNT(starts); i++) {
		CUdeviceptr former = v.ptr;
		void *cpu;

		OK(barcopy_map_range(g, former + starts[i], 100000, 0, &cpu, &h));
		p = cpu;
		v.ptr += starts[i];
		OK(set(4096, 4096));
		both_ways(0, 100000);
		both_ways(70001, 4096);
		check_counts(4 * (i + 1), 0);
		v.ptr = former;
		OK(barcopy_unmap_range(g, h));
	}
}

static void never_words_or_vectors(void)
{
	uint64_t word = 0x0123456789abcdef, back = 0;
	barcopy_copy_seg_t seg = { .size = BIG };

	OK(set(1, 1));
	OK(gdr_copy_to_mapping(h, p + 8, &word, 8));
	OK(gdr_copy_from_mapping(h, &back, p + 8, 8));
	ck_assert_uint_eq(back, word);
	OK(gdr_copy_to_mapping(h, p + 16, &word, 4));
	OK(gdr_copy_to_mapping(h, p + 16, &word, 0));
	OK(gdr_copy_from_mapping(h, &back, p + 16, 0));
	seg.map_ptr = p + 11;
	seg.host_ptr = buf;
	OK(barcopy_copyv_to_mapping(h, &seg, 1, 0));
	seg.host_ptr = got;
	OK(barcopy_copyv_from_mapping(h, &seg, 1, 0));
	ck_assert_mem_eq(got, buf, BIG);
	check_counts(0, 0);
}

/* When a call of CUDA fails, the bytes arrive, and context and capture mode are restored. */
static void failures_of_cuda(void)
{
	static const char *const calls[] = { "cuMemcpyHtoDAsync:*=700", "cuMemcpyDtoHAsync:*=700",
					     "cuStreamSynchronize:*=700", "cuCtxPushCurrent:*=201",
					     "cuPointerGetAttribute:*=1" };

	OK(set(4096, 4096));
	CU(cuda.cuCtxSetCurrent(NULL)); /* another than the engine's */
	for (size_t i = 0; i < COUNT(calls); i++) {
		unsigned long waited = cuda_hooks.calls("cuStreamSynchronize");
		uint64_t fallbacks = stats_of(g).engine_fallbacks;

		resources_note();
		cuda_hooks.set_fail(calls[i]);
		memset(got, 0, BIG);
		OK(gdr_copy_to_mapping(h, p + 5, buf + i, BIG));
		OK(gdr_copy_from_mapping(h, got, p + 5, BIG));
		cuda_hooks.set_fail(NULL);
		ck_assert_mem_eq(got, buf + i, BIG);
		ck_assert_msg(!resources_changed(), "%s: %s", calls[i], resources_changed());
		ck_assert_uint_eq(stats_of(g).engine_fallbacks - fallbacks, i < 2 ? 1 : 2);
		/* The library waits for a failed copy too: a part of it may be under way. */
		ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize") - waited, i < 3 ? 2 : 0);
	}
	CU(cuda.cuCtxSetCurrent(standin_primary(0)));
	/* Without capture modes the copy works all the same. */
	cuda_hooks.set_fail("cuThreadExchangeStreamCaptureMode:*=801");
	both_ways(5, BIG);
	cuda_hooks.set_fail(NULL);
	both_ways(5, BIG);
}

/* The first use that needs the primary context retains it: here the first engine. */
static void no_primary_context(void)
{
	cuda_hooks.set_fail("cuDevicePrimaryCtxRetain:*=2");
	FAILS(ENOMEM, set(4096, 0));
	cuda_hooks.set_fail(NULL);
	OK(set(4096, 0));
	both_ways(5, 5000);
	check_counts(1, 0);
}

/* cudaMalloc memory, freed before its handle ends: the stream ends with the handle all the same. */
static void freed_before_the_unpin(void)
{
	for (int round = 0; round < 5; round++) {
		unsigned long made = cuda_hooks.calls("cuStreamCreate");
		unsigned long ended = cuda_hooks.calls("cuStreamDestroy");
		barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 1 };
		CUdeviceptr memory;
		gdr_mh_t other;

		CU(cuda.cuMemAlloc_v2(&memory, 65536));
		OK(gdr_pin_buffer_v2(g, memory, 65536, 0, &other));
		OK(barcopy_set_copy_options(other, &o));
		if (round % 2)
			OK(gdr_unpin_buffer(g, other));
		CU(cuda.cuMemFree_v2(memory));
		if (round % 2 == 0)
			OK(gdr_unpin_buffer(g, other));
		ck_assert_uint_eq(cuda_hooks.calls("cuStreamCreate") - made, 1);
		ck_assert_uint_eq(cuda_hooks.calls("cuStreamDestroy") - ended, 1);
	}
}

/* A destroyed context of the program took the stream along: the library does not enter it. */
static void context_gone(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 1 };
	unsigned long ended, entered, written;
	CUdeviceptr memory;
	CUcontext own;
	gdr_mh_t other;
	void *map;

	CU(cuda.cuCtxCreate_v2(&own, 0, 0));
	CU(cuda.cuMemAlloc_v2(&memory, 65536));
	OK(gdr_pin_buffer_v2(g, memory, 65536, 0, &other));
	OK(gdr_map(g, other, &map, 65536));
	OK(barcopy_set_copy_options(other, &o));
	/* Nor has it words there, which would end with the context too. */
	OK(gdr_copy_to_mapping(other, map, buf, 4096));
	written = cuda_hooks.calls("cuStreamWriteValue32");
	read_to(standin_host_alloc(4096, 0), other, map, 4096);
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamWriteValue32"), written);
	/* While it is there the stream is ended. */
	ended = cuda_hooks.calls("cuStreamDestroy");
	OK(barcopy_set_copy_options(other, NULL));
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamDestroy"), ended + 1);
	OK(barcopy_set_copy_options(other, &o));
	CU(cuda.cuCtxDestroy_v2(own));
	ended = cuda_hooks.calls("cuStreamDestroy");
	entered = cuda_hooks.calls("cuCtxPushCurrent");
	OK(barcopy_set_copy_options(other, NULL));
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamDestroy"), ended);
	ck_assert_uint_eq(cuda_hooks.calls("cuCtxPushCurrent"), entered);
	OK(gdr_unpin_buffer(g, other));
}

/* An engine in a context of the program's makes no other context. */
static void no_other_context(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 1 };
	unsigned long contexts;
	CUdeviceptr memory;
	CUcontext own;

	standin_load();
	CU(cuda.cuInit(0));
	CU(cuda.cuCtxCreate_v2(&own, 0, 0));
	memory = standin_alloc(65536);
	g = open_any();
	OK(gdr_pin_buffer_v2(g, memory, 65536, 0, &h));
	contexts = standin_contexts();
	OK(barcopy_set_copy_options(h, &o));
	ck_assert_uint_eq(standin_contexts(), contexts);
	end();
}

/* Another allocation at the address of chunk `at`, full of `fill`; the former chunk is gone. */
static void replace_chunk(unsigned int at, uint8_t fill)
{
	CUdeviceptr va = v.ptr + at * v.chunk;

	memset(got, fill, v.chunk);
	vmm_replace(va, 0);
	standin_to_gpu(va, got, v.chunk);
}

/* CUDA's address of chunk `at` still shows `fill` alone. */
static void chunk_is(unsigned int at, uint8_t fill)
{
	CU(cuda.cuMemcpyDtoH_v2(got, v.ptr + at * v.chunk, v.chunk));
	/* All bytes are the first one's. */
	ck_assert_msg(got[0] == fill && !memcmp(got, got + 1, v.chunk - 1),
		      "a chunk of another allocation was written");
}

/* One chunk of a pinned range was freed and replaced: the engine does no copy there. */
static void one_chunk_replaced(void)
{
	uint8_t *third;

	OK(set(4096, 4096));
	third = p + 2 * STANDIN_GRANULE;
	memset(third, 0x11, STANDIN_GRANULE);
	replace_chunk(2, 0x77);
	OK(gdr_copy_to_mapping(h, third, buf, 65536));
	chunk_is(2, 0x77);
	ck_assert_mem_eq(third, buf, 65536);
	OK(gdr_copy_from_mapping(h, got, third, 65536));
	ck_assert_mem_eq(got, buf, 65536);
	check_counts(0, 2);
	/* Nor a copy that only ends or begins there. */
	OK(gdr_copy_to_mapping(h, third - 4096, buf, 8192));
	OK(gdr_copy_to_mapping(h, third + STANDIN_GRANULE - 4096, buf, 8192));
	chunk_is(2, 0x77);
	check_counts(0, 4);
	/* The engine still serves the other chunks. */
	both_ways(5, STANDIN_GRANULE);
	check_counts(2, 4);
}

/* All memory was freed and replaced before the options ask for the engine. */
static void replaced_before_the_options(void)
{
	for (unsigned int i = 0; i < 4; i++)
		replace_chunk(i, 0x77);
	FAILS(EINVAL, set(4096, 4096));
	ck_assert_ptr_nonnull(strstr(barcopy_last_error(), "freed"));
	OK(gdr_copy_to_mapping(h, p, buf, BIG));
	for (unsigned int i = 0; i < 4; i++)
		chunk_is(i, 0x77);
	/* Options without the engine are accepted. */
	OK(set(0, 0));
}

static void no_memory_for_an_engine(void)
{
	wrap_reset();
	wrap_fail("calloc", 2, ENOMEM); /* behind the options */
	FAILS_WITH(ENOMEM, "no memory for a copy engine", set(4096, 0));
	wrap_reset();
	OK(set(4096, 0));
	both_ways(5, 5000);
}

/* Options that replace others, or fail, leave nothing; the stand-in keeps 64 bytes of a stream. */
static void heap(void)
{
	size_t used = 0;

	for (int i = 0; i < 110; i++) {
		if (i == 10)
			used = resources_heap();
		OK(set(4096, 0));
		cuda_hooks.set_fail("cuStreamCreate:*=2");
		FAILS(ENOMEM, set(4096, 0));
		cuda_hooks.set_fail(NULL);
	}
	ck_assert_uint_lt(resources_heap(), used + 100 * 64 + 1000);
}

/* No copy takes longer than the poll for its end; nor does the stand-in keep it. */
#define AT_ONCE "GDRSIM_ASYNC_DELAY_US=0"

static const struct unit_test tests[] = {
	{ "device memory only", device_memory_only, "" },
	{ "copy engine by size", engine_by_size, "" },
	{ "AUTO and page-locked memory", automatic, "" },
	{ "AUTO where copies take time", automatic, "GDRSIM_ASYNC_DELAY_US=20" },
	{ "AUTO where copies take longer than the poll", automatic, "GDRSIM_ASYNC_DELAY_US=2000" },
	{ "AUTO without polled words", without_polled_words, "" },
	{ "AUTO over a coherent link", coherent_link,
	  "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030 GDRSIM_COHERENT=1" },
	{ "a word is refused", refused_word, "" },
	{ "a word of its own", polled_words, "GDRSIM_DEVICES=2 " AT_ONCE },
	{ "by a block", by_block, AT_ONCE },
	{ "no memory for blocks", no_memory_for_blocks, AT_ONCE },
	{ "blocks at once", blocks_at_once, "GDRSIM_ASYNC_DELAY_US=20" },
	{ "lost blocks", lost_blocks, "" },
	{ "more GPUs than pages", more_gpus_than_pages, "GDRSIM_DEVICES=17" },
	{ "with work on the legacy stream", with_the_legacy_stream, "" },
	{ "copy engine in a range", engine_in_a_range, "" },
	{ "never for words or vectors", never_words_or_vectors, "" },
	{ "CUDA fails in a copy", failures_of_cuda, "" },
	{ "no primary context for an engine", no_primary_context,
	  "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
	{ "memory freed before the unpin", freed_before_the_unpin, "" },
	{ "a context of the program's has gone", context_gone, "" },
	{ "no context but the program's", no_other_context,
	  "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030", .bare = true },
	{ "one chunk is another's", one_chunk_replaced, "" },
	{ "another's before the options", replaced_before_the_options, "" },
	{ "no memory for an engine", no_memory_for_an_engine, "" },
	{ "options and the heap", heap, AT_ONCE },
};

UNIT_MAIN("copy engine", tests, unit_before = start_mapped, unit_after = end)
