/* SPDX-License-Identifier: MIT */
/* What a tool prints on standard error, how it ends, and --sim DIR. */
#ifndef PERF_EXIT_H
#define PERF_EXIT_H

#include <stdbool.h>
#include <stddef.h>

enum tool_exit {
	TOOL_OK = 0,
	TOOL_FAIL = 1, /* wrong byte, failed call, bad option */
	TOOL_CANNOT = 2 /* this machine lacks what the tool needs; the message names it */
};

/* The status of a failure and of a bad option: TOOL_FAIL, unless struct tool has another. */
extern int tool_fail_status;

/* Called once by tool_cannot() and tool_fail(), after the message: for a last document. Or NULL. */
extern void (*tool_on_end)(const char *text, int status);

/*
 * From now on the process ends with tool_fail_status and a message if its standard output could not
 * be written completely. A standard descriptor that is closed becomes one on which writes fail, so
 * that no file opened later gets its number.
 */
void tool_guard_output(void);

/* The name that messages begin with; set once by opts_parse(). */
extern const char *tool_name;

/* Called before a message is written, unless NULL; progress_begin() sets it. */
extern void (*tool_before_text)(void);

/* "NAME: cannot run here: TEXT" on stderr, exit 2. TEXT is "what is missing; what to do". */
#define tool_cannot(...) tool_end("cannot run here: ", TOOL_CANNOT, __VA_ARGS__)
/* "NAME: TEXT" on stderr, exit tool_fail_status. */
#define tool_fail(...)	 tool_end("", tool_fail_status, __VA_ARGS__)
_Noreturn void tool_end(const char *lead, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What a driver or the kernel says, for a terminal: all but printable ASCII becomes '?'. */
void tool_plain(char *text);

/* The length of the well-formed UTF-8 sequence there; 0 if it is not well-formed. */
int tool_utf8_length(const char *text);
/* A control character, also one of U+0080 to U+009F, which terminals obey too. */
bool tool_is_control(const char *text);
/* For a terminal: control characters but new lines and tabs, and what is no UTF-8, become '?'. */
void tool_clean(char *text);

/* "NAME: TEXT" on stderr, by tool_clean(); the tool goes on. */
void tool_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed, page-aligned, and zeroed memory that children share; the tool ends if there is none. */
void *tool_calloc(size_t count, size_t size);
void *tool_alloc_pages(size_t size);
void *tool_shared(size_t size);

/*
 * Executes the program again with `dir` first in LD_LIBRARY_PATH; returns there, and if `dir` is
 * NULL. Ends the tool with exit 1 if `dir` has no libcuda.so.1.
 */
void sim_enter(const char *dir, char **argv);

/* Ends the tool with exit 1 if `path`, the libcuda in use, is not the one of `dir`. */
void sim_check(const char *dir, const char *path);

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* The ending of a noun behind its number: "1 byte", "2 bytes". */
static inline const char *plural(unsigned long long count)
{
	return count == 1 ? "" : "s";
}

#endif
