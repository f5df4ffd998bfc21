// SPDX-License-Identifier: MIT
/*
 * The gdrdrv backend where pins go by dma-buf: which driver makes it so, what stays the same, what
 * is refused, and the texts of its failures.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/node.h"
#include "common/resources.h"

#define ADDRESS "1"
#define DMABUF	"2"
#define BOTH	"3"

/* A driver with these sources; of its own, one without pins by address wants a later library. */
static gdr_t open_with(const char *sources, const char *persistent)
{
	node_env("GDRSIM_NODE_SOURCES", sources);
	node_env("GDRSIM_NODE_MIN_API", !strcmp(sources, DMABUF) ? "2.7" : "2.0");
	return node_open("2.6", persistent);
}

/* By address where the driver can, also where it can both. */
START_TEST(test_address_first)
{
	static const char *const sources[] = { "0", ADDRESS, BOTH };
	uint64_t base;
	gdr_t g;

	g = open_with(sources[_i], "1");
	base = standin_alloc(MIB);
	node_use_range(g, base);
	ck_assert_uint_gt(node.calls("PIN_BUFFER_V2"), 0);
	ck_assert_uint_eq(node.calls("PIN_DMABUF"), 0);
	assert_ok(gdr_close(g));
}
END_TEST

/* A driver that has nothing else, or GDRCOPY_BACKEND: the same life of a range, no descriptor left. */
START_TEST(test_by_dmabuf)
{
	static const struct {
		const char *sources, *backend, *persistent;
	} cases[] = {
		{ DMABUF, NULL, "1" },
		{ DMABUF, "gdrdrv", "0" },
		{ DMABUF, "gdrdrv-dmabuf", "1" },
		{ BOTH, "gdrdrv-dmabuf", "1" },
		{ BOTH, "host,gdrdrv-dmabuf", "0" },
	};
	uint64_t base;
	int fds, value;
	gdr_t g;

	node_env("GDRCOPY_BACKEND", cases[_i].backend);
	g = open_with(cases[_i].sources, cases[_i].persistent);
	base = standin_alloc(MIB);
	node_use_range(g, base);
	/* The stand-in lets go of a closed buffer at its next export: one is left, however often. */
	fds = resources_fds();
	node_use_range(g, base);
	ck_assert_int_eq(resources_fds(), fds);
	ck_assert_uint_gt(node.calls("PIN_DMABUF"), 0);
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2") + node.calls("PIN_BUFFER"), 0);
	/* Whatever the driver says of its pins by address. */
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
	ck_assert_int_eq(value, 1);
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
	ck_assert_int_eq(value, 0);
	assert_ok(gdr_close(g));
}
END_TEST

