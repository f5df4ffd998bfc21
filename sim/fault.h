/* SPDX-License-Identifier: MIT */
/*
 * Counting of calls and injected failures, the same in all three stand-ins. It knows nothing of
 * what the calls do.
 */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include <stdbool.h>

/* Count a call; true: it must fail with *result. result NULL: the call cannot fail, only count. */
bool sim_fault(const char *name, int *result);

#endif
