/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * One GPU as a PCI function: who drives it, where its frame-buffer BAR lies, and how an address
 * that its driver hands to peers becomes one of the CPU's.
 *
 * Must not know dma-buf, regions or users.
 */
#ifndef GDRDRV_GPU_H
#define GDRDRV_GPU_H

#include <linux/types.h>

struct module;
struct pci_dev;

/* Constant from get to put. */
struct gdrdrv_gpu {
	struct pci_dev *pdev; /* a reference */
	struct module *driver; /* for comparing only; no reference */
	phys_addr_t start; /* the frame-buffer BAR as the CPU sees it */
	u64 bus; /* and as its bus does */
	u64 len;
};

int gdrdrv_gpu_get(struct gdrdrv_gpu *gpu, u32 domain, u8 bus, u8 devfn);
void gdrdrv_gpu_put(struct gdrdrv_gpu *gpu);
int gdrdrv_gpu_to_cpu(const struct gdrdrv_gpu *gpu, u64 addr, u64 len, phys_addr_t *phys);

#endif
