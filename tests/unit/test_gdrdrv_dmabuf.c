// SPDX-License-Identifier: MIT
/*
 * The gdrdrv backend where pins go by dma-buf: which driver makes it so, what stays the same, what
 * is refused, and the texts of its failures.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "abi/gdrdrv.h"
#include "node_sim.h"

#define ADDRESS "1"
#define DMABUF	"2"
#define BOTH	"3"

/* A driver with these sources; of its own, one without pins by address wants a later library. */
static void open_with(const char *sources, const char *persistent)
{
	node_env("GDRSIM_NODE_SOURCES", sources);
	node_env("GDRSIM_NODE_MIN_API", !strcmp(sources, DMABUF) ? "2.7" : "2.0");
	node_open("2.6", persistent);
}

/* By address where the driver can, also where it can both. */
static void test_address_first(void)
{
	static const char *const sources[] = { "0", ADDRESS, BOTH };

	open_with(sources[unit_row], "1");
	node_use_range();
	ck_assert_uint_gt(node.calls("PIN_BUFFER_V2"), 0);
	ck_assert_uint_eq(node.calls("PIN_DMABUF"), 0);
}

/* The driver has nothing else, or GDRCOPY_BACKEND asks: a range works, no descriptor is left. */
static void test_by_dmabuf(void)
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
	int fds;

	node_env("GDRCOPY_BACKEND", cases[unit_row].backend);
	open_with(cases[unit_row].sources, cases[unit_row].persistent);
	node_use_range();
	/* The stand-in closes a buffer's descriptor at its next export: one is always left. */
	fds = resources_fds();
	node_use_range();
	ck_assert_int_eq(resources_fds(), fds);
	ck_assert_uint_gt(node.calls("PIN_DMABUF"), 0);
	ck_assert_uint_eq(node.calls("PIN_BUFFER_V2") + node.calls("PIN_BUFFER"), 0);
	/* Whatever the driver says of its pins by address. */
	ck_assert_int_eq(attribute(GDR_ATTR_USE_PERSISTENT_MAPPING), 1);
	ck_assert_int_eq(attribute(GDR_ATTR_USING_DMA_BUF_MMAP), 0);
}

static int in_child = -1; /* has a child of fork() in PIN_DMABUF the dma-buf's descriptor? */

/* Before the stand-in's, which it calls. */
int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, ...);
	va_list ap;
	void *data;

	va_start(ap, request);
	data = va_arg(ap, void *);
	va_end(ap);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "ioctl");
	if (request == GDRDRV_IOC_PIN_DMABUF) {
		int buffer = ((struct gdrdrv_pin_dmabuf *)data)->fd, status;
		pid_t pid = fork();

		if (!pid)
			_exit(fcntl(buffer, F_GETFD) >= 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		in_child = WEXITSTATUS(status);
	}
	return next(fd, request, data);
}

/* It would keep the parent's memory after the unpin. */
static void test_forked_child(void)
{
	open_with(DMABUF, "1");
	node_use_range();
	ck_assert_int_eq(in_child, 0);
}

/* The caller imports a dma-buf, by whatever means this driver pins its own memory. */
static void test_handed_over(void)
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
	const barcopy_copy_options_t engine = { .struct_size = sizeof(engine),
						.engine_read_min = 1 };
	barcopy_mem_t mem;
	uint64_t word = 0x1122334455667788, seen = 0;
	int fd;

	node_env("GDRCOPY_BACKEND", "gdrdrv");
	open_with(cases[unit_row].sources, "0");
	CU(cuda.cuMemGetHandleForAddressRange(&fd, base, MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					      0));
	if (cases[unit_row].err) {
		FAILS(cases[unit_row].err, barcopy_mem_import(g, cases[unit_row].device, fd, MIB,
							      BARCOPY_MEM_DMABUF, &mem));
		SAYS(cases[unit_row].text);
	} else {
		OK(barcopy_mem_import(g, 0, fd, MIB, BARCOPY_MEM_DMABUF, &mem));
		ck_assert_uint_eq(mem.device_ptr, 0);
		OK(gdr_copy_to_mapping(mem.handle, (char *)mem.cpu_ptr + MIB - 8, &word, 8));
		CU(cuda.cuMemcpyDtoH_v2(&seen, base + MIB - 8, 8));
		ck_assert_uint_eq(seen, word);
		HANDLE_HAS(g, mem.handle, PERSISTENT, 1);
		FAILS(ENOTSUP, barcopy_set_copy_options(mem.handle, &engine));
		SAYS("no device address");
		OK(barcopy_mem_free(g, &mem));
	}
	ck_assert_uint_eq(node.pins(), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC); /* still the caller's */
	close(fd);
}

