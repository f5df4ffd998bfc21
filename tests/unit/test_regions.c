// SPDX-License-Identifier: MIT
/*
 * How much freed memory a cache holds, SYNC_MEMOPS of a pin of two allocations, and CUDA contexts that
 * outlive a pin, on each backend; copy options of memory that is freed in part, and of the environment.
 */
#include "common/preload.h"
#include "fixture.h"

#define MIB ((size_t)1 << 20)

/* A client that rounds down pins two buffers: SYNC_MEMOPS is set on both. */
static void plain_pin_of_two(void)
{
	uint64_t a = standin_alloc(4096), b = standin_alloc(4096);
	gdr_mh_t h;

	OK(gdr_pin_buffer_v2(g, a, b + 4096 - a, 0, &h));
	HANDLE_HAS(g, h, SYNC_MEMOPS, 1);
	ck_assert_int_eq(standin_sync_memops(b), 1);
}

/* Copy options of a plain pin and of a range: the memory behind bytes that are no memory. */
static void freed_behind_hole(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_write_min = 64 };
	CUdeviceptr at[3];
	gdr_mh_t both[2];
	size_t size;
	void *cpu;

	for (int i = 0; i < 3; i++)
		at[i] = standin_alloc(4096);
	CU(cuda.cuMemFree_v2(at[1]));
	size = at[2] + 4096 - at[0];
	OK(gdr_pin_buffer_v2(g, at[0], size, 0, &both[0]));
	OK(barcopy_map_range(g, at[0], size, 0, &cpu, &both[1]));
	for (int freed = 0; freed < 2; freed++) {
		for (int i = 0; i < 2; i++)
			FAILS(freed ? EINVAL : 0, barcopy_set_copy_options(both[i], &o));
		if (!freed)
			CU(cuda.cuMemFree_v2(at[2]));
	}
	OK(gdr_unpin_buffer(g, both[0]));
	OK(barcopy_unmap_range(g, both[1]));
}

static void map_twice(void)
{
	CUdeviceptr d;
	gdr_mh_t h;
	void *va;

	start();
	d = standin_alloc(4096);
	OK(gdr_pin_buffer_v2(g, d, 4096, 0, &h));
	for (int i = 0; i < 2; i++) {
		OK(gdr_map(g, h, &va, 4096));
		ck_assert(same_memory(h, va, d));
		/* One host page is mapped of the GPU's. */
		FAILS(EINVAL, gdr_copy_to_mapping(h, (char *)va + sysconf(_SC_PAGESIZE), &d, 1));
		OK(gdr_unmap(g, h, va, 4096));
	}
	end();
}

/* An invalid value is logged once and ignored; a variable without meaning is not read. */
static void wrong_environment(void)
{
	const char *text = "GDRCOPY_COPY_IMPL names no implementation";
	const char *first = strstr(unit_stderr_of(map_twice), text);

	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_null(strstr(first + 1, "GDRCOPY_COPY_IMPL"));
}

enum { MEMORY_MIB = 128, LIMIT_MIB = MEMORY_MIB / 4 }; /* the default limit there */

/*
 * All of it but the first GPU page: the stand-in's dma-buf of a whole allocation is a plain memfd,
 * which does not hold the memory.
 */
static void get_most(barcopy_cache_t cache, uint64_t addr, size_t size, barcopy_region_t *r)
{
	OK(barcopy_cache_get(cache, addr + GPU_PAGE_SIZE, size - GPU_PAGE_SIZE, r));
}

/* All memory but the live bytes and the limit can be allocated. */
static void check_held(size_t live)
{
	CUdeviceptr probe;
	CUresult r = cuda.cuMemAlloc_v2(&probe, (MEMORY_MIB - LIMIT_MIB) * MIB - live);

	ck_assert_msg(!r, "more than the limit is held besides %zu MiB: CUresult %d", live / MIB,
		      (int)r);
	CU(cuda.cuMemFree_v2(probe));
}

static void churn(barcopy_cache_t cache, bool moves)
{
	unsigned long long seed = 99;

	for (int i = 0; i < (unit_quick() ? 300 : 10000); i++) {
		size_t size = (1 + unit_random(&seed) % 12) * 2 * MIB;
		barcopy_region_t r;
		CUdeviceptr addr;

		/* The reservation of a chunk is kept: the next address is another one. */
		addr = moves ? standin_chunks(0, 0, 1, size, STANDIN_EXPORTABLE | STANDIN_RDMA)
			     : standin_alloc(size);
		get_most(cache, addr, size, &r);
		if (i % 16 == 0)
			check_held(size);
		OK(barcopy_cache_put(cache, &r));
		if (moves)
			CU(cuda.cuMemUnmap(addr, size));
		else
			CU(cuda.cuMemFree_v2(addr));
		if (i % 16 == 0)
			check_held(0);
	}
}

