// SPDX-License-Identifier: MIT
/*
 * Arguments that public calls refuse, that a failure leaves their outputs alone and says why, and
 * what a program finds by name. What copies, words and vectors refuse is a rule of tests/model.
 */

#include "barcopy_queue.h"
#include "fixture.h"

#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, void *v1);

static gdr_mh_t h;
static CUdeviceptr buffer;
static uint8_t *map;

enum { SIZE = 3 * 65536, MAPPED = 2 * 65536 };

/* A dma-buf pin of three GPU pages, of which two are mapped. */
static void start_mapped(void)
{
	void *va;

	start();
	buffer = standin_alloc(2 << 20);
	OK(gdr_pin_buffer_v2(g, buffer, SIZE, 0, &h));
	OK(gdr_map(g, h, &va, MAPPED));
	map = va;
}

static void versions(void)
{
	int major = -1, minor = -1;

	gdr_runtime_get_version(&major, &minor);
	ck_assert_int_eq(major, GDR_API_MAJOR_VERSION);
	ck_assert_int_eq(minor, GDR_API_MINOR_VERSION);
	gdr_runtime_get_version(NULL, NULL);
	gdr_runtime_get_version(&major, NULL);
	gdr_runtime_get_version(NULL, &minor);
	start_mapped();
	FAILS(EINVAL, gdr_driver_get_version(g, NULL, &minor));
	FAILS_WITH(EINVAL, "NULL", gdr_driver_get_version(g, &major, NULL));
	OK(gdr_driver_get_version(g, &major, &minor));
	ck_assert_uint_eq(barcopy_get_api_version(), BARCOPY_API_VERSION);
}

static void attributes(void)
{
	static const int bad[] = { 0, -1, GDR_ATTR_MAX, 1000, (int)0x80000000 };
	uint64_t value = 7;
	int v = 7;

	for (size_t i = 0; i < COUNT(bad); i++) {
		FAILS_WITH(EINVAL, "unknown attribute",
			   gdr_get_attribute(g, (gdr_attr_t)bad[i], &v));
		FAILS_WITH(EINVAL, "unknown handle attribute",
			   barcopy_get_handle_attribute(
				   g, h,
				   (barcopy_handle_attr_t)(bad[i] == GDR_ATTR_MAX
								   ? BARCOPY_HANDLE_ATTR_MAX
								   : bad[i]),
				   &value));
	}
	FAILS(EINVAL, gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, NULL));
	FAILS(EINVAL, barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_BACKEND, NULL));
	ck_assert_int_eq(v, 7);
	ck_assert_uint_eq(value, 7);
}

static void type_names(void)
{
	static const char *const names[] = { "None", "Write Combining", "Caching", "Device" };
	const char *text = "before";

	for (int i = 0; i < GDR_MAPPING_TYPE_MAX; i++) {
		OK(gdr_get_mapping_type_string((gdr_mapping_type_t)i, &text));
		ck_assert_str_eq(text, names[i]);
	}
	text = "before";
	FAILS(EINVAL, gdr_get_mapping_type_string(GDR_MAPPING_TYPE_MAX, &text));
	FAILS(EINVAL, gdr_get_mapping_type_string((gdr_mapping_type_t)-1, &text));
	FAILS(EINVAL, gdr_get_mapping_type_string(GDR_MAPPING_TYPE_WC, NULL));
	ck_assert_str_eq(text, "before");
}

static void pins(void)
{
	gdr_mh_t out = { 77 };

	FAILS(EINVAL, gdr_pin_buffer(g, buffer, 4096, 0, 0, NULL));
	FAILS(EINVAL, gdr_pin_buffer_v2(g, buffer, 4096, 0, NULL));
	for (uint32_t flag = 2; flag; flag <<= 1) {
		FAILS(EINVAL, gdr_pin_buffer_v2(g, buffer, 4096, flag, &out));
		FAILS(EINVAL, gdr_pin_buffer_v2(g, buffer, 4096, flag | 1, &out));
	}
	SAYS("flags");
	FAILS_WITH(EINVAL, "size is 0", gdr_pin_buffer_v2(g, buffer, 0, 0, &out));
	FAILS_WITH(EINVAL, "the address is 0", gdr_pin_buffer_v2(g, 0, 4096, 0, &out));
	ck_assert_uint_eq(out.h, 77);
}

static void maps(void)
{
	static const int bad_flags[] = { -1, 4, 5, 0x100, (int)0x80000000 };
	gdr_mh_t fresh;
	void *va = &va;

	FAILS_WITH(EAGAIN, "mapped already", gdr_map(g, h, &va, 4096));
	OK(gdr_pin_buffer_v2(g, buffer, SIZE, 0, &fresh));
	FAILS(EINVAL, gdr_map(g, fresh, NULL, 4096));
	for (size_t i = 0; i < COUNT(bad_flags); i++)
		FAILS(EINVAL, gdr_map_v2(g, fresh, &va, 4096, bad_flags[i]));
	FAILS(EINVAL, gdr_map(g, fresh, &va, 0));
	FAILS(EINVAL, gdr_map(g, fresh, &va, SIZE + 1));
	FAILS(EINVAL, gdr_map(g, fresh, &va, ~0UL));
	FAILS(EINVAL, gdr_map(g, fresh, &va, ~0UL - 4094));
	ck_assert_ptr_eq(va, &va);
	OK(gdr_map(g, fresh, &va, 1));
	OK(gdr_unmap(g, fresh, va, 1));
	OK(gdr_map(g, fresh, &va, SIZE));
}