/* The library asks the driver to fill the page table; where that fails, faults do. */
static void test_populate(void)
{
	static const struct {
		const char *sources, *rules;
	} cases[] = {
		{ BOTH, NULL },
		{ BOTH, "POPULATE:*=ENOMEM" },
		{ "0", NULL }, /* another driver: ENOTTY */
	};
	gdr_mh_t h;
	void *p;

	open_with(cases[unit_row].sources, "1");
	node.faults(cases[unit_row].rules);
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_uint_eq(node.calls("POPULATE"), 0);
	OK(gdr_map(g, h, &p, MIB));
	ck_assert_uint_eq(node.calls("POPULATE"), 1);
	((volatile char *)p)[MIB - 1] = 1;
	node.faults(NULL);
}

static void test_open_refused(void)
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
		{ BOTH, "2.0", "gdrdrv-dmabu", NULL, EINVAL, "no such backend: \"gdrdrv-dmabu\"" },
	};

	node_env("GDRSIM_NODE_SOURCES", cases[unit_row].sources);
	node_env("GDRSIM_NODE_MIN_API", cases[unit_row].min_api);
	node_env("GDRCOPY_BACKEND", cases[unit_row].backend);
	node.faults(cases[unit_row].rules);
	node_refuses(cases[unit_row].err, cases[unit_row].text);
}

static void test_pin_refused(void)
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
	int fds;

	node_env("GDRCOPY_BACKEND", "gdrdrv-dmabuf");
	open_with(BOTH, "1");
	node.faults(cases[unit_row].node);
	cuda_hooks.set_fail(cases[unit_row].cuda);
	FAILS(cases[unit_row].err, gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	SAYS(cases[unit_row].text);
	ck_assert_uint_eq(h.h, 42);
	ck_assert_uint_eq(node.pins(), 0);
	fds = resources_fds();
	for (int i = 0; i < 3; i++)
		FAILS(cases[unit_row].err, gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_int_eq(resources_fds(), fds);
	node.faults(NULL);
	cuda_hooks.set_fail(NULL);
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
}

/* Memory that a driver by address would check itself is refused before the driver is asked. */
static void test_memory_refused(void)
{
	static char host[4096];
	gdr_mh_t h = { 42 };

	node_env("GDRCOPY_BACKEND", "gdrdrv-dmabuf");
	open_with(BOTH, "1");
	FAILS_WITH(EINVAL, "does not know this address",
		   gdr_pin_buffer(g, (uintptr_t)host, sizeof(host), 0, 0, &h));
	FAILS(EINVAL, gdr_pin_buffer_v2(g, base, MIB, GDR_PIN_FLAG_FORCE_PCIE, &h));
	ck_assert_uint_eq(node.calls("PIN_DMABUF"), 0);
	ck_assert_uint_eq(h.h, 42);
	OK(gdr_pin_buffer(g, base, MIB, 77, 1, &h)); /* tokens are dropped */
}

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
static void test_iommu_text(void)
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
	char dir[UNIT_DIR];
	gdr_mh_t h = { 42 };

	unit_temp_dir(dir);
	write_file(dir, "module/nvidia/version", cases[unit_row].version);
	write_file(dir, "bus/pci/devices/0000:21:00.0/iommu_group/type", cases[unit_row].type);
	node_env("GDRSIM_SYS", dir);
	node_env("GDRSIM_KERNEL", cases[unit_row].kernel);
	open_with(DMABUF, "1");
	node.faults("PIN_DMABUF:*=ENOMEM");
	node_env("GDRCOPY_BACKEND", NULL);
	FAILS(cases[unit_row].err, gdr_pin_buffer(g, base, cases[unit_row].size, 0, 0, &h));
	SAYS(cases[unit_row].err == ENOTSUP ? "behind a translating IOMMU" : "BAR1 is full");
	unit_remove_dir(dir);
}

static const struct unit_test tests[] = {
	{ "address first", test_address_first, .rows = 3 },
	{ "by dmabuf", test_by_dmabuf, .rows = 5 },
	{ "by PCI address", test_by_dmabuf, "GDRSIM_PCI_DOMAIN=3 GDRSIM_PCI_DEVICE=5" },
	{ "a forked child has no dma-buf", test_forked_child },
	{ "handed over", test_handed_over, .rows = 4 },
	{ "populate", test_populate, .rows = 3 },
	{ "open refused", test_open_refused, .rows = 9 },
	{ "pin refused", test_pin_refused, .rows = 12 },
	{ "memory refused", test_memory_refused },
	{ "iommu text", test_iommu_text, .rows = 10 },
};

UNIT_MAIN("gdrdrv by dma-buf", tests, node_start(argv))