static void never_more_than_the_limit(void)
{
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	uint64_t addr;
	barcopy_region_t r;

	churn(cache, false);
	churn(cache, true);
	/* Nor an allocation that is larger than it. */
	addr = standin_alloc(96 * MIB);
	get_most(cache, addr, 96 * MIB, &r);
	OK(barcopy_cache_put(cache, &r));
	CU(cuda.cuMemFree_v2(addr));
	check_held(0);
}

/* ---- CUDA contexts ------------------------------------------------------- */

static void *pin_without_context(void *arg)
{
	const struct standin_vmm *v = arg;
	barcopy_cache_t cache = cache_with(g, BARCOPY_CACHE_CHECK_TAG, 0);
	barcopy_region_t r;
	gdr_mh_t h;
	void *cpu;

	for (int i = 0; i < 3; i++) {
		OK(gdr_pin_buffer_v2(g, v->ptr, v->size, 0, &h));
		OK(gdr_map(g, h, &cpu, v->size));
		OK(gdr_unpin_buffer(g, h));
		OK(barcopy_map_range(g, v->ptr, v->size, 0, &cpu, &h));
		OK(barcopy_unmap_range(g, h));
		OK(barcopy_cache_get(cache, v->ptr, v->size, &r));
		OK(barcopy_cache_put(cache, &r));
		OK(barcopy_cache_invalidate(cache, v->ptr, v->size));
	}
	return NULL;
}

/* A program with memory in a CUDA context of its own: pins do not retain the primary context. */
static void no_primary_context(void)
{
	CUdeviceptr p;
	CUcontext ctx;
	gdr_mh_t h;

	standin_load();
	CU(cuda.cuInit(0));
	CU(cuda.cuCtxCreate_v2(&ctx, 0, 0));
	CU(cuda.cuMemAlloc_v2(&p, 2 * MIB));
	g = open_any();
	OK(gdr_pin_buffer_v2(g, p, 65536, 0, &h)); /* with rm's trial */
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuda.cuDevicePrimaryCtxRelease_v2(0));
	OK(gdr_unpin_buffer(g, h));
	OK(gdr_close(g));
}

/*
 * A program with CUDA contexts of its own, and a thread without one: the library retains the
 * primary context once, and releases it with its last gdr_close().
 */
static void primary_context_once(void)
{
	struct standin_vmm v;
	CUcontext ctx;
	unsigned long before;
	gdr_t other;
	gdr_mh_t h;

	standin_load();
	CU(cuda.cuInit(0));
	CU(cuda.cuCtxCreate_v2(&ctx, 0, 0));
	setenv("GDRCOPY_BACKEND", "gdrdrv", 1);
	FAILS(ENODEV, ERRNO_OF(gdr_open())); /* which holds nothing */
	unsetenv("GDRCOPY_BACKEND");
	g = open_any();
	other = open_any();
	standin_vmm_alloc(&v, 0, 2, 2 * MIB, true);
	OK(gdr_pin_buffer_v2(g, v.ptr, v.size, 0, &h)); /* with rm's trial */
	OK(gdr_unpin_buffer(g, h));
	before = standin_contexts();
	unit_threads(1, pin_without_context, &v, 0);
	ck_assert_uint_le(standin_contexts() - before, 1);
	OK(gdr_close(g));
	g = other;
	unit_threads(1, pin_without_context, &v, 0);
	ck_assert_uint_le(standin_contexts() - before, 1);
	OK(gdr_close(other));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuda.cuDevicePrimaryCtxRelease_v2(0));
}

#define ON_DMABUF   "GDRSIM_NODE=absent GDRSIM_RM=absent GDRSIM_DRIVER_VERSION=13030"
#define ON_RM	    "GDRSIM_NODE=absent"
#define ON_NODE	    "GDRSIM_RM=absent"
#define ON_CALLBACK "GDRSIM_RM=absent GDRSIM_NODE_PERSISTENT=0"
#define SMALL	    " GDRSIM_MEM_MIB=128"

#define ON_EACH(text, fn, more)                                                   \
	{ text ", dmabuf", fn, ON_DMABUF more }, { text ", rm", fn, ON_RM more }, \
		{ text ", gdrdrv", fn, ON_NODE more },                            \
	{                                                                         \
		text ", gdrdrv with callbacks", fn, ON_CALLBACK more              \
	}

static const struct unit_test tests[] = {
	ON_EACH("a pin of two buffers", plain_pin_of_two, ""),
	ON_EACH("freed memory", never_more_than_the_limit, SMALL),
	{ "freed behind a hole", freed_behind_hole, "" },
	{ "wrong environment", wrong_environment,
	  "GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=3 GDRCOPY_COPY_THREADS=lots "
	  "GDRCOPY_COPY_IMPL=best",
	  .bare = true },
	{ "the primary context, dmabuf", primary_context_once, ON_DMABUF, .bare = true },
	{ "the primary context, rm", primary_context_once, ON_RM, .bare = true },
	{ "no primary context, rm", no_primary_context, ON_RM, .bare = true },
};

UNIT_MAIN("regions", tests, test_preload(argv, "libgdrdrv_node.so"), unit_before = start,
	  unit_after = end)
