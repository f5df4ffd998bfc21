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

START_TEST(test_levels)
{
	char level[16], persistent[2] = { (char)('0' + _i % 2), 0 };
	int minor = _i / 2, major, value;
	int fds = resources_fds();
	uint64_t base;
	gdr_t g;

	snprintf(level, sizeof(level), "2.%d", minor);
	node.faults(NULL);
	g = node_open(level, persistent);
	base = standin_alloc(MIB);
	assert_ok(gdr_driver_get_version(g, &major, &value));
	ck_assert_int_eq(major, 2);
	ck_assert_int_eq(value, minor);
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
	ck_assert_int_eq(value, minor >= 5 && _i % 2);
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
	ck_assert_int_eq(value, 0);
	node_use_range(g, base);

	/* The newer calls where the driver has them, and only there. */
	ck_assert_int_eq(node.calls("GET_ATTR") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("PIN_BUFFER") > 0, minor < 5);
	ck_assert_int_eq(node.calls("PIN_BUFFER_V2") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("REQ_MAPPING_TYPE") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("GET_INFO") > 0, minor < 4);
	ck_assert_int_eq(node.calls("GET_INFO_V2") > 0, minor >= 4);
	assert_ok(gdr_close(g));
	ck_assert_int_eq(cuda.cuMemFree_v2(base), 0);
	ck_assert_int_eq(resources_fds(), fds);
}
END_TEST

/* A wish that is the memory's own type is granted at any level, another one at none. */
START_TEST(test_mapping_types)
{
	static const char *const levels[] = { "2.0", "2.4", "2.6" };
	bool cached = _i % 2;
	int own = cached ? GDR_MAP_FLAG_REQ_CACHE_MAPPING : GDR_MAP_FLAG_REQ_WC_MAPPING;
	int other = cached ? GDR_MAP_FLAG_REQ_WC_MAPPING : GDR_MAP_FLAG_REQ_CACHE_MAPPING;
	int type = cached ? GDR_MAPPING_TYPE_CACHING : GDR_MAPPING_TYPE_WC;
	int third = GDR_MAP_FLAG_REQ_DEVICE_MAPPING;
	uint64_t base = standin_alloc(MIB), value;
	gdr_info_t info;
	gdr_mh_t h;
	void *map;
	gdr_t g;

#if defined(__aarch64__)
	/* Before level 2.4 a node tells write-combining alone: for the rest, what is right for both. */
	if (cached && _i / 2 == 0) {
		third = own;
		own = GDR_MAP_FLAG_REQ_DEVICE_MAPPING;
		type = GDR_MAPPING_TYPE_DEVICE;
	}
#endif
	node_env("GDRSIM_NODE_TYPE", cached ? "2" : "1");
	g = node_open(levels[_i / 2], "1");
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_int_eq(gdr_map_v2(g, h, &map, MIB, other), ENOTSUP);
	assert_text("cannot be mapped as");
	ck_assert_int_eq(gdr_map_v2(g, h, &map, MIB, third), ENOTSUP);
	ck_assert_uint_eq(node.maps(), 0);
	assert_ok(gdr_map_v2(g, h, &map, MIB, own));
	assert_ok(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, type);
	assert_ok(gdr_unmap(g, h, map, MIB));
	assert_ok(gdr_map(g, h, &map, MIB));
	assert_ok(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, type);
	ck_assert_uint_eq(info.wc_mapping, !cached);
	assert_ok(barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_MAPPING_TYPE, &value));
	ck_assert_uint_eq(value, (unsigned int)type);
	assert_ok(gdr_close(g));
	ck_assert_uint_eq(node.pins(), 0);
}
END_TEST

/* A wish holds for its own map: the next one has the default again. */
START_TEST(test_wish_ends)
{
	uint64_t base = standin_alloc(MIB), value;
	gdr_info_t info;
	gdr_mh_t h;
	void *map;
	gdr_t g;

	node_env("GDRSIM_NODE_DEVICE", "1");
	g = node_open("2.6", "1");
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	assert_ok(gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_DEVICE_MAPPING));
	assert_ok(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_DEVICE);
	assert_ok(barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_MAPPING_TYPE, &value));
	ck_assert_uint_eq(value, GDR_MAPPING_TYPE_WC);
	assert_ok(gdr_unmap(g, h, map, MIB));
	assert_ok(gdr_map(g, h, &map, MIB));
	assert_ok(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_WC);
	assert_ok(gdr_close(g));
}
END_TEST

