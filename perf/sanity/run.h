/* SPDX-License-Identifier: MIT */
/*
 * Runs one test in a process of its own, or several in one, and reports how each ended: a crash or a
 * hang is that test's failure. It must not know what is tested.
 */
#ifndef PERF_SANITY_RUN_H
#define PERF_SANITY_RUN_H

#include "sanity/report.h"
#include "sanity/sanity.h"
#include "sanity/tests.h"

/* Runs a test, for at most `seconds`; the rest of the outcome is in *report. */
enum outcome run_test(const struct sanity_test *test, long seconds);

/* A test and what it runs on. */
struct run {
	const struct sanity_test *test;
	const struct sanity_facts *facts;
	enum outcome outcome;
};

/*
 * Runs tests that are not bare in one process, for at most `seconds` all together; one that fails ends the
 * process, and the next goes on in another. The rest of outcome i is in report[i].
 */
void run_in_one(struct run *list, size_t count, long seconds);

#endif
