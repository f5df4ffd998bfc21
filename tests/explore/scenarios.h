/* SPDX-License-Identifier: MIT */
/*
 * What the scenarios share: memory whose bytes tell which it is, uses of it by each kind of call,
 * and what a run must leave. A scenario is a row of scenarios[] in scenarios.c.
 */
#ifndef TEST_EXPLORE_SCENARIOS_H
#define TEST_EXPLORE_SCENARIOS_H

#include "common/standin.h"
#include "barcopy.h"
#include "explore/explore.h"

enum { CHUNK = 2 << 20, PAGE = 65536, SHARED = 4, THREADS = 4 };

struct scenario {
	const char *name;
	int threads;
	int bar_mib; /* of BAR1; 8: space for three chunks besides what `taken` has */
	void (*begin)(void), (*body)(int thread), (*check)(void);
};

extern const struct scenario scenarios[];
extern const int scenario_count;

/* Starts CUDA's stand-in and the library as a scenario needs them; its memory. */
void scenario_start(const struct scenario *s);

#endif
