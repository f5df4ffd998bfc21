/* SPDX-License-Identifier: MIT */
/* What the stand-ins share: the simulated GPUs, and the memfd that stands for GPU memory. */
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_GPUS 32

struct sim_gpu {
	char name[64];
	int pci_domain;
	int pci_bus;
	int pci_device;
	uint64_t mem_bytes;
	uint64_t bar1_bytes;
	bool bar1_static;
};

/* fault.c: counts a call; true: it fails with *result. result NULL: it cannot fail. */
bool sim_fault(const char *name, int *result);

/* The value of an environment variable; absent: if it is not set, or empty. */
const char *sim_text(const char *name, const char *absent);
long sim_env(const char *name, long absent);
int sim_presence(const char *name,
		 const char *absent); /* errno of an open: "present", "absent", "denied" */
int sim_gpu_count(void);
void sim_gpu(int ordinal, struct sim_gpu *gpu);

/*
 * GPU memory that can leave the process is a memfd whose name describes it
 * ("gdrsim-vmm:<device>:<handle types>:<gpuDirectRDMACapable>"), by which another process recognises it. An export is an
 * O_PATH descriptor of it: like the real one it cannot be mapped or read, but the stand-ins can
 * reopen it by /proc.
 */
struct sim_memfd {
	int device;
	unsigned int handle_types;
	unsigned int rdma; /* gpuDirectRDMACapable */
	size_t size;
};

/* open() with O_CLOEXEC, also beyond the limit on descriptors: the kernel itself needs none. */
int sim_open_anyway(const char *path, int flags, ...);
bool sim_is_memfd(int fd); /* of GPU memory */
int sim_memfd_create(const struct sim_memfd *info); /* a descriptor or -1 */
int sim_memfd_handout(int memfd); /* an O_PATH descriptor or -1 */
/* A mappable descriptor of what fd stands for, or -1 when it is not exported GPU memory. */
int sim_memfd_open(int fd, struct sim_memfd *info);

#endif
