/* SPDX-License-Identifier: MIT */
/*
 * See error.h. A thread's text is allocated: of the static block of thread-local storage a program
 * that loads the library at run time has 1.6 KiB left for all libraries (glibc's
 * rtld.optional_static_tls), and dlopen() fails when it is used up.
 */
#include "base/error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/env.h"

/* ---- text of other programs ------------------------------------------------------------------- */

/* The bytes of the UTF-8 character at s, or 0: none, a longer form than needed included. */
static int utf8_length(const unsigned char *s)
{
	int n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;

	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90))
		return 0;
	for (int i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

void gdri_plain(char *text)
{
	unsigned char *s = (unsigned char *)text;
	int n;

	for (; *s; s += n) {
		n = utf8_length(s) ?: 1;
		if (*s < ' ' || *s == 0x7f || (n == 1 && *s >= 0x80) || (*s == 0xc2 && s[1] < 0xa0))
			memset(s, '?', (size_t)n);
	}
}

/* ---- the log --------------------------------------------------------------------------------- */

static _Atomic int threshold = GDRI_LOG_ERROR + 1; /* the lowest level that is logged */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_env(void)
{
	const char *level = gdri_env("GDRCOPY_LOG_LEVEL");
	int lowest = GDRI_LOG_ERROR;

	if (!gdri_env("GDRCOPY_ENABLE_LOGGING"))
		return;
	if (level && level[0] >= '1' && level[0] <= '4' && !level[1])
		lowest = level[0] - '0';
	atomic_store_explicit(&threshold, lowest, memory_order_relaxed);
}

void gdri_log_init(void)
{
	pthread_once(&once, read_env);
}

void gdri_log(enum gdri_log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "", "DBG", "INFO", "WARN", "ERR" };
	char text[1280];
	va_list ap;

	if ((int)level < atomic_load_explicit(&threshold, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	gdri_plain(text);
	fprintf(stderr, "GDRCOPY %s: %s\n", names[level], text);
}

/* ---- the text of a thread's last failure ----------------------------------------------------- */

enum { ROOM = 1024 };

static char no_memory[] = "no memory for the cause"; /* shared by all threads */
static _Thread_local char *mine; /* NULL: none yet */

static pthread_key_t key; /* constant while have_key; its value is a thread's own text */
static _Atomic bool have_key;

/* A failure in a later destructor gets a new text: destructors run until no key is set. */
static void thread_ends(void *text)
{
	mine = NULL;
	free(text);
}

__attribute__((constructor)) static void make_key(void)
{
	atomic_store_explicit(&have_key, !pthread_key_create(&key, thread_ends),
			      memory_order_release);
}

/* A static library inside a module may be unloaded: threads that end later must not call it. */
__attribute__((destructor)) static void delete_key(void)
{
	if (atomic_exchange_explicit(&have_key, false, memory_order_acq_rel))
		pthread_key_delete(key);
}

/* A new text, which ends with its thread (without a key it leaks then), or no_memory. */
static char *take(void)
{
	char *text = malloc(ROOM);

	if (text && atomic_load_explicit(&have_key, memory_order_acquire))
		(void)pthread_setspecific(key, text);
	return text ? text : no_memory;
}

void gdri_error_say(const char *text)
{
	if (!mine || mine == no_memory)
		mine = take();
	if (mine != no_memory)
		memcpy(mine, text, strlen(text) + 1);
}

void gdri_error_set(int err, const char *fmt, ...)
{
	char text[ROOM];
	va_list ap;

	/* Into a copy first: an argument may be the former text itself. */
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	gdri_plain(text);
	gdri_error_say(text);
	gdri_log(GDRI_LOG_DEBUG, "errno %d: %s", err, text);
}

const char *gdri_error_text(void)
{
	return mine ? mine : "";
}

void gdri_error_clear(void)
{
	if (mine == no_memory)
		mine = NULL;
	else if (mine)
		*mine = '\0';
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

void gdri_first_note(struct gdri_first *first, int rc)
{
	if (!rc)
		return;
	if (first->rc) {
		gdri_log(GDRI_LOG_ERROR, "%s", gdri_error_text());
		return;
	}
	first->rc = rc;
	gdri_text_add(&first->text, "%s", gdri_error_text());
}

int gdri_first_failure(const struct gdri_first *first)
{
	if (first->rc)
		gdri_error_say(first->text.s);
	return first->rc;
}
