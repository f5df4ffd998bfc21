// SPDX-License-Identifier: MIT
/*
 * The gdrdrv backend over the stand-in of the node (tests/sim/node): every driver level, both
 * modes, every error path, revocation and its notice. The program starts itself again with the
 * stand-in preloaded; it lies in GDRSIM_DIR.
 */
#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <poll.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "abi/gdrdrv.h"
#include "gdrapi.h"
#include "sim/node/gdrsim_node.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static struct {
	__typeof__(&cuInit) init;
	__typeof__(&cuDevicePrimaryCtxRetain) retain;
	__typeof__(&cuCtxPushCurrent_v2) push;
	__typeof__(&cuMemAlloc_v2) alloc;
	__typeof__(&cuMemFree_v2) free;
	__typeof__(&cuMemcpyHtoD_v2) htod;
	__typeof__(&cuMemcpyDtoH_v2) dtoh;
	__typeof__(&cuMemCreate) create;
	__typeof__(&cuMemRelease) release;
	__typeof__(&cuMemAddressReserve) reserve;
	__typeof__(&cuMemMap) map;
	__typeof__(&cuMemSetAccess) access;
	__typeof__(&cuMemUnmap) unmap;
} cu;

static struct {
	__typeof__(&gdrsim_node_fail) faults;
	__typeof__(&gdrsim_node_calls) calls;
	__typeof__(&gdrsim_node_pins) pins;
	__typeof__(&gdrsim_node_maps) maps;
} node;

static void find(void *lib, void *slot, const char *name)
{
	void *symbol = dlsym(lib, name);

	if (!symbol) {
		fprintf(stderr, "%s not found\n", name);
		exit(1);
	}
	memcpy(slot, &symbol, sizeof(symbol));
}

/* In each test's own process: CUDA, and a node as it is by default. */
static void setup(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CUcontext ctx;

	ck_assert_ptr_nonnull(lib);
	find(lib, &cu.init, "cuInit");
	find(lib, &cu.retain, "cuDevicePrimaryCtxRetain");
	find(lib, &cu.push, "cuCtxPushCurrent_v2");
	find(lib, &cu.alloc, "cuMemAlloc_v2");
	find(lib, &cu.free, "cuMemFree_v2");
	find(lib, &cu.htod, "cuMemcpyHtoD_v2");
	find(lib, &cu.dtoh, "cuMemcpyDtoH_v2");
	find(lib, &cu.create, "cuMemCreate");
	find(lib, &cu.release, "cuMemRelease");
	find(lib, &cu.reserve, "cuMemAddressReserve");
	find(lib, &cu.map, "cuMemMap");
	find(lib, &cu.access, "cuMemSetAccess");
	find(lib, &cu.unmap, "cuMemUnmap");
	find(RTLD_DEFAULT, &node.faults, "gdrsim_node_fail");
	find(RTLD_DEFAULT, &node.calls, "gdrsim_node_calls");
	find(RTLD_DEFAULT, &node.pins, "gdrsim_node_pins");
	find(RTLD_DEFAULT, &node.maps, "gdrsim_node_maps");
	ck_assert_int_eq(cu.init(0), 0);
	ck_assert_int_eq(cu.retain(&ctx, 0), 0);
	ck_assert_int_eq(cu.push(ctx), 0);
	node.faults(NULL);
}

static void set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

static gdr_t open_node(const char *level, const char *persistent)
{
	gdr_t g;

	set("GDRSIM_NODE_LEVEL", level);
	set("GDRSIM_NODE_PERSISTENT", persistent);
	g = gdr_open();
	ck_assert_msg(g != NULL, "level %s: %s", level, gdr_last_error());
	return g;
}

/* As open_node(), and no other backend's reason covers this one's. */
static gdr_t open_node_alone(const char *level, const char *persistent)
{
	set("GDRCOPY_BACKEND", "gdrdrv");
	return open_node(level, persistent);
}

static uint64_t device_memory(size_t size)
{
	CUdeviceptr p;

	ck_assert_int_eq(cu.alloc(&p, size), 0);
	return p;
}

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

