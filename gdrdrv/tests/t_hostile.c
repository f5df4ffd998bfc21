// SPDX-License-Identifier: MIT
/* Requests that PIN_DMABUF must refuse: false buffers and false PCI functions. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

#include "rig.h"

#define SIZE (8 * GPU_PAGE)

/* The wrong piece is in the middle; a pin of the right ones before it is refused as well. */
static void refused(unsigned int kind)
{
	uint64_t va = gpu_alloc_flags(prov, SIZE, PROVIDER_SCATTER).va;
	int fd, ret;
	struct gdrdrv_ioc_pin_dmabuf arg = exported_arg(va, SIZE, kind, &fd);

	for (; arg.size; arg.size = arg.size == SIZE ? GPU_PAGE : 0) {
		ret = pin_dmabuf(drv, &arg);
		if (ret != -EINVAL)
			printf("# kind %u, %llu bytes: %d\n", kind, (unsigned long long)arg.size,
			       ret);
		CHECK_EQ(ret, -EINVAL);
		nothing_pinned();
	}
	close(fd);
	OK(gpu_free(prov, va));
}

static void t_addresses(void)
{
	unsigned int kind;

	for (kind = PROVIDER_BUF_BEFORE; kind < PROVIDER_BUF_EXPORTER; kind++)
		if (kind != PROVIDER_BUF_OTHER_BAR && kind != PROVIDER_BUF_CPU)
			refused(kind);
}

static void t_small_pieces(void)
{
	knob("seg_kib", 4);
	refused(PROVIDER_BUF_RAM);
	refused(PROVIDER_BUF_IOVA_RAM);
	refused(PROVIDER_BUF_ACROSS);
	refused(PROVIDER_BUF_SHORT);
	knob("seg_kib", 0);
}

static void t_exporter(void)
{
	refused(PROVIDER_BUF_EXPORTER);
	refused(PROVIDER_BUF_OWNER);
}

/* Buffers of the kernel's own exporters, if it has them. */
static void t_other_exporters(void)
{
	struct dma_heap_allocation_data from_heap = { .len = GPU_PAGE,
						      .fd_flags = O_RDWR | O_CLOEXEC };
	int heap = open("/dev/dma_heap/system", O_RDWR), udma = open("/dev/udmabuf", O_RDWR);
	int mem = memfd_create("m", MFD_ALLOW_SEALING), fds[2] = { -1, -1 }, i;
	struct udmabuf_create from_memory = { .memfd = (uint32_t)mem, .size = GPU_PAGE };
	struct provider_info info = gpu_info(prov);

	if (heap < 0 && udma < 0)
		SKIP("this kernel has neither udmabuf nor a heap");
	if (heap >= 0) {
		CHECK_EQ(ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &from_heap), 0);
		fds[0] = (int)from_heap.fd;
	}
	if (udma >= 0) {
		CHECK(!ftruncate(mem, GPU_PAGE) && !fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK));
		fds[1] = ioctl(udma, UDMABUF_CREATE, &from_memory);
		CHECK(fds[1] >= 0);
	}
	for (i = 0; i < 2; i++) {
		struct gdrdrv_ioc_pin_dmabuf arg = dmabuf_arg(&info, fds[i], 0, GPU_PAGE);

		if (fds[i] >= 0)
			FAILS(EINVAL, pin_dmabuf(drv, &arg));
	}
	nothing_pinned();
}

static void write_bdf(const char *driver, const char *file, const struct provider_info *info)
{
	char path[96], name[32];
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/%s/%s", driver, file);
	snprintf(name, sizeof(name), "%04x:%02x:%02x.%x", info->pci_domain, info->other_bus,
		 info->other_devfn >> 3, info->other_devfn & 7);
	fd = open(path, O_WRONLY);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, name, strlen(name)), strlen(name));
	close(fd);
}

/* Binds the machine's second function to @driver (NULL: to none), with this vendor and class. */
static void other_becomes(const struct provider_info *info, const char *was, const char *driver,
			  int vendor, int class)
{
	write_bdf(was, "unbind", info);
	if (!driver)
		return;
	knob("other_is_gpu", !strcmp(driver, "nvidia"));
	knob("other_vendor", vendor);
	knob("other_class", class);
	write_bdf(driver, "bind", info);
}

/* Exports memory for a pin that names the machine's second function. */
static struct gdrdrv_ioc_pin_dmabuf other_arg(const struct provider_info *info, uint64_t va,
					      uint64_t size, unsigned int kind)
{
	struct gdrdrv_ioc_pin_dmabuf arg;
	int fd;

	if (info->other_devfn == info->pci_devfn && info->other_bus == info->pci_bus)
		SKIP("the machine has one function");
	arg = exported_arg(va, size, kind, &fd);
	arg.pci_bus = info->other_bus;
	arg.pci_device = info->other_devfn >> 3;
	arg.pci_function = info->other_devfn & 7;
	return arg;
}

