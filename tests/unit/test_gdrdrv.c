// SPDX-License-Identifier: MIT
/*
 * The gdrdrv backend over the stand-in of the node: every driver level in both modes, mapping
 * types and flags, what an open refuses, and a child; every call of the driver failing in every way, and
 * interrupted; handles of every width; memory freed under a pin, as counters and caches see it. What
 * its mapping shows then, and tokens, are in gdrcopy_sanity.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "barcopy_queue.h"
#include "common/wrap.h"
#include "node_sim.h"

static void test_levels(void)
{
	static const char *const others[] = { "OPEN", "MMAP", "MADVISE" }; /* no ioctl */
	char level[16], persistent[2] = { (char)('0' + unit_row % 2), 0 };
	int minor = unit_row / 2, major, value;
	int fds = resources_fds();
	unsigned long calls = 0;

	snprintf(level, sizeof(level), "2.%d", minor);
	node.faults(NULL);
	wrap_reset();
	node_open(level, persistent);
	OK(gdr_driver_get_version(g, &major, &value));
	ck_assert_int_eq(major, 2);
	ck_assert_int_eq(value, minor);
	ck_assert_int_eq(attribute(GDR_ATTR_USE_PERSISTENT_MAPPING), minor >= 5 && unit_row % 2);
	ck_assert_int_eq(attribute(GDR_ATTR_USING_DMA_BUF_MMAP), 0);
	node_use_range();

	/* The newer calls where the driver has them, and only there. */
	ck_assert_int_eq(node.calls("GET_ATTR") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("PIN_BUFFER") > 0, minor < 5);
	ck_assert_int_eq(node.calls("PIN_BUFFER_V2") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("REQ_MAPPING_TYPE") > 0, minor >= 5);
	ck_assert_int_eq(node.calls("GET_INFO") > 0, minor < 4);
	ck_assert_int_eq(node.calls("GET_INFO_V2") > 0, minor >= 4);
	for (size_t i = 0; i < COUNT(others); i++)
		calls -= node.calls(others[i]);
	ck_assert_uint_eq(wrap_calls("ioctl"), calls + node.calls(NULL));
	end_now();
	ck_assert_int_eq(resources_fds(), fds);
}

/* The driver refuses memory without gpuDirectRDMACapable: the text says so. */
static void test_not_rdma_capable(void)
{
	CUdeviceptr with = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_RDMA);
	CUdeviceptr without = standin_chunks(0, 0, 1, 2 * MIB, 0);
	gdr_mh_t h;

	node_open_alone("2.6", "1");
	FAILS_WITH(EINVAL, "cuMemCreate memory needs allocFlags.gpuDirectRDMACapable",
		   gdr_pin_buffer(g, without, MIB, 0, 0, &h));
	OK(gdr_pin_buffer(g, with, MIB, 0, 0, &h));
	node.faults("PIN_BUFFER_V2:*=EINVAL");
	FAILS_WITH(EINVAL, "PIN_BUFFER: Invalid argument", gdr_pin_buffer(g, with, MIB, 0, 0, &h));
	node.faults("PIN_BUFFER_V2:*=ENODEV"); /* this one has another reason */
	FAILS_WITH(ENODEV, "PIN_BUFFER: No such device",
		   gdr_pin_buffer(g, without, MIB, 0, 0, &h));
	end_now();
}

/*
 * What an old driver refuses rm serves, so programs that want 2.5 of the driver get it; not where rm
 * cannot serve cudaMalloc memory. Where that cannot be asked, no answer is given.
 */
