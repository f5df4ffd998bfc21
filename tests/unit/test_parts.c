// SPDX-License-Identifier: MIT
/*
 * The allocations of a region: which are noted, over holes of every length; which are noted later,
 * and only where they lie in one GPU page with one that is still there; and what a proof is worth
 * at the edges.
 */

#include "common/resources.h"
#include "common/wrap.h"
#include "core/parts.h"
#include "cuda/private.h"
#include "fixture.h"

/* Side by side from a page's start on: addr[i] of size[i]. */
static void side_by_side(const size_t *size, uint64_t *addr, int n)
{
	standin_start();
	for (int i = 0; i < n; i++) {
		addr[i] = standin_alloc(size[i]);
		ck_assert_uint_eq(addr[i], i ? addr[i - 1] + size[i - 1] : addr[0] & GPU_PAGE_MASK);
	}
}

/* A region of whole pages around [low, high), without a pin. */
static struct gdri_region region_of(uint64_t low, uint64_t high)
{
	struct gdri_region r = { .low = low, .high = high };

	r.pin.va = low & GPU_PAGE_MASK;
	r.pin.mapped_size = ((high + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - r.pin.va;
	return r;
}

/* The allocation behind a hole is noted, unless the hole has a whole page. */
static void holes(void)
{
	static const size_t size[] = { 100 << 10, 4096, 8192, 72 << 10, 512, 7680, 4096 };
	struct gdri_region r;
	uint64_t addr[7];
	size_t found = 0;
	char text[100];

	side_by_side(size, addr, 7);
	for (int i = 1; i < 7; i += 2)
		CU(cuda.cuMemFree_v2(addr[i]));
	/* A hole at the end is an error, which names the last allocation. */
	r = region_of(addr[0], addr[3] + 512);
	snprintf(text, sizeof(text), "0x200 bytes beyond its allocation of 0x2000 bytes at 0x%llx",
		 (unsigned long long)addr[2]);
	FAILS_WITH(-EINVAL, text, gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	gdri_region_free_parts(&r);
	r = region_of(addr[0], addr[6] + size[6]);
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(r.part_count, 4);
	for (int i = 0; i < 7; i += 2, found++) {
		ck_assert_uint_eq(r.parts[found].start, addr[i]);
		ck_assert_uint_eq(r.parts[found].end, addr[i] + size[i]);
	}
	ck_assert(gdri_region_is_intact(&r, r.low, r.high));
	ck_assert(gdri_region_is_intact(&r, addr[2] + 8, addr[2] + 16));
	ck_assert(gdri_region_is_intact(&r, addr[0] + size[0], r.high));
	/* Verifying over a hole learns first, and works over each hole that is noted. */
	ck_assert_int_eq(gdri_region_verify(&r, NULL, addr[0], addr[2] + 8 - addr[0]),
			 GDRI_UNKNOWN);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[0], addr[2] + size[2] - addr[0]),
			 GDRI_VALID);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[2], addr[4] + 8 - addr[2]), GDRI_VALID);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[4], addr[6] + size[6] - addr[4]),
			 GDRI_VALID);
	/* With its neighbour the hole has a page, behind which the next allocation begins. */
	ck_assert_uint_eq(addr[6] & GPU_PAGE_OFFSET, 0);
	CU(cuda.cuMemFree_v2(addr[4]));
	ck_assert(!gdri_region_is_intact(&r, addr[4], addr[4] + 1));
	ck_assert(gdri_region_is_intact(&r, r.low, addr[4]));
	ck_assert(gdri_region_is_intact(&r, addr[6], r.high));
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[2], addr[4] - addr[2]), GDRI_UNKNOWN);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[2], addr[6] + 8 - addr[2]), GDRI_STALE);
	gdri_region_free_parts(&r);
	FAILS_WITH(-EINVAL, "is no memory of the GPU",
		   gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[2], addr[6] + 8 - addr[2]), GDRI_UNKNOWN);
	gdri_region_free_parts(&r);
	/* A region from that page's middle on is not valid from its begin on once it has no memory. */
	ck_assert_uint_eq(standin_alloc(size[3]), addr[3]);
	r = region_of(addr[5], addr[6] + size[6]);
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low, addr[6] + 8 - r.low), GDRI_VALID);
	CU(cuda.cuMemFree_v2(addr[3]));
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.pin.va, addr[6] + 8 - r.pin.va),
			 GDRI_UNKNOWN);
	gdri_region_free_parts(&r);
}

