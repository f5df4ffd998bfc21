/* SPDX-License-Identifier: MIT */
/* See error.h. It knows nothing of what fails. */
#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lent.h"
#include "base/log.h"
#include "base/thread.h"

struct text {
	struct gdri_lent lent; /* one that is not taken is empty, or holds what nobody will read */
	char s[1024];
};

static struct text first; /* of most programs the only one */
static gdri_lent_list texts = &first.lent;
static _Thread_local struct text *mine;
static _Thread_local bool lost; /* there is no memory for it */

static void *make(void)
{
	return malloc(sizeof(struct text));
}

static struct text *take(void)
{
	struct text *t = (struct text *)gdri_lent_take(&texts, make);

	if (t) {
		t->s[0] = '\0';
		(void)gdri_thread_watch();
	}
	return t;
}

void gdri_error_thread_ends(void)
{
	struct text *t = mine;

	mine = NULL;
	if (t)
		gdri_lent_give_back(&t->lent);
}

void gdri_error_say(const char *text)
{
	if (!mine)
		mine = take();
	lost = !mine;
	if (mine)
		memcpy(mine->s, text, strlen(text) + 1);
}

void gdri_error_set(int err, const char *fmt, ...)
{
	char text[sizeof(mine->s)];
	va_list ap;

	/* By way of a copy: an argument may be the former text itself. */
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	gdri_error_say(text);
	gdri_log(BARCOPY_LOG_DEBUG, "errno %d: %s", err, text);
}

const char *gdri_error_text(void)
{
	return mine ? mine->s : lost ? "no memory for the cause" : "";
}

void gdri_error_clear(void)
{
	lost = false;
	if (mine)
		mine->s[0] = '\0';
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
