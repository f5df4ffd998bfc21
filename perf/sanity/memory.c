/* SPDX-License-Identifier: MIT */
/* Kinds of memory whose layout matters: VMM ranges of several chunks, and the CPU's own memory. */
#include <errno.h>

#include "common/copytest.h"
#include "sanity/tests.h"

enum { CHUNKS = 4 };

struct chunked {
	CUdeviceptr ptr;
	size_t chunk;
	CUmemGenericAllocationHandle handle[CHUNKS];
};

/* Exportable device memory in CHUNKS allocations side by side. */
static void chunked_make(struct chunked *c)
{
	CUmemAllocationProp prop;
	CUmemAccessDesc access;

	if (!mem_vmm_properties(&prop, &sanity.gpu))
		sanity_waive("this driver has no virtual memory management calls");
	access = (CUmemAccessDesc){ prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CU(cu.MemGetAllocationGranularity(&c->chunk, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CU(cu.MemAddressReserve(&c->ptr, CHUNKS * c->chunk, 0, 0, 0));
	for (size_t i = 0; i < CHUNKS; i++) {
		CU(cu.MemCreate(&c->handle[i], c->chunk, &prop, 0));
		CU(cu.MemMap(c->ptr + i * c->chunk, c->chunk, 0, c->handle[i], 0));
	}
	CU(cu.MemSetAccess(c->ptr, CHUNKS * c->chunk, &access, 1));
}

static void chunked_free(struct chunked *c)
{
	for (size_t i = 0; i < CHUNKS; i++) {
		CU(cu.MemUnmap(c->ptr + i * c->chunk, c->chunk));
		CU(cu.MemRelease(c->handle[i]));
	}
	CU(cu.MemAddressFree(c->ptr, CHUNKS * c->chunk));
}

/* Across each border, both ways. */
static void check_borders(const struct chunked *c, const struct buffer *b, size_t borders)
{
	uint8_t in[8192], out[8192], *first = b->cpu - (b->mem.dptr - c->ptr);

	for (size_t i = 0; i < borders; i++) {
		size_t at = (i + 1) * c->chunk - sizeof(in) / 2 - 3;

		copytest_random(in, sizeof(in), i);
		OK(gdr_copy_to_mapping(b->mh, first + at, in, sizeof(in)));
		sanity_gpu_read(out, c->ptr + at, sizeof(out));
		SAME("across a chunk's border, read by CUDA", in, out, sizeof(in));
		copytest_random(in, sizeof(in), 100 + i);
		sanity_gpu_write(c->ptr + at, in, sizeof(in));
		OK(gdr_copy_from_mapping(b->mh, out, first + at, sizeof(out)));
		SAME("across a chunk's border, written by CUDA", in, out, sizeof(in));
	}
}

static void vmm_chunks(void)
{
	struct chunked c;
	struct buffer b;

	chunked_make(&c);
	sanity_view_or_waive(&b, c.ptr, CHUNKS * c.chunk, 0);
	check_borders(&c, &b, CHUNKS - 1);
	OK(gdr_unpin_buffer(sanity.g, b.mh));
	chunked_free(&c);
}

/* From inside the first chunk into the third, unaligned at both ends. */
static void vmm_part(void)
{
	struct chunked c;
	struct buffer b;
	uint64_t addr;
	size_t size;

	chunked_make(&c);
	addr = c.ptr + c.chunk - 70001;
	size = c.chunk + 140002;
	sanity_view_or_waive(&b, addr, size, 0);
	CHECK(b.info.va == (addr & GPU_PAGE_MASK) && b.info.va + b.map_size >= addr + size,
	      "pinned 0x%llx + %zu instead of 0x%llx + %zu", (unsigned long long)b.info.va,
	      b.map_size, (unsigned long long)addr, size);
	check_borders(&c, &b, 2);
	OK(gdr_unpin_buffer(sanity.g, b.mh));
	chunked_free(&c);
}

static void host_memory(bool write_combined)
{
	gdr_mapping_type_t type = write_combined ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_CACHING;
	uint64_t word = 0x55aa, seen = 0, backend = 0;
	struct gpu_mem mem;
	struct buffer b;
	char why[512];

	if (mem_alloc(&mem, &sanity.gpu, MEM_HOST_ALLOC, 4096, write_combined, why, sizeof(why)))
		sanity_waive("%s", why);
	sanity_view_or_waive(&b, (uintptr_t)mem.host, mem.size, 0);
	OK(barcopy_get_handle_attribute(b.g, b.mh, BARCOPY_HANDLE_ATTR_BACKEND, &backend));
	OK(gdr_copy_to_mapping(b.mh, b.cpu, &word, sizeof(word)));
	SAME("through the CPU's own pointer", &word, mem.host, sizeof(word));
	OK(gdr_copy_from_mapping(b.mh, &seen, b.cpu, sizeof(seen)));
	SAME("read back", &word, &seen, sizeof(seen));
	if (backend == BARCOPY_BACKEND_HOST) {
		OK(gdr_get_info(b.g, b.mh, &b.info));
		CHECK(b.cpu == mem.host, "the pointer is not the allocation's");
		CHECK(b.info.mapping_type == type, "the mapping is of type %d",
		      (int)b.info.mapping_type);
		/* the bytes around the allocation are refused */
		EXPECT(gdr_copy_to_mapping(b.mh, b.cpu - 1, &word, 1), EINVAL);
		EXPECT(gdr_copy_from_mapping(b.mh, &seen, b.cpu + mem.size - 7, 8), EINVAL);
	}
	OK(gdr_unpin_buffer(b.g, b.mh));
	mem_free(&mem);
}

static void host_cached(void)
{
	host_memory(false);
}

static void host_wc(void)
{
	host_memory(true);
}

const struct sanity_test sanity_memory[] = {
	TEST(vmm_chunks, "cuMemCreate memory in several chunks"),
	TEST(vmm_part, "a part of several chunks"),
	TEST(host_cached, "memory of cudaHostAlloc, cached"),
	TEST(host_wc, "memory of cudaHostAlloc, write-combined"),
	END_OF_TESTS,
};
