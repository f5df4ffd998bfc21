/* SPDX-License-Identifier: MIT */
/*
 * Runs one test in a process of its own and reports how it ended: a crash or a hang is that test's
 * failure. It must not know what is tested.
 */
#ifndef PERF_SANITY_RUN_H
#define PERF_SANITY_RUN_H

#include "sanity/report.h"
#include "sanity/tests.h"

/* Runs a test, for at most `seconds`; the rest of the outcome is in *report. */
enum outcome run_test(const struct sanity_test *test, long seconds);

#endif
