/* SPDX-License-Identifier: MIT */
/* Data both ways: where it lies, how it is pinned, which bytes are touched. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/copytest.h"
#include "common/exit.h"
#include "sanity/sanity.h"

#define MIB ((size_t)1024 * 1024)

static void both_ways(size_t size)
{
	struct buffer b;

	sanity_make(&b, size);
	sanity_round_trip(&b, 0, size, size);
	sanity_unmake(&b);
}

static void basic(void)
{
	both_ways(128 * KIB);
}

static void large(void)
{
	both_ways(8 * MIB);
}

static int pin_with(const struct gpu_mem *mem, uint64_t p2p_token, uint32_t va_space)
{
	gdr_mh_t h = { 0 };
	int rc = gdr_pin_buffer(sanity.g, (unsigned long)mem->dptr, mem->size, p2p_token, va_space,
				&h);

	CHECK(!rc || !h.h, "a pin that failed wrote its handle");
	if (!rc)
		OK(gdr_unpin_buffer(sanity.g, h));
	return rc;
}

static void tokens(void)
{
	CUDA_POINTER_ATTRIBUTE_P2P_TOKENS t = { 0 };
	struct gpu_mem mem;
	CUresult res;

	sanity_alloc(&mem, 64 * KIB);
	OK(pin_with(&mem, 0, 0));
	OK(pin_with(&mem, 1, 1)); /* tokens of no allocation: the library ignores them */
	if (!cu.PointerGetAttribute) {
		sanity_note("this driver has no cuPointerGetAttribute");
	} else {
		res = cu.PointerGetAttribute(&t, CU_POINTER_ATTRIBUTE_P2P_TOKENS, mem.dptr);
		if (res != CUDA_SUCCESS)
			sanity_note("CUDA gives no tokens: %s", cuda_error_text(res));
		else
			OK(pin_with(&mem, t.p2pToken, t.vaSpaceToken));
	}
	mem_free(&mem);
}

static void unaligned(void)
{
	static const size_t offsets[] = { 0, 1, 7, 4095, 4096, 65535, 65536, 65537, 100001 };
	const size_t size = 5000;
	struct gpu_mem mem;

	sanity_alloc(&mem, 256 * KIB);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		uint64_t addr = mem.dptr + offsets[i];
		struct buffer b;

		OK(sanity_view(&b, addr, size, 0));
		CHECK(b.info.va == (addr & GPU_PAGE_MASK), "info.va of 0x%llx is 0x%llx",
		      (unsigned long long)addr, (unsigned long long)b.info.va);
		CHECK(b.map_size % GPU_PAGE_SIZE == 0 && b.info.va + b.map_size >= addr + size,
		      "info.mapped_size of 0x%llx + %zu is %zu", (unsigned long long)addr, size,
		      b.map_size);
		sanity_round_trip(&b, 0, size, i);
		OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
		OK(gdr_unpin_buffer(b.g, b.mh));
	}
	mem_free(&mem);
}

enum { SMALL = 8, SMALL_SIZE = 1024 };

/* The address of each small buffer; slices where an allocation is never smaller than a granule. */
static void small_addresses(struct gpu_mem *mem, uint64_t *addr)
{
	if (sanity.facts.kind == MEM_CREATE) {
		sanity_alloc(&mem[0], SMALL * SMALL_SIZE);
		for (size_t i = 0; i < SMALL; i++)
			addr[i] = mem[0].dptr + i * SMALL_SIZE;
		return;
	}
	for (size_t i = 0; i < SMALL; i++) {
		sanity_alloc(&mem[i], SMALL_SIZE);
		addr[i] = mem[i].dptr;
	}
}

/* Several handles in one GPU page: unpinning some leaves the others as they are. */
static void small_buffers(void)
{
	uint8_t in[SMALL][SMALL_SIZE], out[SMALL_SIZE];
	struct gpu_mem mem[SMALL];
	struct buffer b[SMALL];
	uint64_t addr[SMALL];
	size_t shared = 0;

	small_addresses(mem, addr);
	for (size_t i = 0; i < SMALL; i++) {
		shared += i && addr[i] / GPU_PAGE_SIZE == addr[i - 1] / GPU_PAGE_SIZE;
		OK(sanity_view(&b[i], addr[i], SMALL_SIZE, 0));
		copytest_random(in[i], SMALL_SIZE, i);
		OK(gdr_copy_to_mapping(b[i].mh, b[i].cpu, in[i], SMALL_SIZE));
	}
	sanity_note("%zu of %d small buffers share a GPU page with the one before", shared, SMALL);
	for (size_t i = 0; i < SMALL; i++) {
		sanity_gpu_read(out, addr[i], SMALL_SIZE);
		SAME("a small buffer, read by CUDA", in[i], out, SMALL_SIZE);
	}
	for (size_t i = 0; i < SMALL; i += 2)
		OK(gdr_unpin_buffer(sanity.g, b[i].mh)); /* unmaps too */
	for (size_t i = 1; i < SMALL; i += 2) {
		OK(gdr_copy_from_mapping(b[i].mh, out, b[i].cpu, SMALL_SIZE));
		SAME("after its neighbours' unpin", in[i], out, SMALL_SIZE);
		OK(gdr_unpin_buffer(sanity.g, b[i].mh));
	}
}

