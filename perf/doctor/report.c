/* SPDX-License-Identifier: MIT */
/* Findings; see report.h. */
#include "doctor/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/exit.h"

const char *const severity_name[SEVERITIES] = { "ok", "note", "unknown", "warning", "fault" };

static char *format(const char *fmt, va_list ap)
{
	char *text;

	if (vasprintf(&text, fmt, ap) < 0)
		tool_fail("out of memory");
	return text;
}

struct finding *report_add(struct report *r, enum severity severity, const char *gpu,
			   const char *fmt, ...)
{
	struct finding *f = tool_calloc(1, sizeof(*f));
	va_list ap;

	if (r->count == r->room) {
		r->room = r->room ? 2 * r->room : 64;
		r->finding = realloc(r->finding, r->room * sizeof(*r->finding));
		if (!r->finding)
			tool_fail("out of memory");
	}
	r->finding[r->count++] = f;
	f->subject = r->subject;
	f->check = r->check;
	f->severity = severity;
	snprintf(f->gpu, sizeof(f->gpu), "%s", gpu ? gpu : "");
	va_start(ap, fmt);
	f->found = format(fmt, ap);
	va_end(ap);
	return f;
}

void finding_means(struct finding *f, const char *fmt, ...)
{
	va_list ap;

	free(f->means);
	va_start(ap, fmt);
	f->means = format(fmt, ap);
	va_end(ap);
}

void finding_todo(struct finding *f, const char *fmt, ...)
{
	va_list ap;

	free(f->todo);
	va_start(ap, fmt);
	f->todo = format(fmt, ap);
	va_end(ap);
}

size_t report_count(const struct report *r, enum severity severity)
{
	size_t n = 0;

	for (size_t i = 0; i < r->count; i++)
		n += r->finding[i]->severity == severity;
	return n;
}

void report_free(struct report *r)
{
	for (size_t i = 0; i < r->count; i++) {
		free(r->finding[i]->found);
		free(r->finding[i]->means);
		free(r->finding[i]->todo);
		free(r->finding[i]);
	}
	free(r->finding);
	*r = (struct report){ 0 };
}