#define assert_ok(call)                                                                            \
	do {                                                                                       \
		int rc_ = (call);                                                                  \
		ck_assert_msg(rc_ == 0, #call ": %s: %s", strerror(rc_), gdr_last_error());        \
	} while (0)

#define assert_text(part)                                                                          \
	ck_assert_msg(strstr(gdr_last_error(), part), "\"%s\" is not in: %s", part,               \
		      gdr_last_error())

/* ---- levels and modes -------------------------------------------------------------------------- */

static void check_info(gdr_t g, gdr_mh_t h, uint64_t addr, size_t size, bool mapped)
{
	gdr_info_t info;

	assert_ok(gdr_get_info(g, h, &info));
	ck_assert_uint_eq(info.va, addr & GPU_PAGE_MASK);
	ck_assert_uint_eq(info.mapped_size,
			  ((addr + size + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - info.va);
	ck_assert_uint_eq(info.page_size, GPU_PAGE_SIZE);
	ck_assert_uint_eq(info.tm_cycles, 1000);
	ck_assert_uint_eq(info.cycles_per_ms, 2000000);
	ck_assert_uint_eq(info.mapped, mapped);
	ck_assert_uint_eq(info.wc_mapping, mapped);
	ck_assert_int_eq(info.mapping_type, mapped ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_NONE);
}

/* The whole life of an unaligned range, which spans a GPU page's end. */
static void use_range(gdr_t g, uint64_t base)
{
	static char in[5000], out[5000];
	uint64_t addr = base + GPU_PAGE_SIZE - 100;
	size_t size = sizeof(in);
	uint64_t value;
	gdr_mh_t h;
	void *map;
	char *p;

	for (size_t i = 0; i < size; i++)
		in[i] = (char)(i * 7 + 3);
	ck_assert_int_eq(cu.htod(addr, in, size), 0);
	assert_ok(gdr_pin_buffer(g, addr, size, 0, 0, &h));
	check_info(g, h, addr, size, false);
	assert_ok(gdr_get_handle_attribute(g, h, GDR_HANDLE_ATTR_BACKEND, &value));
	ck_assert_uint_eq(value, GDR_BACKEND_GDRDRV);
	assert_ok(gdr_map(g, h, &map, 2 * GPU_PAGE_SIZE));
	check_info(g, h, addr, size, true);
	p = (char *)map + (addr & GPU_PAGE_OFFSET);
	assert_ok(gdr_copy_from_mapping(h, out, p, size));
	ck_assert_mem_eq(in, out, size);
	memset(in, 0x5a, size);
	assert_ok(gdr_copy_to_mapping(h, p, in, size));
	ck_assert_int_eq(cu.dtoh(out, addr, size), 0);
	ck_assert_mem_eq(in, out, size);
	ck_assert_int_eq(gdr_map(g, h, &map, 1), EAGAIN);
	ck_assert_int_eq(gdr_unmap(g, h, (char *)map + 4096, 2 * GPU_PAGE_SIZE), EINVAL);
	assert_ok(gdr_unmap(g, h, map, 2 * GPU_PAGE_SIZE));
	assert_ok(gdr_map(g, h, &map, 1));
	/* The device address stands for the mapping; another one does not. */
	ck_assert_int_eq(gdr_unmap(g, h, (void *)(addr + 2 * GPU_PAGE_SIZE), 1), EINVAL);
	assert_ok(gdr_unmap(g, h, (void *)addr, 1));
	assert_ok(gdr_map(g, h, &map, 1));
	assert_ok(gdr_unpin_buffer(g, h));
	ck_assert_uint_eq(node.pins(), 0);
	ck_assert_uint_eq(node.maps(), 0);
}

START_TEST(test_levels)
{
	char level[16], persistent[2] = { (char)('0' + _i % 2), 0 };
	int minor = _i / 2, major, value;
	int fds = count_fds();
	uint64_t base;
	gdr_t g;

	snprintf(level, sizeof(level), "2.%d", minor);
	node.faults(NULL);
	g = open_node(level, persistent);
	base = device_memory(MIB);
	assert_ok(gdr_driver_get_version(g, &major, &value));
	ck_assert_int_eq(major, 2);
	ck_assert_int_eq(value, minor);
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
	ck_assert_int_eq(value, minor >= 5 && _i % 2);
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
	ck_assert_int_eq(value, 0);
	use_range(g, base);

	/* The newer calls where the driver has them, and only there. */
	ck_assert_int_eq(node.calls("GET_ATTR") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("PIN_BUFFER") > 0, minor < 5);
	ck_assert_int_eq(node.calls("PIN_BUFFER_V2") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("REQ_MAPPING_TYPE") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("GET_INFO") > 0, minor < 4);
	ck_assert_int_eq(node.calls("GET_INFO_V2") > 0, minor >= 4);
	assert_ok(gdr_close(g));
	ck_assert_int_eq(cu.free(base), 0);
	ck_assert_int_eq(count_fds(), fds);
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
	uint64_t base = device_memory(MIB), value;
	gdr_info_t info;
	gdr_mh_t h;
	void *map;
	gdr_t g;

	set("GDRSIM_NODE_TYPE", cached ? "2" : "1");
	g = open_node(levels[_i / 2], "1");
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_int_eq(gdr_map_v2(g, h, &map, MIB, other), ENOTSUP);
	assert_text("cannot be mapped as");
	ck_assert_int_eq(gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_DEVICE_MAPPING), ENOTSUP);
	ck_assert_uint_eq(node.maps(), 0);
	assert_ok(gdr_map_v2(g, h, &map, MIB, own));
	assert_ok(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, type);
	assert_ok(gdr_unmap(g, h, map, MIB));
	assert_ok(gdr_map(g, h, &map, MIB));
	assert_ok(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, type);
	ck_assert_uint_eq(info.wc_mapping, !cached);
	assert_ok(gdr_get_handle_attribute(g, h, GDR_HANDLE_ATTR_MAPPING_TYPE, &value));
	ck_assert_uint_eq(value, (unsigned int)type);
	assert_ok(gdr_close(g));
	ck_assert_uint_eq(node.pins(), 0);
}
END_TEST

/* A driver that claims the level but lacks the call: the type of the mapping decides. */
START_TEST(test_no_type_call)
{
	uint64_t base = device_memory(MIB);
	gdr_t g = open_node("2.5", "1");
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
	uint64_t base = device_memory(MIB);
	gdr_mh_t h;
	int value;
	gdr_t g;

	g = open_node("2.4", "1");
	assert_ok(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_DEFAULT, &h));
	ck_assert_int_eq(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h), EINVAL);
	assert_ok(gdr_close(g));

	g = open_node("2.6", "1");
	assert_ok(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
	ck_assert_int_eq(value, 0);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h), EINVAL);
	assert_ok(gdr_close(g));

	set("GDRSIM_NODE_PCIE", "1");
	g = open_node("2.6", "1");
	assert_ok(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
	ck_assert_int_eq(value, 1);
	assert_ok(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
	ck_assert_int_eq(gdr_pin_buffer_v2(g, base, MIB, 2, &h), EINVAL);
	assert_ok(gdr_close(g));
	/* Supported by the build, refused in this mode. */
	g = open_node("2.6", "0");
	ck_assert_int_eq(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h), EINVAL);
	assert_ok(gdr_close(g));
}
END_TEST

