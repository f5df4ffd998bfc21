/* SPDX-License-Identifier: MIT */
/*
 * What the doctor reports: findings, in the order in which they were made. A finding is what was
 * found, what that means and what to do about it. It must not know how anything is found out or
 * printed.
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

/* Frees the list; its texts are the process's, to its end. */
void report_end(struct report *r);

void report_add(struct report *r, enum severity severity, const char *gpu, const char *found,
		const char *means, const char *todo);
size_t report_count(const struct report *r, enum severity severity);

/* A formatted string, which stays until the tool ends. */
const char *text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
