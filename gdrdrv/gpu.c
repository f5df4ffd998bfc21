// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A PCI function that a caller names, and what may be believed of it: see gpu.h.
 *
 * Nothing here trusts the caller. The function must be a display or 3D controller of the vendor
 * and bound to the GPU's driver; an address is accepted only if all of it lies in the frame-buffer
 * BAR of that function.
 */
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/sizes.h>

#include "compat.h"
#include "gpu.h"

/* The name under which the GPU driver registers with PCI. vfio-pci and others are refused. */
#define GDRDRV_GPU_DRIVER "nvidia"

static bool gdrdrv_gpu_is_gpu(const struct pci_dev *pdev)
{
	u32 class = pdev->class >> 8;

	return pdev->vendor == PCI_VENDOR_ID_NVIDIA &&
	       (class == PCI_CLASS_DISPLAY_VGA || class == PCI_CLASS_DISPLAY_3D);
}

/*
 * The module that drives the function: -ENODEV when it is not the GPU driver, or none. The GPU
 * driver is unbound with this lock held, and waits there until no buffer of it is left: whoever
 * waits for the lock must be able to die, because the buffers may be its own.
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
 * The frame buffer is the GPU's second BAR: resource 1, or 2 where the first BAR is a 64-bit one
 * and takes two registers (as the GPU driver itself counts: nv_bar_index_to_os_bar_index() of
 * open-gpu-kernel-modules 580). Not "the prefetchable one": instance memory is prefetchable too.
 */
static int gdrdrv_gpu_bar(const struct pci_dev *pdev)
{
	return pci_resource_flags(pdev, 0) & IORESOURCE_MEM_64 ? 2 : 1;
}

/* Whether all of [addr, addr + len) lies in [start, start + size). Wraps nowhere. */
static bool gdrdrv_gpu_within(u64 addr, u64 len, u64 start, u64 size)
{
	return addr >= start && len <= size && addr - start <= size - len;
}

/**
 * gdrdrv_gpu_get() - the GPU at a PCI address
 * @gpu: filled in
 * @domain: of the address
 * @bus: likewise
 * @devfn: likewise
 *
 * The function is held, its binding is not: that is the business of what the GPU driver exported.
 *
 * Context: may sleep; takes the device's lock for a moment.
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

/* An IOVA's bytes: @phys is where the first lies; all of it must be in one piece. */
static int gdrdrv_gpu_check_iova(const struct gdrdrv_gpu *gpu, u64 addr, u64 len, phys_addr_t phys)
{
	u64 off;

	/* In steps of the smallest IOMMU page, which may be smaller than ours. */
	for (off = SZ_4K; off < len; off += SZ_4K) {
		if (gdrdrv_iova_to_phys(&gpu->pdev->dev, addr + off) != phys + off)
			return -EINVAL;
		if (!(off & (SZ_2M - 1)))
			cond_resched();
	}
	return 0;
}

/**
 * gdrdrv_gpu_to_cpu() - where the CPU finds what a peer of the GPU was told
 * @gpu: the GPU
 * @addr: what its driver handed out: an IOVA of the GPU's own domain, or an address on its bus
 * @len: bytes
 * @phys: set on success
 *
 * The two cannot be mixed up: the IOMMU core keeps the windows of PCI bridges out of the IOVA
 * space (iova_reserve_pci_windows()), so an address that the domain translates is none of the
 * bus. With the mapping type FORCE_PCIE the GPU driver hands out addresses of the CPU. Where those
 * are the same as the bus's nothing is to be told apart; where they are not, they are refused.
 *
 * Return: 0, or -EINVAL when any byte of it is outside the frame-buffer BAR.
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
