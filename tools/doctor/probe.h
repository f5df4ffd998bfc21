/* SPDX-License-Identifier: MIT */
/* Facts that are in no file. Plain data of fixed size: a child fills it in, a test makes it up. */
#ifndef DOCTOR_PROBE_H
#define DOCTOR_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/cuda.h"

#define PROBE_GPUS   32
#define PROBE_NODES  36
#define PROBE_TRIALS 6
#define PROBE_TEXT   1024

/* A device node and whether this process may open it. */
struct probe_node {
	char path[64];
	bool exists;
	int mode; /* permission bits */
	int uid, gid;
	int major, minor;
	int error; /* errno of open(O_RDWR); 0: it opens */
};

/* A library that the loader finds, or the loader's error. */
struct probe_library {
	char name[32];
	bool found;
	char path[256]; /* behind all links */
	char error[256];
};

/* One trial of 64 KiB: allocate, pin, map, copy both ways and compare, unmap, unpin. */
#define TRIAL_PROGRAM "gdr_open" /* in place of a backend: whichever a program gets here */
struct probe_trial {
	char backend[16];
	char memory[16]; /* the CUDA call that allocated it */
	char step[16]; /* where it ended: open, allocate, pin, map, copy, done; "" if not begun */
	int error; /* errno of that step; 0: it works */
	char text[PROBE_TEXT]; /* the cause in words */
	char mapping[24]; /* type of the mapping, as libgdrapi names it */
};

struct probe_gpu {
	int ordinal; /* of CUDA */
	char name[96];
	char pci[16]; /* "0000:17:00.0", lower case */
	bool integrated;
	bool dmabuf; /* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
	char context_error[256]; /* "": a context can be made */
	char nvml_error[128]; /* "": the figures below are known */
	int64_t bar1_total, bar1_used, bar1_free; /* bytes */
	int64_t memory; /* bytes of GPU memory; 0 if not known */
	struct probe_trial trial[PROBE_TRIALS];
	int trials;
};

struct probes {
	bool stand_in; /* libcuda is the stand-in of barcopy's tests */
	char date[32];
	char machine[16]; /* of uname: "x86_64" */
	char release[96]; /* of uname */
	int euid;
	char hypervisor[16]; /* as the CPU names it: "KVMKVMKVM"; "": none */
	char cpus[1024]; /* that this process may run on: "0-15,32" */
	struct {
		char backend[64], dmabuf_mmap[16]; /* GDRCOPY_BACKEND, GDRCOPY_USE_DMABUF_MMAP */
		char visible[256]; /* NVIDIA_VISIBLE_DEVICES */
		char cuda_visible[256]; /* CUDA_VISIBLE_DEVICES */
		char container[32]; /* container, as systemd and podman set it */
		char kubernetes[64]; /* KUBERNETES_SERVICE_HOST */
	} env; /* "": not set */
	struct probe_library library[2];
	int libraries;
	int cuda_version; /* 13000 is 13.0; 0: not known */
	int init_code; /* CUresult of cuInit; -1: not called */
	char init_text[256];
	char cuda_failure[256]; /* how the process that asks libcuda ended, if it did not return */
	struct probe_gpu gpu[PROBE_GPUS];
	int gpus;
	char nvml_error[256]; /* "": NVML works */
	bool confidential; /* confidential computing is on, according to NVML */
	struct probe_node node[PROBE_NODES];
	int nodes;
};

/* Asks the machine; takes a second or more where there is a GPU. */
struct probes *probes_make(void);

/* NULL if there is none of that name. */
const struct probe_node *probes_node(const struct probes *p, const char *path);
const struct probe_library *probes_library(const struct probes *p, const char *name);

/* probe_gpu.c, in a child: libraries, libcuda first; cuInit and the GPUs; NVML. */
void probe_library(struct probes *p, int index);
void probe_cuda(struct probes *p);
void probe_nvml(struct probes *p);

/* In a child with a context on that GPU: the trials from number g->trials on. */
void probe_trials(struct probe_gpu *g, const struct gpu *gpu);

#endif
