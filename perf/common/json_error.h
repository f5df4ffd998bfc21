/* SPDX-License-Identifier: MIT */
/*
 * How the document of --json begins, and the whole of it where there is no result: the reason and the
 * exit status. It must not know what the tools measure.
 */
#ifndef PERF_JSON_ERROR_H
#define PERF_JSON_ERROR_H

struct json;

/* Starts it with the tool and its version, and then the library's. */
void json_head(struct json *j);
void json_head_library(struct json *j);

/* Prints it on stdout. The text is that of tool_cannot() or tool_fail(). */
void json_error(const char *text, int status);

/* From now on tool_cannot() and tool_fail() print it too. */
void json_report_errors(void);

#endif
