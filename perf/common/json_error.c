/* SPDX-License-Identifier: MIT */
/* A document for a run without a result; see json_error.h. */
#include "json_error.h"

#include <stdio.h>

#include "exit.h"
#include "json.h"

void json_error(const char *text, int status)
{
	struct json j;

	json_start(&j);
	json_string(&j, "tool", tool_name);
	json_string(&j, "version", BARCOPY_VERSION);
	json_string(&j, "error", text);
	json_int(&j, "exit_status", status);
	json_finish(&j, stdout);
}

void json_report_errors(void)
{
	tool_on_end = json_error;
}