/* A range begins in a hole: its first page needs an allocation too, which may lie before it. */
static void hole_first(void)
{
	static const size_t size[] = { 32768, 32768, 65536, 4096 };
	struct gdri_memory m;
	struct gdri_region r;
	uint64_t addr[4];

	side_by_side(size, addr, 4);
	CU(cuda.cuMemFree_v2(addr[1]));
	r = region_of(addr[1] + 5, addr[2] + 8);
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(r.part_count, 1);
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low, r.high - r.low), GDRI_VALID);
	CU(cuda.cuMemFree_v2(addr[0]));
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low, r.high - r.low), GDRI_UNKNOWN);
	gdri_region_free_parts(&r);
	FAILS_WITH(-EINVAL, "is no memory of the GPU",
		   gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	/* So is a range of which CUDA knows neither end, where the caller knows an allocation. */
	r = region_of(addr[0], addr[3] + 8);
	CU(cuda.cuMemFree_v2(addr[3]));
	gdri_cuda_describe(addr[2], 1, &m);
	FAILS_WITH(-EINVAL, "is no memory of the GPU", gdri_parts_note(&r, r.low, r.high, &m));
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(r.part_count, 0);
	/* An allocation in the page, behind the range's first byte. */
	ck_assert_uint_eq(standin_alloc(32768), addr[0]);
	addr[1] = standin_alloc(512);
	r = region_of(addr[1] - 5, addr[2] + 8);
	CU(cuda.cuMemFree_v2(addr[0]));
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(r.part_count, 2);
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low, r.high - r.low), GDRI_VALID);
	gdri_region_free_parts(&r);
}

/* Noted later in both pages of a noted one: the first stays known. */
static void late_twice(void)
{
	static const size_t size[] = { 4096, GPU_PAGE_SIZE, 4096 };
	struct gdri_region r;
	uint64_t addr[3];

	side_by_side(size, addr, 3);
	r = region_of(addr[0], addr[2] + size[2]);
	OK(gdri_parts_note(&r, addr[1], addr[1] + 1, &(struct gdri_memory){ 0 }));
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[0], 8), GDRI_VALID);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[2], 8), GDRI_VALID);
	ck_assert_int_eq(gdri_region_verify(&r, NULL, addr[0], 8), GDRI_VALID);
	gdri_region_free_parts(&r);
}

