// SPDX-License-Identifier: MIT
/*
 * barcopy_set_copy_options() and GDRCOPY_COPY_THREADS on the stand-ins: arguments, which copies are
 * helped with and which are not, failures of CUDA in the midst of a copy, threads that are there
 * only when asked for, and what is left behind.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/again.h"
#include "common/expect.h"
#include "common/resources.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "copy/pool.h"
#include "copy/tune.h"
#include "barcopy.h"

#define SIZE ((size_t)8 << 20)
#define BIG  ((size_t)3 << 20)

struct mapped {
	struct standin_vmm v;
	gdr_t g;
	gdr_mh_t h;
	uint8_t *p;
	uint64_t copies, fallbacks; /* of the context, before those that are looked at */
};

static uint8_t *buf, *got; /* SIZE bytes each */

static void map_now(struct mapped *m)
{
	void *va;

	OK(gdr_map(m->g, m->h, &va, SIZE));
	m->p = va;
}

static void open_mapped(struct mapped *m)
{
	standin_start();
	standin_vmm_alloc(&m->v, 0, 4, STANDIN_GRANULE, true);
	m->g = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_ptr_nonnull(m->g);
	OK(gdr_pin_buffer_v2(m->g, m->v.ptr, SIZE, 0, &m->h));
	map_now(m);
	m->copies = m->fallbacks = 0;
	buf = malloc(SIZE);
	got = malloc(SIZE);
	ck_assert(buf && got);
	for (size_t i = 0; i < SIZE; i++)
		buf[i] = (uint8_t)(i * 7 + i / 251);
}

static void close_mapped(struct mapped *m)
{
	OK(gdr_close(m->g));
	standin_vmm_free(&m->v);
	free(buf);
	free(got);
}

static int set(struct mapped *m, uint32_t threads, size_t read_min, size_t write_min)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .threads = threads,
				     .engine_read_min = read_min,
				     .engine_write_min = write_min };

	return barcopy_set_copy_options(m->h, &o);
}

static barcopy_stats_t stats_of(struct mapped *m)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	OK(barcopy_get_stats(m->g, &s));
	return s;
}

/* Copies that the copy engine has done since they were asked for last, and that came back. */
static void check_counts(struct mapped *m, uint64_t copies, uint64_t fallbacks)
{
	barcopy_stats_t s = stats_of(m);

	ck_assert_uint_eq(s.engine_copies - m->copies, copies);
	ck_assert_uint_eq(s.engine_fallbacks - m->fallbacks, fallbacks);
}

/* From here on they are counted anew. */
static void start_counts(struct mapped *m)
{
	barcopy_stats_t s = stats_of(m);

	m->copies = s.engine_copies;
	m->fallbacks = s.engine_fallbacks;
}

/* Out, compared with CUDA's view, changed, and back. */
static void both_ways(struct mapped *m, size_t at, size_t size)
{
	memset(got, 0, size);
	OK(gdr_copy_to_mapping(m->h, m->p + at, buf + 1, size));
	ck_assert_int_eq(cuda.cuMemcpyDtoH_v2(got, m->v.ptr + at, size), CUDA_SUCCESS);
	ck_assert_int_eq(memcmp(got, buf + 1, size), 0);
	ck_assert_int_eq(cuda.cuMemcpyHtoD_v2(m->v.ptr + at, buf + 2, size), CUDA_SUCCESS);
	OK(gdr_copy_from_mapping(m->h, got, m->p + at, size));
	ck_assert_int_eq(memcmp(got, buf + 2, size), 0);
}

