/* SPDX-License-Identifier: MIT */
/* See rules.h. */
#include "rules.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * One lock for all rules of a library. No signal handler runs while it is held, since a handler may
 * make calls itself; nor does a fork happen. SIGTRAP stays open: a thread that a test steps gets
 * one at each instruction.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local sigset_t unblocked;

static void enter(void)
{
	sigset_t all, old;

	sigfillset(&all);
	sigdelset(&all, SIGTRAP);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	pthread_mutex_lock(&lock);
	unblocked = old;
}

static void leave(void)
{
	sigset_t old = unblocked;

	pthread_mutex_unlock(&lock);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

__attribute__((constructor)) static void survive_fork(void)
{
	pthread_atfork(enter, leave, leave);
}

static int value_of(const struct rules *r, const char *text)
{
#define E(name)             \
	{                   \
#name, name \
	}
	static const struct {
		const char *name;
		int value;
	} names[] = {
		E(EPERM),     E(ENOENT),     E(EINTR),
		E(EIO),	      E(ENXIO),	     E(EAGAIN),
		E(ENOMEM),    E(EACCES),     E(EFAULT),
		E(EBUSY),     E(ENODEV),     E(EINVAL),
		E(ENFILE),    E(EMFILE),     E(ENOTTY),
		E(ENOSPC),    E(EBADF),	     { "ENOTSUPP", 524 },
		E(EOVERFLOW), E(EOPNOTSUPP), { "REVOKE", RULES_REVOKE },
	};
#undef E
	long number;
	char *end;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i].name, text))
			return names[i].value;
	number = strtol(text, &end, 0);
	if (end == text || *end || !number)
		abort();
	return r->sign < 0 ? (int)-number : (int)number;
}

static void add(struct rules *r, const char *text, size_t len)
{
	char copy[2 * RULES_NAME], *number, *value;

	if (r->count == RULES_MAX || len >= sizeof(copy))
		abort();
	memcpy(copy, text, len);
	copy[len] = '\0';
	value = strchr(copy, '=');
	if (!value)
		abort();
	*value++ = '\0';
	number = strchr(copy, ':');
	if (number)
		*number++ = '\0';
	if (!*copy || strlen(copy) >= RULES_NAME)
		abort();
	strcpy(r->rules[r->count].name, copy);
	r->rules[r->count].number = number && *number != '*' ? strtoul(number, NULL, 10) : 0;
	r->rules[r->count++].value = value_of(r, value);
}

static void set_locked(struct rules *r, const char *spec)
{
	r->count = 0;
	r->all.since = 0;
	r->is_set = true;
	for (unsigned int i = 0; i < r->names; i++)
		r->counters[i].since = 0;
	while (spec && *spec) {
		size_t len = strcspn(spec, ",");

		if (len)
			add(r, spec, len);
		spec += len;
		spec += *spec == ',';
	}
}

void rules_set(struct rules *r, const char *spec)
{
	enter();
	set_locked(r, spec);
	leave();
}

void rules_fail_nth(struct rules *r, unsigned long n, int value)
{
	enter();
	r->nth = n;
	r->nth_value = value;
	r->failed[0] = '\0';
	leave();
}

static bool same(const char *name, const char *call)
{
	size_t len = strlen(name);

	return !strncmp(name, call, len) && (!call[len] || !strcmp(call + len, "_v2"));
}

/* Counts a call of a name; the value of the rule for this call, or 0. */
static int count(struct rules *r, const char *name)
{
	unsigned int i = 0;

	while (i < r->names && strcmp(r->counters[i].name, name))
		i++;
	if (i == RULES_NAMES)
		abort();
	if (i == r->names)
		snprintf(r->counters[r->names++].name, RULES_NAME, "%s", name);
	r->counters[i].calls++;
	r->counters[i].since++;
	for (unsigned int k = 0; k < r->count; k++)
		if (same(r->rules[k].name, name) &&
		    (!r->rules[k].number || r->rules[k].number == r->counters[i].since))
			return r->rules[k].value;
	return 0;
}

static void begin(struct rules *r)
{
	enter();
	if (!r->is_set)
		set_locked(r, r->variable ? getenv(r->variable) : NULL);
	r->all.calls++;
	r->all.since++;
}

void rules_pass(struct rules *r, const char *name)
{
	begin(r);
	count(r, name);
	leave();
}

int rules_call(struct rules *r, const char *name, const char *detailed)
{
	int value, more;

	begin(r);
	value = count(r, name);
	more = detailed ? count(r, detailed) : 0;
	value = value ? value : more;
	if (r->nth && !--r->nth && !value)
		value = r->nth_value;
	if (value)
		snprintf(r->failed, RULES_NAME, "%s", detailed ? detailed : name);
	leave();
	return value;
}

struct rules_counter rules_calls(const struct rules *r, const char *name)
{
	struct rules_counter sum = { .calls = 0 };

	enter();
	if (!name)
		sum = r->all;
	for (unsigned int i = 0; name && i < r->names; i++)
		if (same(name, r->counters[i].name)) {
			sum.calls += r->counters[i].calls;
			sum.since += r->counters[i].since;
		}
	leave();
	return sum;
}
