/* SPDX-License-Identifier: MIT */
/*
 * One CUDA device: initialisation, identity, primary context. If one of them fails, the tool ends
 * with exit 2 and the reason. It must not know libgdrapi.
 */
#ifndef PERF_GPU_H
#define PERF_GPU_H

#include <stdbool.h>

#include "cuda_dl.h"

struct gpu {
	int ordinal;
	CUdevice dev;
	CUcontext ctx;
	char name[128];
	char pci[32]; /* "0000:17:00.0", lower case as sysfs has it; "" if not known */
	char cuda_version[16]; /* of the driver: "13.0" */
	char kernel_driver[64]; /* "580.159.04"; "" if not known, and on the stand-in */
};

/* Finds the device; makes no context, so that the caller can first move to its NUMA node. */
void gpu_find(struct gpu *gpu, int ordinal);

/* Retains the primary context and makes it current in this thread. */
void gpu_start(struct gpu *gpu);
void gpu_stop(struct gpu *gpu);

/* A boolean device attribute; false where the driver does not know it. */
bool gpu_has(const struct gpu *gpu, CUdevice_attribute attribute);

#endif