static void t_functions(void)
{
	uint64_t va = gpu_alloc_flags(prov, SIZE, PROVIDER_SCATTER).va;
	struct provider_info info = gpu_info(prov);
	struct gdrdrv_ioc_pin_dmabuf arg[2] = {
		other_arg(&info, va, SIZE, PROVIDER_BUF_GOOD),
		other_arg(&info, va, SIZE, PROVIDER_BUF_OTHER_BAR),
	};
	int i;

	/* Instance memory (here the second function's BAR) is not the frame buffer. */
	refused(PROVIDER_BUF_OTHER_BAR);
	for (i = 0; i < 2; i++) {
		/* Passed through to a virtual machine: not bound to the GPU driver. */
		FAILS(ENODEV, pin_dmabuf(drv, &arg[i]));
		other_becomes(&info, "vfio-pci", NULL, 0, 0);
		FAILS(ENODEV, pin_dmabuf(drv, &arg[i])); /* not bound */
		knob("other_is_gpu", 1);
		write_bdf("nvidia", "bind", &info);
		other_becomes(&info, "nvidia", "nvidia", 0x1af4, 0x302);
		FAILS(ENODEV, pin_dmabuf(drv, &arg[i])); /* another vendor's */
		other_becomes(&info, "nvidia", "nvidia", 0x10de, 0x403);
		FAILS(ENODEV, pin_dmabuf(drv, &arg[i])); /* a GPU's audio function */
		other_becomes(&info, "nvidia", "vfio-pci", 0x10de, 0x302);
	}
	nothing_pinned();
}

/* A buffer of one GPU and the address of another: the exporter refuses, or the BAR check does. */
static void t_other_gpu(void)
{
	struct provider_info info = gpu_info(prov);
	struct gdrdrv_ioc_pin_dmabuf arg =
		other_arg(&info, gpu_alloc(prov, GPU_PAGE), GPU_PAGE, PROVIDER_BUF_GOOD);
	int ret;

	other_becomes(&info, "vfio-pci", "nvidia", 0x10de, 0x302);
	knob("any_importer", 1);
	ret = pin_dmabuf(drv, &arg);
	knob("any_importer", 0);
	other_becomes(&info, "nvidia", "vfio-pci", 0x10de, 0x302);
	CHECK_EQ(ret, -EINVAL);
	nothing_pinned();
}

/* Bus addresses that differ from CPU addresses: the mapping must still show the right bytes. */
static void t_bridge_offset(void)
{
	static const int shifts[] = { 16, 64, 4096 }; /* MiB; the BAR has 64 */
	uint64_t va = gpu_alloc(prov, SIZE);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(shifts); i++) {
		struct gdrdrv_ioc_pin_dmabuf arg;
		volatile uint8_t *p;
		int fd, ret;

		knob("bridge_shift_mib", shifts[i]);
		arg = exported_arg(va, SIZE, PROVIDER_BUF_GOOD, &fd);
		ret = pin_dmabuf(drv, &arg);
		close(fd);
		/* An address that lies in both windows is ambiguous and refused. */
		if (shifts[i] >= 64 || !ret) {
			CHECK_EQ(ret, 0);
			p = must_map(drv, arg.handle, SIZE);
			p[5 * GPU_PAGE + 7] = (uint8_t)(0x70 + i);
			CHECK_EQ(gpu_byte(va + 5 * GPU_PAGE + 7), 0x70 + i);
			OK(unpin(drv, arg.handle));
			unmap(p, SIZE);
		} else {
			CHECK_EQ(ret, -EINVAL);
		}
		/* CPU addresses (mapping type FORCE_PCIE) are recognized and refused. */
		refused(PROVIDER_BUF_CPU);
	}
	knob("bridge_shift_mib", 0);
}

const struct test tests_hostile[] = {
	{ "hostile-addresses", t_addresses, BY_DMABUF, 40, 0 },
	{ "hostile-small-pieces", t_small_pieces, BY_DMABUF, 0, 0 },
	{ "hostile-exporter", t_exporter, BY_DMABUF, 0, 0 },
	{ "hostile-other-exporters", t_other_exporters, BY_DMABUF, 0, 0 },
	{ "hostile-functions", t_functions, BY_DMABUF, 0, 0 },
	{ "hostile-other-gpu", t_other_gpu, BY_DMABUF, 0, 0 },
	{ "hostile-bridge-offset", t_bridge_offset, BY_DMABUF, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
