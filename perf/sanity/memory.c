/* SPDX-License-Identifier: MIT */
/* Kinds of memory whose layout matters: VMM ranges of several chunks, and the CPU's own memory. */
#include <errno.h>
#include <string.h>

#include "common/copytest.h"
#include "sanity/sanity.h"
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
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, sanity.gpu.dev },
	};
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	if (!cu.MemGetAllocationGranularity || !cu.MemCreate || !cu.MemRelease ||
	    !cu.MemAddressReserve || !cu.MemAddressFree || !cu.MemMap || !cu.MemUnmap ||
	    !cu.MemSetAccess)
		sanity_waive("this driver has no virtual memory management calls");
	prop.allocFlags.gpuDirectRDMACapable =
		gpu_has(&sanity.gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
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

/* A range that cannot be served is no fault of the library's: waived with its words. */
static void pin_or_waive(uint64_t addr, size_t size, gdr_mh_t *h)
{
	int rc = gdr_pin_buffer_v2(sanity.g, (unsigned long)addr, size, 0, h);

	if (rc == ENOTSUP || rc == ENODEV)
		sanity_waive("%s", barcopy_last_error());
	EXPECT(rc, 0);
}

/* Across each border, both ways. */
static void check_borders(const struct chunked *c, gdr_mh_t h, uint8_t *first, size_t from,
			  size_t to)
{
	uint8_t in[8192], out[8192];

	for (size_t i = from; i < to; i++) {
		size_t at = (i + 1) * c->chunk - sizeof(in) / 2 - 3;

		copytest_random(in, sizeof(in), i);
		OK(gdr_copy_to_mapping(h, first + at, in, sizeof(in)));
		sanity_gpu_read(out, c->ptr + at, sizeof(out));
		SAME("across a chunk's border, read by CUDA", in, out, sizeof(in));
		copytest_random(in, sizeof(in), 100 + i);
		sanity_gpu_write(c->ptr + at, in, sizeof(in));
		OK(gdr_copy_from_mapping(h, out, first + at, sizeof(out)));
		SAME("across a chunk's border, written by CUDA", in, out, sizeof(in));
	}
}

static void vmm_chunks(void)
{
	struct chunked c;
	gdr_mh_t h;
	void *map;

	chunked_make(&c);
	pin_or_waive(c.ptr, CHUNKS * c.chunk, &h);
	OK(gdr_map(sanity.g, h, &map, CHUNKS * c.chunk));
	check_borders(&c, h, map, 0, CHUNKS - 1);
	OK(gdr_unpin_buffer(sanity.g, h));
	chunked_free(&c);
}

/* From inside the first chunk into the third, unaligned at both ends. */
static void vmm_part(void)
{
	struct chunked c;
	gdr_info_t info;
	uint64_t addr;
	size_t size;
	gdr_mh_t h;
	void *map;

	chunked_make(&c);
	addr = c.ptr + c.chunk - 70001;
	size = c.chunk + 140002;
	pin_or_waive(addr, size, &h);
	OK(gdr_get_info(sanity.g, h, &info));
	CHECK(info.va == (addr & GPU_PAGE_MASK) && info.va + info.mapped_size >= addr + size,
	      "pinned 0x%llx + %llu instead of 0x%llx + %zu", (unsigned long long)info.va,
	      (unsigned long long)info.mapped_size, (unsigned long long)addr, size);
	OK(gdr_map(sanity.g, h, &map, info.mapped_size));
	check_borders(&c, h, (uint8_t *)map - (info.va - c.ptr), 0, 2);
	OK(gdr_unpin_buffer(sanity.g, h));
	chunked_free(&c);
}

static void host_memory(bool write_combined)
{
	gdr_mapping_type_t type = write_combined ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_CACHING;
	uint64_t word = 0x55aa, seen = 0, backend = 0;
	struct gpu_mem mem;
	gdr_info_t info;
	char why[512];
	uint8_t *p;
	gdr_mh_t h;
	void *map;

	if (mem_alloc(&mem, &sanity.gpu, MEM_HOST_ALLOC, 4096, write_combined, why, sizeof(why)))
		sanity_waive("%s", why);
	pin_or_waive((uintptr_t)mem.host, mem.size, &h);
	OK(barcopy_get_handle_attribute(sanity.g, h, BARCOPY_HANDLE_ATTR_BACKEND, &backend));
	OK(gdr_get_info(sanity.g, h, &info));
	OK(gdr_map(sanity.g, h, &map, info.mapped_size));
	p = (uint8_t *)map + ((uintptr_t)mem.host - info.va);
	OK(gdr_copy_to_mapping(h, p, &word, sizeof(word)));
	SAME("through the CPU's own pointer", &word, mem.host, sizeof(word));
	OK(gdr_copy_from_mapping(h, &seen, p, sizeof(seen)));
	SAME("read back", &word, &seen, sizeof(seen));
	if (backend == BARCOPY_BACKEND_HOST) {
		OK(gdr_get_info(sanity.g, h, &info));
		CHECK(p == mem.host, "the pointer is not the allocation's");
		CHECK(info.mapping_type == type, "the mapping is of type %d",
		      (int)info.mapping_type);
		/* the bytes around the allocation are not ours */
		EXPECT(gdr_copy_to_mapping(h, p - 1, &word, 1), EINVAL);
		EXPECT(gdr_copy_from_mapping(h, &seen, p + mem.size - 7, 8), EINVAL);
	}
	OK(gdr_unpin_buffer(sanity.g, h));
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
	{ "vmm_chunks", "cuMemCreate memory in several chunks", vmm_chunks, false },
	{ "vmm_part", "a part of several chunks", vmm_part, false },
	{ "host_cached", "memory of cudaHostAlloc, cached", host_cached, false },
	{ "host_wc", "memory of cudaHostAlloc, write-combined", host_wc, false },
	{ NULL, NULL, NULL, false },
};
