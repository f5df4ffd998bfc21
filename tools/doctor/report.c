/* SPDX-License-Identifier: MIT */
/* The list of findings and their texts; see doctor.h. */
#include <stdarg.h>
#include <stdlib.h>

#include "common/exit.h"
#include "doctor/doctor.h"

const char *const severity_name[SEVERITIES] = { "ok", "note", "unknown", "warning", "fault" };

/* Its strings stay reachable until the process ends. */
static const char *vtext(const char *fmt, va_list ap)
{
	static struct kept {
		struct kept *before;
		char *string;
	} * last;
	struct kept *k = tool_calloc(1, sizeof(*k));

	if (vasprintf(&k->string, fmt, ap) < 0)
		tool_fail("out of memory");
	k->before = last;
	last = k;
	return k->string;
}

const char *text(const char *fmt, ...)
{
	const char *string;
	va_list ap;

	va_start(ap, fmt);
	string = vtext(fmt, ap);
	va_end(ap);
	return string;
}

void finding(struct report *r, enum severity severity, const char *gpu, const char *means,
	     const char *todo, const char *fmt, ...)
{
	const char *found;
	va_list ap;

	va_start(ap, fmt);
	found = vtext(fmt, ap);
	va_end(ap);
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
