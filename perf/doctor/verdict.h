/* SPDX-License-Identifier: MIT */
/* What it all comes to, in plain words, and what to do first; the two forms of the whole report. */
#ifndef DOCTOR_VERDICT_H
#define DOCTOR_VERDICT_H

#include "doctor/machine.h"
#include "doctor/report.h"

enum { VERDICT_NEXT = 6 };
struct verdict {
	enum answer answer;
	const char *words;
	const char *next[VERDICT_NEXT]; /* the most urgent first */
	size_t nexts;
};
void verdict_reach(struct verdict *v, const struct machine *m, const struct report *r);

/* print.c: for people, where no byte of a file can control the terminal; as one JSON document. */
void print_text(const struct machine *m, const struct report *r, const struct verdict *v,
		FILE *out);
void print_json(const struct machine *m, const struct report *r, const struct verdict *v,
		FILE *out);

#endif
