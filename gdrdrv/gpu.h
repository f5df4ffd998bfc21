/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A GPU as a PCI function: its driver, its frame-buffer BAR, and the translation of DMA addresses
 * in that BAR to CPU addresses.
 *
 * Knows neither dma-buf, regions nor user space.
 */
#ifndef GDRDRV_GPU_H
#define GDRDRV_GPU_H

#include <linux/types.h>

struct module;
struct pci_dev;

/* Constant from get to put. */
struct gdrdrv_gpu {
	struct pci_dev *pdev; /* a reference */
	struct module *driver; /* only compared; no reference */
	phys_addr_t start; /* CPU address of the frame-buffer BAR */
	u64 bus; /* its bus address */
	u64 len;
};

int gdrdrv_gpu_get(struct gdrdrv_gpu *gpu, u32 domain, u8 bus, u8 devfn);
void gdrdrv_gpu_put(struct gdrdrv_gpu *gpu);
int gdrdrv_gpu_to_cpu(const struct gdrdrv_gpu *gpu, u64 addr, u64 len, phys_addr_t *phys);

#endif
