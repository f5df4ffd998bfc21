/* SPDX-License-Identifier: MIT */
/*
 * The report of a test, in memory that its processes share with the tool: how the test ended, why, and
 * its notes. The lowest layer of gdrcopy_sanity: it must not know tests, memory or how they are run.
 */
#ifndef PERF_SANITY_REPORT_H
#define PERF_SANITY_REPORT_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

enum outcome { PASSED, FAILED, WAIVED, OUTCOMES };

struct report {
	_Atomic int has_reason; /* 1 once a process has begun to write `text` */
	_Atomic int returned; /* the test returned */
	enum outcome outcome; /* that `text` explains */
	char text[2048]; /* why it failed or was waived */
	_Atomic int noted;
	char notes[2048]; /* lines */
	double seconds; /* that the test took */
};

/* That of the current test; report_make() makes one for each test, before the first. */
extern struct report *report;
void report_make(size_t count);

/* Empty again, for the next test. */
void report_clear(void);

/* For tool_on_end: records the tool's message as the reason; the process goes on. */
void report_cannot(const char *text, int status);

/* Both record a reason, unless an earlier one was recorded, and end the process. */
_Noreturn void sanity_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void sanity_waive(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Where a waiver jumps to in a process that runs several tests (run.c); NULL: the process ends. */
extern sigjmp_buf *report_waived;
/* The step of a script that failures name; NULL: none. */
extern const char *sanity_step;
/* A process of this test has failed. */
bool sanity_has_failed(void);
/* Shown with -v and in the JSON document. */
void sanity_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define FAIL(...) sanity_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(cond, ...)                   \
	do {                               \
		if (!(cond))               \
			FAIL(__VA_ARGS__); \
	} while (0)

#endif
