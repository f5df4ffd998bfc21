/* SPDX-License-Identifier: MIT */
/* What the calls refuse: sizes, addresses, handles, flags, NULL. None may crash. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "sanity/tests.h"

/* A pin that must fail: with that errno, without a handle, with a text. */
#define BAD_PIN(err, addr, size, flags)                                                            \
	do {                                                                                       \
		gdr_mh_t h_ = { 99 };                                                              \
		EXPECT(gdr_pin_buffer_v2(sanity.g, (unsigned long)(addr), size, flags, &h_), err); \
		CHECK(h_.h == 99, "a pin that failed wrote its handle");                           \
		CHECK(*barcopy_last_error(), "a failure without a text");                          \
	} while (0)

static void pin_arguments(void)
{
	static char pageable[4096];
	struct gpu_mem mem;
	gdr_mh_t h;

	sanity_alloc(&mem, 64 * KIB);
	BAD_PIN(EINVAL, mem.dptr, 0, 0);
	BAD_PIN(EINVAL, 0, 4096, 0);
	BAD_PIN(EOVERFLOW, mem.dptr, SIZE_MAX, 0);
	BAD_PIN(EOVERFLOW, UINT64_MAX - 100, 4096, 0);
	BAD_PIN(EINVAL, mem.dptr, 4096, 2);
	BAD_PIN(EINVAL, mem.dptr, 4096, 0x80000000);
	EXPECT(gdr_pin_buffer_v2(sanity.g, (unsigned long)mem.dptr, 4096, 0, NULL), EINVAL);
	EXPECT(gdr_pin_buffer_v2(NULL, (unsigned long)mem.dptr, 4096, 0, &h), EINVAL);
	/* memory that CUDA does not know */
	BAD_PIN(EINVAL, (uintptr_t)pageable, sizeof(pageable), 0);
	sanity_note("malloc memory: %s", barcopy_last_error());
	mem_free(&mem);
}

static void map_arguments(void)
{
	struct buffer b;
	void *map = &b, *before = map;
	gdr_info_t info;

	sanity_make(&b, 64 * KIB);
	EXPECT(gdr_map(b.g, b.mh, &map, 4096), EAGAIN);
	/* an address in the device's first page stands for the mapping: on the host the same ones */
	EXPECT(gdr_unmap(b.g, b.mh, (uint8_t *)b.map + (sanity_is_host() ? GPU_PAGE_SIZE : 1),
			 b.map_size),
	       EINVAL);
	EXPECT(gdr_unmap(b.g, b.mh, NULL, b.map_size), EINVAL);
	EXPECT(gdr_unmap(b.g, b.mh, &b, b.map_size), EINVAL);
	EXPECT(gdr_unmap(b.g, b.mh, b.map, b.map_size * 4), EINVAL);
	OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
	EXPECT(gdr_unmap(b.g, b.mh, b.map, b.map_size), EINVAL);
	EXPECT(gdr_map(b.g, b.mh, &map, 0), EINVAL);
	EXPECT(gdr_map(b.g, b.mh, NULL, 4096), EINVAL);
	EXPECT(gdr_map(NULL, b.mh, &map, 4096), EINVAL);
	EXPECT(gdr_map_v2(b.g, b.mh, &map, 4096, GDR_MAP_FLAG_REQ_DEVICE_MAPPING + 1), EINVAL);
	EXPECT(gdr_map_v2(b.g, b.mh, &map, 4096, -1), EINVAL);
	CHECK(map == before, "a map that failed wrote its pointer");
	EXPECT(gdr_get_info(b.g, b.mh, NULL), EINVAL);
	EXPECT(gdr_get_info(NULL, b.mh, &info), EINVAL);
	EXPECT(gdr_get_callback_flag(b.g, b.mh, NULL), EINVAL);
	/* the device's address stands for the mapping */
	OK(gdr_map(b.g, b.mh, &map, b.map_size));
	OK(gdr_unmap(b.g, b.mh, (void *)(uintptr_t)b.mem.dptr, b.map_size));
	OK(gdr_unpin_buffer(b.g, b.mh));
	mem_free(&b.mem);
}

