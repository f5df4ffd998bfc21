/* SPDX-License-Identifier: MIT */
/*
 * What the library asks of NVML, which is loaded at run time and may be missing. An nvmlReturn_t
 * never leaves nvml.c. It knows nothing of contexts and handles.
 */
#ifndef GDRI_NVML_H
#define GDRI_NVML_H

#include <stdint.h>

#include "cuda/cuda.h"

struct gdri_bar {
	uint64_t total, used, free;
};

/* BAR1 of that PCI function: 0; -ENOTSUP (no NVML, or it does not know); -EIO. Thread-safe. */
int gdri_nvml_bar(const struct gdri_pci_address *pci, struct gdri_bar *bar);

#endif
