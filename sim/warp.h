/* SPDX-License-Identifier: MIT */
/*
 * A warp on the CPU: what barcopy_queue.cuh and kernels around it need of CUDA C++, so that the
 * same text runs in a thread of the stand-in. Its 32 lanes are contexts that take turns, each up to
 * the next collective call: between these, lanes run one after the other, as CUDA allows since
 * compute capability 7.0 (CUDA C++ Programming Guide, "Independent Thread Scheduling"). The turns go
 * from lane 0 to lane 31; with GDRSIM_WARP_ORDER=random each time in another order.
 */
#ifndef SIM_WARP_H
#define SIM_WARP_H

#include <stdint.h>

#define BARCOPY_WARP_FN static inline __attribute__((unused))
#define __global__ static
#define __shared__ static _Thread_local

/* Runs lane(arg) in 32 lanes; returns when all have returned. */
void sim_warp_run(void (*lane)(void *arg), void *arg);

unsigned int sim_warp_lane(void);

/* Exchanges a value of each lane: value[32], valid until the lane's next collective call. */
const uint64_t *sim_warp_gather(uint64_t value);

/* Accesses a word of the queue; one in GDRSIM_WARP_STALL accesses stalls first. */
uint64_t sim_warp_load(uint64_t addr);
void sim_warp_store(uint64_t addr, uint64_t value);
uint64_t sim_warp_claim(uint64_t addr, uint64_t from, uint64_t to); /* compare and swap */

/* For lanes that are threads of their own, which may stop anywhere for any time. */
uint64_t sim_warp_add(uint64_t addr, uint64_t n);
uint64_t sim_warp_or(uint64_t addr, uint64_t bits);
uint64_t sim_warp_now(void);
void sim_warp_pause(void);

static inline unsigned int sim_warp_ballot(int yes)
{
	const uint64_t *all = sim_warp_gather(yes != 0);
	unsigned int bits = 0;

	for (unsigned int i = 0; i < 32; i++)
		bits |= (unsigned int)all[i] << i;
	return bits;
}

#define __ballot_sync(mask, yes)      sim_warp_ballot(yes)
#define __any_sync(mask, yes)	      (sim_warp_ballot(yes) != 0)
#define __all_sync(mask, yes)	      (sim_warp_ballot(yes) == 0xffffffff)
#define __shfl_sync(mask, value, src) ((__typeof__(value))sim_warp_gather((uint64_t)(value))[(src) & 31])
#define __syncwarp(mask)	      ((void)sim_warp_gather(0))
#define __popc(bits)		      __builtin_popcount(bits)
#define barcopy_warp_lane()	      sim_warp_lane()
#define barcopy_warp_fence()	      __sync_synchronize()
#define barcopy_warp_claim(addr, from, to) sim_warp_claim(addr, from, to)
#define barcopy_warp_add(addr, n)     sim_warp_add(addr, n)
#define barcopy_warp_or(addr, bits)   sim_warp_or(addr, bits)
#define barcopy_warp_now()	      sim_warp_now()
#define barcopy_warp_hint()	      sim_warp_lane()
#define barcopy_warp_pause()	      sim_warp_pause()

static inline void barcopy_warp_load(uint64_t addr, unsigned int acquire, unsigned long long *v)
{
	(void)acquire;
	v[0] = sim_warp_load(addr);
	v[1] = sim_warp_load(addr + 8);
}

static inline void barcopy_warp_store(int yes, uint64_t addr, uint64_t v0, uint64_t v1)
{
	if (!yes)
		return;
	sim_warp_store(addr, v0);
	sim_warp_store(addr + 8, v1);
}

#endif