static void copy_arguments(void)
{
	uint64_t word = 0x5a5a, seen = 0;
	struct buffer b;

	sanity_make(&b, 64 * KIB);
	OK(gdr_copy_to_mapping(b.mh, b.cpu, &word, 8));
	OK(gdr_copy_to_mapping(b.mh, b.cpu, &seen, 0));
	OK(gdr_copy_from_mapping(b.mh, &seen, b.cpu, 0));
	CHECK(!seen, "a copy of 0 bytes wrote");
	EXPECT(gdr_copy_to_mapping(b.mh, b.cpu, NULL, 8), EINVAL);
	EXPECT(gdr_copy_from_mapping(b.mh, NULL, b.cpu, 8), EINVAL);
	EXPECT(gdr_copy_to_mapping(b.mh, NULL, &word, 8), EINVAL);
	EXPECT(gdr_copy_from_mapping(b.mh, &seen, NULL, 8), EINVAL);
	EXPECT(gdr_copy_to_mapping(b.mh, &seen, &word, 8), EINVAL);
	EXPECT(gdr_copy_from_mapping(b.mh, &seen, (uint8_t *)b.map - 1, 8), EINVAL);
	EXPECT(gdr_copy_from_mapping(b.mh, &seen, b.cpu, SIZE_MAX), EINVAL);
	EXPECT(gdr_copy_from_mapping(b.mh, &seen, b.cpu, (size_t)1 << 40), EINVAL);
	CHECK(!seen, "a copy that was refused wrote");
	OK(gdr_copy_from_mapping(b.mh, &seen, b.cpu, 8));
	SAME("after calls that were refused", &word, &seen, 8);
	sanity_unmake(&b);
}

/* Every call on an invalid handle. */
static void bad_handle(gdr_mh_t h, const struct buffer *b)
{
	uint64_t word = 0;
	gdr_info_t info;
	void *map;
	int flag;

	EXPECT(gdr_map(sanity.g, h, &map, 4096), EINVAL);
	EXPECT(gdr_unmap(sanity.g, h, b->map, b->map_size), EINVAL);
	EXPECT(gdr_unpin_buffer(sanity.g, h), EINVAL);
	EXPECT(gdr_get_info(sanity.g, h, &info), EINVAL);
	EXPECT(gdr_get_callback_flag(sanity.g, h, &flag), EINVAL);
	EXPECT(barcopy_get_handle_attribute(sanity.g, h, BARCOPY_HANDLE_ATTR_BACKEND, &word),
	       EINVAL);
	EXPECT(gdr_copy_to_mapping(h, b->cpu, &word, 8), EINVAL);
	EXPECT(gdr_copy_from_mapping(h, &word, b->cpu, 8), EINVAL);
	EXPECT(barcopy_put64(h, b->cpu, 0), EINVAL);
	EXPECT(barcopy_get64(h, b->cpu, &word), EINVAL);
	EXPECT(barcopy_flush(h), EINVAL);
	EXPECT(barcopy_fence(h, BARCOPY_FENCE_FULL), EINVAL);
}

static void handles(void)
{
	struct buffer b, other, again;
	gdr_info_t info;
	gdr_t g;

	sanity_make(&b, 64 * KIB);
	sanity_make(&other, 64 * KIB);
	bad_handle((gdr_mh_t){ 0 }, &b);
	bad_handle((gdr_mh_t){ 1 }, &b);
	bad_handle((gdr_mh_t){ b.mh.h ^ 1 << 20 }, &b);
	bad_handle((gdr_mh_t){ ~0UL }, &b);
	/* a handle of another context */
	g = barcopy_open(BARCOPY_OPEN_ANY);
	CHECK(g, "a second context: %s", barcopy_last_error());
	EXPECT(gdr_get_info(g, b.mh, &info), EINVAL);
	EXPECT(gdr_unpin_buffer(g, b.mh), EINVAL);
	OK(gdr_close(g));
	EXPECT(gdr_close(g), EINVAL);
	EXPECT(gdr_close(NULL), EINVAL);
	EXPECT(gdr_get_info(g, b.mh, &info), EINVAL);
	/* a stale one, also after a new handle has taken its place in the table */
	sanity_unmake(&b);
	bad_handle(b.mh, &b);
	sanity_make(&again, 64 * KIB);
	CHECK(again.mh.h != b.mh.h, "a handle came back at once");
	bad_handle(b.mh, &again);
	sanity_unmake(&again);
	sanity_round_trip(&other, 1);
	sanity_unmake(&other);
}

static void open_flags(void)
{
	gdr_t g = barcopy_open(1u << 30);

	CHECK(!g && errno == EINVAL, "an unknown flag of barcopy_open: errno %d", errno);
	g = gdr_open();
	if (g) {
		OK(gdr_close(g));
		sanity_note("gdr_open serves ordinary device memory here");
	} else {
		CHECK(errno == ENODEV || errno == EACCES, "gdr_open: errno %d: %s", errno,
		      barcopy_last_error());
		sanity_note("gdr_open: %s", barcopy_last_error());
	}
}

const struct sanity_test sanity_arguments[] = {
	TEST(pin_arguments, "pins that must be refused"),
	TEST(map_arguments, "maps and unmaps that must be refused"),
	TEST(copy_arguments, "copies that must be refused"),
	TEST(handles, "handles that are zero, invented, stale or another's"),
	{ "open", "gdr_open() and flags of barcopy_open()", open_flags, false, NULL, NULL },
	END_OF_TESTS,
};
