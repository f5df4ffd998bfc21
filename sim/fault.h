/* SPDX-License-Identifier: MIT */
/* Counts calls and makes them fail, in libcuda and NVML. */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include <stdbool.h>

/* Count a call; true: it must fail with *result. result NULL: the call cannot fail, only count. */
bool sim_fault(const char *name, int *result);

#endif
