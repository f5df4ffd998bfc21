/* SPDX-License-Identifier: MIT */
/*
 * Finds the memory that the tests run on, and its facts, before the first test. It must not know the
 * tests.
 */
#ifndef PERF_SANITY_PROBE_H
#define PERF_SANITY_PROBE_H

#include "sanity/report.h"
#include "sanity/sanity.h"

struct probe {
	int device;
	int kind; /* a mem_kind or ALLOC_ANY */
	const char *sim_dir; /* NULL: the installed driver */

	struct sanity_facts facts;
	struct gpu gpu;
	bool simulated;
	char libcuda[1024];
	char passed_over[2048]; /* kinds of memory that cannot be pinned here, and why */
};

/*
 * Fills in the rest, in a process of its own, like a test. WAIVED: no such memory exists here; stderr and
 * *report have the reason.
 */
enum outcome probe_run(struct probe *p, long seconds);

#endif