/* Noted later: an allocation that lies in one page with a noted one, up to its last byte. */
static void late(void)
{
	static const size_t size[] = { 4096, GPU_PAGE_SIZE - 4096, 4096, 2 * GPU_PAGE_SIZE };
	struct gdri_region r, first;
	unsigned long asked;
	uint64_t addr[4];

	side_by_side(size, addr, 4);
	r = region_of(addr[0], addr[2] + size[2]);
	OK(gdri_parts_note(&r, addr[0], addr[0] + 1, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(r.part_count, 1);
	ck_assert_int_eq(gdri_region_verify(&r, NULL, addr[1], size[1]), GDRI_UNKNOWN);
	asked = cuda_hooks.calls("cuPointerGetAttributes");
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[1], size[1]), GDRI_VALID);
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerGetAttributes"), asked + 1);
	ck_assert_int_eq(gdri_region_verify(&r, NULL, addr[1], size[1]), GDRI_VALID);
	ck_assert(gdri_region_is_intact(&r, r.low, addr[2]));
	/* The next one lies in a page with no noted one; the last reaches beyond its page. */
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[2], 8), GDRI_UNKNOWN);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[3], 8), GDRI_UNKNOWN);
	gdri_region_free_parts(&r);
	/* A noted one that begins where the page ends is in the next one. */
	r = region_of(addr[0], addr[2] + size[2]);
	OK(gdri_parts_note(&r, addr[2], addr[2] + 1, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(r.parts[0].start, addr[0] + GPU_PAGE_SIZE);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[0], 8), GDRI_UNKNOWN);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[2], 8), GDRI_VALID);
	/* One that reaches beyond the page is not learnt. */
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[3], 8), GDRI_UNKNOWN);
	/* Nor is anything held by one that has gone. */
	CU(cuda.cuMemFree_v2(addr[2]));
	addr[2] = standin_alloc(2048);
	ck_assert_uint_eq(addr[2], r.parts[0].start);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[2], 8), GDRI_STALE);
	ck_assert(!gdri_region_is_intact(&r, r.low, r.high));
	gdri_region_free_parts(&r);
	r = region_of(addr[0], addr[1] + size[1]);
	OK(gdri_parts_note(&r, addr[0], addr[0] + 1, &(struct gdri_memory){ 0 }));
	CU(cuda.cuMemFree_v2(addr[0]));
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[1], 8), GDRI_UNKNOWN);
	gdri_region_free_parts(&r);
	/* The noted one may begin in the middle of the page, or in the page before. */
	addr[0] = standin_alloc(200);
	first = region_of(addr[0], addr[1] + size[1]);
	OK(gdri_parts_note(&first, addr[1], addr[1] + 1, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(addr[1], first.pin.va + 4096);
	wrap_reset();
	wrap_fail("calloc", 1, ENOMEM);
	ck_assert_int_eq(gdri_region_verify(&first, &first, addr[0], 8), GDRI_UNKNOWN);
	wrap_reset();
	ck_assert_int_eq(gdri_region_verify(&first, &first, addr[0], 8), GDRI_VALID);
	ck_assert(gdri_region_is_intact(&first, first.low, first.high));
	addr[0] = standin_alloc(GPU_PAGE_SIZE + 4096);
	addr[1] = standin_alloc(4000);
	ck_assert_uint_eq(addr[1], addr[0] + GPU_PAGE_SIZE + 4096);
	r = region_of(addr[0], addr[1] + 4096);
	OK(gdri_parts_note(&r, addr[0], addr[0] + 1, &(struct gdri_memory){ 0 }));
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[1], 8), GDRI_VALID);
	ck_assert(gdri_region_in_one_part(&r, addr[1], 4000));
	ck_assert_ptr_null(gdri_region_part(&r, addr[1] + 4000));
	/* It has gone, one behind it has not. */
	addr[2] = standin_alloc(4096);
	addr[3] = standin_alloc(4096);
	ck_assert_uint_eq((addr[1] ^ addr[3]) & GPU_PAGE_MASK, 0);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[3], 8), GDRI_VALID);
	ck_assert_int_eq(gdri_region_verify(&r, NULL, addr[1], 8), GDRI_VALID); /* still known */
	ck_assert(gdri_region_is_intact(&r, r.low, r.pin.va + r.pin.mapped_size));
	CU(cuda.cuMemFree_v2(addr[1]));
	ck_assert(!gdri_region_is_intact(&r, r.low, r.pin.va + r.pin.mapped_size));
	ck_assert(gdri_region_is_intact(&r, addr[3], addr[3] + 4096));
	gdri_region_free_parts(&r);
	CU(cuda.cuMemFree_v2(first.low));
	ck_assert(!gdri_region_is_intact(&first, first.low, first.high));
	gdri_region_free_parts(&first);
}

/* What a region learnt ends with it: also in the first and the last slot of a page alone. */
static void heap(void)
{
	static const size_t size[] = { 512, GPU_PAGE_SIZE - 1024, 512 };
	uint64_t addr[3];
	size_t used = 0;

	side_by_side(size, addr, 3);
	CU(cuda.cuMemFree_v2(addr[0]));
	ck_assert_uint_eq(standin_alloc(200), addr[0]);
	CU(cuda.cuMemFree_v2(addr[2]));
	ck_assert_uint_eq(standin_alloc(512), addr[2]);
	for (int i = 0; i < 110; i++) {
		struct gdri_region r = region_of(addr[0], addr[2] + size[2]);

		if (i == 10)
			used = resources_heap();
		OK(gdri_parts_note(&r, addr[1], addr[1] + 1, &(struct gdri_memory){ 0 }));
		ck_assert_int_eq(gdri_region_verify(&r, &r, addr[0], r.high - r.low), GDRI_VALID);
		gdri_region_free_parts(&r);
	}
	ck_assert_uint_lt(resources_heap(), used + 1000);
}

/* What lies in the slots of one that has gone is not learnt, whichever slot they share. */
static void slot_taken(void)
{
	static const size_t size[] = { 512, 512, 512, 512 };
	struct gdri_region r;
	uint64_t addr[4];

	side_by_side(size, addr, 4);
	r = region_of(addr[0], addr[3] + size[3]);
	OK(gdri_parts_note(&r, addr[0], addr[0] + 1, &(struct gdri_memory){ 0 }));
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[3], 8), GDRI_VALID);
	for (int i = 1; i < 4; i++)
		CU(cuda.cuMemFree_v2(addr[i]));
	ck_assert_uint_eq(standin_alloc(1024 + 200), addr[1]); /* up to the first slot of addr[3] */
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[1], 8), GDRI_UNKNOWN);
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[3], 8), GDRI_STALE);
	gdri_region_free_parts(&r);
}

