/* SPDX-License-Identifier: MIT */
/* What all documents have; see json_error.h. */
#include "json_error.h"

#include <stdio.h>

#include "exit.h"
#include "json.h"
#include "barcopy.h"

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