static void test_level_beside_rm(void)
{
	static const char *const without[] = { "GDRSIM_RM_OPEN", "GDRSIM_DMABUF" };
	int major, minor, level, flag;
	struct rlimit limit;

	for (size_t i = 0; i < COUNT(without); i++) {
		node_env(without[i], "0");
		node_open("2.4", "1");
		OK(gdr_driver_get_version(g, &major, &minor));
		ck_assert_int_eq(major, 2);
		ck_assert_int_eq(minor, 4);
		ck_assert_int_eq(attribute(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE), 0);
		node_env(without[i], NULL);
	}
	node_open("2.4", "1");
	getrlimit(RLIMIT_NOFILE, &limit);
	OK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3, limit.rlim_max }));
	level = gdr_driver_get_version(g, &major, &minor);
	flag = gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &minor);
	OK(setrlimit(RLIMIT_NOFILE, &limit));
	ck_assert_int_eq(level, EMFILE);
	ck_assert_int_eq(flag, EMFILE);
	OK(gdr_driver_get_version(g, &major, &minor));
	ck_assert_int_eq(major, 2);
	ck_assert_int_eq(minor, 6);
	ck_assert_int_eq(attribute(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE), 1);
	node_open_alone("2.4", "1");
	OK(gdr_driver_get_version(g, &major, &minor));
	ck_assert_int_eq(minor, 4);
	end_now();
}

/* A request for the memory's own type is granted at any level, one for another type at none. */
static void test_mapping_types(void)
{
	static const char *const levels[] = { "2.0", "2.4", "2.6" };
	bool cached = unit_row % 2;
	int own = cached ? GDR_MAP_FLAG_REQ_CACHE_MAPPING : GDR_MAP_FLAG_REQ_WC_MAPPING;
	int other = cached ? GDR_MAP_FLAG_REQ_WC_MAPPING : GDR_MAP_FLAG_REQ_CACHE_MAPPING;
	int type = cached ? GDR_MAPPING_TYPE_CACHING : GDR_MAPPING_TYPE_WC;
	int third = GDR_MAP_FLAG_REQ_DEVICE_MAPPING;
	gdr_info_t info;
	gdr_mh_t h;
	void *map;

#if defined(__aarch64__)
	/* Before level 2.4 a node reports write-combining only; Device is right for the rest. */
	if (cached && unit_row / 2 == 0) {
		third = own;
		own = GDR_MAP_FLAG_REQ_DEVICE_MAPPING;
		type = GDR_MAPPING_TYPE_DEVICE;
	}
#endif
	node_env("GDRSIM_NODE_TYPE", cached ? "2" : "1");
	node_open(levels[unit_row / 2], "1");
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
}

/* A request holds for one map: the next one has the default again. */
static void test_request_ends(void)
{
	gdr_info_t info;
	gdr_mh_t h;
	void *map;

	node_env("GDRSIM_NODE_DEVICE", "1");
	node_open("2.6", "1");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	OK(gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_DEVICE_MAPPING));
	OK(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_DEVICE);
	HANDLE_HAS(g, h, MAPPING_TYPE, GDR_MAPPING_TYPE_WC);
	OK(gdr_unmap(g, h, map, MIB));
	OK(gdr_map(g, h, &map, MIB));
	OK(gdr_get_info(g, h, &info));
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_WC);
}

/* A driver that claims the level but lacks the call: the type of the mapping decides. */
static void test_no_type_call(void)
{
	gdr_mh_t h;
	void *map;

	node_open("2.5", "1");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	node.faults("REQ_MAPPING_TYPE:*=ENOTTY");
	OK(gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_WC_MAPPING));
	OK(gdr_unmap(g, h, map, MIB));
	FAILS(ENOTSUP, gdr_map_v2(g, h, &map, MIB, GDR_MAP_FLAG_REQ_CACHE_MAPPING));
	ck_assert_uint_eq(node.maps(), 0);
}

