/* SPDX-License-Identifier: MIT */
/*
 * One CUDA device: initialisation, identity, primary context. Whatever is missing ends the tool
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
	int driver_version; /* 1000 * major + 10 * minor of CUDA */
	char kernel_driver[64]; /* "580.159.04" from /proc; "" if not known */
};

/* Finds the device; makes no context yet, so that the caller can bind itself to a node first. */
void gpu_find(struct gpu *gpu, int ordinal);

/* Retains the primary context and makes it current in this thread. */
void gpu_start(struct gpu *gpu);
void gpu_stop(struct gpu *gpu);

/* A boolean device attribute; false where the driver does not know it. */
bool gpu_has(const struct gpu *gpu, CUdevice_attribute attribute);

#endif
