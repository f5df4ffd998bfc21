/* SPDX-License-Identifier: MIT */
/*
 * The kernels that the stand-in can run. It knows nothing of modules or launches.
 */
#include <stdatomic.h>
#include <string.h>

#include "kernel.h"

/* (u64 address, u32 value): one store, visible to the whole system. */
static void store32(const struct sim_launch *launch)
{
	_Atomic(uint32_t) *at;
	uint64_t addr;
	uint32_t value;

	memcpy(&addr, launch->param[0], sizeof(addr));
	memcpy(&value, launch->param[1], sizeof(value));
	at = sim_kernel_reach(addr, sizeof(value));
	if (at)
		atomic_store(at, value);
}

const struct sim_kernel sim_kernels[] = {
	{ .name = "gdrsim_store32", .n_params = 2, .param_size = { 8, 4 }, .run = store32 },
	{ .name = NULL },
};
