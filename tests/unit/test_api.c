// SPDX-License-Identifier: MIT
/*
 * Every public call: each argument that it refuses, that a failure leaves its outputs alone and
 * says why, and what a program finds by name.
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

static void info_of_states(void)
{
	gdr_info_v2_t info;

	OK(gdr_get_info_v2(g, h, &info));
	ck_assert_uint_eq(info.va, buffer);
	ck_assert_uint_eq(info.mapped_size, SIZE);
	ck_assert_uint_eq(info.mapped, 1);
	OK(gdr_unmap(g, h, map, MAPPED));
	OK(gdr_get_info_v2(g, h, &info));
	ck_assert_uint_eq(info.mapped, 0);
	ck_assert_uint_eq(info.wc_mapping, 0);
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_NONE);
}

/* What a copy may touch: every byte of what is mapped, and not one beside it. */
static void copy_bounds(void)
{
	static const struct {
		long offset;
		size_t size;
		int err;
	} table[] = {
		{ 0, 1, 0 },
		{ MAPPED - 1, 1, 0 },
		{ 0, MAPPED, 0 },
		{ -1, 1, EINVAL },
		{ -1, 2, EINVAL },
		{ MAPPED, 1, EINVAL },
		{ MAPPED - 1, 2, EINVAL },
		{ 0, MAPPED + 1, EINVAL },
		{ 0, ~0UL, EINVAL },
		{ MAPPED - 1, ~0UL, EINVAL },
		{ 1, ~0UL - 1, EINVAL },
		{ MAPPED + 4096, 1, EINVAL },
		{ -65536, 65537, EINVAL },
		{ 0, 0, 0 },
		{ MAPPED, 0, 0 },
		{ -1, 0, 0 },
	};
	static uint8_t host[MAPPED + 64];

	for (size_t i = 0; i < COUNT(table); i++) {
		uint8_t *at = map + table[i].offset;

		FAILS(table[i].err, gdr_copy_to_mapping(h, at, host, table[i].size));
		FAILS(table[i].err, gdr_copy_from_mapping(h, host, at, table[i].size));
	}
	FAILS_WITH(EINVAL, "not inside", gdr_copy_to_mapping(h, NULL, host, 1));
	FAILS_WITH(EINVAL, "host pointer is NULL", gdr_copy_to_mapping(h, map, NULL, 1));
	FAILS(EINVAL, gdr_copy_from_mapping(h, NULL, map, 1));
	OK(gdr_copy_from_mapping(h, NULL, NULL, 0));
}

/* Every piece is checked before the first byte moves. */
static void vectored(void)
{
	uint8_t host[16] = { 1 }, zero[16] = { 0 }, back[16];
	barcopy_copy_seg_t good = { .map_ptr = NULL, .host_ptr = host, .size = 16 };
	barcopy_copy_seg_t bad[5];

	good.map_ptr = map;
	OK(gdr_copy_to_mapping(h, map, zero, 16));
	for (size_t i = 0; i < COUNT(bad); i++)
		bad[i] = good;
	bad[0].map_ptr = map + MAPPED - 15;
	bad[1].host_ptr = NULL;
	bad[2].flags = 2;
	bad[3].reserved = 1;
	bad[4].size = ~0UL;
	for (size_t i = 0; i < COUNT(bad); i++) {
		barcopy_copy_seg_t seg[2] = { good, bad[i] };

		FAILS(EINVAL, barcopy_copyv_to_mapping(h, seg, 2, 0));
		OK(gdr_copy_from_mapping(h, back, map, 16));
		ck_assert_int_eq(memcmp(back, zero, 16), 0);
		FAILS(EINVAL, barcopy_copyv_from_mapping(h, seg, 2, 0));
		ck_assert_uint_eq(host[0], 1);
	}
	SAYS("inside");
	FAILS(EINVAL, barcopy_copyv_to_mapping(h, NULL, 1, 0));
	FAILS(EINVAL, barcopy_copyv_from_mapping(h, NULL, 1, 0));
	OK(barcopy_copyv_to_mapping(h, NULL, 0, 0));
	FAILS(EINVAL, barcopy_copyv_to_mapping(h, &good, 1, 1)); /* a segment's flag */
	FAILS(EINVAL, barcopy_copyv_to_mapping(h, &good, 1, 4));
	good.flags = BARCOPY_COPY_ORDERED;
	OK(barcopy_copyv_to_mapping(h, &good, 1, BARCOPY_COPY_NO_FENCE));
	OK(barcopy_fence(h, BARCOPY_FENCE_AFTER_WRITE));
	OK(gdr_copy_from_mapping(h, back, map, 16));
	ck_assert_int_eq(memcmp(back, host, 16), 0);
	memset(host, 0, sizeof(host));
	OK(barcopy_copyv_from_mapping(h, &good, 1, 0));
	ck_assert_uint_eq(host[0], 1);
	good.size = 0; /* an empty piece may be anywhere */
	good.map_ptr = good.host_ptr = NULL;
	OK(barcopy_copyv_to_mapping(h, &good, 1, 0));
}

