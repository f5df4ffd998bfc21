/* SPDX-License-Identifier: MIT */
/*
 * A kernel of the stand-in: a C function under the name of its PTX entry, run in a thread for each
 * launch, in stream order. The table in kernels.c lists them.
 */
#ifndef SIM_KERNEL_H
#define SIM_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_PARAMS	   16
#define SIM_MAX_PARAM_SIZE 40

struct sim_launch {
	const void *param[SIM_MAX_PARAMS]; /* copied at the launch */
	unsigned int grid[3];
	unsigned int block[3];
};

struct sim_kernel {
	const char *name;
	unsigned int n_params;
	size_t param_size[SIM_MAX_PARAMS];
	void (*run)(const struct sim_launch *launch); /* without any lock */
};

extern const struct sim_kernel sim_kernels[]; /* ends with a NULL name */

/* The kernels of queues (queue.c). */
void sim_queue_echo(const struct sim_launch *launch); /* view, u64 count */
void sim_queue_bulk(const struct sim_launch *launch); /* view, u64 bulk, u32 words */
void sim_port_posts(const struct sim_launch *launch); /* view, u32 first, producers, count, how, u64 sum */
void sim_queue_slots(const struct sim_launch *launch); /* u64 in, out, u32 words, u64 first, last */

/* For run(): the CPU address of [addr, addr + size); NULL: not accessible to the GPU. */
void *sim_kernel_reach(uint64_t addr, size_t size);

#endif