START_TEST(test_tokens)
{
	uint64_t base = device_memory(MIB);
	gdr_mh_t h;
	gdr_t g;

	g = open_node("2.6", "0");
	node.faults(NULL);
	assert_ok(gdr_pin_buffer(g, base, MIB, 77, 1, &h));
	ck_assert_uint_eq(node.calls("PIN_BUFFER"), 1);
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), 0);
	assert_ok(gdr_close(g));
	g = open_node("2.6", "1");
	ck_assert_int_eq(gdr_pin_buffer(g, base, MIB, 77, 1, &h), EINVAL);
	assert_text("tokens");
	assert_ok(gdr_close(g));
}
END_TEST

/* The driver decides what memory is: CUDA need not know it. */
START_TEST(test_unknown_memory)
{
	static char host[4096];
	uint64_t base = device_memory(MIB);
	gdr_t g = open_node_alone("2.6", "1");
	gdr_mh_t h = { 42 };

	ck_assert_int_eq(gdr_pin_buffer(g, (uintptr_t)host, sizeof(host), 0, 0, &h), EINVAL);
	assert_text("gdrdrv: PIN_BUFFER: Invalid argument");
	ck_assert_int_eq(gdr_pin_buffer(g, base + 64 * MIB, 4, 0, 0, &h), EINVAL);
	ck_assert_int_eq(gdr_pin_buffer(g, base, 64 * MIB, 0, 0, &h), EINVAL);
	ck_assert_uint_eq(h.h, 42);
	assert_ok(gdr_close(g));
}
END_TEST

/* ---- open -------------------------------------------------------------------------------------- */

static void check_no_open(int err, const char *text)
{
	int fds = count_fds();

	errno = 0;
	ck_assert_ptr_null(gdr_open());
	ck_assert_int_eq(errno, err);
	assert_text(text);
	ck_assert_int_eq(count_fds(), fds);
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
		{ NULL, NULL, "GET_VERSION:*=ENOTTY", EINVAL, "tells no version" },
		{ NULL, NULL, "GET_VERSION:*=EINVAL", EINVAL, "tells no version" },
		{ NULL, NULL, "GET_VERSION:*=EACCES", EACCES, "GET_VERSION" },
	};

	if (cases[_i].name)
		set(cases[_i].name, cases[_i].value);
	node.faults(cases[_i].rules);
	check_no_open(cases[_i].err, cases[_i].text);
}
END_TEST

START_TEST(test_open_next_backend)
{
	int major, minor, value;
	gdr_t g;

	set("GDRSIM_NODE", "absent");
	set("GDRSIM_DRIVER_VERSION", "13030");
	g = gdr_open();
	ck_assert_ptr_nonnull(g);
	assert_ok(gdr_driver_get_version(g, &major, &minor));
	ck_assert_int_eq(minor, 6);
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
	ck_assert_int_eq(value, 1);
	assert_ok(gdr_close(g));
}
END_TEST

/* An attribute that cannot be had reads 0, and the open succeeds. */
START_TEST(test_open_attributes)
{
	int value;
	gdr_t g;

	node.faults("GET_ATTR:*=EINVAL");
	g = open_node("2.5", "1");
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
	ck_assert_int_eq(value, 0);
	assert_ok(gdr_close(g));
}
END_TEST