static void fences(void)
{
	for (int use = BARCOPY_FENCE_BEFORE_READ; use <= BARCOPY_FENCE_FULL; use++)
		OK(barcopy_fence(h, (barcopy_fence_t)use));
	FAILS(EINVAL, barcopy_fence(h, (barcopy_fence_t)0));
	FAILS(EINVAL, barcopy_fence(h, (barcopy_fence_t)5));
	FAILS_WITH(EINVAL, "unknown fence", barcopy_fence(h, (barcopy_fence_t)-1));
	OK(barcopy_flush(h));
}

static void words(void)
{
	uint64_t v64 = 7;
	uint32_t v32 = 7;

	for (int off = 1; off < 8; off++) {
		FAILS_WITH(EINVAL, "aligned", barcopy_put64(h, map + off, 1));
		FAILS(EINVAL, barcopy_get64(h, map + off, &v64));
		FAILS(EINVAL, barcopy_wait64(h, map + off, BARCOPY_CMP_EQ, 0, 0));
		ck_assert_int_eq(barcopy_put32(h, map + off, 1), off == 4 ? 0 : EINVAL);
		ck_assert_int_eq(barcopy_wait32(h, map + off, BARCOPY_CMP_GE, 0, 0),
				 off == 4 ? 0 : EINVAL);
	}
	FAILS(EINVAL, barcopy_put32(h, map + MAPPED, 1));
	FAILS(EINVAL, barcopy_put64(h, map + MAPPED, 1));
	FAILS(EINVAL, barcopy_put64(h, map - 8, 1));
	FAILS(EINVAL, barcopy_put64(h, NULL, 1));
	FAILS(EINVAL, barcopy_get32(h, map, NULL));
	FAILS(EINVAL, barcopy_get64(h, map, NULL));
	FAILS(EINVAL, barcopy_get32(h, map + MAPPED, &v32));
	ck_assert_uint_eq(v32, 7);
	ck_assert_uint_eq(v64, 7);
	OK(barcopy_put64(h, map + MAPPED - 8, 0x123456789abcdef0));
	OK(barcopy_get64(h, map + MAPPED - 8, &v64));
	ck_assert_uint_eq(v64, 0x123456789abcdef0);
	OK(barcopy_get32(h, map + MAPPED - 8, &v32));
	ck_assert_uint_eq(v32, 0x9abcdef0);
	OK(barcopy_wait64(h, map + MAPPED - 8, BARCOPY_CMP_EQ, v64, 0));
	FAILS_WITH(ETIMEDOUT, "the comparison does not hold",
		   barcopy_wait64(h, map + MAPPED - 8, BARCOPY_CMP_NE, v64, 0));
	FAILS_WITH(ETIMEDOUT, "the word is 2596069104, waited for < 7",
		   barcopy_wait32(h, map + MAPPED - 8, BARCOPY_CMP_LT, 7, 1000));
	FAILS_WITH(ETIMEDOUT, "the word is 1311768467463790320, waited for == 18446744073709551615",
		   barcopy_wait64(h, map + MAPPED - 8, BARCOPY_CMP_EQ, UINT64_MAX, 1000));
	FAILS(EINVAL, barcopy_wait32(h, map, (barcopy_cmp_t)0, 0, 0));
	FAILS_WITH(EINVAL, "unknown comparison", barcopy_wait64(h, map, (barcopy_cmp_t)7, 0, 0));
}