static int tasks(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static void *own_task(void *arg)
{
	*(long *)arg = syscall(SYS_gettid);
	return NULL;
}

/*
 * Before any thread of the library's; a sanitizer's own comes with the first thread of all. That one is
 * joined before it has left the list: who counts it waits for a task too many ever after.
 */
static int tasks_at_first(void)
{
	pthread_t thread;
	char path[64];
	long task;

	ck_assert_int_eq(pthread_create(&thread, NULL, own_task, &task), 0);
	pthread_join(thread, NULL);
	snprintf(path, sizeof(path), "/proc/self/task/%ld", task);
	while (!access(path, F_OK))
		usleep(1000);
	return tasks();
}

/*
 * Threads that have ended may still be listed for a while, and how long is the machine's affair: there is
 * no end to this but the test's own, which is against hangs.
 */
static void tasks_become(int n)
{
	for (int i = 1; tasks() != n; i++) {
		if (i % 5000 == 0)
			fprintf(stderr, "%d tasks where %d are waited for\n", tasks(), n);
		usleep(1000);
	}
}

static void arguments(void)
{
	struct {
		barcopy_copy_options_t o;
		uint64_t later;
	} longer = { .o = { .struct_size = sizeof(longer) } };
	barcopy_copy_options_t o = { .struct_size = sizeof(o) };
	struct mapped m;

	open_mapped(&m);
	OK(barcopy_set_copy_options(m.h, &o));
	OK(barcopy_set_copy_options(m.h, NULL));
	OK(barcopy_set_copy_options(m.h, &longer.o));
	longer.later = 1;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &longer.o), EINVAL);
	o.struct_size--;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	o.struct_size = 0;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	o.struct_size = sizeof(o);
	o.flags = 1;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	o.flags = 0;
	o.threads = 65;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	ck_assert_int_eq(barcopy_set_copy_options((gdr_mh_t){ 0 }, &o), EINVAL);
	ck_assert_int_eq(barcopy_set_copy_options((gdr_mh_t){ ~0ul }, &o), EINVAL);
	OK(gdr_unpin_buffer(m.g, m.h));
	o.threads = 0;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	close_mapped(&m);
}

static void engine_by_size(void)
{
	struct mapped m;

	open_mapped(&m);
	both_ways(&m, 5, BIG);
	check_counts(&m, 0, 0);
	OK(set(&m, 1, 4096, 65536));
	both_ways(&m, 3, 4095);
	check_counts(&m, 0, 0);
	both_ways(&m, 3, 4096);
	check_counts(&m, 1, 0);
	both_ways(&m, 77, 65536);
	check_counts(&m, 3, 0);
	/* Over several chunks, and to the last byte. */
	both_ways(&m, 1000, SIZE - 1000 - 2);
	check_counts(&m, 5, 0);
	start_counts(&m);
	/* AUTO with pageable memory: reads from the measured size on, writes never. */
	OK(set(&m, 1, BARCOPY_COPY_ENGINE_AUTO, BARCOPY_COPY_ENGINE_AUTO));
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
	unsigned long asked;
	struct mapped m;

	open_mapped(&m);
	pageable = malloc(BIG);
	locked = standin_host_alloc(BIG, 0);
	registered = aligned_alloc(4096, BIG);
	ck_assert(pageable && registered);
	ck_assert_int_eq(cuda.cuMemHostRegister_v2(registered, BIG, 0), CUDA_SUCCESS);
	OK(set(&m, 1, BARCOPY_COPY_ENGINE_AUTO, BARCOPY_COPY_ENGINE_AUTO));
	asked = cuda_hooks.calls("cuPointerGetAttributes");
	ck_assert_uint_eq(by_engine(&m, pageable, GDRI_ENGINE_MIN_FROM_LOCKED - 1), 0);
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_MIN_FROM_LOCKED - 1), 0);
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerGetAttributes"), asked);
	ck_assert_uint_eq(by_engine(&m, pageable, GDRI_ENGINE_MIN_FROM_LOCKED), 0);
	ck_assert_uint_eq(by_engine(&m, locked, GDRI_ENGINE_MIN_FROM_LOCKED), 1);
	ck_assert_uint_eq(by_engine(&m, registered + 100, GDRI_ENGINE_MIN_FROM_LOCKED), 1);
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
	/* A size that is asked for holds for every kind, and nothing is asked. */
	OK(set(&m, 1, 4096, 4096));
	asked = cuda_hooks.calls("cuPointerGetAttributes");
	ck_assert_uint_eq(by_engine(&m, pageable, 4096), 3);
	ck_assert_uint_eq(by_engine(&m, locked, 4096), 3);
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerGetAttributes"), asked);
	ck_assert_int_eq(cuda.cuMemHostUnregister(registered), CUDA_SUCCESS);
	ck_assert_int_eq(cuda.cuMemFreeHost(locked), CUDA_SUCCESS);
	free(registered);
	free(pageable);
	close_mapped(&m);
}

