/* SPDX-License-Identifier: MIT */
/*
 * Runs tests in a process of their own and reports how each ended: a crash or a hang is that test's
 * failure. It must not know what is tested.
 */
#ifndef PERF_SANITY_RUN_H
#define PERF_SANITY_RUN_H

#include "sanity/tests.h"

/*
 * Runs a bare test, or several that are not bare, in one process, for at most `seconds` in all. One that
 * fails ends the process, and the next goes on in another. Sets the outcomes; the rest of test i is in
 * report[i].
 */
void run_tests(struct chosen *list, size_t count, long seconds);

#endif
