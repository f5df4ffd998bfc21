/* SPDX-License-Identifier: MIT */
/*
 * The PCI functions that matter here, as /sys/bus/pci/devices shows them: NVIDIA GPUs, network and
 * NVMe devices, and the bridges above those. It must not know what their places mean.
 */
#ifndef DOCTOR_PCI_H
#define DOCTOR_PCI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "doctor/root.h"

#define PCI_CONFIG 4096 /* bytes of an Express function's configuration space */
#define PCI_DEPTH  24 /* bridges above a function that are looked at */

enum pci_kind { PCI_GPU, PCI_NIC, PCI_NVME, PCI_BRIDGE };

struct pci_dev {
	char addr[16]; /* "0000:17:00.0" */
	enum pci_kind kind;
	uint16_t vendor, device;
	uint32_t class; /* 24 bits: class, subclass, interface */
	int numa; /* -1: the firmware does not tell */
	bool virtual; /* a virtual function of another */
	char driver[32]; /* bound to it; "" if none */
	char label[64]; /* "mlx5_0", "eth0", "nvme0"; "" if none */
	int group; /* number of its IOMMU group; -1: none */
	char group_type[16]; /* "identity", "DMA"; "" if not known; filled in by iommu.c */
	/* from the top: "pci0000:00", then each bridge, then the function itself */
	char place[PCI_DEPTH][16];
	int depth; /* entries of place; 0: the path is not that of a PCI device */
	uint8_t *config;
	int config_size; /* bytes that could be read (64 without privileges), or -errno */
	unsigned long long bar_start[6], bar_end[6]; /* inclusive; 0, 0: none */
	unsigned long long bar_flags[6];
};

struct pci {
	int error; /* errno of listing the devices; 0 */
	struct pci_dev *dev;
	size_t count;
	size_t total; /* functions of any kind */
};

void pci_collect(struct pci *pci, struct root *root);
void pci_free(struct pci *pci);

const struct pci_dev *pci_find(const struct pci *pci, const char *addr);

/* The region of BAR1: 2 where BAR0 takes two slots, else 1. */
int pci_bar1(const struct pci_dev *d);

#endif