static void test_pin_flags(void)
{
	gdr_mh_t h;

	node_open("2.4", "1");
	OK(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_DEFAULT, &h));
	FAILS(EINVAL, gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));

	node_open("2.6", "1");
	ck_assert_int_eq(attribute(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE), 0);
	FAILS(EINVAL, gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));

	node_env("GDRSIM_NODE_PCIE", "1");
	node_open("2.5", "1"); /* the first level that has the flag */
	ck_assert_int_eq(attribute(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE), 1);
	OK(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
	node_open("2.6", "1");
	ck_assert_int_eq(attribute(GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE), 1);
	OK(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
	FAILS(EINVAL, gdr_pin_buffer_v2(g, base, MIB, 2, &h));
	/* Supported by the build, refused in this mode. */
	node_open("2.6", "0");
	FAILS(EINVAL, gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
}

/* Memory that CUDA does not know: only a cache that is notified of frees keeps it. */
static void test_unknown_memory_cached(void)
{
	barcopy_region_t r;

	node_open_alone("2.6", "1");
	cuda_hooks.set_fail("cuPointerGetAttributes:*=1");
	for (int notified = 0; notified < 2; notified++) {
		barcopy_cache_t cache = cache_with(
			g, notified ? BARCOPY_CACHE_NOTIFIED : BARCOPY_CACHE_CHECK_TAG, 0);

		for (int i = 0; i < 3; i++) {
			OK(barcopy_cache_get(cache, base + 100, 8, &r));
			OK(gdr_copy_to_mapping(r.handle, r.cpu_ptr, &i, sizeof(i)));
			OK(barcopy_cache_put(cache, &r));
			ck_assert_uint_eq(node.pins(), notified);
			ck_assert_uint_eq(cache_stats(cache).bytes_pinned, notified * PAGE);
		}
		ck_assert_uint_eq(cache_stats(cache).misses, notified ? 1 : 3);
		ck_assert_uint_eq(cache_stats(cache).hits, notified ? 2 : 0);
		OK(barcopy_cache_destroy(cache));
		ck_assert_uint_eq(node.pins(), 0);
	}
	cuda_hooks.set_fail(NULL);
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
		{ "GDRSIM_NODE_MIN_API", "2.7", NULL, EINVAL, "needs libgdrapi 2.7" },
		{ "GDRSIM_NODE_MIN_API", "3.0", NULL, EINVAL, "needs libgdrapi 3.0" },
		{ NULL, NULL, "OPEN:*=EPERM", EACCES, "may not be opened" },
		{ NULL, NULL, "OPEN:*=ENXIO", ENODEV, "not loaded" },
		{ NULL, NULL, "OPEN:*=ENODEV", ENODEV, "not loaded" },
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
	node_refuses(cases[unit_row].err, cases[unit_row].text);
}

/*
 * Several backends exist and refuse: the errno is the first one's, or that of a shortage; the text has every reason.
 */
static void test_open_refusals(void)
{
	node_env("GDRSIM_RM", "denied");
	node_env("GDRSIM_NODE_LEVEL", "1.3");
	node_refuses(EINVAL, "is 1.3; 2.0 is the oldest");
	SAYS("/dev/nvidiactl may not be opened");
	wrap_reset();
	wrap_fail("open", 2, EMFILE); /* behind the node's */
	node_refuses(EMFILE, "is 1.3; 2.0 is the oldest");
	SAYS("Too many open files");
	node_env("GDRSIM_NODE", "absent");
	node_refuses(EACCES, "/dev/nvidiactl may not be opened");
}

/* The driver is asked about host memory only where CUDA gives no CPU pointer. */
static void test_host_memory(void)
{
	unsigned long before = node.calls("PIN_BUFFER_V2");
	void *a = standin_host_alloc(4096, 0);
	gdr_mh_t h;

	node_open("2.6", "1");
	OK(gdr_pin_buffer_v2(g, (uintptr_t)a, 4096, 0, &h));
	HANDLE_HAS(g, h, BACKEND, BARCOPY_BACKEND_HOST);
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), before);
	OK(gdr_unpin_buffer(g, h));
	cuda_hooks.set_fail("cuMemHostGetFlags:*=999");
	FAILS(ENOTSUP, gdr_pin_buffer_v2(g, (uintptr_t)a, 4096, 0, &h));
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), before + 1);
	SAYS("gdrdrv: ");
	SAYS("host: ");
	ck_assert_ptr_null(strstr(barcopy_last_error(), "cuMemCreate"));
}

/* An attribute that cannot be had reads 0, and the open succeeds. */
static void test_open_attributes(void)
{
	node.faults("GET_ATTR:*=EINVAL");
	node_open("2.5", "1");
	ck_assert_int_eq(attribute(GDR_ATTR_USE_PERSISTENT_MAPPING), 0);
}

/* Descriptors of the stand-in's node. */
static int node_descriptors(void)
{
	char path[32], name[64] = "";
	int count = 0;

	for (int i = 0; i < 1024; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
		count += readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "gdrdrv-node");
	}
	return count;
}

