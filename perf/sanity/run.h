/* SPDX-License-Identifier: MIT */
/*
 * Runs one test in a process of its own and tells how it ended: a crash or a hang is that test's
 * failure. It must not know what is tested.
 */
#ifndef PERF_SANITY_RUN_H
#define PERF_SANITY_RUN_H

#include "sanity/sanity.h"

enum outcome { PASSED, FAILED, WAIVED, OUTCOMES };

/* What the test's process and its children write, and the tool reads. */
struct report {
	_Atomic int said; /* 1 once somebody has begun to write `text` */
	_Atomic int returned; /* the test came to its end */
	enum outcome outcome; /* of whoever wrote `text` */
	char text[2048]; /* why it failed or was waived */
	_Atomic int noted;
	char notes[2048]; /* lines */
	/* of probe() */
	struct sanity_facts facts;
	struct gpu gpu;
	bool simulated;
	char libcuda[1024];
	char passed_over[2048]; /* kinds of memory that cannot be pinned here, and why */
};

/* Made before the first test; shared with every process of it. */
extern struct report *report;
void report_make(void);

/* Runs a test, for at most `seconds`; the rest of the outcome is in *report. */
enum outcome run_test(const struct sanity_test *test, long seconds);

#endif