/* The first info struct is 40 bytes; not one more is written. */
static void first_info(void)
{
	uint8_t room[64];
	gdr_info_v2_t v2;
	uint32_t padding;

	memset(room, 0x5a, sizeof(room));
	OK(gdr_get_info(g, h, room));
	memset(&v2, 0xff, sizeof(v2));
	OK(gdr_get_info_v2(g, h, &v2));
	/* What no member has is 0, for a program that compares or prints the bytes. */
	memcpy(&padding, (char *)&v2 + offsetof(gdr_info_v2_t, page_size) + 4, sizeof(padding));
	ck_assert_uint_eq(padding, 0);
	ck_assert_int_eq(memcmp(room, &v2, 36), 0);
	ck_assert_uint_eq(room[36] & 3, 3); /* mapped, write-combining */
	for (int i = 40; i < 64; i++)
		ck_assert_uint_eq(room[i], 0x5a);
	FAILS(EINVAL, gdr_get_info(g, h, NULL));
	FAILS(EINVAL, gdr_get_info_v2(g, h, NULL));
	memset(room, 0x5a, sizeof(room));
	FAILS(EINVAL, gdr_get_info(g, (gdr_mh_t){ 5 }, room));
	for (int i = 0; i < 64; i++)
		ck_assert_uint_eq(room[i], 0x5a);
	FAILS(EINVAL, gdr_get_callback_flag(g, h, NULL));
}

static void words(void)
{
	FAILS_WITH(EINVAL, "aligned", barcopy_put64(h, map + 4, 1));
	FAILS(EINVAL, barcopy_put64(h, NULL, 1));
	FAILS(EINVAL, barcopy_get32(h, map, NULL));
	FAILS(EINVAL, barcopy_get64(h, map, NULL));
	OK(barcopy_put64(h, map + MAPPED - 8, 0x123456789abcdef0));
	FAILS_WITH(ETIMEDOUT, "the comparison does not hold",
		   barcopy_wait64(h, map + MAPPED - 8, BARCOPY_CMP_NE, 0x123456789abcdef0, 0));
	FAILS_WITH(ETIMEDOUT, "the word is 2596069104, waited for < 7",
		   barcopy_wait32(h, map + MAPPED - 8, BARCOPY_CMP_LT, 7, 1000));
	FAILS_WITH(ETIMEDOUT, "the word is 1311768467463790320, waited for == 18446744073709551615",
		   barcopy_wait64(h, map + MAPPED - 8, BARCOPY_CMP_EQ, UINT64_MAX, 1000));
	FAILS_WITH(EINVAL, "unknown comparison", barcopy_wait64(h, map, (barcopy_cmp_t)7, 0, 0));
	FAILS_WITH(EINVAL, "unknown fence", barcopy_fence(h, (barcopy_fence_t)-1));
	FAILS_WITH(EINVAL, "not inside", gdr_copy_to_mapping(h, NULL, map, 1));
	FAILS_WITH(EINVAL, "host pointer is NULL", gdr_copy_to_mapping(h, map, NULL, 1));
	FAILS(EINVAL, barcopy_copyv_to_mapping(h, NULL, 1, 0));
}

/* The text is of this thread's last failure; a success leaves it. */
static void last_error_lasts(void)
{
	char text[256];
	int v;

	FAILS(EINVAL, gdr_unpin_buffer(g, (gdr_mh_t){ 9 }));
	snprintf(text, sizeof(text), "%s", barcopy_last_error());
	ck_assert_ptr_nonnull(strstr(text, "0x9"));
	OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &v));
	ck_assert_str_eq(barcopy_last_error(), text);
}

/* ---- a forked child ------------------------------------------------------ */

static barcopy_queue_t queue;

static int calls_in_child(void *unused)
{
	barcopy_queue_view_t view;
	char byte;

	(void)unused;
	FAILS(EACCES, barcopy_queue_send(queue, "x", 1, 0, 0));
	FAILS(EACCES, barcopy_queue_receive(queue, &byte, 1, NULL, 0));
	FAILS(EACCES, barcopy_queue_get_view(queue, &view));
	FAILS(EACCES, barcopy_queue_stop(queue, 0));
	FAILS(EACCES, barcopy_queue_stop(queue, 8));
	FAILS(EACCES, barcopy_queue_destroy(queue));
	return 0;
}

/* A child may call nothing on what its parent has, and changes nothing of it: tests/model has the rest. */
static void forked_child(void)
{
	OK(barcopy_queue_create(g, 0, NULL, &queue));
	ck_assert_int_eq(unit_in_child(calls_in_child, NULL), 0);
	OK(barcopy_queue_send(queue, "x", 1, 0, 0));
	OK(barcopy_queue_destroy(queue));
}

#define ON_DMABUF "GDRSIM_DRIVER_VERSION=13030"

static const struct unit_test tests[] = {
	{ "versions", versions, ON_DMABUF, .bare = true },
	{ "attributes", attributes, ON_DMABUF },
	{ "names of mapping types", type_names, ON_DMABUF, .bare = true },
	{ "pins", pins, ON_DMABUF },
	{ "maps", maps, ON_DMABUF },
	{ "the first info struct", first_info, ON_DMABUF },
	{ "texts of copies and words", words, ON_DMABUF },
	{ "the last error lasts", last_error_lasts, ON_DMABUF },
	{ "a forked child's queue", forked_child, ON_DMABUF },
};

UNIT_MAIN("public calls", tests, unit_before = start_mapped, unit_after = end)
