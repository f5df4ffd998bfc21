/* SPDX-License-Identifier: MIT */
/*
 * Counting of calls, and those that shall fail. Every process has rules and counters of its own. It
 * knows nothing of what the calls do.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rm/rm.h"

enum { MAX_RULES = 32, MAX_NAMES = 64, NAME_SIZE = 32 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule {
	char name[NAME_SIZE];
	unsigned long number; /* 0: every call */
	int value; /* errno, or -status */
} rules[MAX_RULES];
static unsigned int n_rules;
static struct counter {
	char name[NAME_SIZE];
	unsigned long calls;
} counters[MAX_NAMES];
static unsigned int n_counters;
static unsigned long all_calls, nth;
static int nth_value;
static char failed[NAME_SIZE];
static bool env_read;

static _Thread_local sigset_t unblocked;

/* A signal handler of the program may make calls of its own, a child of a fork too. */
static void enter(void)
{
	sigset_t all, old;

	sigfillset(&all);
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

static int value_of(const char *text)
{
	static const struct {
		const char *name;
		int err;
	} names[] = {
		{ "EPERM", EPERM },   { "ENOENT", ENOENT }, { "EINTR", EINTR },
		{ "EIO", EIO },	      { "ENXIO", ENXIO },   { "EAGAIN", EAGAIN },
		{ "ENOMEM", ENOMEM }, { "EACCES", EACCES }, { "EFAULT", EFAULT },
		{ "EBUSY", EBUSY },   { "ENODEV", ENODEV }, { "EINVAL", EINVAL },
		{ "ENFILE", ENFILE }, { "EMFILE", EMFILE }, { "ENOTTY", ENOTTY },
		{ "ENOSPC", ENOSPC },
	};
	long number;
	char *end;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i].name, text))
			return names[i].err;
	number = strtol(text, &end, 0);
	if (end == text || *end || number <= 0)
		abort(); /* a rule that is not one would make a test that cannot fail */
	return (int)-number;
}

static void add_rule(const char *text, size_t len)
{
	char copy[96], *colon, *equal;
	struct rule *rule = &rules[n_rules];

	if (n_rules == MAX_RULES || len >= sizeof(copy))
		abort();
	memcpy(copy, text, len);
	copy[len] = '\0';
	colon = strchr(copy, ':');
	equal = strchr(copy, '=');
	if (!colon || !equal || equal < colon || colon == copy || colon - copy >= NAME_SIZE)
		abort();
	*colon = *equal = '\0';
	memcpy(rule->name, copy, (size_t)(colon - copy) + 1);
	rule->number = colon[1] == '*' ? 0 : strtoul(colon + 1, NULL, 10);
	rule->value = value_of(equal + 1);
	n_rules++;
}

static void set_rules_locked(const char *spec)
{
	env_read = true;
	n_rules = n_counters = 0;
	all_calls = nth = 0;
	failed[0] = '\0';
	while (spec && *spec) {
		size_t len = strcspn(spec, ",");

		add_rule(spec, len);
		spec += len;
		spec += *spec == ',';
	}
}

void gdrsim_rm_fail(const char *spec)
{
	enter();
	set_rules_locked(spec);
	leave();
}

void gdrsim_rm_fail_nth(unsigned long n, int value)
{
	enter();
	set_rules_locked(NULL);
	nth = n;
	nth_value = -value;
	leave();
}

const char *gdrsim_rm_failed(void)
{
	return failed[0] ? failed : NULL;
}

unsigned long gdrsim_rm_calls(const char *name)
{
	unsigned long calls = 0;

	enter();
	if (!name)
		calls = all_calls;
	for (unsigned int i = 0; name && i < n_counters; i++)
		if (!strcmp(counters[i].name, name))
			calls = counters[i].calls;
	leave();
	return calls;
}

/* What a rule for this name makes of this call of it. */
static int count(const char *name)
{
	unsigned int i = 0;

	while (i < n_counters && strcmp(counters[i].name, name))
		i++;
	if (i == MAX_NAMES)
		abort();
	if (i == n_counters) {
		snprintf(counters[i].name, NAME_SIZE, "%s", name);
		counters[i].calls = 0;
		n_counters++;
	}
	counters[i].calls++;
	for (unsigned int r = 0; r < n_rules; r++)
		if (!strcmp(rules[r].name, name) &&
		    (!rules[r].number || rules[r].number == counters[i].calls))
			return rules[r].value;
	return 0;
}

int rm_fault(const char *name, unsigned int detail)
{
	char detailed[NAME_SIZE];
	int value;

	enter();
	if (!env_read)
		set_rules_locked(getenv("GDRSIM_RM_FAIL"));
	all_calls++;
	value = count(name);
	if (detail) {
		int more;

		snprintf(detailed, sizeof(detailed), "%s.%x", name, detail);
		more = count(detailed);
		value = value ? value : more;
	}
	if (nth && !--nth && !value)
		value = nth_value;
	if (value)
		snprintf(failed, sizeof(failed), "%s", detail ? detailed : name);
	leave();
	return value;
}
