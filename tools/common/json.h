/* SPDX-License-Identifier: MIT */
/* A small JSON writer. It collects in memory and writes at the end: there is no half document. */
#ifndef PERF_JSON_H
#define PERF_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH 16

struct json {
	FILE *out;
	char *text;
	size_t size;
	int depth;
	char close[JSON_DEPTH]; /* what ends the value of each level */
	bool some[JSON_DEPTH]; /* a member has been written at this level, */
	bool row[JSON_DEPTH]; /* and all of them are scalars of an array: one line */
};

/* Opens the outermost object; json_head() adds tool and version, the last the library's too. */
void json_start(struct json *j);
void json_head(struct json *j);
void json_head_library(struct json *j);
/* Closes every level, prints the document on `to`, frees it. Later failures print no second one. */
void json_finish(struct json *j, FILE *to);

/* Prints a document of a run without a result. `text` is that of tool_cannot() or tool_fail(). */
void json_error(const char *text, int status);
/* From now on tool_cannot() and tool_fail() print such a document. */
void json_report_errors(void);

/* `key` is NULL inside an array. */
void json_object(struct json *j, const char *key);
void json_array(struct json *j, const char *key);
void json_end(struct json *j);
void json_string(struct json *j, const char *key, const char *value); /* NULL gives null */
void json_uint(struct json *j, const char *key, uint64_t value);
void json_int(struct json *j, const char *key, int64_t value);
void json_number(struct json *j, const char *key, double value); /* not finite gives null */
void json_bool(struct json *j, const char *key, bool value);

#endif