/* A driver that claims the level but lacks the call: the type of the mapping decides. */
START_TEST(test_no_type_call)
{
	uint64_t base = standin_alloc(MIB);
	gdr_t g = node_open("2.5", "1");
	gdr_mh_t h;
	void *map;

	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	node.faults("REQ_MAPPING_TYPE:*=ENOTTY");
	assert_ok(gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_WC_MAPPING));
	assert_ok(gdr_unmap(g, h, map, MIB));
	ck_assert_int_eq(gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_CACHE_MAPPING), ENOTSUP);
	ck_assert_uint_eq(node.maps(), 0);
	assert_ok(gdr_close(g));
}
END_TEST

START_TEST(test_pin_flags)
{
	uint64_t base = standin_alloc(MIB);
	gdr_mh_t h;
	int value;
	gdr_t g;

	g = node_open("2.4", "1");
	assert_ok(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_DEFAULT, &h));
	ck_assert_int_eq(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h), EINVAL);
	assert_ok(gdr_close(g));

	g = node_open("2.6", "1");
	assert_ok(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
	ck_assert_int_eq(value, 0);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h), EINVAL);
	assert_ok(gdr_close(g));

	node_env("GDRSIM_NODE_PCIE", "1");
	g = node_open("2.6", "1");
	assert_ok(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
	ck_assert_int_eq(value, 1);
	assert_ok(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
	ck_assert_int_eq(gdr_pin_buffer_v2(g, base, MIB, 2, &h), EINVAL);
	assert_ok(gdr_close(g));
	/* Supported by the build, refused in this mode. */
	g = node_open("2.6", "0");
	ck_assert_int_eq(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h), EINVAL);
	assert_ok(gdr_close(g));
}
END_TEST

/* Programs that still give tokens pin their own memory: no driver gets to see them. */
START_TEST(test_tokens)
{
	uint64_t base = standin_alloc(MIB);
	gdr_mh_t h;
	gdr_t g;

	g = node_open("2.6", "1");
	node.faults(NULL);
	assert_ok(gdr_pin_buffer(g, base, MIB, 77, 1, &h));
	ck_assert_uint_eq(node.calls("PIN_BUFFER"), 0);
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), 1);
	assert_ok(gdr_close(g));
	g = node_open("2.6", "0");
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0xfe00, &h));
	assert_ok(gdr_close(g));
	g = node_open("2.4", "0");
	node.faults(NULL);
	assert_ok(gdr_pin_buffer(g, base, MIB, 77, 1, &h));
	ck_assert_uint_eq(node.calls("PIN_BUFFER"), 1);
	assert_ok(gdr_close(g));
}
END_TEST

/* The driver decides what memory is: CUDA need not know it. */
START_TEST(test_unknown_memory)
{
	static char host[4096];
	uint64_t base = standin_alloc(MIB);
	gdr_t g = node_open_alone("2.6", "1");
	gdr_mh_t h = { 42 };

	ck_assert_int_eq(gdr_pin_buffer(g, (uintptr_t)host, sizeof(host), 0, 0, &h), EINVAL);
	assert_text("gdrdrv: PIN_BUFFER: Invalid argument");
	ck_assert_int_eq(gdr_pin_buffer(g, base + 64 * MIB, 4, 0, 0, &h), EINVAL);
	ck_assert_int_eq(gdr_pin_buffer(g, base, 64 * MIB, 0, 0, &h), EINVAL);
	ck_assert_uint_eq(h.h, 42);
	assert_ok(gdr_close(g));
}
END_TEST

/* What the driver knows and CUDA does not: a cache that is told of every free keeps it, no other does. */
START_TEST(test_unknown_memory_cached)
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
		assert_ok(barcopy_cache_create(g, &o, &cache));
		for (int i = 0; i < 3; i++) {
			assert_ok(barcopy_cache_get(cache, base + 100, 8, &r));
			assert_ok(gdr_copy_to_mapping(r.handle, r.cpu_ptr, &i, sizeof(i)));
			assert_ok(barcopy_cache_put(cache, &r));
			ck_assert_uint_eq(node.pins(), notified);
		}
		assert_ok(barcopy_cache_get_stats(cache, &s));
		ck_assert_uint_eq(s.misses, notified ? 1 : 3);
		ck_assert_uint_eq(s.hits, notified ? 2 : 0);
		assert_ok(barcopy_cache_destroy(cache));
		ck_assert_uint_eq(node.pins(), 0);
	}
	cuda_hooks.set_fail(NULL);
	assert_ok(gdr_close(g));
}
END_TEST