/* ---- errors of the calls ----------------------------------------------------------------------- */

START_TEST(test_pin_errors)
{
	static const struct {
		const char *rule;
		int err;
	} cases[] = {
		{ "PIN_BUFFER_V2:*=EINVAL", EINVAL }, { "PIN_BUFFER_V2:*=ENOMEM", ENOMEM },
		{ "PIN_BUFFER_V2:*=ENOSPC", ENOMEM }, { "PIN_BUFFER_V2:*=EACCES", EACCES },
		{ "PIN_BUFFER_V2:*=EPERM", EACCES },  { "PIN_BUFFER_V2:*=ENOTSUPP", ENOTSUP },
		{ "PIN_BUFFER_V2:*=EOPNOTSUPP", ENOTSUP }, { "PIN_BUFFER_V2:*=ENOTTY", ENOTSUP },
		{ "PIN_BUFFER_V2:*=ENODEV", ENODEV }, { "PIN_BUFFER_V2:*=EFAULT", EIO },
		{ "PIN_BUFFER_V2:*=EOVERFLOW", EOVERFLOW }, { "GET_INFO_V2:*=EINVAL", EINVAL },
		{ "GET_INFO_V2:*=EACCES", EACCES },
	};
	uint64_t base = device_memory(MIB);
	gdr_mh_t h = { 42 };
	gdr_t g;

	g = open_node_alone("2.6", "1");
	node.faults(cases[_i].rule);
	ck_assert_int_eq(gdr_pin_buffer(g, base, MIB, 0, 0, &h), cases[_i].err);
	ck_assert_uint_eq(h.h, 42);
	ck_assert_uint_eq(node.pins(), 0);
	node.faults(NULL);
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	assert_ok(gdr_close(g));
}
END_TEST

/* A driver that says it pinned something else than it was asked for. */
START_TEST(test_pin_elsewhere)
{
	static const char *const skews[] = { "65536", "-65536", "512", "-4194304" };
	uint64_t base = device_memory(MIB);
	gdr_mh_t h;
	gdr_t g;

	set("GDRSIM_NODE_SKEW", skews[_i]);
	g = open_node_alone("2.6", "1");
	ck_assert_int_eq(gdr_pin_buffer(g, base + 65536, MIB - 65536, 0, 0, &h), EIO);
	assert_text("instead of");
	ck_assert_uint_eq(node.pins(), 0);
	assert_ok(gdr_close(g));
}
END_TEST

START_TEST(test_map_errors)
{
	static const struct {
		const char *rule;
		int err;
	} cases[] = {
		{ "MMAP:*=ENOMEM", ENOMEM },	 { "MMAP:*=EINVAL", EINVAL },
		{ "MMAP:*=EACCES", EACCES },	 { "MMAP:*=EAGAIN", EIO },
		{ "MMAP:*=EPERM", EACCES },	 { "MADVISE:*=ENOMEM", ENOMEM },
		{ "MADVISE:*=EINVAL", ENOTSUP }, { "MMAP:*=REVOKE", EINVAL },
		{ "GET_INFO_V2:*=EINVAL", EINVAL }, { "REQ_MAPPING_TYPE:*=EINVAL", EINVAL },
		{ "REQ_MAPPING_TYPE:*=ENOTSUPP", ENOTSUP }, { "REQ_MAPPING_TYPE:*=EACCES", EACCES },
	};
	uint64_t base = device_memory(4 * MIB);
	gdr_t g = open_node("2.6", "1");
	void *map = &g;
	gdr_mh_t h;

	assert_ok(gdr_pin_buffer(g, base, 4 * MIB, 0, 0, &h));
	node.faults(cases[_i].rule);
	ck_assert_int_eq(gdr_map(g, h, &map, 4 * MIB), cases[_i].err);
	ck_assert_ptr_eq(map, &g);
	ck_assert_uint_eq(node.maps(), 0);
	node.faults(NULL);
	if (!strstr(cases[_i].rule, "REVOKE"))
		assert_ok(gdr_map(g, h, &map, 4 * MIB));
	assert_ok(gdr_close(g));
	ck_assert_uint_eq(node.pins(), 0);
}
END_TEST

