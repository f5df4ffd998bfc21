/* SPDX-License-Identifier: MIT */
/*
 * The findings of the doctor, in the order in which they were made. It must not know how a fact is
 * collected or how a finding is printed.
 */
#ifndef DOCTOR_REPORT_H
#define DOCTOR_REPORT_H

#include <stddef.h>

enum severity {
	SEV_OK, /* as it should be */
	SEV_NOTE, /* worth knowing; nothing is wrong */
	SEV_UNKNOWN, /* cannot be determined from here */
	SEV_WARN, /* works, but less or slower than it could */
	SEV_FAIL, /* something does not work because of this */
	SEVERITIES
};

/* "ok", "note", "unknown", "warning", "fault" */
extern const char *const severity_name[SEVERITIES];

/* The texts are of static storage, or text()'s. */
struct finding {
	const char *subject;
	const char *gpu; /* the unit's id, which the texts leave out; NULL: not about one GPU */
	enum severity severity;
	const char *found, *means, *todo; /* the last two may be NULL */
};

struct report {
	struct finding *finding;
	size_t count, room;
	const char *subject; /* of the findings that are added now */
};

/* Frees the list; its texts are kept until the process ends. */
void report_end(struct report *r);

/* Adds one. Its first text comes last, formatted. */
void finding(struct report *r, enum severity severity, const char *gpu, const char *means,
	     const char *todo, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
size_t report_count(const struct report *r, enum severity severity);

/* A formatted string, kept until the process ends. */
const char *text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