/* A range is valid in the region's pages alone, though its allocation goes on behind them. */
static void beyond(void)
{
	struct gdri_region r;
	uint64_t addr;

	standin_start();
	addr = standin_alloc(3 * GPU_PAGE_SIZE);
	ck_assert_uint_eq(addr & GPU_PAGE_OFFSET, 0);
	r = region_of(addr + GPU_PAGE_SIZE, addr + 2 * GPU_PAGE_SIZE);
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low, GPU_PAGE_SIZE), GDRI_VALID);
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low, GPU_PAGE_SIZE + 1), GDRI_UNKNOWN);
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low - 1, 1), GDRI_UNKNOWN);
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.high, 1), GDRI_UNKNOWN);
	gdri_region_free_parts(&r);
}

/* What is learnt gets SYNC_MEMOPS where the region asks for it, and counts with its pages. */
static void sync_memops_late(void)
{
	static const size_t size[] = { 512, 512, GPU_PAGE_SIZE - 1024 };

	for (int sync = 0; sync < 2; sync++) {
		struct gdri_region r;
		uint64_t addr[3];

		side_by_side(size, addr, 3);
		r = region_of(addr[0], addr[2] + size[2]);
		r.sync = sync;
		OK(gdri_parts_note(&r, addr[0], addr[0] + 1, &(struct gdri_memory){ 0 }));
		gdri_parts_set_sync_memops(&r, true);
		/* CUDA refuses it for the second one. */
		ck_assert_int_eq(gdri_region_verify(&r, &r, addr[2], 8), GDRI_VALID);
		cuda_hooks.set_fail("cuPointerSetAttribute:*=801");
		ck_assert_int_eq(gdri_region_verify(&r, &r, addr[1], 8), GDRI_VALID);
		cuda_hooks.set_fail(NULL);
		ck_assert_int_eq(standin_sync_memops(addr[1]), 0);
		ck_assert_int_eq(standin_sync_memops(addr[2]), sync);
		ck_assert(!gdri_region_sync_memops(&r, addr[1], addr[2]));
		ck_assert_int_eq(gdri_region_sync_memops(&r, addr[2], r.high), sync);
		ck_assert(gdri_region_sync_memops(&r, addr[0], addr[1]));
		gdri_region_free_parts(&r);
		for (int i = 0; i < 3; i++)
			CU(cuda.cuMemFree_v2(addr[i]));
	}
}

/* SYNC_MEMOPS is set for what was noted, not for what has come to its place since. */
static void sync_memops(void)
{
	static const size_t size[] = { 4096, 4096 };
	struct gdri_region r;
	uint64_t addr[2];

	side_by_side(size, addr, 2);
	r = region_of(addr[0], addr[1] + size[1]);
	ck_assert(!gdri_region_sync_memops(&r, r.low, r.high)); /* nothing is noted */
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(r.part_count, 2);
	CU(cuda.cuMemFree_v2(addr[1]));
	ck_assert_uint_eq(standin_alloc(size[1]), addr[1]);
	gdri_parts_set_sync_memops(&r, false);
	ck_assert_int_eq(standin_sync_memops(addr[0]), 1);
	ck_assert_int_eq(standin_sync_memops(addr[1]), 0);
	ck_assert(gdri_region_sync_memops(&r, addr[0], addr[0] + size[0]));
	ck_assert(!gdri_region_sync_memops(&r, addr[1], addr[1] + size[1]));
	ck_assert(!gdri_region_sync_memops(&r, r.low, r.high));
	ck_assert(!gdri_region_sync_memops(&r, r.high, r.high + 1));
	gdri_region_free_parts(&r);
}