/* Options last over the handle's mappings, and may be set before the first, whatever the environment says. */
static void over_mappings(void)
{
	struct mapped m;

	open_mapped(&m);
	OK(gdr_unpin_buffer(m.g, m.h));
	OK(gdr_pin_buffer_v2(m.g, m.v.ptr, SIZE, 0, &m.h));
	OK(set(&m, 1, 4096, 4096));
	map_now(&m);
	both_ways(&m, 3, 5000);
	check_counts(&m, 2, 0);
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	map_now(&m);
	both_ways(&m, 3, 5000);
	check_counts(&m, 4, 0);
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
		OK(set(&m, 1, 4096, 4096));
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
	OK(set(&m, 1, 1, 1));
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
	OK(set(&m, 1, 4096, 4096));
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
	ck_assert_int_eq(set(&m, 1, 4096, 0), ENOMEM);
	cuda_hooks.set_fail(NULL);
	OK(set(&m, 1, 4096, 0));
	both_ways(&m, 5, 5000);
	check_counts(&m, 1, 0);
	close_mapped(&m);
}

static void failures_of_setting(void)
{
	struct resources before, after;
	struct mapped m;

	open_mapped(&m);
	OK(set(&m, 1, 4096, 0));
	both_ways(&m, 5, 5000);
	check_counts(&m, 1, 0);
	resources_look(&before);
	cuda_hooks.set_fail("cuStreamCreate:*=2");
	ck_assert_int_eq(set(&m, 3, 1, 1), ENOMEM);
	cuda_hooks.set_fail("cuCtxPushCurrent:*=201");
	ck_assert_int_eq(set(&m, 3, 1, 1), EINVAL);
	cuda_hooks.set_fail(NULL);
	resources_look(&after);
	ck_assert_msg(!resources_differ(&before, &after), "%s", resources_differ(&before, &after));
	/* All is as before. */
	both_ways(&m, 5, 5000);
	check_counts(&m, 2, 0);
	close_mapped(&m);
}

/* The first and the second allocation of memory fail. */
static void no_memory(void)
{
	struct mapped m;

	open_mapped(&m);
	for (unsigned long nth = 1; nth <= 2; nth++) {
		wrap_reset();
		wrap_fail("calloc", nth, ENOMEM);
		ck_assert_int_eq(set(&m, 0, 4096, 0), ENOMEM);
		wrap_reset();
		wrap_fail("calloc", nth, ENOMEM);
		ck_assert_int_eq(set(&m, 2, 0, 0), ENOMEM);
	}
	wrap_reset();
	both_ways(&m, 5, BIG);
	close_mapped(&m);
}

