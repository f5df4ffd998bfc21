/* SPDX-License-Identifier: MIT */
/* See error.h. It knows nothing of what fails. */
#include "error.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "thread.h"

/* Only ever added to; one that is not taken is empty, or holds what nobody will read. */
struct text {
	struct text *next; /* constant once it is in the list */
	_Atomic bool taken;
	char s[1024];
};

static struct text first; /* of most programs the only one */
static _Atomic(struct text *) texts = &first;
static _Thread_local struct text *mine;
static _Thread_local bool lost; /* there is no memory for it */

static struct text *take(void)
{
	struct text *t = atomic_load_explicit(&texts, memory_order_acquire);

	for (; t; t = t->next)
		if (!atomic_load_explicit(&t->taken, memory_order_relaxed) &&
		    !atomic_exchange_explicit(&t->taken, true, memory_order_acquire))
			goto out;
	t = malloc(sizeof(*t));
	if (!t)
		return NULL;
	atomic_init(&t->taken, true);
	t->next = atomic_load_explicit(&texts, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&texts, &t->next, t, memory_order_release,
						      memory_order_relaxed))
		;
out:
	t->s[0] = '\0';
	(void)gdri_thread_watch();
	return t;
}

void gdri_error_thread_ends(void)
{
	struct text *t = mine;

	mine = NULL;
	if (t)
		atomic_store_explicit(&t->taken, false, memory_order_release);
}

void gdri_error_set(int err, const char *fmt, ...)
{
	char text[sizeof(mine->s)];
	va_list ap;

	/* By way of a copy: an argument may be the former text itself. */
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!mine)
		mine = take();
	lost = !mine;
	if (mine)
		memcpy(mine->s, text, strlen(text) + 1);
	gdri_log(GDR_LOG_DEBUG, "errno %d: %s", err, text);
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
