// SPDX-License-Identifier: MIT
/*
 * The gdrdrv backend over the stand-in of the node: every driver level in both modes, mapping types,
 * flags and tokens, and what an open refuses.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/node.h"
#include "common/resources.h"

static void test_levels(void)
{
	char level[16], persistent[2] = { (char)('0' + unit_row % 2), 0 };
	int minor = unit_row / 2, major, value;
	int fds = resources_fds();
	uint64_t base;
	gdr_t g;

	snprintf(level, sizeof(level), "2.%d", minor);
	node.faults(NULL);
	g = node_open(level, persistent);
	base = standin_alloc(MIB);
	OK(gdr_driver_get_version(g, &major, &value));
	ck_assert_int_eq(major, 2);
	ck_assert_int_eq(value, minor);
	OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
	ck_assert_int_eq(value, minor >= 5 && unit_row % 2);
	OK(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
	ck_assert_int_eq(value, 0);
	node_use_range(g, base);

	/* The newer calls where the driver has them, and only there. */
	ck_assert_int_eq(node.calls("GET_ATTR") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("PIN_BUFFER") > 0, minor < 5);
	ck_assert_int_eq(node.calls("PIN_BUFFER_V2") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("REQ_MAPPING_TYPE") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("GET_INFO") > 0, minor < 4);
	ck_assert_int_eq(node.calls("GET_INFO_V2") > 0, minor >= 4);
	OK(gdr_close(g));
	CU(cuda.cuMemFree_v2(base));
	ck_assert_int_eq(resources_fds(), fds);
}

/* A wish that is the memory's own type is granted at any level, another one at none. */
static void test_mapping_types(void)
{
	static const char *const levels[] = { "2.0", "2.4", "2.6" };
	bool cached = unit_row % 2;
	int own = cached ? GDR_MAP_FLAG_REQ_CACHE_MAPPING : GDR_MAP_FLAG_REQ_WC_MAPPING;
	int other = cached ? GDR_MAP_FLAG_REQ_WC_MAPPING : GDR_MAP_FLAG_REQ_CACHE_MAPPING;
	int type = cached ? GDR_MAPPING_TYPE_CACHING : GDR_MAPPING_TYPE_WC;
	int third = GDR_MAP_FLAG_REQ_DEVICE_MAPPING;
	uint64_t base = standin_alloc(MIB);
	gdr_info_t info;
	gdr_mh_t h;
	void *map;
	gdr_t g;

#if defined(__aarch64__)
	/* Before level 2.4 a node tells write-combining alone: for the rest, what is right for both. */
	if (cached && unit_row / 2 == 0) {
		third = own;
		own = GDR_MAP_FLAG_REQ_DEVICE_MAPPING;
		type = GDR_MAPPING_TYPE_DEVICE;
	}
#endif
	node_env("GDRSIM_NODE_TYPE", cached ? "2" : "1");
	g = node_open(levels[unit_row / 2], "1");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	FAILS_WITH(ENOTSUP, "cannot be mapped as", gdr_map_v2(g, h, &map, MIB, other));
	FAILS(ENOTSUP, gdr_map_v2(g, h, &map, MIB, third));
	ck_assert_uint_eq(node.maps(), 0);
	OK(gdr_map_v2(g, h, &map, MIB, own));
	OK(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, type);
	OK(gdr_unmap(g, h, map, MIB));
	OK(gdr_map(g, h, &map, MIB));
	OK(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, type);
	ck_assert_uint_eq(info.wc_mapping, !cached);
	HANDLE_HAS(g, h, MAPPING_TYPE, (unsigned int)type);
	OK(gdr_close(g));
	ck_assert_uint_eq(node.pins(), 0);
}

/* A wish holds for its own map: the next one has the default again. */
static void test_wish_ends(void)
{
	uint64_t base = standin_alloc(MIB);
	gdr_info_t info;
	gdr_mh_t h;
	void *map;
	gdr_t g;

	node_env("GDRSIM_NODE_DEVICE", "1");
	g = node_open("2.6", "1");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	OK(gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_DEVICE_MAPPING));
	OK(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_DEVICE);
	HANDLE_HAS(g, h, MAPPING_TYPE, GDR_MAPPING_TYPE_WC);
	OK(gdr_unmap(g, h, map, MIB));
	OK(gdr_map(g, h, &map, MIB));
	OK(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_WC);
	OK(gdr_close(g));
}

/* A driver that claims the level but lacks the call: the type of the mapping decides. */
static void test_no_type_call(void)
{
	uint64_t base = standin_alloc(MIB);
	gdr_t g = node_open("2.5", "1");
	gdr_mh_t h;
	void *map;

	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	node.faults("REQ_MAPPING_TYPE:*=ENOTTY");
	OK(gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_WC_MAPPING));
	OK(gdr_unmap(g, h, map, MIB));
	FAILS(ENOTSUP, gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_CACHE_MAPPING));
	ck_assert_uint_eq(node.maps(), 0);
	OK(gdr_close(g));
}