static void freed_memory(void)
{
	struct mapped m;

	open_mapped(&m);
	OK(set(&m, 1, 4096, 4096));
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

		ck_assert_int_eq(cuda.cuMemAlloc_v2(&memory, 65536), CUDA_SUCCESS);
		OK(gdr_pin_buffer_v2(m.g, memory, 65536, 0, &h));
		OK(barcopy_set_copy_options(h, &o));
		if (round % 2)
			OK(gdr_unpin_buffer(m.g, h));
		ck_assert_int_eq(cuda.cuMemFree_v2(memory), CUDA_SUCCESS);
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
	ck_assert_int_eq(cuda.cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda.cuMemAlloc_v2(&memory, 65536), CUDA_SUCCESS);
	OK(gdr_pin_buffer_v2(m.g, memory, 65536, 0, &h));
	OK(barcopy_set_copy_options(h, &o));
	ck_assert_int_eq(cuda.cuCtxDestroy_v2(own), CUDA_SUCCESS);
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
		ck_assert_int_eq(gdr_copy_to_mapping(h, cpu, buf, 65536), EACCES);
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
	ck_assert_int_eq(cuda.cuMemcpyHtoD_v2(m.v.ptr, buf + 5, 65536), CUDA_SUCCESS);
	write_refused(h, cpu);
	ck_assert_int_eq(cuda.cuMemcpyDtoH_v2(now, m.v.ptr, 65536), CUDA_SUCCESS);
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
	ck_assert_int_eq(cuda.cuMemUnmap(va, m->v.chunk), CUDA_SUCCESS);
	ck_assert_int_eq(cuda.cuMemRelease(m->v.handles[at]), CUDA_SUCCESS);
	ck_assert_int_eq(cuda.cuMemCreate(&m->v.handles[at], m->v.chunk, &prop, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda.cuMemMap(va, m->v.chunk, 0, m->v.handles[at], 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda.cuMemSetAccess(va, m->v.chunk, &access, 1), CUDA_SUCCESS);
	ck_assert_int_eq(cuda.cuMemcpyHtoD_v2(va, bytes, m->v.chunk), CUDA_SUCCESS);
	free(bytes);
}

/* What is at chunk `at` of CUDA's address is still all `fill`. */
static void chunk_is(struct mapped *m, unsigned int at, uint8_t fill)
{
	uint8_t *bytes = malloc(m->v.chunk);

	ck_assert_ptr_nonnull(bytes);
	ck_assert_int_eq(cuda.cuMemcpyDtoH_v2(bytes, m->v.ptr + at * m->v.chunk, m->v.chunk),
			 CUDA_SUCCESS);
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
	OK(set(&m, 1, 4096, 4096));
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
	ck_assert_int_eq(set(&m, 1, 4096, 4096), EINVAL);
	ck_assert_ptr_nonnull(strstr(barcopy_last_error(), "freed"));
	OK(gdr_copy_to_mapping(m.h, m.p, buf, BIG));
	for (unsigned int i = 0; i < 4; i++)
		chunk_is(&m, i, 0x77);
	/* Threads are no matter of whose the memory is. */
	OK(set(&m, 2, 0, 0));
	close_mapped(&m);
}

/* Set and forgotten many times: nothing is left. */
static void leaves_nothing(void)
{
	struct resources before, after;
	struct mapped m;
	int before_tasks = tasks_at_first();

	open_mapped(&m);
	resources_look(&before);
	for (int i = 0; i < 20; i++)
		OK(set(&m, (uint32_t)i % 4, i % 2 ? 4096 : 0, i % 3 ? 4096 : 0));
	OK(set(&m, 3, 4096, 4096));
	both_ways(&m, 0, BIG);
	tasks_become(before_tasks + 2);
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	OK(barcopy_set_copy_options(m.h, NULL));
	map_now(&m);
	resources_look(&after);
	ck_assert_msg(!resources_differ(&before, &after), "%s", resources_differ(&before, &after));
	tasks_become(before_tasks);
	close_mapped(&m);
}

static void host_memory(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .threads = 2 };
	struct mapped m;
	uint8_t *memory;
	void *va;

	open_mapped(&m);
	OK(gdr_unpin_buffer(m.g, m.h));
	memory = standin_host_alloc(SIZE, 0);
	OK(gdr_pin_buffer_v2(m.g, (unsigned long)(uintptr_t)memory, SIZE, 0, &m.h));
	OK(gdr_map(m.g, m.h, &va, SIZE));
	ck_assert_int_eq(set(&m, 1, 1, 0), ENOTSUP);
	ck_assert_int_eq(set(&m, 1, 0, 1), ENOTSUP);
	OK(barcopy_set_copy_options(m.h, &o));
	OK(gdr_copy_to_mapping(m.h, (uint8_t *)va + 3, buf, BIG));
	OK(gdr_copy_from_mapping(m.h, got, (uint8_t *)va + 3, BIG));
	ck_assert_int_eq(memcmp(got, buf, BIG), 0);
	close_mapped(&m);
}

static void no_threads_unasked(void)
{
	int before = tasks_at_first();
	struct mapped m;

	open_mapped(&m);
	both_ways(&m, 1, BIG);
	OK(set(&m, 1, 0, 0));
	both_ways(&m, 1, BIG);
	tasks_become(before);
	close_mapped(&m);
}

/* GDRCOPY_COPY_THREADS=3: two workers for all handles; 1 in the options is one thread still. */
static void threads_by_environment(void)
{
	int before = tasks_at_first();
	struct mapped m;
	gdr_mh_t other;
	void *va;

	open_mapped(&m);
	tasks_become(before + 2);
	OK(gdr_pin_buffer_v2(m.g, m.v.ptr, SIZE, 0, &other));
	OK(gdr_map(m.g, other, &va, SIZE));
	tasks_become(before + 2);
	both_ways(&m, 1, BIG);
	OK(gdr_unpin_buffer(m.g, other));
	tasks_become(before + 2);
	OK(set(&m, 1, 0, 0));
	tasks_become(before);
	OK(barcopy_set_copy_options(m.h, NULL));
	tasks_become(before + 2);
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	OK(gdr_unpin_buffer(m.g, m.h));
	tasks_become(before);
	close_mapped(&m);
}

/* The GPU's NUMA node is looked up where the system tells it, for a pool of its own; no file stays open. */
static void near_the_gpu(void)
{
	int before = tasks_at_first(), fds;
	char path[] = "/tmp/numa_node.XXXXXX";
	FILE *file = fdopen(mkstemp(path), "w");
	struct gdri_copy_pool *pool;
	struct mapped m;

	ck_assert_ptr_nonnull(file);
	fputs("0\n", file);
	fclose(file);
	open_mapped(&m);
	wrap_reset();
	wrap_instead("/sys/bus/pci/devices/", path);
	fds = resources_fds();
	OK(set(&m, 3, 0, 0));
	ck_assert_int_eq(resources_fds(), fds);
	wrap_reset();
	tasks_become(before + 2);
	OK(gdri_copy_pool_get(&pool, 3, 0));
	tasks_become(before + 2); /* the same one */
	gdri_copy_pool_put(pool);
	OK(set(&m, 1, 0, 0));
	tasks_become(before);
	unlink(path);
	close_mapped(&m);
}

/* What was set for a handle is nothing to who comes to its place. */
static void place_used_again(void)
{
	int before = tasks_at_first();
	struct mapped m;
	gdr_mh_t former;

	open_mapped(&m);
	for (int i = 0; i < 2; i++) {
		tasks_become(before + 2);
		OK(set(&m, 1, 0, 0));
		tasks_become(before);
		former = m.h;
		OK(gdr_unpin_buffer(m.g, m.h));
		OK(gdr_pin_buffer_v2(m.g, m.v.ptr, SIZE, 0, &m.h));
		ck_assert_uint_eq((uint32_t)m.h.h, (uint32_t)former.h);
		map_now(&m);
	}
	tasks_become(before + 2);
	close_mapped(&m);
}

static char logged[4096];

static void take_log(void *arg, barcopy_log_level_t level, const char *message)
{
	(void)arg;
	if (level >= BARCOPY_LOG_WARN)
		snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", message);
}

/* The most threads that may be asked for, and one more; and none. */
static void most_threads(void)
{
	int before = tasks_at_first();
	struct mapped m;

	barcopy_set_log_fn(take_log, NULL);
	open_mapped(&m);
	ck_assert_str_eq(logged, "");
	tasks_become(before + 63);
	OK(set(&m, 1, 0, 0));
	tasks_become(before);
	OK(set(&m, 64, 0, 0));
	tasks_become(before + 63);
	barcopy_set_log_fn(NULL, NULL);
	close_mapped(&m);
}

static void threads_out_of_range(void)
{
	int before = tasks_at_first();
	struct mapped m;

	barcopy_set_log_fn(take_log, NULL);
	open_mapped(&m);
	ck_assert_ptr_nonnull(strstr(logged, "GDRCOPY_COPY_THREADS is not in"));
	tasks_become(before);
	barcopy_set_log_fn(NULL, NULL);
	close_mapped(&m);
}

/* Every variable with nonsense in it: said once, and ignored. */
static void wrong_environment(void)
{
	int before = tasks_at_first();
	struct mapped m;
	const char *first;

	barcopy_set_log_fn(take_log, NULL);
	open_mapped(&m);
	first = strstr(logged, "GDRCOPY_COPY_IMPL names no implementation");
	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_null(strstr(first + 1, "GDRCOPY_COPY_IMPL"));
	ck_assert_ptr_nonnull(strstr(logged, "GDRCOPY_COPY_THREADS is not in"));
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	map_now(&m);
	ck_assert_ptr_null(strstr(first + 1, "GDRCOPY_COPY_IMPL"));
	both_ways(&m, 1, BIG);
	tasks_become(before);
	barcopy_set_log_fn(NULL, NULL);
	close_mapped(&m);
}

/* Without the workers, the engine's failure leaves the caller alone; with them, it does not. */
static void engine_then_threads(void)
{
	struct mapped m;

	open_mapped(&m);
	OK(set(&m, 3, 4096, 4096));
	both_ways(&m, 7, BIG);
	check_counts(&m, 2, 0);
	cuda_hooks.set_fail("cuStreamSynchronize:*=700");
	OK(gdr_copy_to_mapping(m.h, m.p + 1, buf + 9, BIG));
	OK(gdr_copy_from_mapping(m.h, got, m.p + 1, BIG));
	cuda_hooks.set_fail(NULL);
	ck_assert_int_eq(memcmp(got, buf + 9, BIG), 0);
	check_counts(&m, 2, 2);
	close_mapped(&m);
}

static int in_child(void *arg)
{
	struct mapped *m = arg;
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .threads = 3 };

	if (tasks() != 1)
		return 1;
	if (gdr_copy_to_mapping(m->h, m->p, buf, BIG) != EACCES)
		return 2;
	if (barcopy_set_copy_options(m->h, &o) != EACCES ||
	    barcopy_set_copy_options(m->h, NULL) != EACCES)
		return 3;
	return tasks() == 1 ? 0 : 4;
}

