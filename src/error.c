/* SPDX-License-Identifier: MIT */
/* See error.h. It knows nothing of what fails. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#include "log.h"

static _Thread_local char last_text[1024];

void gdri_error_set(int err, const char *fmt, ...)
{
	char text[sizeof(last_text)];
	va_list ap;

	/* By way of a copy: an argument may be the former text itself. */
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(last_text, sizeof(last_text), "%s", text);
	gdri_log(GDR_LOG_DEBUG, "errno %d: %s", err, last_text);
}

const char *gdri_error_text(void)
{
	return last_text;
}

void gdri_error_clear(void)
{
	last_text[0] = '\0';
}

void gdri_text_add(struct gdri_text *text, const char *fmt, ...)
{
	size_t room = sizeof(text->s) - text->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text->s + text->len, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		text->len += (size_t)n < room ? (size_t)n : room - 1;
}
