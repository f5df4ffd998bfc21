/* SPDX-License-Identifier: MIT */
/*
 * Counting of calls and injected failures: GDRSIM_FAIL and the gdrsim_fail hooks of gdrsim.h.
 * It has its own lock, taken before and never inside the library's.
 */
#include <pthread.h>
#include <stdlib.h>

#pragma GCC visibility push(default)
#include "gdrsim.h"
#pragma GCC visibility pop
#include "fault.h"
#include "rules.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rules rules;
static bool env_read;

/* A child may be forked while another thread counts; what it counts then is its own. */
static void lock_all(void)
{
	pthread_mutex_lock(&lock);
}

static void unlock_all(void)
{
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void survive_fork(void)
{
	pthread_atfork(lock_all, unlock_all, unlock_all);
}

bool sim_fault(const char *name, int *result)
{
	int value = 0;

	lock_all();
	if (!env_read)
		rules_set(&rules, getenv("GDRSIM_FAIL"));
	env_read = true;
	if (result)
		value = rules_call(&rules, name, NULL);
	else
		rules_pass(&rules, name);
	unlock_all();
	if (value)
		*result = value;
	return value;
}

void gdrsim_fail(const char *spec)
{
	lock_all();
	env_read = true;
	rules_set(&rules, spec);
	unlock_all();
}

unsigned long gdrsim_calls(const char *name)
{
	unsigned long calls;

	lock_all();
	calls = rules_calls(&rules, name).calls;
	unlock_all();
	return calls;
}

int gdrsim_fail_nth(unsigned long n, int result)
{
	lock_all();
	rules.nth = n;
	rules.nth_value = result;
	rules.failed[0] = '\0';
	unlock_all();
	return 0;
}

const char *gdrsim_failed(void)
{
	return rules.failed[0] ? rules.failed : NULL;
}
