/* SPDX-License-Identifier: MIT */
/* The rounds of pplat, in both orders. It must not know where flags and data lie. */
#ifndef PERF_PPLAT_ROUNDS_H
#define PERF_PPLAT_ROUNDS_H

#include "pplat/flags.h"

/*
 * The CPU begins: message and ping, then the kernel's answer and pong. The CPU times each round:
 * sample[rounds], in ticks. Returns 0; else not 0, with the reason on stderr.
 */
int pplat_cpu_first(struct pplat *p, uint64_t *sample);

/*
 * The GPU begins: its kernel writes data and pong, then the CPU reads the data and sets the ping. The GPU
 * times all rounds together: *mean_us is the mean per round.
 */
int pplat_gpu_first(struct pplat *p, double *mean_us);

#endif