/* A buffer that somebody hands over, whatever this driver's own pins go by. */
START_TEST(test_handed_over)
{
	static const struct {
		const char *sources;
		int device, err;
		const char *text;
	} cases[] = {
		{ DMABUF, 0, 0, NULL },
		{ BOTH, 0, 0, NULL },
		{ DMABUF, -1, ENOTSUP, "which GPU" },
		{ ADDRESS, 0, ENOTSUP, "takes no dma-buf" },
	};
	barcopy_mem_t mem;
	CUdeviceptr base;
	uint64_t word = 0x1122334455667788, seen = 0, persistent = 0;
	int fd;
	gdr_t g;

	node_env("GDRCOPY_BACKEND", "gdrdrv");
	g = open_with(cases[_i].sources, "0");
	base = standin_alloc(MIB);
	ck_assert_int_eq(cuda.cuMemGetHandleForAddressRange(&fd, base, MIB,
							    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
			 0);
	if (cases[_i].err) {
		ck_assert_int_eq(
			barcopy_mem_import(g, cases[_i].device, fd, MIB, BARCOPY_MEM_DMABUF, &mem),
			cases[_i].err);
		assert_text(cases[_i].text);
	} else {
		assert_ok(barcopy_mem_import(g, 0, fd, MIB, BARCOPY_MEM_DMABUF, &mem));
		ck_assert_uint_eq(mem.device_ptr, 0);
		assert_ok(gdr_copy_to_mapping(mem.handle, (char *)mem.cpu_ptr + MIB - 8, &word, 8));
		ck_assert_int_eq(cuda.cuMemcpyDtoH_v2(&seen, base + MIB - 8, 8), 0);
		ck_assert_uint_eq(seen, word);
		assert_ok(barcopy_get_handle_attribute(
			g, mem.handle, BARCOPY_HANDLE_ATTR_PERSISTENT, &persistent));
		ck_assert_uint_eq(persistent, 1);
		assert_ok(barcopy_mem_free(g, &mem));
	}
	ck_assert_uint_eq(node.pins(), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC); /* still the caller's */
	close(fd);
	assert_ok(gdr_close(g));
}
END_TEST

/* Freed memory stays until the unpin. */
START_TEST(test_persistent)
{
	uint64_t base;
	gdr_mh_t h;
	void *map;
	int flag;
	gdr_t g;

	g = open_with(DMABUF, "1");
	base = standin_alloc(MIB);
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	assert_ok(gdr_map(g, h, &map, MIB));
	((volatile char *)map)[MIB - 1] = 0x35;
	ck_assert_int_eq(cuda.cuMemFree_v2(base), 0);
	ck_assert_int_eq(((volatile char *)map)[MIB - 1], 0x35);
	assert_ok(gdr_get_callback_flag(g, h, &flag));
	ck_assert_int_eq(flag, 0);
	assert_ok(gdr_unmap(g, h, map, MIB));
	assert_ok(gdr_unpin_buffer(g, h));
	ck_assert_uint_eq(node.pins(), 0);
	assert_ok(gdr_close(g));
}
END_TEST

/* A driver that makes all entries of a mapping in one call is asked to; what fails is done by touch. */
START_TEST(test_populate)
{
	static const struct {
		const char *sources, *rules;
	} cases[] = {
		{ BOTH, NULL },
		{ BOTH, "POPULATE:*=ENOMEM" },
		{ "0", NULL }, /* another driver: ENOTTY */
	};
	uint64_t base;
	gdr_mh_t h;
	void *p;
	gdr_t g;

	g = open_with(cases[_i].sources, "1");
	base = standin_alloc(MIB);
	node.faults(cases[_i].rules);
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_uint_eq(node.calls("POPULATE"), 0);
	assert_ok(gdr_map(g, h, &p, MIB));
	ck_assert_uint_eq(node.calls("POPULATE"), 1);
	((volatile char *)p)[MIB - 1] = 1;
	node.faults(NULL);
	assert_ok(gdr_close(g));
}
END_TEST

START_TEST(test_open_refused)
{
	static const struct {
		const char *sources, *min_api, *backend, *rules;
		int err;
		const char *text;
	} cases[] = {
		{ "0", "2.0", "gdrdrv-dmabuf", NULL, ENODEV, "cannot pin by dma-buf" },
		{ ADDRESS, "2.0", "gdrdrv-dmabuf", NULL, ENODEV, "cannot pin by dma-buf" },
		{ BOTH, "2.0", "gdrdrv-dmabuf", "GET_ATTR:*=ENOTTY", ENODEV,
		  "cannot pin by dma-buf" },
		{ "0", "2.7", "gdrdrv", NULL, EINVAL, "wants a libgdrapi of 2.7" },
		{ BOTH, "2.7", "gdrdrv", NULL, EINVAL, "wants a libgdrapi of 2.7" },
		{ DMABUF, "2.7", "gdrdrv", "GET_ATTR:*=EINVAL", EINVAL,
		  "wants a libgdrapi of 2.7" },
		{ BOTH, "2.0", "gdrdrv,gdrdrv-dmabuf", NULL, EINVAL, "twice" },
		{ BOTH, "2.0", "gdrdrv-dmabuf,gdrdrv", NULL, EINVAL, "twice" },
		{ BOTH, "2.0", "gdrdrv-dmabu", NULL, EINVAL, "names no backend" },
	};
	int fds;

	node_env("GDRSIM_NODE_SOURCES", cases[_i].sources);
	node_env("GDRSIM_NODE_MIN_API", cases[_i].min_api);
	node_env("GDRCOPY_BACKEND", cases[_i].backend);
	node.faults(cases[_i].rules);
	fds = resources_fds();
	errno = 0;
	ck_assert_ptr_null(gdr_open());
	ck_assert_int_eq(errno, cases[_i].err);
	assert_text(cases[_i].text);
	ck_assert_int_eq(resources_fds(), fds);
}
END_TEST

START_TEST(test_pin_refused)
{
	static const struct {
		const char *node, *cuda;
		int err;
		const char *text;
	} cases[] = {
		{ "PIN_DMABUF:*=ENOMEM", NULL, ENOMEM, "BAR1 is full" },
		{ "PIN_DMABUF:*=ENOSPC", NULL, ENOMEM, "BAR1 is full" },
		{ "PIN_DMABUF:*=ENODEV", NULL, ENODEV, "0000:21:00.0 is not a GPU" },
		{ "PIN_DMABUF:*=EINVAL", NULL, ENOTSUP, "does not lie in the BAR" },
		{ "PIN_DMABUF:*=EBADF", NULL, EIO, "PIN_DMABUF" },
		{ "PIN_DMABUF:*=EACCES", NULL, EACCES, "PIN_DMABUF" },
		{ "PIN_DMABUF:*=ENOTTY", NULL, ENOTSUP, "PIN_DMABUF" },
		{ "PIN_DMABUF:*=ENOTSUPP", NULL, ENOTSUP, "PIN_DMABUF" },
		{ "GET_INFO_V2:*=EINVAL", NULL, EINVAL, "GET_INFO" },
		{ NULL, "cuDeviceGetPCIBusId:*=1", EINVAL, "cuDeviceGetPCIBusId" },
		{ NULL, "cuMemGetHandleForAddressRange:*=801", ENOTSUP,
		  "cuMemGetHandleForAddressRange" },
		{ NULL, "cuMemGetHandleForAddressRange:*=2", ENOMEM,
		  "cuMemGetHandleForAddressRange" },
	};
	gdr_mh_t h = { 42 };
	uint64_t base;
	int fds;
	gdr_t g;

	node_env("GDRCOPY_BACKEND", "gdrdrv-dmabuf");
	g = open_with(BOTH, "1");
	base = standin_alloc(MIB);
	node.faults(cases[_i].node);
	cuda_hooks.set_fail(cases[_i].cuda);
	ck_assert_int_eq(gdr_pin_buffer(g, base, MIB, 0, 0, &h), cases[_i].err);
	assert_text(cases[_i].text);
	ck_assert_uint_eq(h.h, 42);
	ck_assert_uint_eq(node.pins(), 0);
	fds = resources_fds();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(gdr_pin_buffer(g, base, MIB, 0, 0, &h), cases[_i].err);
	ck_assert_int_eq(resources_fds(), fds);
	node.faults(NULL);
	cuda_hooks.set_fail(NULL);
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	assert_ok(gdr_close(g));
	ck_assert_uint_eq(node.pins(), 0);
}
END_TEST

/* What a driver by address would judge for itself is refused before it is asked. */
START_TEST(test_memory_refused)
{
	static char host[4096];
	gdr_mh_t h = { 42 };
	uint64_t base;
	gdr_t g;

	node_env("GDRCOPY_BACKEND", "gdrdrv-dmabuf");
	g = open_with(BOTH, "1");
	base = standin_alloc(MIB);
	ck_assert_int_eq(gdr_pin_buffer(g, (uintptr_t)host, sizeof(host), 0, 0, &h), EINVAL);
	assert_text("does not know this address");
	ck_assert_int_eq(gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h), EINVAL);
	ck_assert_uint_eq(node.calls("PIN_DMABUF"), 0);
	ck_assert_uint_eq(h.h, 42);
	assert_ok(gdr_pin_buffer(g, base, MIB, 77, 1, &h)); /* tokens are dropped */
	assert_ok(gdr_close(g));
}
END_TEST