/* A failing unpin is told, and the handle is gone all the same; close goes on to the end. */
START_TEST(test_unpin_errors)
{
	uint64_t base = device_memory(MIB);
	gdr_t g = open_node("2.6", "1");
	int fds, flag = 42;
	gdr_mh_t h[3];
	void *map;

	for (int i = 0; i < 3; i++)
		assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h[i]));
	assert_ok(gdr_map(g, h[2], &map, MIB));
	node.faults("GET_CB_FLAG:1=EINVAL,UNPIN_BUFFER:1=EINVAL,UNPIN_BUFFER:3=EACCES");
	ck_assert_int_eq(gdr_get_callback_flag(g, h[0], &flag), EINVAL);
	ck_assert_int_eq(flag, 42);
	ck_assert_int_eq(gdr_unpin_buffer(g, h[0]), EINVAL);
	ck_assert_int_eq(gdr_unpin_buffer(g, h[0]), EINVAL);
	ck_assert_uint_eq(node.calls("UNPIN_BUFFER"), 1);
	fds = count_fds();
	ck_assert_int_eq(gdr_close(g), EACCES);
	ck_assert_uint_eq(node.calls("UNPIN_BUFFER"), 3);
	ck_assert_uint_eq(node.pins(), 0); /* the node's close took the rest */
	ck_assert_int_eq(count_fds(), fds - 2); /* the node is a pipe here */
	ck_assert_int_eq(gdr_close(g), EINVAL);
}
END_TEST

/* Every call is made again after a signal. */
START_TEST(test_interrupted)
{
	gdr_t g;
	uint64_t base = device_memory(MIB);
	int flag;
	gdr_mh_t h;
	void *map;

	node.faults("OPEN:1=EINTR,GET_VERSION:1=EINTR,GET_ATTR:1=EINTR,PIN_BUFFER_V2:1=EINTR,"
		  "GET_INFO_V2:1=EINTR,REQ_MAPPING_TYPE:1=EINTR,GET_CB_FLAG:1=EINTR,"
		  "UNPIN_BUFFER:1=EINTR");
	g = open_node("2.6", "1");
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &flag));
	ck_assert_int_eq(flag, 1);
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	assert_ok(gdr_map(g, h, &map, MIB));
	assert_ok(gdr_get_callback_flag(g, h, &flag));
	assert_ok(gdr_unpin_buffer(g, h));
	assert_ok(gdr_close(g));
}
END_TEST

/* Handles are the driver's business: 0, and more than 32 bits. */
START_TEST(test_handles)
{
	static const char *const firsts[] = { "0", "0xfffffff8", "0x7fffffff00000" };
	uint64_t base = device_memory(MIB);
	gdr_t g;

	set("GDRSIM_NODE_HANDLE", firsts[_i]);
	g = open_node("2.6", "1");
	for (int i = 0; i < 3; i++)
		use_range(g, base);
	assert_ok(gdr_close(g));
}
END_TEST

START_TEST(test_handle_without_offset)
{
	uint64_t base = device_memory(MIB);
	gdr_mh_t h;
	void *map;
	gdr_t g;

	set("GDRSIM_NODE_HANDLE", "0x8000000000000");
	g = open_node("2.6", "1");
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_int_eq(gdr_map(g, h, &map, MIB), EOVERFLOW);
	assert_ok(gdr_close(g));
}
END_TEST

/* ---- life times -------------------------------------------------------------------------------- */

static sigjmp_buf after_fault;

static void on_fault(int sig)
{
	siglongjmp(after_fault, sig);
}

/* The signal that a load gives, or 0. */
static int load(const volatile char *p)
{
	struct sigaction action = { .sa_handler = on_fault }, bus, segv;
	int sig;

	sigaction(SIGBUS, &action, &bus);
	sigaction(SIGSEGV, &action, &segv);
	sig = sigsetjmp(after_fault, 1);
	if (!sig)
		(void)*p;
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return sig;
}

START_TEST(test_free_persistent)
{
	gdr_t g = open_node("2.6", "1");
	uint64_t base = device_memory(MIB), word = 0x1122334455667788, out, value;
	gdr_mh_t h;
	int flag;
	void *map;

	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	assert_ok(gdr_map(g, h, &map, MIB));
	assert_ok(gdr_copy_to_mapping(h, map, &word, sizeof(word)));
	ck_assert_int_eq(cu.free(base), 0);
	assert_ok(gdr_copy_from_mapping(h, &out, map, sizeof(out)));
	ck_assert_uint_eq(out, word);
	assert_ok(gdr_get_callback_flag(g, h, &flag));
	ck_assert_int_eq(flag, 0);
	assert_ok(gdr_get_handle_attribute(g, h, GDR_HANDLE_ATTR_PERSISTENT, &value));
	ck_assert_uint_eq(value, 1);
	assert_ok(gdr_unpin_buffer(g, h));
	assert_ok(gdr_close(g));
}
END_TEST

