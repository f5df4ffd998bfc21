/* SPDX-License-Identifier: MIT */
/* Reports of tests; see report.h. */
#include "sanity/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/exit.h"

struct report *report;
sigjmp_buf *report_waived;
const char *sanity_step;

void report_make(size_t count)
{
	report = mmap(NULL, (count + 1) * sizeof(*report), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED)
		tool_fail("no memory for a report: %s", strerror(errno));
}

void report_clear(void)
{
	report->has_reason = report->returned = report->noted = 0;
	memset(report->text, 0, sizeof(report->text));
	memset(report->notes, 0, sizeof(report->notes));
}

/* The first reason is kept: later ones are consequences. */
static void record(enum outcome outcome, const char *place, const char *fmt, va_list ap)
{
	int n;

	if (atomic_exchange(&report->has_reason, 1))
		return;
	report->outcome = outcome;
	n = snprintf(report->text, sizeof(report->text), "%s", place);
	vsnprintf(report->text + n, sizeof(report->text) - (size_t)n, fmt, ap);
}

void sanity_fail(const char *file, int line, const char *fmt, ...)
{
	const char *slash = strrchr(file, '/');
	char place[128];
	va_list ap;

	snprintf(place, sizeof(place), "%.40s:%d: %.40s%s", slash ? slash + 1 : file, line,
		 sanity_step ? sanity_step : "", sanity_step ? ": " : "");
	va_start(ap, fmt);
	record(FAILED, place, fmt, ap);
	va_end(ap);
	_exit(TOOL_FAIL);
}

void sanity_waive(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	record(WAIVED, "", fmt, ap);
	va_end(ap);
	if (report_waived)
		siglongjmp(*report_waived, 1);
	_exit(TOOL_CANNOT);
}

void report_cannot(const char *text, int status)
{
	if (atomic_exchange(&report->has_reason, 1))
		return;
	report->outcome = status == TOOL_CANNOT ? WAIVED : FAILED;
	snprintf(report->text, sizeof(report->text), "%s", text);
}

bool sanity_has_failed(void)
{
	return atomic_load(&report->has_reason);
}

void sanity_note(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	size_t n;
	int at;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	n = strlen(line);
	line[n++] = '\n';
	/* each writer gets a range of its own; the last byte stays 0 */
	at = atomic_fetch_add(&report->noted, (int)n);
	if ((size_t)at + n < sizeof(report->notes))
		memcpy(report->notes + at, line, n);
}
