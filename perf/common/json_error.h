/* SPDX-License-Identifier: MIT */
/*
 * What --json prints where there is no result: a document of its own, with the reason and the exit
 * status. It must not know what the tools measure.
 */
#ifndef PERF_JSON_ERROR_H
#define PERF_JSON_ERROR_H

/* Prints it on stdout. The text is that of tool_cannot() or tool_fail(). */
void json_error(const char *text, int status);

/* From now on tool_cannot() and tool_fail() print it too. */
void json_report_errors(void);

#endif
