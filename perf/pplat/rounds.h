/* SPDX-License-Identifier: MIT */
/* The rounds of pplat, in both orders. It must not know where flags and data lie. */
#ifndef PERF_PPLAT_ROUNDS_H
#define PERF_PPLAT_ROUNDS_H

#include "pplat/flags.h"

/*
 * The CPU begins: message and ping, the kernel's answer and pong. The CPU times each round as a whole:
 * sample[rounds], in ticks. 0, or not, with the reason on stderr.
 */
int pplat_cpu_first(struct pplat *p, uint64_t *sample);

/*
 * The GPU begins: its kernel writes data and pong, the CPU reads the data and sets the ping. The GPU
 * times all rounds together: the mean of one, in us.
 */
int pplat_gpu_first(struct pplat *p, double *mean_us);

#endif
