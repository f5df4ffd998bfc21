/* SPDX-License-Identifier: MIT */
/*
 * What it all comes to: does a backend work, in plain words, and what to do first. It must not know
 * how it is printed.
 */
#ifndef DOCTOR_VERDICT_H
#define DOCTOR_VERDICT_H

#include "doctor/machine.h"

enum { VERDICT_NEXT = 6 };

struct verdict {
	bool works; /* at least one backend, for a GPU of this machine: decides the exit status */
	char text[1024];
	const char
		*next[VERDICT_NEXT]; /* what to do, the most urgent first; the report's or static */
	size_t nexts;
};

void verdict_reach(struct verdict *v, const struct machine *m, const struct report *r);

#endif
