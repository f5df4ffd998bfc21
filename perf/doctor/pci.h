/* SPDX-License-Identifier: MIT */
/*
 * The PCI functions that matter here, as /sys/bus/pci/devices shows them: NVIDIA GPUs and network
 * adapters. It must not know what their places mean.
 */
#ifndef DOCTOR_PCI_H
#define DOCTOR_PCI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "doctor/root.h"

struct pci_dev {
	char addr[16]; /* "0000:17:00.0" */
	bool gpu; /* else a network adapter */
	bool gone; /* it does not answer: every byte of its header reads 0xff */
	bool virtual; /* a virtual function of another */
	uint16_t vendor, device;
	int numa, socket; /* -1: not known */
	char driver[32]; /* bound to it; "" if none */
	char label[32]; /* of an adapter: "mlx5_0", "eth0"; "" if none */
	int group; /* number of its IOMMU group; -1: none */
	char real[ROOT_PATH]; /* "/sys/devices/pci0000:00/0000:00:01.0/..."; "": not known */
};

struct pci {
	int error; /* errno of listing the devices; 0 */
	struct pci_dev *dev;
	size_t count;
	size_t total; /* functions of any kind */
};

void pci_collect(struct pci *pci, const struct root *root);

/* NULL if there is none, or it is none that matters. */
const struct pci_dev *pci_find(const struct pci *pci, const char *addr);

/* What lies between two functions, in the classes of the GPUDirect RDMA guide, section 11.4. */
enum path_class {
	PATH_SWITCH, /* PCIe switches only, or one slot */
	PATH_ROOT, /* one CPU's root complex */
	PATH_FAR, /* another CPU's: over the link between sockets */
	PATH_UNKNOWN, /* what is visible does not show it */
	PATH_CLASSES
};
extern const char *const path_name[PATH_CLASSES];
enum path_class pci_path(const struct pci_dev *a, const struct pci_dev *b);

#endif