/* The library asks the driver to fill the page table; where that fails, loads do. */
static void test_populate(void)
{
	static const struct {
		const char *populate, *rules;
	} cases[] = {
		{ "1", NULL },
		{ "1", "POPULATE:*=ENOMEM" },
		{ "0", NULL }, /* another driver: ENOTTY */
	};
	gdr_mh_t h;
	void *p;

	node_env("GDRSIM_NODE_POPULATE", cases[unit_row].populate);
	node_open("2.6", "1");
	node.faults(cases[unit_row].rules);
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_uint_eq(node.calls("POPULATE"), 0);
	OK(gdr_map(g, h, &p, MIB));
	ck_assert_uint_eq(node.calls("POPULATE"), 1);
	((volatile char *)p)[MIB - 1] = 1;
	node.faults(NULL);
}

/* It pins by address alone: another backend maps a dma-buf, or none. */
static void test_no_dmabuf(void)
{
	barcopy_mem_t mem;
	int fd;

	node_env("GDRCOPY_BACKEND", "gdrdrv");
	node_open("2.6", "1");
	CU(cuda.cuMemGetHandleForAddressRange(&fd, base, MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					      0));
	FAILS_WITH(ENOTSUP,
		   "no backend can map this dma-buf of 0x100000 bytes: gdrdrv: cannot map a dma-buf",
		   barcopy_mem_import(g, 0, fd, MIB, BARCOPY_MEM_DMABUF, &mem));
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2"), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC); /* still the caller's */
	close(fd);
	node_env("GDRCOPY_BACKEND", "gdrdrv-dmabuf");
	node_refuses(EINVAL, "no such backend: \"gdrdrv-dmabuf\"");
}

struct forked {
	gdr_mh_t h;
	void *map;
};

/* A child has nothing of the context's. The number of the check that fails. */
static int forked_child(void *arg)
{
	const struct forked *f = arg;

	if (gdr_unpin_buffer(g, f->h) != EACCES || gdr_close(g) != EACCES)
		return 1;
	if (unit_touch(f->map, false) != SIGSEGV)
		return 2;
	/* A descriptor would hold the pins. */
	return node_descriptors() ? 3 : 0;
}

static void test_fork(void)
{
	struct forked f;
	int word = 1;

	node_open("2.6", unit_row ? "1" : "0");
	if (test_emulator_lacks("test_fork", "MADV_DONTFORK"))
		return;
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &f.h));
	OK(gdr_map(g, f.h, &f.map, MIB));
	ck_assert_int_eq(node_descriptors(), 1);
	ck_assert_int_eq(unit_in_child(forked_child, &f), 0);
	OK(gdr_copy_to_mapping(f.h, f.map, &word, 4));
	OK(gdr_unpin_buffer(g, f.h));
}

/*
 * A free revokes the pins of its memory, and each is counted once, when it is seen. An idle region
 * of a cache stays pinned until the cache learns of the free.
 */
static void test_revoked(void)
{
	barcopy_region_t used, idle;
	barcopy_cache_t cache;
	gdr_mh_t other;
	int flag;

	node_open("2.6", "0");
	cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &other));
	OK(barcopy_cache_get(cache, base, 8, &used));
	OK(barcopy_cache_get(cache, base + 2 * MIB, 8, &idle));
	OK(barcopy_cache_put(cache, &idle));
	FAILS(EINVAL, gdr_unpin_buffer(g, used.handle));
	FAILS_WITH(EINVAL, "barcopy_cache_put", gdr_unmap(g, used.handle, used.cpu_ptr, MIB));
	CU(cuda.cuMemFree_v2(base));
	ck_assert_uint_eq(stats_of(g).revoked, 0);
	for (int i = 0; i < 2; i++) {
		OK(gdr_get_callback_flag(g, used.handle, &flag));
		ck_assert_int_eq(flag, 1);
		ck_assert_uint_eq(stats_of(g).revoked, 1);
	}
	OK(gdr_get_callback_flag(g, other, &flag));
	ck_assert_uint_eq(stats_of(g).revoked, 2);
	OK(gdr_unpin_buffer(g, other));
	ck_assert_uint_eq(node.pins(), 2);
	OK(barcopy_cache_invalidate(cache, base, 4 * MIB));
	ck_assert_uint_eq(node.pins(), 1);
	OK(barcopy_cache_put(cache, &used));
	ck_assert_uint_eq(node.pins(), 0);
}