static void forked_child(void)
{
	struct mapped m;

	if (test_emulator_lacks("a forked child has no threads", "it has threads of its own"))
		return;
	open_mapped(&m);
	OK(set(&m, 3, 0, 0));
	both_ways(&m, 1, BIG);
	ck_assert_int_eq(unit_in_child(in_child, &m), 0);
	both_ways(&m, 1, BIG);
	close_mapped(&m);
}

struct user {
	pthread_t thread;
	struct mapped *m;
	size_t at;
	int wrong;
};

/* A thread without a context: its copies go by the engine all the same, or are right without. */
static void *use(void *arg)
{
	struct user *u = arg;
	uint8_t *mine = malloc(1 << 20);

	for (int i = 0; mine && i < (unit_quick() ? 5 : 30); i++) {
		u->wrong += gdr_copy_to_mapping(u->m->h, u->m->p + u->at, buf + i, 1 << 20) != 0;
		u->wrong += gdr_copy_from_mapping(u->m->h, mine, u->m->p + u->at, 1 << 20) != 0;
		u->wrong += memcmp(mine, buf + i, 1 << 20) != 0;
	}
	u->wrong += !mine;
	free(mine);
	return NULL;
}

static void several_threads(void)
{
	struct user user[4];
	struct mapped m;

	open_mapped(&m);
	for (int round = 0; round < 2; round++) {
		OK(set(&m, round ? 3 : 1, round ? 0 : 4096, round ? 0 : 4096));
		for (size_t i = 0; i < COUNT(user); i++) {
			user[i] = (struct user){ .m = &m, .at = (i << 20) + 5 * i };
			ck_assert_int_eq(pthread_create(&user[i].thread, NULL, use, &user[i]), 0);
		}
		for (size_t i = 0; i < COUNT(user); i++) {
			pthread_join(user[i].thread, NULL);
			ck_assert_int_eq(user[i].wrong, 0);
		}
	}
	close_mapped(&m);
}

