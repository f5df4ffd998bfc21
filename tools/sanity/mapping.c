/* SPDX-License-Identifier: MIT */
/* Types of mappings, two of one buffer; pins over PCIe; VMM ranges of chunks; host memory. */
#include <errno.h>

#include "common/copytest.h"
#include "common/exit.h"
#include "sanity/sanity.h"

static void mapping_type(void)
{
	static const struct {
		int flag;
		gdr_mapping_type_t type;
	} wish[] = {
		{ GDR_MAP_FLAG_REQ_WC_MAPPING, GDR_MAPPING_TYPE_WC },
		{ GDR_MAP_FLAG_REQ_CACHE_MAPPING, GDR_MAPPING_TYPE_CACHING },
		{ GDR_MAP_FLAG_REQ_DEVICE_MAPPING, GDR_MAPPING_TYPE_DEVICE },
	};
	const char *name = NULL;
	struct buffer b;
	gdr_info_t info;
	uint64_t value;
	void *map;

	sanity_make(&b, 64 * KIB);
	OK(gdr_get_mapping_type_string(b.info.mapping_type, &name));
	CHECK(b.info.mapping_type > GDR_MAPPING_TYPE_NONE &&
		      b.info.mapping_type < GDR_MAPPING_TYPE_MAX,
	      "a mapping of type %d", (int)b.info.mapping_type);
	CHECK(b.info.mapped && b.info.wc_mapping == (b.info.mapping_type == GDR_MAPPING_TYPE_WC),
	      "mapped %d, wc_mapping %d, type %s", b.info.mapped, b.info.wc_mapping, name);
	OK(barcopy_get_handle_attribute(b.g, b.mh, BARCOPY_HANDLE_ATTR_MAPPING_TYPE, &value));
	CHECK(value == b.info.mapping_type,
	      "the default type is %llu by the attribute, %d by the mapping",
	      (unsigned long long)value, (int)b.info.mapping_type);
	sanity_note("the default mapping is %s", name);
	OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
	OK(gdr_get_info(b.g, b.mh, &info));
	CHECK(!info.mapped && !info.wc_mapping && info.mapping_type == GDR_MAPPING_TYPE_NONE,
	      "after the unmap: mapped %d, wc_mapping %d, type %d", info.mapped, info.wc_mapping,
	      (int)info.mapping_type);
	for (size_t i = 0; i < ARRAY_SIZE(wish); i++) {
		int rc = gdr_map_v2(b.g, b.mh, &map, b.map_size, wish[i].flag);

		OK(gdr_get_mapping_type_string(wish[i].type, &name));
		sanity_note("%s: %s", name, rc ? barcopy_last_error() : "can be asked for");
		if (rc) {
			FAILS(ENOTSUP, rc);
			continue;
		}
		OK(gdr_get_info(b.g, b.mh, &info));
		CHECK(info.mapping_type == wish[i].type, "asked for %s, mapped as %d", name,
		      (int)info.mapping_type);
		OK(gdr_unmap(b.g, b.mh, map, b.map_size));
	}
	/* the next map has the default type again */
	OK(gdr_map(b.g, b.mh, &b.map, b.map_size));
	OK(gdr_get_info(b.g, b.mh, &info));
	CHECK(info.mapping_type == b.info.mapping_type, "the default type has become %d",
	      (int)info.mapping_type);
	sanity_unmake(&b);
}

/* Written through one mapping at `a`, read through the other at `b`. */
static void cross(gdr_mh_t one, uint8_t *a, gdr_mh_t other, uint8_t *b, uint64_t sequence)
{
	uint8_t in[4000], out[4000];

	copytest_random(in, sizeof(in), sequence);
	OK(gdr_copy_to_mapping(one, a, in, sizeof(in)));
	OK(barcopy_flush(one));
	OK(gdr_copy_from_mapping(other, out, b, sizeof(out)));
	SAME("written by one mapping, read by the other", in, out, sizeof(in));
}

/* A type that conflicts with the first mapping's is refused; any other shows the same bytes. */
static void two_types(void)
{
	struct buffer b;
	gdr_mh_t h;

	sanity_make(&b, 128 * KIB);
	OK(gdr_pin_buffer_v2(b.g, (unsigned long)b.mem.dptr, b.mem.size, 0, &h));
	for (int flag = GDR_MAP_FLAG_DEFAULT; flag <= GDR_MAP_FLAG_REQ_DEVICE_MAPPING; flag++) {
		const char *name;
		gdr_info_t info;
		uint8_t *at;
		void *map;
		int rc = gdr_map_v2(b.g, h, &map, b.map_size, flag);

		if (rc) {
			CHECK(flag != GDR_MAP_FLAG_DEFAULT, "a second mapping: %s",
			      barcopy_last_error());
			FAILS(ENOTSUP, rc);
			sanity_note("refused: %s", barcopy_last_error());
			continue;
		}
		OK(gdr_get_info(b.g, h, &info));
		OK(gdr_get_mapping_type_string(info.mapping_type, &name));
		sanity_note("%s in addition to the default mapping", name);
		at = (uint8_t *)map + (b.cpu - (uint8_t *)b.map) + flag;
		cross(b.mh, b.cpu + flag, h, at, (uint64_t)flag);
		cross(h, at, b.mh, b.cpu + flag, ~(uint64_t)flag);
		OK(gdr_unmap(b.g, h, map, b.map_size));
	}
	OK(gdr_unpin_buffer(b.g, h));
	sanity_unmake(&b);
}

static void force_pcie(void)
{
	struct gpu_mem mem;
	struct buffer b;

	sanity_alloc(&mem, 128 * KIB);
	sanity_view_or_waive(&b, mem.dptr, mem.size, GDR_PIN_FLAG_FORCE_PCIE);
	sanity_round_trip(&b, 0, b.mem.size, 1);
	OK(gdr_unpin_buffer(sanity.g, b.mh));
	mem_free(&mem);
}

/* ---- kinds of memory ------------------------------------------------------------------ */

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
	size_t first = (size_t)(b->mem.dptr - c->ptr);

	for (size_t i = 1; i <= borders; i++)
		sanity_round_trip(b, i * c->chunk - first - 4099, 8192, i);
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
		FAILS(EINVAL, gdr_copy_to_mapping(b.mh, b.cpu - 1, &word, 1));
		FAILS(EINVAL, gdr_copy_from_mapping(b.mh, &seen, b.cpu + mem.size - 7, 8));
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

const struct sanity_test sanity_mapping[] = {
	TEST(mapping_type, "the mapping's type, and wishes for another"),
	TEST(two_types, "a second mapping of each type"),
	TEST(force_pcie, "a pin over PCIe"),
	TEST(vmm_chunks, "cuMemCreate memory in several chunks"),
	TEST(vmm_part, "a part of several chunks"),
	TEST(host_cached, "memory of cudaHostAlloc, cached"),
	TEST(host_wc, "memory of cudaHostAlloc, write-combined"),
	END_OF_TESTS,
};
