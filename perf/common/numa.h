/* SPDX-License-Identifier: MIT */
/*
 * Runs the tool on the NUMA node of its GPU, by libnuma if that is installed. It must not know
 * CUDA: the caller passes a PCI address.
 */
#ifndef PERF_NUMA_H
#define PERF_NUMA_H

#include <stdbool.h>

struct numa {
	int node; /* of the device; -1 if not known */
	bool bound; /* this process runs there and allocates there */
	const char *why_not; /* in words; NULL if bound */
};

/* Finds the node of a PCI function ("0000:17:00.0") and, if `bind`, moves this process there. */
void numa_follow(struct numa *numa, const char *pci, bool bind);

#endif
