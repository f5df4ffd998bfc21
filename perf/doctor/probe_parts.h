/* SPDX-License-Identifier: MIT */
/* The parts that probes_make() is made of. Each must not know the others. */
#ifndef DOCTOR_PROBE_PARTS_H
#define DOCTOR_PROBE_PARTS_H

#include "common/gpu.h"
#include "doctor/probe.h"

/* probe_host.c: this process, the CPU. */
void probe_process(struct probes *p);
/* The nodes, in a child: to open one may hang. Those that are known already are left alone. */
void probe_nodes(struct probes *p);

/* probe_cuda.c, in a child: libraries, cuInit, the GPUs; NVML. */
/* one after the other, libcuda first */
void probe_library(struct probes *p, int index);
void probe_cuda(struct probes *p);
void probe_nvml(struct probes *p);

/* probe_trial.c, in a child with a context on that GPU: the trials from number g->trials on. */
void probe_trials(struct probe_gpu *g, const struct gpu *gpu);

/* probe_wc.c: is write-combining in force? `map` is GPU memory of `size` bytes, 16 KiB at least. */
void probe_wc_time(struct probe_trial *t, volatile void *map, size_t size, void (*fence)(void *arg),
		   void *arg);
/* Entries of the kernel's list that lie in BAR1 of that GPU: 0 or an errno. */
int probe_wc_pat(const char *pci, int *wc, int *uc);

#endif