/* A reset of the device revokes the memory of a queue and of a port, whose handles are nobody's. */
static void test_revoked_queues(void)
{
	barcopy_port_message_t m;
	barcopy_queue_t queue;
	barcopy_port_t port;
	barcopy_mem_t mem;
	uint64_t own;
	uint32_t n;

	node_open("2.6", "0");
	OK(barcopy_queue_create(g, 0, NULL, &queue));
	OK(barcopy_port_create(g, 0, NULL, &port));
	OK(barcopy_mem_alloc(g, 0, 4096, 0, &mem));
	CU(cuda.cuDevicePrimaryCtxReset_v2(0));
	/* Another's handle, which the next numbers give. */
	own = mem.handle.h;
	for (mem.handle.h = own - 2; mem.handle.h < own; mem.handle.h++) {
		FAILS_WITH(EINVAL, "barcopy_port_destroy", barcopy_mem_free(g, &mem));
		FAILS_WITH(EINVAL, "barcopy_port_destroy", gdr_unpin_buffer(g, mem.handle));
	}
	OK(barcopy_mem_free(g, &mem));
	FAILS(EPIPE, barcopy_port_receive(port, &m, 1, &n, UINT64_MAX));
	OK(barcopy_port_destroy(port));
	OK(barcopy_queue_destroy(queue));
	ck_assert_uint_eq(node.pins(), 0);
}

/* What contexts take ends with them. */
static void test_contexts_and_the_heap(void)
{
	size_t used = 0;

	node_open("2.6", "1");
	for (int i = 0; i < 110; i++) {
		gdr_t more = gdr_open();

		ck_assert_ptr_nonnull(more);
		OK(gdr_close(more));
		if (i == 10)
			used = resources_heap();
	}
	ck_assert_uint_lt(resources_heap(), used + 1000);
}

/* ---- a call of the driver fails ---------------------------------------------- */

