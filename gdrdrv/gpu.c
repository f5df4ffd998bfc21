// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Checks of a PCI function that a caller names, and of addresses in its BAR: see gpu.h.
 *
 * The caller is not trusted. The function must be a display or 3D controller of the vendor and
 * bound to the GPU driver. An address range is accepted only if it lies in the frame-buffer BAR of
 * that function.
 */
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/sizes.h>

#include "compat.h"
#include "gpu.h"

/* The GPU driver's name on the PCI bus. Functions of vfio-pci and other drivers are refused. */
#define GDRDRV_GPU_DRIVER "nvidia"

static bool gdrdrv_gpu_is_gpu(const struct pci_dev *pdev)
{
	u32 class = pdev->class >> 8;

	return pdev->vendor == PCI_VENDOR_ID_NVIDIA &&
	       (class == PCI_CLASS_DISPLAY_VGA || class == PCI_CLASS_DISPLAY_3D);
}

/*
 * Sets gpu->driver, or returns -ENODEV if the function is not bound to the GPU driver. The wait for
 * the device lock can be interrupted: an unbind of the GPU driver holds that lock until all of its
 * buffers are gone, and the caller may own one of them.
 */
static int gdrdrv_gpu_find_driver(struct gdrdrv_gpu *gpu, struct pci_dev *pdev)
{
	const struct device_driver *driver;

	if (device_lock_interruptible(&pdev->dev))
		return -ERESTARTSYS;
	driver = pdev->dev.driver;
	gpu->driver = NULL;
	if (driver && !strcmp(driver->name, GDRDRV_GPU_DRIVER))
		gpu->driver = driver->owner;
	device_unlock(&pdev->dev);
	return gpu->driver ? 0 : -ENODEV;
}

/*
 * Returns the resource of the frame buffer, the GPU's second BAR: 2 if the first BAR is a 64-bit
 * one and takes two registers, else 1 (as nv_bar_index_to_os_bar_index() of open-gpu-kernel-modules
 * 580). The prefetchable flag does not identify it, because the BAR of instance memory has that
 * flag too.
 */
static int gdrdrv_gpu_bar(const struct pci_dev *pdev)
{
	return pci_resource_flags(pdev, 0) & IORESOURCE_MEM_64 ? 2 : 1;
}

/* Whether [addr, addr + len) lies in [start, start + size). No sum is formed that could wrap. */
static bool gdrdrv_gpu_within(u64 addr, u64 len, u64 start, u64 size)
{
	return addr >= start && len <= size && addr - start <= size - len;
}

/**
 * gdrdrv_gpu_get() - look up the GPU at a PCI address
 * @gpu: filled in on success
 * @domain: PCI domain
 * @bus: bus in the domain
 * @devfn: device and function on the bus
 *
 * Takes a reference to the PCI function. Does not keep the GPU driver bound: an exported buffer
 * does.
 *
 * Context: may sleep; takes the device lock briefly.
 * Return: 0; -ENODEV (no such function, not a GPU, not bound to the GPU driver, no frame-buffer
 * BAR), -ERESTARTSYS.
 */
int gdrdrv_gpu_get(struct gdrdrv_gpu *gpu, u32 domain, u8 bus, u8 devfn)
{
	struct pci_dev *pdev;
	int bar, ret = -ENODEV;

	if (domain > INT_MAX)
		return -ENODEV;
	pdev = pci_get_domain_bus_and_slot(domain, bus, devfn);
	if (!pdev)
		return -ENODEV;
	if (!gdrdrv_gpu_is_gpu(pdev))
		goto err_put;
	ret = gdrdrv_gpu_find_driver(gpu, pdev);
	if (ret)
		goto err_put;
	bar = gdrdrv_gpu_bar(pdev);
	ret = -ENODEV;
	if (!(pci_resource_flags(pdev, bar) & IORESOURCE_MEM) || !pci_resource_len(pdev, bar))
		goto err_put;
	gpu->pdev = pdev;
	gpu->start = pci_resource_start(pdev, bar);
	gpu->len = pci_resource_len(pdev, bar);
	gpu->bus = pci_bus_address(pdev, bar);
	return 0;

err_put:
	pci_dev_put(pdev);
	return ret;
}

void gdrdrv_gpu_put(struct gdrdrv_gpu *gpu)
{
	pci_dev_put(gpu->pdev);
}

/* Checks that [addr, addr + len), an IOVA range, is contiguous from @phys on. */
static int gdrdrv_gpu_check_iova(const struct gdrdrv_gpu *gpu, u64 addr, u64 len, phys_addr_t phys)
{
	u64 off;

	/* In steps of the smallest IOMMU page, which may be smaller than PAGE_SIZE. */
	for (off = SZ_4K; off < len; off += SZ_4K) {
		if (gdrdrv_iova_to_phys(&gpu->pdev->dev, addr + off) != phys + off)
			return -EINVAL;
		if (!(off & (SZ_2M - 1)))
			cond_resched();
	}
	return 0;
}

/**
 * gdrdrv_gpu_to_cpu() - translate a DMA address in the frame-buffer BAR to a CPU physical address
 * @gpu: the GPU
 * @addr: from the GPU driver: an IOVA of the GPU's IOMMU domain, or a bus address
 * @len: bytes
 * @phys: set on success
 *
 * An address that the domain translates is an IOVA and not a bus address, because the IOMMU core
 * keeps the windows of PCI bridges out of the IOVA space (iova_reserve_pci_windows()). For the
 * mapping type FORCE_PCIE the GPU driver returns CPU addresses. They are accepted where they equal
 * bus addresses and refused where the two differ.
 *
 * Return: 0, or -EINVAL if any byte lies outside the frame-buffer BAR.
 */
int gdrdrv_gpu_to_cpu(const struct gdrdrv_gpu *gpu, u64 addr, u64 len, phys_addr_t *phys)
{
	phys_addr_t at;
	u64 end;

	if (!len || !PAGE_ALIGNED(addr) || !PAGE_ALIGNED(len) ||
	    check_add_overflow(addr, len, &end))
		return -EINVAL;
	if (gpu->bus != gpu->start && addr < gpu->start + gpu->len && gpu->start < end)
		return -EINVAL;
	at = gdrdrv_iova_to_phys(&gpu->pdev->dev, addr);
	if (at) {
		if (!PAGE_ALIGNED(at) || gdrdrv_gpu_check_iova(gpu, addr, len, at))
			return -EINVAL;
	} else if (gdrdrv_gpu_within(addr, len, gpu->bus, gpu->len)) {
		at = gpu->start + (addr - gpu->bus);
	} else {
		return -EINVAL;
	}
	if (!gdrdrv_gpu_within(at, len, gpu->start, gpu->len))
		return -EINVAL;
	*phys = at;
	return 0;
}
