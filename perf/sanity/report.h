/* SPDX-License-Identifier: MIT */
/*
 * What a test's process and its children say, in memory that the tool reads: how the test ended, why,
 * and what it noted. The floor of gdrcopy_sanity: it must not know tests, memory or how they are run.
 */
#ifndef PERF_SANITY_REPORT_H
#define PERF_SANITY_REPORT_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

enum outcome { PASSED, FAILED, WAIVED, OUTCOMES };

struct report {
	_Atomic int said; /* 1 once somebody has begun to write `text` */
	_Atomic int returned; /* the test came to its end */
	enum outcome outcome; /* of whoever wrote `text` */
	char text[2048]; /* why it failed or was waived */
	_Atomic int noted;
	char notes[2048]; /* lines */
	double seconds; /* that the test took */
};

/* Made before the first test, one for each that is run; shared with every process. */
extern struct report *report; /* of the test that is run or looked at now */
struct report *report_make(size_t count);

/* Empty again, for the next test. */
void report_clear(void);

/* A reason of somebody else's, as sanity_waive() would write it; the process goes on. */
void report_cannot(const char *text, int status);

/* The three ways to say something. The first two end the process; the first words count. */
_Noreturn void sanity_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void sanity_waive(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Where a waived test goes on in a process that runs several (run.c); NULL: the process ends. */
extern sigjmp_buf *report_waived;
/* Somebody of this test's processes has failed. */
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