static void test_pin_flags(void)
{
	uint64_t base = standin_alloc(MIB);
	gdr_mh_t h;
	int value;
	gdr_t g = node_open("2.4", "1");

	OK(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_DEFAULT, &h));
	FAILS(EINVAL, gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
	OK(gdr_close(g));

	g = node_open("2.6", "1");
	OK(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
	ck_assert_int_eq(value, 0);
	FAILS(EINVAL, gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
	OK(gdr_close(g));

	node_env("GDRSIM_NODE_PCIE", "1");
	g = node_open("2.6", "1");
	OK(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
	ck_assert_int_eq(value, 1);
	OK(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
	FAILS(EINVAL, gdr_pin_buffer_v2(g, base, MIB, 2, &h));
	OK(gdr_close(g));
	/* Supported by the build, refused in this mode. */
	g = node_open("2.6", "0");
	FAILS(EINVAL, gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
	OK(gdr_close(g));
}

/* Programs that still give tokens pin their own memory: no driver gets to see them. */
static void test_tokens(void)
{
	uint64_t base = standin_alloc(MIB);
	gdr_mh_t h;
	gdr_t g = node_open("2.6", "1");

	node.faults(NULL);
	OK(gdr_pin_buffer(g, base, MIB, 77, 1, &h));
	ck_assert_uint_eq(node.calls("PIN_BUFFER"), 0);
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), 1);
	OK(gdr_close(g));
	g = node_open("2.6", "0");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0xfe00, &h));
	OK(gdr_close(g));
	g = node_open("2.4", "0");
	node.faults(NULL);
	OK(gdr_pin_buffer(g, base, MIB, 77, 1, &h));
	ck_assert_uint_eq(node.calls("PIN_BUFFER"), 1);
	OK(gdr_close(g));
}

/* The driver decides what memory is: CUDA need not know it. */
static void test_unknown_memory(void)
{
	static char host[4096];
	uint64_t base = standin_alloc(MIB);
	gdr_t g = node_open_alone("2.6", "1");
	gdr_mh_t h = { 42 };

	FAILS_WITH(EINVAL, "gdrdrv: PIN_BUFFER: Invalid argument",
		   gdr_pin_buffer(g, (uintptr_t)host, sizeof(host), 0, 0, &h));
	FAILS(EINVAL, gdr_pin_buffer(g, base + 64 * MIB, 4, 0, 0, &h));
	FAILS(EINVAL, gdr_pin_buffer(g, base, 64 * MIB, 0, 0, &h));
	ck_assert_uint_eq(h.h, 42);
	OK(gdr_close(g));
}

/* What the driver knows and CUDA does not: a cache that is told of every free keeps it, no other does. */
static void test_unknown_memory_cached(void)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o) };
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };
	uint64_t base = standin_alloc(MIB);
	gdr_t g = node_open_alone("2.6", "1");
	barcopy_cache_t cache;
	barcopy_region_t r;

	cuda_hooks.set_fail("cuPointerGetAttributes:*=1");
	for (int notified = 0; notified < 2; notified++) {
		o.validity = notified ? BARCOPY_CACHE_NOTIFIED : BARCOPY_CACHE_CHECK_TAG;
		OK(barcopy_cache_create(g, &o, &cache));
		for (int i = 0; i < 3; i++) {
			OK(barcopy_cache_get(cache, base + 100, 8, &r));
			OK(gdr_copy_to_mapping(r.handle, r.cpu_ptr, &i, sizeof(i)));
			OK(barcopy_cache_put(cache, &r));
			ck_assert_uint_eq(node.pins(), notified);
		}
		OK(barcopy_cache_get_stats(cache, &s));
		ck_assert_uint_eq(s.misses, notified ? 1 : 3);
		ck_assert_uint_eq(s.hits, notified ? 2 : 0);
		OK(barcopy_cache_destroy(cache));
		ck_assert_uint_eq(node.pins(), 0);
	}
	cuda_hooks.set_fail(NULL);
	OK(gdr_close(g));
}

static void check_no_open(int err, const char *text)
{
	int fds = resources_fds();

	errno = 0;
	ck_assert_ptr_null(gdr_open());
	ck_assert_int_eq(errno, err);
	SAYS(text);
	ck_assert_int_eq(resources_fds(), fds);
}