/* Behind VMM memory, for which CUDA refuses SYNC_MEMOPS, plain memory gets it. */
static void behind_vmm(void)
{
	static const size_t size[] = { CHUNK, CHUNK };
	struct gdri_region r;
	uint64_t addr[2];

	side_by_side(size, addr, 2);
	CU(cuda.cuMemFree_v2(addr[0]));
	ck_assert_uint_eq(vmm_new(addr[0], 1), addr[0]);
	r = region_of(addr[0], addr[1] + size[1]);
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(r.part_count, 2);
	gdri_parts_set_sync_memops(&r, true);
	ck_assert(!gdri_region_sync_memops(&r, addr[0], addr[1]));
	ck_assert_int_eq(standin_sync_memops(addr[1]), 1);
	ck_assert(gdri_region_sync_memops(&r, addr[1], r.high));
	ck_assert(!gdri_region_sync_memops(&r, r.low, r.high));
	gdri_region_free_parts(&r);
}

/* VMM memory has no context: SYNC_MEMOPS is asked for on its own GPU, for each chunk. */
static void on_its_gpu(void)
{
	unsigned long retained, asked;
	gdr_mh_t h[2];
	void *cpu;
	CUdeviceptr d;

	start();
	CU(cuda.cuCtxSetCurrent(standin_primary(1)));
	d = standin_chunks(0, 1, 4, CHUNK, 0);
	OK(barcopy_map_range(g, d, 8, 0, &cpu, &h[0]));
	retained = cuda_hooks.calls("cuDevicePrimaryCtxRetain");
	asked = cuda_hooks.calls("cuPointerSetAttribute");
	OK(barcopy_map_range(g, d + CHUNK, 3 * CHUNK, 0, &cpu, &h[1]));
	ck_assert_uint_eq(cuda_hooks.calls("cuDevicePrimaryCtxRetain"), retained);
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerSetAttribute"), asked + 3);
	end();
}

static CUdeviceptr chunk;
static int moves; /* while a range of it is mapped */

static void move(void)
{
	vmm_replace(chunk, 0);
	if (--moves)
		wrap_before("mmap", move);
}

/* Memory that another thread replaces in the middle of a map: it is mapped anew, three times. */
static void moved(void)
{
	gdr_mh_t h;
	void *cpu;

	start();
	chunk = standin_chunks(0, 0, 1, CHUNK, STANDIN_EXPORTABLE);
	OK(barcopy_map_range(g, chunk, CHUNK, 0, &cpu, &h)); /* with a trial */
	OK(barcopy_unmap_range(g, h));
	for (int n = 1; n <= 3; n++) {
		vmm_replace(chunk, 0);
		moves = n;
		wrap_reset();
		wrap_before("mmap", move);
		if (n == 3) {
			FAILS_WITH(EINVAL, "is being freed or reallocated",
				   barcopy_map_range(g, chunk, CHUNK, 0, &cpu, &h));
			break;
		}
		OK(barcopy_map_range(g, chunk, CHUNK, 0, &cpu, &h));
		ck_assert_int_eq(moves, 0);
		ck_assert(same_memory(h, cpu, chunk));
		OK(barcopy_unmap_range(g, h));
	}
	end();
}

static uint64_t ends[2];

/* The first alone, or both. */
static void free_ends(void)
{
	for (int i = 0; i <= unit_row; i++)
		CU(cuda.cuMemFree_v2(ends[i]));
}

/* As moved(), but the middle is left, which does not become memory that CUDA does not know. */
static void ends_freed(void)
{
	static const size_t size[] = { 65536, 65536, 65536, 4096 };
	uint64_t addr[4];
	gdr_mh_t h;
	void *cpu;

	side_by_side(size, addr, 4);
	g = open_any();
	ends[0] = addr[0];
	ends[1] = addr[3];
	wrap_reset();
	wrap_before("mmap", free_ends);
	FAILS_WITH(EINVAL, unit_row ? "is being freed or" : "is no memory of the GPU",
		   barcopy_map_range(g, addr[0], addr[3] + size[3] - addr[0], 0, &cpu, &h));
	end();
}

/* Without memory to note what a range holds it is not mapped. */
static void no_memory(void)
{
	gdr_mh_t h;
	void *cpu;

	start();
	wrap_reset();
	wrap_fail("realloc", 0, ENOMEM);
	FAILS_WITH(ENOMEM, "no memory for the allocations of a region",
		   barcopy_map_range(g, standin_alloc(CHUNK), 8, 0, &cpu, &h));
	FAILS_WITH(-ENOMEM, "no memory for the allocations of a region",
		   gdri_parts_note(&(struct gdri_region){ 0 }, 0x10000, 0x10008,
				   &(struct gdri_memory){
					   .kind = GDRI_MEMORY_HOST, .base = 0x10000, .size = 8 }));
	wrap_reset();
	end();
}