static void write_file(const char *dir, const char *name, const char *text)
{
	char path[512];
	size_t i;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	for (i = strlen(dir) + 1; path[i]; i++) {
		if (path[i] != '/')
			continue;
		path[i] = '\0';
		mkdir(path, 0700);
		path[i] = '/';
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* The fault of GPU drivers before 580 behind a translating IOMMU has a text of its own. */
START_TEST(test_iommu_text)
{
	static const struct {
		const char *version, *type, *kernel;
		size_t size;
		int err;
	} cases[] = {
		{ "570.124.06\n", "DMA\n", "6.1.0-56-amd64", MIB, ENOTSUP },
		{ "535.216.01\n", "DMA-FQ\n", "5.10.0", MIB, ENOTSUP },
		{ "570.124.06\n", "DMA-FQ\n", "6.11.9", 2 * GPU_PAGE_SIZE, ENOTSUP },
		{ "570.124.06\n", "DMA\n", "6.1.0-56-amd64", GPU_PAGE_SIZE, ENOMEM },
		{ "580.95.05\n", "DMA\n", "6.1.0-56-amd64", MIB, ENOMEM },
		{ "570.124.06\n", "identity\n", "6.1.0-56-amd64", MIB, ENOMEM },
		{ "570.124.06\n", "DMA\n", "6.12.0", MIB, ENOMEM },
		{ "570.124.06\n", "DMA\n", "7.0.1", MIB, ENOMEM },
		{ "", "DMA\n", "6.1.0", MIB, ENOMEM },
		{ "570.124.06\n", "", "6.1.0", MIB, ENOMEM },
	};
	char dir[] = "/tmp/gdrsim-sys-XXXXXX", command[64];
	gdr_mh_t h = { 42 };
	uint64_t base;
	gdr_t g;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	write_file(dir, "module/nvidia/version", cases[_i].version);
	write_file(dir, "bus/pci/devices/0000:21:00.0/iommu_group/type", cases[_i].type);
	node_env("GDRSIM_SYS", dir);
	node_env("GDRSIM_KERNEL", cases[_i].kernel);
	g = open_with(DMABUF, "1");
	base = standin_alloc(2 * MIB);
	node.faults("PIN_DMABUF:*=ENOMEM");
	node_env("GDRCOPY_BACKEND", NULL);
	ck_assert_int_eq(gdr_pin_buffer(g, base, cases[_i].size, 0, 0, &h), cases[_i].err);
	assert_text(cases[_i].err == ENOTSUP ? "behind a translating IOMMU" : "BAR1 is full");
	assert_ok(gdr_close(g));
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_loop_test(tc, test_address_first, 0, 3);
	tcase_add_loop_test(tc, test_by_dmabuf, 0, 5);
	tcase_add_loop_test(tc, test_handed_over, 0, 4);
	tcase_add_loop_test(tc, test_populate, 0, 3);
	tcase_add_test(tc, test_persistent);
	tcase_add_loop_test(tc, test_open_refused, 0, 9);
	tcase_add_loop_test(tc, test_pin_refused, 0, 12);
	tcase_add_test(tc, test_memory_refused);
	tcase_add_loop_test(tc, test_iommu_text, 0, 10);
}

int main(int argc, char **argv)
{
	(void)argc;
	return node_main(argv, "gdrdrv by dma-buf", add_tests);
}