static void test_open_refused(void)
{
	static const struct {
		const char *name, *value, *rules;
		int err;
		const char *text;
	} cases[] = {
		{ "GDRSIM_NODE", "absent", NULL, ENODEV, "the gdrdrv driver is not loaded" },
		{ "GDRSIM_NODE", "denied", NULL, EACCES, "may not be opened" },
		{ "GDRSIM_NODE_LEVEL", "1.3", NULL, EINVAL, "is 1.3; 2.0 is the oldest" },
		{ "GDRSIM_NODE_MIN_API", "2.7", NULL, EINVAL, "wants a libgdrapi of 2.7" },
		{ "GDRSIM_NODE_MIN_API", "3.0", NULL, EINVAL, "wants a libgdrapi of 3.0" },
		{ NULL, NULL, "OPEN:*=EPERM", EACCES, "may not be opened" },
		{ NULL, NULL, "OPEN:*=ENXIO", ENODEV, "not loaded" },
		{ NULL, NULL, "OPEN:*=EMFILE", EMFILE, "Too many open files" },
		{ NULL, NULL, "OPEN:*=ENFILE", ENFILE, "Too many open files in system" },
		{ NULL, NULL, "OPEN:*=ENOMEM", ENOMEM, "Cannot allocate" },
		{ NULL, NULL, "OPEN:*=EIO", ENODEV, "Input/output" },
		{ NULL, NULL, "GET_VERSION:*=ENOTTY", EINVAL, "reports no version" },
		{ NULL, NULL, "GET_VERSION:*=EINVAL", EINVAL, "reports no version" },
		{ NULL, NULL, "GET_VERSION:*=EACCES", EACCES, "GET_VERSION" },
	};

	if (cases[unit_row].name)
		node_env(cases[unit_row].name, cases[unit_row].value);
	node.faults(cases[unit_row].rules);
	check_no_open(cases[unit_row].err, cases[unit_row].text);
}

/* Of several that are there and refuse it is the first one's errno, and every one's text. */
static void test_open_refusals(void)
{
	node_env("GDRSIM_RM", "denied");
	node_env("GDRSIM_NODE_LEVEL", "1.3");
	check_no_open(EINVAL, "is 1.3; 2.0 is the oldest");
	SAYS("/dev/nvidiactl may not be opened");
	node_env("GDRSIM_NODE", "absent");
	check_no_open(EACCES, "/dev/nvidiactl may not be opened");
}

static void test_open_next_backend(void)
{
	int major, minor, value;
	gdr_t g;

	node_env("GDRSIM_NODE", "absent");
	node_env("GDRSIM_DRIVER_VERSION", "13030");
	g = gdr_open();
	ck_assert_ptr_nonnull(g);
	OK(gdr_driver_get_version(g, &major, &minor));
	ck_assert_int_eq(minor, 6);
	OK(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
	ck_assert_int_eq(value, 1);
	OK(gdr_close(g));
}

/* Memory of cudaHostAlloc has its CPU pointer: the driver is asked only where CUDA keeps that back. */
static void test_host_memory(void)
{
	gdr_t g = node_open("2.6", "1");
	unsigned long before = node.calls("PIN_BUFFER_V2");
	void *a = standin_host_alloc(4096, 0);
	gdr_mh_t h;

	OK(gdr_pin_buffer_v2(g, (uintptr_t)a, 4096, 0, &h));
	HANDLE_HAS(g, h, BACKEND, BARCOPY_BACKEND_HOST);
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), before);
	OK(gdr_unpin_buffer(g, h));
	cuda_hooks.set_fail("cuMemHostGetFlags:*=999");
	FAILS(ENOTSUP, gdr_pin_buffer_v2(g, (uintptr_t)a, 4096, 0, &h));
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), before + 1);
	SAYS("gdrdrv: ");
	SAYS("host: ");
	OK(gdr_close(g));
}

/* An attribute that cannot be had reads 0, and the open succeeds. */
static void test_open_attributes(void)
{
	int value;
	gdr_t g;

	node.faults("GET_ATTR:*=EINVAL");
	g = node_open("2.5", "1");
	OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
	ck_assert_int_eq(value, 0);
	OK(gdr_close(g));
}

static const struct unit_test tests[] = {
	{ "levels", test_levels, .rows = 14 },
	{ "mapping types", test_mapping_types, .rows = 6 },
	{ "wish ends", test_wish_ends },
	{ "no type call", test_no_type_call },
	{ "pin flags", test_pin_flags },
	{ "tokens", test_tokens },
	{ "unknown memory", test_unknown_memory },
	{ "unknown memory cached", test_unknown_memory_cached },
	{ "open refused", test_open_refused, .rows = 14 },
	{ "open refusals", test_open_refusals },
	{ "open next backend", test_open_next_backend },
	{ "host memory", test_host_memory },
	{ "open attributes", test_open_attributes },
};

UNIT_MAIN("gdrdrv", tests, node_start(argv))
