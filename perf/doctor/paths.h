/* SPDX-License-Identifier: MIT */
/*
 * What lies between two PCI functions, in the classes of the GPUDirect RDMA guide, section 11.4. It
 * must not know what the functions are.
 */
#ifndef DOCTOR_PATHS_H
#define DOCTOR_PATHS_H

#include "doctor/machine.h"

enum path_class {
	PATH_SLOT, /* functions of one device, or of one slot */
	PATH_SWITCH, /* PCIe switches only */
	PATH_ROOT, /* one CPU's root complex */
	PATH_SOCKETS, /* the link between CPUs */
	PATH_UNKNOWN, /* what is visible does not tell */
	PATH_CLASSES
};

/* "switches only", as reports have it */
extern const char *const path_name[PATH_CLASSES];

/* "switches", as JSON has it */
extern const char *const path_word[PATH_CLASSES];

enum path_class path_between(const struct machine *m, const struct pci_dev *a,
			     const struct pci_dev *b);

/* "mlx5_0 (0000:1a:00.0)", in static storage that holds the last four. */
const char *path_device(const struct pci_dev *d);

#endif