/* Every small size, and those around cache lines and pages, at every offset of a line and more. */
static void offsets(void)
{
	static const uint16_t more[] = {
		63, 64, 65, 127, 128, 129, 255, 256, 257, 4095, 4096, 4097
	};
	enum { SMALLEST = 33, OFFSETS = 67, GUARD = 64, ROOM = 4097 + OFFSETS + 2 * GUARD };
	uint8_t expect[ROOM], seen[ROOM], in[4097], out[4097 + 2];
	size_t sizes = SMALLEST + ARRAY_SIZE(more);
	size_t at = 4096 - GUARD; /* short copies cross a host page's end too */
	struct buffer b;

	sanity_make(&b, 64 * KIB);
	for (size_t i = 0; i < sizes; i++) {
		size_t size = i < SMALLEST ? i + 1 : more[i - SMALLEST];
		size_t room = size + OFFSETS + 2 * GUARD;

		for (size_t offset = 0; offset < OFFSETS; offset++) {
			uint8_t *p = b.cpu + at + GUARD + offset;

			/* the bytes, and no others */
			copytest_random(expect, room, i * 1000 + offset);
			sanity_gpu_write(b.mem.dptr + at, expect, room);
			for (size_t k = 0; k < size; k++)
				in[k] = (uint8_t)~expect[GUARD + offset + k];
			OK(gdr_copy_to_mapping(b.mh, p, in, size));
			memcpy(expect + GUARD + offset, in, size);
			sanity_gpu_read(seen, b.mem.dptr + at, room);
			SAME("written at an offset", expect, seen, room);

			/* back, to an odd place in host memory */
			memset(out, 0xa5, size + 2);
			OK(gdr_copy_from_mapping(b.mh, out + 1, p, size));
			SAME("read at an offset", in, out + 1, size);
			CHECK(out[0] == 0xa5 && out[size + 1] == 0xa5,
			      "a read of %zu byte%s wrote outside its destination", size,
			      plural(size));
		}
	}
	sanity_unmake(&b);
}

/* A map may be of any length up to the pin's, rounded up to a host page. */
static void map_sizes(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct gpu_mem mem;
	uint64_t word = 0;
	gdr_info_t info;
	gdr_mh_t h;
	void *map;

	sanity_alloc(&mem, 256 * KIB);
	OK(gdr_pin_buffer_v2(sanity.g, (unsigned long)mem.dptr, mem.size, 0, &h));
	OK(gdr_get_info(sanity.g, h, &info));
	for (size_t size = 1; size <= info.mapped_size; size = size * 5 + 3) {
		size_t mapped = (size + page - 1) / page * page;

		OK(gdr_map(sanity.g, h, &map, size));
		if (!sanity_is_host()) { /* there the allocation is the limit */
			uint8_t *end = (uint8_t *)map + mapped;

			OK(gdr_copy_from_mapping(h, &word, end - 8, 8));
			FAILS(EINVAL, gdr_copy_from_mapping(h, &word, end - 7, 8));
		}
		OK(gdr_unmap(sanity.g, h, map, size == 1 ? size : mapped));
	}
	OK(gdr_map(sanity.g, h, &map, info.mapped_size));
	OK(gdr_unmap(sanity.g, h, map, info.mapped_size));
	FAILS(EINVAL, gdr_map(sanity.g, h, &map, info.mapped_size + 1));
	FAILS(EINVAL, gdr_map(sanity.g, h, &map, SIZE_MAX));
	OK(gdr_unpin_buffer(sanity.g, h));
	mem_free(&mem);
}

static void two_handles(void)
{
	uint64_t a = 0x1122334455667788, seen = 0, lost = 0;
	struct buffer first, second;
	void *map;

	sanity_make(&first, 128 * KIB);
	FAILS(EAGAIN, gdr_map(sanity.g, first.mh, &map, 4096));
	OK(sanity_view(&second, first.mem.dptr, 128 * KIB, 0));
	OK(gdr_copy_to_mapping(first.mh, first.cpu + 512, &a, sizeof(a)));
	OK(gdr_copy_from_mapping(second.mh, &seen, second.cpu + 512, sizeof(seen)));
	SAME("written by one handle, read by the other", &a, &seen, sizeof(a));
	if (!sanity_is_host()) { /* both are the allocation's own address there */
		CHECK(second.cpu != first.cpu, "two mappings at one address");
		FAILS(EINVAL, gdr_unmap(sanity.g, first.mh, second.map, second.map_size));
	}
	OK(gdr_unmap(sanity.g, first.mh, first.map, first.map_size));
	OK(gdr_unpin_buffer(sanity.g, first.mh));
	FAILS(EINVAL, gdr_copy_from_mapping(first.mh, &lost, first.cpu, 8));
	seen = 0;
	OK(gdr_copy_from_mapping(second.mh, &seen, second.cpu + 512, sizeof(seen)));
	SAME("after the other handle's unpin", &a, &seen, sizeof(a));
	OK(gdr_unpin_buffer(sanity.g, second.mh));
	mem_free(&first.mem);
}

const struct sanity_test sanity_basic[] = {
	TEST(basic, "pin, map, copy both ways, unmap, unpin"),
	TEST(large, "8 MiB both ways"),
	TEST(tokens, "pins with P2P tokens"),
	TEST(unaligned, "pins at addresses that are not aligned"),
	TEST(small_buffers, "several buffers in one GPU page"),
	TEST(offsets, "copies of many sizes at every offset"),
	TEST(map_sizes, "maps of any length"),
	TEST(two_handles, "two handles of one buffer"),
	END_OF_TESTS,
};
