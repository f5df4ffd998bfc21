/* SPDX-License-Identifier: MIT */
/*
 * Finds, before the first test, the memory that the tests run on and what is true of it. It must not
 * know the tests.
 */
#ifndef PERF_SANITY_PROBE_H
#define PERF_SANITY_PROBE_H

#include "sanity/report.h"
#include "sanity/sanity.h"

struct probe {
	int device;
	int kind; /* a mem_kind or ALLOC_ANY */
	const char *sim_dir; /* NULL: the installed driver */

	/* found */
	struct sanity_facts facts;
	struct gpu gpu;
	bool simulated;
	char libcuda[1024];
	char passed_over[2048]; /* kinds of memory that cannot be pinned here, and why */
};

/*
 * Fills in what is found, in a process of its own as a test. WAIVED: there is no such memory here, and
 * stderr and *report say why.
 */
enum outcome probe_run(struct probe *p, long seconds);

#endif
