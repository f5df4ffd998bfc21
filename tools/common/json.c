/* SPDX-License-Identifier: MIT */
/* A small JSON writer; see json.h. */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "barcopy.h"
#include "exit.h"

static void put_string(FILE *out, const char *text)
{
	int n;

	fputc('"', out);
	for (; *text; text += n) {
		n = tool_utf8_length(text);
		if (!n) {
			fputs("\\ufffd", out);
			n = 1;
		} else if (*text == '"' || *text == '\\') {
			fprintf(out, "\\%c", *text);
		} else if (tool_is_control(text)) {
			fprintf(out, "\\u%04x", (unsigned char)text[n - 1]);
		} else {
			fwrite(text, 1, (size_t)n, out);
		}
	}
	fputc('"', out);
}

static void new_line(struct json *j)
{
	fputc('\n', j->out);
	for (int i = 0; i < j->depth; i++)
		fputs("  ", j->out);
}

/* Writes comma, new line, indentation and key before a value. Scalars of an array share a line. */
static void member(struct json *j, const char *key, bool scalar)
{
	int at = j->depth - 1;

	if (j->depth) {
		scalar = scalar && j->close[at] == ']';
		if (j->some[at])
			fputs(scalar && j->row[at] ? ", " : ",", j->out);
		if (!(scalar && (j->row[at] || !j->some[at])))
			new_line(j);
		j->row[at] = scalar && (j->row[at] || !j->some[at]);
		j->some[at] = true;
	}
	if (key) {
		put_string(j->out, key);
		fputs(": ", j->out);
	}
}

static void open_level(struct json *j, const char *key, char open, char close)
{
	if (j->depth == JSON_DEPTH)
		tool_fail("JSON nested deeper than %d", JSON_DEPTH);
	member(j, key, false);
	fputc(open, j->out);
	j->close[j->depth] = close;
	j->some[j->depth] = false;
	j->row[j->depth] = false;
	j->depth++;
}

void json_start(struct json *j)
{
	*j = (struct json){ 0 };
	j->out = open_memstream(&j->text, &j->size);
	if (!j->out)
		tool_fail("out of memory");
	open_level(j, NULL, '{', '}');
}

void json_head(struct json *j)
{
	json_start(j);
	json_string(j, "tool", tool_name);
	json_string(j, "version", BARCOPY_VERSION);
}

void json_head_library(struct json *j)
{
	int major = 0, minor = 0;
	char text[64];

	gdr_runtime_get_version(&major, &minor);
	snprintf(text, sizeof(text), "%d.%d", major, minor);
	json_head(j);
	json_string(j, "library_version", text);
}

void json_finish(struct json *j, FILE *to)
{
	while (j->depth)
		json_end(j);
	tool_on_end = NULL;
	fputc('\n', j->out);
	if (fclose(j->out))
		tool_fail("out of memory");
	if (fwrite(j->text, 1, j->size, to) != j->size || fflush(to))
		tool_fail("cannot write the JSON text");
	free(j->text);
}

void json_error(const char *text, int status)
{
	struct json j;

	json_head(&j);
	json_string(&j, "error", text);
	json_int(&j, "exit_status", status);
	json_finish(&j, stdout);
}

void json_report_errors(void)
{
	tool_on_end = json_error;
}

void json_object(struct json *j, const char *key)
{
	open_level(j, key, '{', '}');
}

void json_array(struct json *j, const char *key)
{
	open_level(j, key, '[', ']');
}

void json_end(struct json *j)
{
	j->depth--;
	if (j->some[j->depth] && !j->row[j->depth])
		new_line(j);
	fputc(j->close[j->depth], j->out);
}

void json_string(struct json *j, const char *key, const char *value)
{
	member(j, key, true);
	if (value)
		put_string(j->out, value);
	else
		fputs("null", j->out);
}

void json_uint(struct json *j, const char *key, uint64_t value)
{
	member(j, key, true);
	fprintf(j->out, "%" PRIu64, value);
}

void json_int(struct json *j, const char *key, int64_t value)
{
	member(j, key, true);
	fprintf(j->out, "%" PRId64, value);
}

void json_number(struct json *j, const char *key, double value)
{
	member(j, key, true);
	if (isfinite(value))
		fprintf(j->out, "%.9g", value);
	else
		fputs("null", j->out);
}

void json_bool(struct json *j, const char *key, bool value)
{
	member(j, key, true);
	fputs(value ? "true" : "false", j->out);
}