/* One error domain, whatever CUDA, Vulkan and the kernel answered. */
static void one_error_domain(void)
{
	static const int results[] = {
		1, 2, 3, 100, 101, 201, 304, 400, 700, 719, 800, 801, 999, -1
	};
	char spec[256];

	for (size_t i = 0; i < COUNT(results); i++) {
		gdr_mh_t out = { 77 };
		int rc;

		snprintf(spec, sizeof(spec), "cuMemGetHandleForAddressRange:*=%d", results[i]);
		cuda_hooks.set_fail(spec);
		rc = gdr_pin_buffer_v2(g, buffer, 4096, 0, &out);
		ck_assert_msg(rc == EINVAL || rc == ENOTSUP || rc == ENOMEM || rc == ENODEV ||
				      rc == EACCES || rc == EIO,
			      "CUresult %d gave %d", results[i], rc);
		ck_assert_uint_eq(out.h, 77);
		ck_assert_str_ne(barcopy_last_error(), "");
	}
	cuda_hooks.set_fail(NULL);
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

/* One object of each kind, of the parent. */
static struct {
	gdr_mh_t host, range;
	void *host_map, *range_map;
	barcopy_mem_t mem;
	barcopy_cache_t cache;
	barcopy_region_t region;
	barcopy_queue_t queue;
} its;

static int calls_in_child(void *unused)
{
	barcopy_cache_stats_t cache_counts = { .struct_size = sizeof(cache_counts) };
	barcopy_copy_options_t options = { .struct_size = sizeof(options) };
	barcopy_stats_t counts = { .struct_size = sizeof(counts) };
	barcopy_queue_view_t view;
	barcopy_region_t region;
	gdr_mh_t out = { 77 };
	barcopy_mem_t mem;
	void *va = unused;
	char byte;
	int v;

	copies_refused(h, map, EACCES);
	copies_refused(its.host, its.host_map, EACCES); /* this memory is shared with a child */
	copies_refused(its.range, its.range_map, EACCES);
	FAILS(EACCES, barcopy_set_copy_options(its.host, &options));
	FAILS(EACCES, barcopy_set_copy_options(its.range, NULL));
	FAILS(EACCES, gdr_pin_buffer_v2(g, buffer, 1, 0, &out));
	FAILS(EACCES, gdr_map(g, h, &va, 4096));
	FAILS(EACCES, gdr_unmap(g, h, map, MAPPED));
	FAILS(EACCES, gdr_get_callback_flag(g, h, &v));
	FAILS(EACCES, gdr_unpin_buffer(g, h));
	FAILS(EACCES, barcopy_map_range(g, buffer, 100, 0, &va, &out));
	FAILS(EACCES, barcopy_unmap_range(g, its.range));
	FAILS(EACCES, barcopy_mem_alloc(g, 0, 1, 0, &mem));
	FAILS(EACCES, barcopy_mem_export(g, &its.mem, &v));
	FAILS(EACCES, barcopy_mem_free(g, &its.mem));
	FAILS(EACCES, barcopy_cache_get(its.cache, buffer, 8, &region));
	FAILS(EACCES, barcopy_cache_put(its.cache, &its.region));
	FAILS(EACCES, barcopy_cache_invalidate(its.cache, buffer, 8));
	FAILS(EACCES, barcopy_cache_get_stats(its.cache, &cache_counts));
	FAILS(EACCES, barcopy_cache_destroy(its.cache));
	FAILS(EACCES, barcopy_queue_send(its.queue, "x", 1, 0, 0));
	FAILS(EACCES, barcopy_queue_receive(its.queue, &byte, 1, NULL, 0));
	FAILS(EACCES, barcopy_queue_get_view(its.queue, &view));
	FAILS(EACCES, barcopy_queue_stop(its.queue, 0));
	FAILS(EACCES, barcopy_queue_stop(its.queue, 8));
	FAILS(EACCES, barcopy_queue_destroy(its.queue));
	FAILS(EACCES, barcopy_get_stats(g, &counts));
	FAILS(EACCES, gdr_close(g));
	return out.h != 77 || va != unused;
}

/* A child may call nothing on what its parent has, and changes nothing of it. */
static void forked_child(void)
{
	uint64_t *host = standin_host_alloc(4096, 0);

	OK(gdr_pin_buffer_v2(g, (uintptr_t)host, 4096, 0, &its.host));
	OK(gdr_map(g, its.host, &its.host_map, 4096));
	*host = 42;
	OK(barcopy_map_range(g, buffer + 100, 100, 0, &its.range_map, &its.range));
	OK(barcopy_mem_alloc(g, 0, 8, 0, &its.mem));
	its.cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	OK(barcopy_cache_get(its.cache, buffer, 8, &its.region));
	OK(barcopy_queue_create(g, 0, NULL, &its.queue));
	ck_assert_int_eq(unit_in_child(calls_in_child, NULL), 0);
	ck_assert_uint_eq(*host, 42);
	ck_assert(same_memory(h, map, buffer));
	ck_assert(same_memory(its.host, its.host_map, (uintptr_t)host));
	ck_assert(same_memory(its.range, its.range_map, buffer + 100));
	ck_assert(same_memory(its.mem.handle, its.mem.cpu_ptr, its.mem.device_ptr));
	ck_assert(same_memory(its.region.handle, its.region.cpu_ptr, buffer));
	OK(barcopy_queue_send(its.queue, "x", 1, 0, 0));
	OK(barcopy_queue_destroy(its.queue));
	OK(barcopy_cache_put(its.cache, &its.region));
	get_and_put(its.cache, buffer);
	ck_assert_uint_eq(cache_stats(its.cache).hits, 1);
}

#define ON_DMABUF "GDRSIM_DRIVER_VERSION=13030"

static const struct unit_test tests[] = {
	{ "versions", versions, ON_DMABUF, .bare = true },
	{ "attributes", attributes, ON_DMABUF },
	{ "names of mapping types", type_names, ON_DMABUF, .bare = true },
	{ "pins", pins, ON_DMABUF },
	{ "maps", maps, ON_DMABUF },
	{ "the first info struct", first_info, ON_DMABUF },
	{ "info of each state", info_of_states, ON_DMABUF },
	{ "bounds of copies", copy_bounds, ON_DMABUF },
	{ "vectored copies", vectored, ON_DMABUF },
	{ "fences", fences, ON_DMABUF },
	{ "words", words, ON_DMABUF },
	{ "one error domain", one_error_domain, ON_DMABUF " GDRCOPY_BACKEND=dmabuf" },
	{ "the last error lasts", last_error_lasts, ON_DMABUF },
	{ "a forked child", forked_child, ON_DMABUF },
};

UNIT_MAIN("public calls", tests, unit_before = start_mapped, unit_after = end)