static void check_no_open(int err, const char *text)
{
	int fds = resources_fds();

	errno = 0;
	ck_assert_ptr_null(gdr_open());
	ck_assert_int_eq(errno, err);
	assert_text(text);
	ck_assert_int_eq(resources_fds(), fds);
}

START_TEST(test_open_refused)
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

	if (cases[_i].name)
		node_env(cases[_i].name, cases[_i].value);
	node.faults(cases[_i].rules);
	check_no_open(cases[_i].err, cases[_i].text);
}
END_TEST

/* Of several that are there and refuse it is the first one's errno, and every one's text. */
START_TEST(test_open_refusals)
{
	node_env("GDRSIM_RM", "denied");
	node_env("GDRSIM_NODE_LEVEL", "1.3");
	check_no_open(EINVAL, "is 1.3; 2.0 is the oldest");
	assert_text("/dev/nvidiactl may not be opened");
	node_env("GDRSIM_NODE", "absent");
	check_no_open(EACCES, "/dev/nvidiactl may not be opened");
}
END_TEST

START_TEST(test_open_next_backend)
{
	int major, minor, value;
	gdr_t g;

	node_env("GDRSIM_NODE", "absent");
	node_env("GDRSIM_DRIVER_VERSION", "13030");
	g = gdr_open();
	ck_assert_ptr_nonnull(g);
	assert_ok(gdr_driver_get_version(g, &major, &minor));
	ck_assert_int_eq(minor, 6);
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
	ck_assert_int_eq(value, 1);
	assert_ok(gdr_close(g));
}
END_TEST

/* Memory of cudaHostAlloc has its CPU pointer: the driver is asked only where CUDA keeps that back. */
START_TEST(test_host_memory)
{
	uint64_t backend = 0;
	gdr_t g = node_open("2.6", "1");
	unsigned long before = node.calls("PIN_BUFFER_V2");
	void *a = standin_host_alloc(4096, 0);
	gdr_mh_t h;

	assert_ok(gdr_pin_buffer_v2(g, (uintptr_t)a, 4096, 0, &h));
	assert_ok(barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_BACKEND, &backend));
	ck_assert_uint_eq(backend, BARCOPY_BACKEND_HOST);
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), before);
	assert_ok(gdr_unpin_buffer(g, h));
	cuda_hooks.set_fail("cuMemHostGetFlags:*=999");
	ck_assert_int_eq(gdr_pin_buffer_v2(g, (uintptr_t)a, 4096, 0, &h), ENOTSUP);
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), before + 1);
	assert_text("gdrdrv: ");
	assert_text("host: ");
	assert_ok(gdr_close(g));
}
END_TEST

/* An attribute that cannot be had reads 0, and the open succeeds. */
START_TEST(test_open_attributes)
{
	int value;
	gdr_t g;

	node.faults("GET_ATTR:*=EINVAL");
	g = node_open("2.5", "1");
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
	ck_assert_int_eq(value, 0);
	assert_ok(gdr_close(g));
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_loop_test(tc, test_levels, 0, 14);
	tcase_add_loop_test(tc, test_mapping_types, 0, 6);
	tcase_add_test(tc, test_wish_ends);
	tcase_add_test(tc, test_no_type_call);
	tcase_add_test(tc, test_pin_flags);
	tcase_add_test(tc, test_tokens);
	tcase_add_test(tc, test_unknown_memory);
	tcase_add_test(tc, test_unknown_memory_cached);
	tcase_add_loop_test(tc, test_open_refused, 0, 14);
	tcase_add_test(tc, test_open_refusals);
	tcase_add_test(tc, test_open_next_backend);
	tcase_add_test(tc, test_host_memory);
	tcase_add_test(tc, test_open_attributes);
}

int main(int argc, char **argv)
{
	(void)argc;
	return node_main(argv, "gdrdrv", add_tests);
}