static void test_pin_errors(void)
{
	static const struct {
		const char *rule;
		int err;
	} cases[] = {
		{ "PIN_BUFFER_V2:*=EINVAL", EINVAL },	    { "PIN_BUFFER_V2:*=ENOMEM", ENOMEM },
		{ "PIN_BUFFER_V2:*=ENOSPC", ENOMEM },	    { "PIN_BUFFER_V2:*=EACCES", EACCES },
		{ "PIN_BUFFER_V2:*=EPERM", EACCES },	    { "PIN_BUFFER_V2:*=ENOTSUPP", ENOTSUP },
		{ "PIN_BUFFER_V2:*=EOPNOTSUPP", ENOTSUP },  { "PIN_BUFFER_V2:*=ENOTTY", ENOTSUP },
		{ "PIN_BUFFER_V2:*=ENODEV", ENODEV },	    { "PIN_BUFFER_V2:*=EFAULT", EIO },
		{ "PIN_BUFFER_V2:*=EOVERFLOW", EOVERFLOW }, { "GET_INFO_V2:*=EINVAL", EINVAL },
		{ "GET_INFO_V2:*=EACCES", EACCES },	    { "GET_INFO_V2:*=ENOMEM", ENOMEM },
		{ "GET_INFO:*=EACCES", EACCES }, /* 2.3 */
	};
	const char *level = strstr(cases[unit_row].rule, "INFO:") ? "2.3" : "2.6";
	gdr_mh_t h = { 42 };

	node_open_alone(level, "1");
	node.faults(cases[unit_row].rule);
	FAILS_WITH(cases[unit_row].err,
		   cases[unit_row].err == ENOMEM && cases[unit_row].rule[0] == 'P'
			   ? "no memory, or BAR1 is full"
			   : "",
		   gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_uint_eq(h.h, 42);
	ck_assert_uint_eq(node.pins(), 0);
	node.faults(NULL);
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	if (cases[unit_row].err == ENODEV || cases[unit_row].err == EIO ||
	    cases[unit_row].err == EOVERFLOW)
		return; /* these say less than the host backend's ENOTSUP */
	/* The host backend, which does not serve this memory, leaves the number as it is. */
	node_env("GDRCOPY_BACKEND", "gdrdrv,host");
	node_open(level, "1");
	node.faults(cases[unit_row].rule);
	FAILS(cases[unit_row].err, gdr_pin_buffer(g, base, MIB, 0, 0, &h));
}

/* A driver that says it pinned something else than it was asked for: more around it does no harm. */
static void test_pin_elsewhere(void)
{
	static const struct {
		const char *address, *size;
	} skews[] = { { "65536", "0" },	    { "-65536", "0" },	  { "512", "0" },  { "-512", "0" },
		      { "-4194304", "0" }, { "0", "-65536" }, { "0", "512" }, { "-65536", "131072" } };
	uint64_t va = base + 65536 + (uint64_t)atol(skews[unit_row].address);
	uint64_t size = MIB - 65536 + (uint64_t)atol(skews[unit_row].size);
	gdr_info_t info;
	char text[128];
	gdr_mh_t h;

	node_env("GDRSIM_NODE_SKEW", skews[unit_row].address);
	node_env("GDRSIM_NODE_SKEW_SIZE", skews[unit_row].size);
	node_open_alone("2.6", "1");
	if (unit_row == COUNT(skews) - 1) {
		OK(gdr_pin_buffer(g, base + 65536, MIB - 66560, 0, 0, &h));
		OK(gdr_get_info(g, h, &info));
		ck_assert(info.va == va && info.mapped_size == size);
		return;
	}
	snprintf(text, sizeof(text), "pinned 0x%lx + 0x%lx instead of 0x%lx + 0xefc00",
		 (unsigned long)va, (unsigned long)size, (unsigned long)base + 65536);
	FAILS_WITH(EIO, text, gdr_pin_buffer(g, base + 65536, MIB - 66560, 0, 0, &h));
	ck_assert_uint_eq(node.pins(), 0);
}

static void test_map_errors(void)
{
	static const struct {
		const char *rule;
		int err;
	} cases[] = {
		{ "MMAP:*=ENOMEM", ENOMEM },
		{ "MMAP:*=EINVAL", EINVAL },
		{ "MMAP:*=EACCES", EACCES },
		{ "MMAP:*=EAGAIN", EIO },
		{ "MMAP:*=EPERM", EACCES },
		{ "MMAP:*=ENOSPC", ENOMEM },
		{ "MADVISE:*=ENOMEM", ENOMEM },
		{ "MADVISE:*=EINVAL", ENOTSUP },
		{ "MMAP:*=REVOKE", EINVAL },
		{ "GET_INFO_V2:*=EINVAL", EINVAL },
		{ "REQ_MAPPING_TYPE:*=EINVAL", EINVAL },
		{ "REQ_MAPPING_TYPE:*=ENOTSUPP", ENOTSUP },
		{ "REQ_MAPPING_TYPE:*=EACCES", EACCES },
	};
	void *map = &g;
	gdr_mh_t h;

	node_open("2.6", "1");
	if (strstr(cases[unit_row].rule, "REVOKE") &&
	    test_emulator_lacks("test_map_errors, REVOKE",
				"a system call's read of a page beyond the end of its file"))
		return;
	OK(gdr_pin_buffer(g, base, 4 * MIB, 0, 0, &h));
	node.faults(cases[unit_row].rule);
	FAILS_WITH(cases[unit_row].err, cases[unit_row].rule[0] == 'R' ? "REQ_MAPPING_TYPE" : "",
		   gdr_map(g, h, &map, 4 * MIB));
	ck_assert_ptr_eq(map, &g);
	ck_assert_uint_eq(node.maps(), 0);
	node.faults(NULL);
	if (!strstr(cases[unit_row].rule, "REVOKE"))
		OK(gdr_map(g, h, &map, 4 * MIB));
}

/* A failing unpin is told, and the handle is gone all the same; close goes on to the end. */
static void test_unpin_errors(void)
{
	int fds, flag = 42;
	gdr_mh_t h[3];
	void *map;

	node_open("2.6", "1");
	for (int i = 0; i < 3; i++)
		OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h[i]));
	OK(gdr_map(g, h[2], &map, MIB));
	node.faults("GET_CB_FLAG:1=EINVAL,UNPIN_BUFFER:1=EINVAL,UNPIN_BUFFER:3=EACCES");
	FAILS(EINVAL, gdr_get_callback_flag(g, h[0], &flag));
	ck_assert_int_eq(flag, 42);
	FAILS(EINVAL, gdr_unpin_buffer(g, h[0]));
	FAILS(EINVAL, gdr_unpin_buffer(g, h[0]));
	ck_assert_uint_eq(node.calls("UNPIN_BUFFER"), 1);
	fds = resources_fds();
	FAILS(EACCES, gdr_close(g));
	ck_assert_uint_eq(node.calls("UNPIN_BUFFER"), 3);
	ck_assert_uint_eq(node.pins(), 0); /* the node's close took the rest */
	ck_assert_int_eq(resources_fds(), fds - 1);
	FAILS(EINVAL, gdr_close(g));
	g = NULL;
}