/* CUDA is asked twice for each step of a hole, and not for what lies before an allocation. */
static void hole_is_crossed_once(void)
{
	static const size_t size[] = { 32 << 10, 4096 };
	struct gdri_region r;
	unsigned long asked;
	uint64_t addr[2];

	side_by_side(size, addr, 2);
	CU(cuda.cuMemFree_v2(addr[0]));
	r = region_of(addr[1], addr[1] + size[1]);
	asked = cuda_hooks.calls("cuPointerGetAttributes");
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerGetAttributes"), asked + 1);
	gdri_region_free_parts(&r);
	r = region_of(addr[0], addr[1] + size[1]);
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	asked = cuda_hooks.calls("cuPointerGetAttributes");
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low, r.high - r.low), GDRI_VALID);
	ck_assert_uint_le(cuda_hooks.calls("cuPointerGetAttributes") - asked, 2 * size[0] / 256);
	gdri_region_free_parts(&r);
}

/* An allocation between two parts that cannot be learnt is no hole. */
static void not_learnt(void)
{
	static const size_t size[] = { 512, 512, 512 };
	struct gdri_region r;
	uint64_t addr[3];

	side_by_side(size, addr, 3);
	CU(cuda.cuMemFree_v2(addr[1]));
	r = region_of(addr[0], addr[2] + size[2]);
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	ck_assert_uint_eq(standin_alloc(size[1]), addr[1]);
	wrap_reset();
	wrap_fail("calloc", 1, ENOMEM);
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low, r.high - r.low), GDRI_UNKNOWN);
	wrap_reset();
	ck_assert_int_eq(gdri_region_verify(&r, &r, r.low, r.high - r.low), GDRI_VALID);
	gdri_region_free_parts(&r);
}

static __typeof__(gdri_cu.cuPointerGetAttributes) ask;
static uint64_t on_host;