START_TEST(test_free_callback)
{
	gdr_t g = open_node("2.6", "0");
	uint64_t base = device_memory(4 * MIB), value;
	gdr_mh_t h, unmapped;
	int flag;
	void *map;

	assert_ok(gdr_pin_buffer(g, base, 4 * MIB, 0, 0, &h));
	assert_ok(gdr_pin_buffer(g, base, 4 * MIB, 0, 0, &unmapped));
	assert_ok(gdr_map(g, h, &map, 4 * MIB));
	assert_ok(gdr_get_handle_attribute(g, h, GDR_HANDLE_ATTR_PERSISTENT, &value));
	ck_assert_uint_eq(value, 0);
	assert_ok(gdr_get_callback_flag(g, h, &flag));
	ck_assert_int_eq(flag, 0);
	ck_assert_int_eq(load(map), 0);
	ck_assert_int_eq(cu.free(base), 0);
	assert_ok(gdr_get_callback_flag(g, h, &flag));
	ck_assert_int_eq(flag, 1);
	ck_assert_int_eq(load(map), SIGBUS);
	ck_assert_int_eq(load((char *)map + 4 * MIB - 1), SIGBUS);
	assert_ok(gdr_unmap(g, h, map, 4 * MIB));
	ck_assert_int_eq(gdr_map(g, h, &map, MIB), EINVAL);
	ck_assert_int_eq(gdr_map(g, unmapped, &map, MIB), EINVAL);
	assert_text("freed");
	assert_ok(gdr_unpin_buffer(g, h));
	assert_ok(gdr_close(g));
	ck_assert_uint_eq(node.pins(), 0);
}
END_TEST

/* What the child may do is told by its exit status: 0, or the line that went wrong. */
#define child_check(cond)                                                                          \
	do {                                                                                       \
		if (!(cond))                                                                       \
			_exit(__LINE__ % 250 + 1);                                                 \
	} while (0)

START_TEST(test_fork)
{
	gdr_t g = open_node("2.6", _i ? "1" : "0");
	uint64_t base = device_memory(MIB);
	int fd, status, word = 1;
	gdr_mh_t h, other;
	void *map, *map2;
	pid_t pid;

	set("GDRSIM_NODE_POLL", "1");
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	assert_ok(gdr_map(g, h, &map, MIB));
	assert_ok(gdr_get_event_fd(g, &fd));
	pid = fork();
	if (!pid) {
		struct gdrdrv_get_cb_flag f = { .handle = 1 };

		child_check(gdr_pin_buffer(g, base, MIB, 0, 0, &other) == EACCES);
		child_check(gdr_map(g, h, &map2, MIB) == EACCES);
		child_check(gdr_get_callback_flag(g, h, &status) == EACCES);
		child_check(gdr_copy_to_mapping(h, map, &word, 4) == EACCES);
		child_check(gdr_get_event_fd(g, &status) == EACCES);
		child_check(gdr_next_revoked(g, &other) == EACCES);
		child_check(gdr_unpin_buffer(g, h) == EACCES);
		child_check(gdr_close(g) == EACCES);
		child_check(load(map) == SIGSEGV);
		/* The node's own word on it. */
		child_check(ioctl(fd, GDRDRV_IOC_GET_CB_FLAG, &f) == -1 && errno == EACCES);
		child_check(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096) == MAP_FAILED &&
			    errno == EACCES);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "the child ended with 0x%x", (unsigned int)status);
	assert_ok(gdr_copy_to_mapping(h, map, &word, 4));
	assert_ok(gdr_unpin_buffer(g, h));
	assert_ok(gdr_close(g));
}
END_TEST

/* ---- fall-through ------------------------------------------------------------------------------- */

static uint64_t vmm_memory(size_t size, bool rdma)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
	};
	CUmemAccessDesc desc = { .location = prop.location,
				 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	prop.allocFlags.gpuDirectRDMACapable = rdma;
	ck_assert_int_eq(cu.reserve(&ptr, size, 0, 0, 0), 0);
	for (size_t at = 0; at < size; at += 2 * MIB) {
		ck_assert_int_eq(cu.create(&handle, 2 * MIB, &prop, 0), 0);
		ck_assert_int_eq(cu.map(ptr + at, 2 * MIB, 0, handle, 0), 0);
		ck_assert_int_eq(cu.release(handle), 0);
	}
	ck_assert_int_eq(cu.access(ptr, size, &desc, 1), 0);
	return ptr;
}

/* One context serves through the node what the node can, and the rest by another way. */
START_TEST(test_fall_through)
{
	uint64_t plain, capable, incapable, value;
	gdr_mh_t h[3];
	gdr_t g;

	set("GDRSIM_DRIVER_VERSION", "13030");
	g = open_node("2.6", "1");
	plain = device_memory(MIB);
	capable = vmm_memory(4 * MIB, true);
	incapable = vmm_memory(4 * MIB, false);
	assert_ok(gdr_pin_buffer(g, plain, MIB, 0, 0, &h[0]));
	assert_ok(gdr_pin_buffer(g, capable, 4 * MIB, 0, 0, &h[1]));
	assert_ok(gdr_pin_buffer(g, incapable, 2 * MIB, 0, 0, &h[2]));
	for (int i = 0; i < 3; i++) {
		char in[64], out[64];
		void *map;

		assert_ok(gdr_get_handle_attribute(g, h[i], GDR_HANDLE_ATTR_BACKEND, &value));
		ck_assert_uint_eq(value, i < 2 ? GDR_BACKEND_GDRDRV : GDR_BACKEND_DMABUF);
		assert_ok(gdr_map(g, h[i], &map, MIB));
		memset(in, i + 1, sizeof(in));
		assert_ok(gdr_copy_to_mapping(h[i], map, in, sizeof(in)));
		ck_assert_int_eq(cu.dtoh(out, i ? (i == 1 ? capable : incapable) : plain, 64), 0);
		ck_assert_mem_eq(in, out, 64);
	}
	assert_ok(gdr_close(g));
}
END_TEST