/* Every call is made again after a signal. */
static void test_interrupted(void)
{
	int flag;
	gdr_mh_t h;
	void *map;

	node.faults("OPEN:1=EINTR,GET_VERSION:1=EINTR,GET_ATTR:1=EINTR,PIN_BUFFER_V2:1=EINTR,"
		    "GET_INFO_V2:1=EINTR,REQ_MAPPING_TYPE:1=EINTR,GET_CB_FLAG:1=EINTR,"
		    "UNPIN_BUFFER:1=EINTR");
	node_open("2.6", "1");
	ck_assert_int_eq(attribute(GDR_ATTR_USE_PERSISTENT_MAPPING), 1);
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	OK(gdr_map(g, h, &map, MIB));
	OK(gdr_get_callback_flag(g, h, &flag));
	OK(gdr_unpin_buffer(g, h));
}

/* Handles are the driver's business: 0, and more than 32 bits. */
static void test_handles(void)
{
	static const char *const firsts[] = { "0", "0xfffffff8", "0x7fffffff00000" };

	node_env("GDRSIM_NODE_HANDLE", firsts[unit_row]);
	node_open("2.6", "1");
	for (int i = 0; i < 3; i++)
		node_use_range();
}

static void test_handle_without_offset(void)
{
	gdr_mh_t h;
	void *map;

	node_env("GDRSIM_NODE_HANDLE", "0x8000000000000");
	node_open("2.6", "1");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	FAILS(EOVERFLOW, gdr_map(g, h, &map, MIB));
}

static const struct unit_test tests[] = {
	{ "levels", test_levels, .rows = 14 },
	{ "not capable of RDMA", test_not_rdma_capable },
	{ "a level beside rm", test_level_beside_rm, "GDRSIM_RM=present" },
	{ "mapping types", test_mapping_types, .rows = 6 },
	{ "a request ends with its map", test_request_ends },
	{ "no type call", test_no_type_call },
	{ "pin flags", test_pin_flags },
	{ "unknown memory cached", test_unknown_memory_cached },
	{ "open refused", test_open_refused, .rows = 15 },
	{ "open refusals", test_open_refusals },
	{ "host memory", test_host_memory },
	{ "open attributes", test_open_attributes },
	{ "populate", test_populate, .rows = 3 },
	{ "no dma-buf", test_no_dmabuf },
	{ "fork", test_fork, .rows = 2 },
	{ "revoked", test_revoked },
	{ "revoked queues", test_revoked_queues },
	{ "contexts and the heap", test_contexts_and_the_heap },
	{ "pin errors", test_pin_errors, .rows = 15 },
	{ "pin elsewhere", test_pin_elsewhere, .rows = 8 },
	{ "map errors", test_map_errors, .rows = 13 },
	{ "unpin errors", test_unpin_errors },
	{ "interrupted", test_interrupted },
	{ "handles", test_handles, .rows = 3 },
	{ "handle without offset", test_handle_without_offset },
};

UNIT_MAIN("gdrdrv", tests, node_start(argv))
