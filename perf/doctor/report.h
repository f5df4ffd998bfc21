/* SPDX-License-Identifier: MIT */
/*
 * What the doctor has to say: findings, in the order in which they were made. A finding is what was
 * found, what that means and what to do about it. It must not know how anything is found out or
 * printed.
 */
#ifndef DOCTOR_REPORT_H
#define DOCTOR_REPORT_H

#include <stddef.h>

enum severity {
	SEV_OK, /* as it should be */
	SEV_NOTE, /* worth knowing; nothing is wrong */
	SEV_UNKNOWN, /* could not be looked at from here */
	SEV_WARN, /* works, but less or slower than it could */
	SEV_FAIL, /* something does not work because of this */
	SEVERITIES
};

/* "ok", "note", "unknown", "warning", "fault" */
extern const char *const severity_name[SEVERITIES];

struct finding {
	const char *subject, *check; /* names of static storage */
	char gpu[16]; /* the unit's id; "" if none. The texts leave it out: printers put it before them */
	enum severity severity;
	char *found;
	char *means; /* NULL: nothing to add */
	char *todo; /* NULL: nothing */
};

struct report {
	struct finding **finding;
	size_t count, room;
	const char *subject, *check; /* what is being looked at now */
};

/* Adds a finding; the pointer stays valid until report_free(). `gpu` may be NULL. */
struct finding *report_add(struct report *r, enum severity severity, const char *gpu,
			   const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void finding_means(struct finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void finding_todo(struct finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

size_t report_count(const struct report *r, enum severity severity);
void report_free(struct report *r);

#endif