/* Memory in several pieces behind one mapping: the second one is where it belongs. */
START_TEST(test_several_chunks)
{
	uint64_t base = vmm_memory(6 * MIB, true);
	gdr_t g = open_node("2.6", "1");
	char in[8192], out[8192];
	gdr_mh_t h;
	void *map;

	assert_ok(gdr_pin_buffer(g, base, 6 * MIB, 0, 0, &h));
	assert_ok(gdr_map(g, h, &map, 6 * MIB));
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 5);
	assert_ok(gdr_copy_to_mapping(h, (char *)map + 2 * MIB - 4096, in, sizeof(in)));
	ck_assert_int_eq(cu.dtoh(out, base + 2 * MIB - 4096, sizeof(out)), 0);
	ck_assert_mem_eq(in, out, sizeof(in));
	assert_ok(gdr_close(g));
}
END_TEST

/* ---- notice of revocation ----------------------------------------------------------------------- */

static bool is_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLPRI };

	return poll(&p, 1, 0) == 1 && p.revents == POLLPRI;
}

START_TEST(test_events)
{
	gdr_t g = open_node("2.6", "0");
	uint64_t base[3];
	gdr_mh_t h[3], told, other;
	unsigned int seen = 0;
	int fd, flag;

	for (int i = 0; i < 3; i++) {
		base[i] = device_memory(2 * MIB);
		assert_ok(gdr_pin_buffer(g, base[i], 2 * MIB, 0, 0, &h[i]));
	}
	assert_ok(gdr_get_event_fd(g, &fd));
	ck_assert(!is_ready(fd));
	told.h = 42;
	ck_assert_int_eq(gdr_next_revoked(g, &told), ENOENT);
	ck_assert_uint_eq(told.h, 42);

	ck_assert_int_eq(cu.free(base[0]), 0);
	ck_assert_int_eq(cu.free(base[2]), 0);
	ck_assert(is_ready(fd));
	/* A look at the flag takes nothing away. */
	assert_ok(gdr_get_callback_flag(g, h[0], &flag));
	ck_assert_int_eq(flag, 1);
	node.faults(NULL);
	assert_ok(gdr_next_revoked(g, &told));
	assert_ok(gdr_next_revoked(g, &other));
	ck_assert_uint_eq(node.calls("GET_CB_FLAG"), 3); /* one round, not one each */
	ck_assert_int_eq(gdr_next_revoked(g, &other), ENOENT);
	for (int i = 0; i < 3; i++)
		seen |= (unsigned int)(told.h == h[i].h || other.h == h[i].h) << i;
	ck_assert_uint_eq(seen, 5);

	assert_ok(gdr_unpin_buffer(g, h[0]));
	ck_assert(is_ready(fd));
	assert_ok(gdr_unpin_buffer(g, h[2]));
	ck_assert(!is_ready(fd));
	assert_ok(gdr_unpin_buffer(g, h[1]));
	ck_assert_int_eq(gdr_next_revoked(g, &other), ENOENT);
	assert_ok(gdr_close(g));
	ck_assert_int_eq(gdr_get_event_fd(g, &fd), EINVAL);
	ck_assert_int_eq(gdr_next_revoked(g, &other), EINVAL);
}
END_TEST

/* Without poll in the driver there is no descriptor, but the ranges can be asked for. */
START_TEST(test_events_no_poll)
{
	uint64_t base = device_memory(2 * MIB);
	gdr_mh_t h, told;
	int fd = 42;
	gdr_t g;

	set("GDRSIM_NODE_POLL", "0");
	g = open_node("2.5", "0");
	ck_assert_int_eq(gdr_get_event_fd(g, &fd), ENOTSUP);
	assert_text("gives no notice");
	ck_assert_int_eq(fd, 42);
	assert_ok(gdr_pin_buffer(g, base, 2 * MIB, 0, 0, &h));
	ck_assert_int_eq(cu.free(base), 0);
	assert_ok(gdr_next_revoked(g, &told));
	ck_assert_uint_eq(told.h, h.h);
	ck_assert_int_eq(gdr_next_revoked(g, &told), ENOENT);
	ck_assert_int_eq(gdr_get_event_fd(g, NULL), EINVAL);
	ck_assert_int_eq(gdr_next_revoked(g, NULL), EINVAL);
	assert_ok(gdr_close(g));
}
END_TEST

