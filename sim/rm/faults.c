/* SPDX-License-Identifier: MIT */
/*
 * Counting of calls, and those that shall fail. Every process has rules and counters of its own. It
 * knows nothing of what the calls do.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "rm/rm.h"
#include "rules.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rules rules = { .sign = -1 }; /* a value: errno, or -status */

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

static void set_rules(const char *spec)
{
	rules_set(&rules, spec);
	rules.nth = 0;
	rules.failed[0] = '\0';
}

void gdrsim_rm_fail(const char *spec)
{
	enter();
	set_rules(spec);
	leave();
}

void gdrsim_rm_fail_nth(unsigned long n, int value)
{
	enter();
	set_rules(NULL);
	rules.nth = n;
	rules.nth_value = -value;
	leave();
}

const char *gdrsim_rm_failed(void)
{
	return rules.failed[0] ? rules.failed : NULL;
}

unsigned long gdrsim_rm_calls(const char *name)
{
	unsigned long calls;

	enter();
	calls = rules_calls(&rules, name).since;
	leave();
	return calls;
}

int rm_fault(const char *name, unsigned int detail)
{
	char detailed[RULES_NAME];
	int value;

	snprintf(detailed, sizeof(detailed), "%s.%x", name, detail);
	enter();
	value = rules_call(&rules, name, detail ? detailed : NULL);
	leave();
	return value;
}
