/* SPDX-License-Identifier: MIT */
/* Findings; see report.h. */
#include "doctor/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/exit.h"

const char *const severity_name[SEVERITIES] = { "ok", "note", "unknown", "warning", "fault" };

const char *text(const char *fmt, ...)
{
	static struct kept {
		struct kept *before;
		char *string;
	} * last;
	struct kept *k = tool_calloc(1, sizeof(*k));
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&k->string, fmt, ap) < 0)
		tool_fail("out of memory");
	va_end(ap);
	k->before = last;
	last = k;
	return k->string;
}

void report_add(struct report *r, enum severity severity, const char *gpu, const char *found,
		const char *means, const char *todo)
{
	if (r->count == r->room) {
		r->room = r->room ? 2 * r->room : 64;
		r->finding = realloc(r->finding, r->room * sizeof(*r->finding));
		if (!r->finding)
			tool_fail("out of memory");
	}
	r->finding[r->count++] = (struct finding){ r->subject, gpu, severity, found, means, todo };
}

void report_end(struct report *r)
{
	free(r->finding);
	*r = (struct report){ 0 };
}

size_t report_count(const struct report *r, enum severity severity)
{
	size_t n = 0;

	for (size_t i = 0; i < r->count; i++)
		n += r->finding[i].severity == severity;
	return n;
}