START_TEST(test_events_other_backends)
{
	gdr_mh_t told;
	int fd;
	gdr_t g;

	set("GDRSIM_NODE", "absent");
	g = gdr_open_ex(GDR_OPEN_ANY);
	ck_assert_ptr_nonnull(g);
	ck_assert_int_eq(gdr_get_event_fd(g, &fd), ENOTSUP);
	assert_text("no range is ever revoked");
	ck_assert_int_eq(gdr_next_revoked(g, &told), ENOENT);
	assert_ok(gdr_close(g));
}
END_TEST

/* ---- threads ------------------------------------------------------------------------------------ */

enum { THREADS = 8, ROUNDS = 50 };

static gdr_t shared;

static void *work(void *arg)
{
	uint64_t base = *(uint64_t *)arg;
	char in[256], out[256];
	gdr_mh_t h, told;
	void *map;
	int flag;

	for (int i = 0; i < ROUNDS; i++) {
		memset(in, i, sizeof(in));
		assert_ok(gdr_pin_buffer(shared, base, 65536, 0, 0, &h));
		assert_ok(gdr_map(shared, h, &map, 65536));
		assert_ok(gdr_copy_to_mapping(h, map, in, sizeof(in)));
		assert_ok(gdr_copy_from_mapping(h, out, map, sizeof(out)));
		ck_assert_mem_eq(in, out, sizeof(in));
		assert_ok(gdr_get_callback_flag(shared, h, &flag));
		ck_assert_int_eq(flag, 0);
		ck_assert_int_eq(gdr_next_revoked(shared, &told), ENOENT);
		assert_ok(gdr_unpin_buffer(shared, h));
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t threads[THREADS];
	uint64_t base[THREADS];

	shared = open_node("2.6", "0");
	for (int i = 0; i < THREADS; i++) {
		base[i] = device_memory(2 * MIB);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &base[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_ok(gdr_close(shared));
	ck_assert_uint_eq(node.pins(), 0);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("gdrdrv");
	TCase *tc = tcase_create("gdrdrv");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, test_levels, 0, 14);
	tcase_add_loop_test(tc, test_mapping_types, 0, 6);
	tcase_add_test(tc, test_no_type_call);
	tcase_add_test(tc, test_pin_flags);
	tcase_add_test(tc, test_tokens);
	tcase_add_test(tc, test_unknown_memory);
	tcase_add_loop_test(tc, test_open_refused, 0, 14);
	tcase_add_test(tc, test_open_next_backend);
	tcase_add_test(tc, test_open_attributes);
	tcase_add_loop_test(tc, test_pin_errors, 0, 13);
	tcase_add_loop_test(tc, test_pin_elsewhere, 0, 4);
	tcase_add_loop_test(tc, test_map_errors, 0, 12);
	tcase_add_test(tc, test_unpin_errors);
	tcase_add_test(tc, test_interrupted);
	tcase_add_loop_test(tc, test_handles, 0, 3);
	tcase_add_test(tc, test_handle_without_offset);
	tcase_add_test(tc, test_free_persistent);
	tcase_add_test(tc, test_free_callback);
	tcase_add_loop_test(tc, test_fork, 0, 2);
	tcase_add_test(tc, test_fall_through);
	tcase_add_test(tc, test_several_chunks);
	tcase_add_test(tc, test_events);
	tcase_add_test(tc, test_events_no_poll);
	tcase_add_test(tc, test_events_other_backends);
	tcase_add_test(tc, test_threads);
	suite_add_tcase(suite, tc);
	return suite;
}

/* Starts this program again with the stand-in preloaded; returns only if that is impossible. */
static void preload(char **argv)
{
	const char *dir = getenv("GDRSIM_DIR"), *before = getenv("LD_PRELOAD");
	const char *asan = getenv("ASAN_OPTIONS");
	char text[4096], self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (!dir || len < 0 || getenv("GDRSIM_PRELOADED"))
		return;
	self[len] = '\0';
	snprintf(text, sizeof(text), "%s%s%s/libgdrdrv_node.so", before ? before : "",
		 before ? ":" : "", dir);
	setenv("LD_PRELOAD", text, 1);
	snprintf(text, sizeof(text), "%s%sverify_asan_link_order=0", asan ? asan : "",
		 asan ? ":" : "");
	setenv("ASAN_OPTIONS", text, 1);
	setenv("GDRSIM_PRELOADED", "1", 1);
	execv(self, argv); /* not the link itself, which is the tool's under valgrind */
}

int main(int argc, char **argv)
{
	SRunner *runner;
	int failed;

	(void)argc;
	if (!dlsym(RTLD_DEFAULT, "gdrsim_node_fail")) {
		preload(argv);
		fprintf(stderr, "GDRSIM_DIR must name the directory of libgdrdrv_node.so\n");
		return 1;
	}
	runner = srunner_create(make_suite());
	/* A process per test, whatever CK_FORK says: each needs an environment of its own. */
	srunner_set_fork_status(runner, CK_FORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
