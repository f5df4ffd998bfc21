/* SPDX-License-Identifier: MIT */
/*
 * One line on standard error that says what a tool is doing, for a terminal alone. It is drawn
 * between measured loops, never in one and by no thread or timer, so that it costs none of them
 * anything; it is gone before the tool prints anything else.
 */
#ifndef PERF_PROGRESS_H
#define PERF_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * From now on the calls below draw, if `wanted`, standard error is a terminal that obeys escape
 * sequences, and this process is in its foreground.
 */
void progress_begin(bool wanted);

/* "NAME: WHAT: 3 of 46, 12 s left". Where `all` is 0 or 1 the end is WHAT; the rest is an estimate. */
void progress_at(size_t done, size_t all, const char *what, ...)
	__attribute__((format(printf, 3, 4)));

/* Removes the line. Before any other output: tool_note() and the ends of a tool call it. */
void progress_hide(void);

/* For a loop that waits: draws the line again with the time that is left now, once a second. */
void progress_tick(void);

#endif
