/* SPDX-License-Identifier: MIT */
/* Messages and the ends of a tool; see exit.h. It must not know what the tools measure. */
#include "exit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *tool_name = "gdrcopy";
int tool_fail_status = TOOL_FAIL;

static void say(const char *lead, const char *fmt, va_list ap)
{
	char text[2048];

	/* one write, so that the lines of several processes do not mix */
	vsnprintf(text, sizeof(text), fmt, ap);
	fflush(stdout);
	fprintf(stderr, "%s: %s%s\n", tool_name, lead, text);
}

void tool_cannot(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("cannot run here: ", fmt, ap);
	va_end(ap);
	exit(TOOL_CANNOT);
}

void tool_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("", fmt, ap);
	va_end(ap);
	exit(tool_fail_status);
}

void tool_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("", fmt, ap);
	va_end(ap);
}

void *tool_calloc(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size ? size : 1);

	if (!p)
		tool_fail("out of memory: %zu x %zu bytes", count, size);
	return p;
}

void *tool_alloc_pages(size_t size)
{
	void *p = NULL;

	if (posix_memalign(&p, 4096, size ? size : 1))
		tool_fail("out of memory: %zu bytes", size);
	return p;
}
