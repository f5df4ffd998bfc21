/* SPDX-License-Identifier: MIT */
/*
 * How a tool ends and where it says so: three exit codes, and the only functions that may end the
 * process. It must not know what the tools measure.
 */
#ifndef PERF_EXIT_H
#define PERF_EXIT_H

#include <stddef.h>

enum tool_exit {
	TOOL_OK = 0,
	TOOL_FAIL = 1, /* wrong byte, failed call, bad option */
	TOOL_CANNOT = 2 /* this machine lacks what the tool needs; the message says what */
};

/* What a failure and a bad option end the tool with: TOOL_FAIL, unless opts_exit_status() was called. */
extern int tool_fail_status;

/*
 * Called once by tool_cannot() or tool_fail(), with their text and the exit status, after the message
 * is on stderr: for a tool that owes somebody a document. NULL: nobody.
 */
extern void (*tool_on_end)(const char *text, int status);

/*
 * From now on the process ends with tool_fail_status, and says so, where it was to end well but its
 * standard output could not all be written: nobody may take half a report for one. Standard descriptors
 * that are closed are given something that can only fail, so that no other file gets their numbers.
 */
void tool_guard_output(void);

/* The name that messages begin with; set once by opts_parse(). */
extern const char *tool_name;

/* "NAME: cannot run here: TEXT" on stderr, exit 2. TEXT is "what is missing; what to do". */
_Noreturn void tool_cannot(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* "NAME: TEXT" on stderr, exit tool_fail_status. */
_Noreturn void tool_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* "NAME: TEXT" on stderr; the tool goes on. */
void tool_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* calloc and page-aligned memory that end the tool where there is none. */
void *tool_calloc(size_t count, size_t size);
void *tool_alloc_pages(size_t size);

#endif