static CUresult one_on_host(unsigned int n, CUpointer_attribute *names, void **values,
			    CUdeviceptr at)
{
	CUresult r = ask(n, names, values, at);

	for (unsigned int i = 0; at == on_host && i < n; i++)
		if (names[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
			*(unsigned int *)values[i] = CU_MEMORYTYPE_HOST;
		else if (names[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			*(void **)values[i] = (void *)(uintptr_t)at;
	return r;
}

/* Host memory in the page is not learnt: what is pinned there is the GPU's. */
static void not_the_gpus(void)
{
	static const size_t size[] = { 512, 512 };
	struct gdri_region r;
	uint64_t addr[2];

	side_by_side(size, addr, 2);
	r = region_of(addr[0], addr[1] + size[1]);
	OK(gdri_parts_note(&r, addr[0], addr[1], &(struct gdri_memory){ 0 }));
	ask = gdri_cu.cuPointerGetAttributes;
	gdri_cu.cuPointerGetAttributes = one_on_host;
	on_host = addr[1];
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[1], 8), GDRI_UNKNOWN);
	gdri_cu.cuPointerGetAttributes = ask;
	ck_assert_int_eq(gdri_region_verify(&r, &r, addr[1], 8), GDRI_VALID);
	gdri_region_free_parts(&r);
}

static __typeof__(gdri_cu.cuMemGetAddressRange_v2) range;
static uint64_t moved_up; /* an allocation that seems to begin 256 bytes later */

static CUresult ask_behind(unsigned int n, CUpointer_attribute *names, void **values,
			   CUdeviceptr at)
{
	return ask(n, names, values, at - moved_up < 256 ? 8 : at);
}

static CUresult range_behind(CUdeviceptr *base, size_t *size, CUdeviceptr at)
{
	CUresult r = range(base, size, at);

	if (!r && *base == moved_up) {
		*base += 256;
		*size -= 256;
	}
	return r;
}

/* The stand-in's allocations lie 512 bytes apart; CUDA promises 256. */
static void aligned_to_256(void)
{
	static const size_t size[] = { 512, 512, 512 };
	struct gdri_region r;
	uint64_t addr[3];

	side_by_side(size, addr, 3);
	r = region_of(addr[0], addr[2] + size[2]);
	OK(gdri_cuda_load());
	ask = gdri_cu.cuPointerGetAttributes;
	range = gdri_cu.cuMemGetAddressRange_v2;
	moved_up = addr[1];
	gdri_cu.cuPointerGetAttributes = ask_behind;
	gdri_cu.cuMemGetAddressRange_v2 = range_behind;
	OK(gdri_parts_note(&r, r.low, r.high, &(struct gdri_memory){ 0 }));
	gdri_cu.cuPointerGetAttributes = ask;
	gdri_cu.cuMemGetAddressRange_v2 = range;
	ck_assert_uint_eq(r.part_count, 3);
	ck_assert_uint_eq(r.parts[1].start, addr[1] + 256);
	gdri_region_free_parts(&r);
}

/*
 * In a gap between allocations nothing is served, also by a driver that knows its blocks alone. A
 * range or a pin that begins in the gap of the allocation's page, and ends in the allocation, is.
 */
static void gap(void)
{
	static const size_t behind[] = { 4096, 4096, 200000, 200000 };

	for (size_t i = 0; i < COUNT(behind); i++) {
		const size_t size[] = { 4096, 8192, behind[i] };
		barcopy_cache_t cache;
		barcopy_region_t region;
		uint64_t addr[3];
		gdr_mh_t h;
		void *cpu;

		side_by_side(size, addr, 3);
		CU(cuda.cuMemFree_v2(addr[1]));
		if (i % 2) /* nothing is before the gap */
			CU(cuda.cuMemFree_v2(addr[0]));
		g = open_any();
		for (int flags = 0; flags < 4; flags++)
			FAILS_WITH(EINVAL, "CUDA does not know ",
				   barcopy_map_range(g, addr[1] + 100, 4096, (uint32_t)flags, &cpu,
						     &h));
		for (int notified = 0; notified < 2; notified++) {
			cache = cache_with(g, notified ? BARCOPY_CACHE_NOTIFIED
						       : BARCOPY_CACHE_CHECK_TAG, 0);
			FAILS_WITH(EINVAL, "CUDA does not know ",
				   barcopy_cache_get(cache, addr[1] + 100, 4096, &region));
			OK(barcopy_cache_destroy(cache));
		}
		OK(barcopy_map_range(g, addr[1] + 100, 8192, 0, &cpu, &h));
		ck_assert(same_memory(h, (char *)cpu + 8092, addr[2]));
		OK(barcopy_unmap_range(g, h));
		OK(gdr_pin_buffer(g, addr[1] + 100, 8192, 0, 0, &h));
		OK(gdr_map(g, h, &cpu, PAGE));
		ck_assert(same_memory(h, (char *)cpu + (addr[2] & GPU_PAGE_OFFSET), addr[2]));
		OK(gdr_unpin_buffer(g, h));
		end();
		if (!(i % 2))
			CU(cuda.cuMemFree_v2(addr[0]));
		CU(cuda.cuMemFree_v2(addr[2]));
	}
}

static const struct unit_test tests[] = {
	{ "a gap, gdrdrv", gap, "GDRSIM_RM=absent LD_PRELOAD=$SIM/libgdrdrv_node.so" },
	{ "a gap, rm", gap, "GDRCOPY_BACKEND=rm" },
	{ "a gap, dmabuf", gap, "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
	{ "a slot that is taken", slot_taken, "" },
	{ "beyond a region", beyond, "" },
	{ "SYNC_MEMOPS of what is noted later", sync_memops_late, "" },
	{ "256 bytes apart", aligned_to_256, "" },
	{ "not learnt", not_learnt, "" },
	{ "host memory is not learnt", not_the_gpus, "" },
	{ "holes", holes, "" },
	{ "a hole at the begin", hole_first, "" },
	{ "a hole is crossed once", hole_is_crossed_once, "" },
	{ "noted later", late, "" },
	{ "noted later in two pages", late_twice, "" },
	{ "parts and the heap", heap, "" },
	{ "SYNC_MEMOPS", sync_memops, "" },
	{ "SYNC_MEMOPS behind VMM memory", behind_vmm, "" },
	{ "SYNC_MEMOPS of VMM memory", on_its_gpu, "GDRSIM_DEVICES=2" },
	{ "moved in the middle", moved, "" },
	{ "its ends freed in the middle", ends_freed,
	  "GDRSIM_RM=absent LD_PRELOAD=$SIM/libgdrdrv_node.so", .rows = 2 },
	{ "no memory for parts", no_memory, "" },
};

UNIT_MAIN("allocations of a region", tests)