static const struct unit_test tests[] = {
	{ "arguments", arguments, "" },
	{ "copy engine by size", engine_by_size, "" },
	{ "AUTO and page-locked memory", automatic, "" },
	{ "options over several mappings", over_mappings, "" },
	{ "options before the first mapping, and an environment", over_mappings,
	  "GDRCOPY_COPY_THREADS=3" },
	{ "copy engine in a range", engine_in_a_range, "" },
	{ "never for words or vectors", never_words_or_vectors, "" },
	{ "CUDA fails in a copy", failures_of_cuda, "" },
	{ "no primary context for an engine", no_primary_context,
	  "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
	{ "CUDA fails when options are set", failures_of_setting, "" },
	{ "no memory for options", no_memory, "" },
	{ "freed memory", freed_memory, "" },
	{ "memory freed before the unpin", freed_before_the_unpin, "" },
	{ "a context of the program's has gone", context_gone, "" },
	{ "read-only ranges", read_only_ranges, "" },
	{ "one chunk is another's", one_chunk_replaced, "" },
	{ "another's before the options", replaced_before_the_options, "" },
	{ "nothing is left", leaves_nothing, "" },
	{ "host memory", host_memory, "" },
	{ "no threads unless asked for", no_threads_unasked, "" },
	{ "threads by environment", threads_by_environment, "GDRCOPY_COPY_THREADS=3" },
	{ "near the GPU", near_the_gpu, "" },
	{ "a handle's place used again", place_used_again, "GDRCOPY_COPY_THREADS=3" },
	{ "64 threads", most_threads, "GDRCOPY_COPY_THREADS=64" },
	{ "65 threads", threads_out_of_range, "GDRCOPY_COPY_THREADS=65" },
	{ "0 threads", threads_out_of_range, "GDRCOPY_COPY_THREADS=0" },
	{ "wrong environment", wrong_environment,
	  "GDRCOPY_COPY_THREADS=lots GDRCOPY_COPY_IMPL=best" },
	{ "copy engine, then threads", engine_then_threads, "" },
	{ "a forked child has no threads", forked_child, "" },
	{ "several threads", several_threads, "GDRSIM_ASYNC_DELAY_US=20" },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "copy options", tests, COUNT(tests));
}
