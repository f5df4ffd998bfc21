/* SPDX-License-Identifier: MIT */
/*
 * Counting of calls and injected failures: GDRSIM_FAIL and the gdrsim_fail hooks of gdrsim.h.
 * It has its own lock, taken before and never inside the library's.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
#include "gdrsim.h"
#pragma GCC visibility pop
#include "fault.h"

#define MAX_NAMES 256
#define MAX_RULES 64
#define MAX_NAME  64

struct counter {
	const char *name; /* a literal of the library */
	unsigned long calls;
	unsigned long since_rules; /* calls since the rules were set */
};

struct rule {
	char name[MAX_NAME];
	unsigned long number; /* 0: every call */
	int result;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter counters[MAX_NAMES];
static unsigned int n_counters;
static struct rule rules[MAX_RULES];
static unsigned int n_rules;
static unsigned long total_calls;
static unsigned long nth; /* 0: off */
static int nth_result;
static const char *failed;
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

/* "cuMemAlloc" names cuMemAlloc_v2 as well. */
static bool same_call(const char *name, const char *call)
{
	size_t len = strlen(name);

	if (strncmp(name, call, len) != 0)
		return false;
	return call[len] == '\0' || strcmp(call + len, "_v2") == 0;
}

static void parse_rule(const char *text, size_t len)
{
	struct rule *rule = &rules[n_rules];
	const char *colon = memchr(text, ':', len);
	const char *equal = memchr(text, '=', len);
	size_t name_len;

	if (n_rules == MAX_RULES || !equal)
		return;
	name_len = (size_t)((colon && colon < equal ? colon : equal) - text);
	if (name_len == 0 || name_len >= MAX_NAME)
		return;
	memcpy(rule->name, text, name_len);
	rule->name[name_len] = '\0';
	rule->number = 0;
	if (colon && colon < equal && colon[1] != '*')
		rule->number = strtoul(colon + 1, NULL, 10);
	rule->result = (int)strtol(equal + 1, NULL, 0);
	n_rules++;
}

static void set_rules(const char *spec)
{
	n_rules = 0;
	for (unsigned int i = 0; i < n_counters; i++)
		counters[i].since_rules = 0;
	while (spec && *spec) {
		size_t len = strcspn(spec, ",");

		parse_rule(spec, len);
		spec += len;
		spec += *spec == ',';
	}
}

static void read_env_once(void)
{
	if (env_read)
		return;
	env_read = true;
	set_rules(getenv("GDRSIM_FAIL"));
}

static struct counter *counter_of(const char *name)
{
	for (unsigned int i = 0; i < n_counters; i++)
		if (counters[i].name == name || strcmp(counters[i].name, name) == 0)
			return &counters[i];
	if (n_counters == MAX_NAMES)
		abort();
	counters[n_counters].name = name;
	return &counters[n_counters++];
}

bool sim_fault(const char *name, int *result)
{
	struct counter *counter;
	bool fail = false;

	pthread_mutex_lock(&lock);
	read_env_once();
	counter = counter_of(name);
	counter->calls++;
	counter->since_rules++;
	total_calls++;
	for (unsigned int i = 0; i < n_rules && result && !fail; i++) {
		if (!same_call(rules[i].name, name))
			continue;
		if (rules[i].number && rules[i].number != counter->since_rules)
			continue;
		*result = rules[i].result;
		fail = true;
	}
	if (nth && result && --nth == 0 && !fail) {
		*result = nth_result;
		fail = true;
	}
	if (fail)
		failed = name;
	pthread_mutex_unlock(&lock);
	return fail;
}

void gdrsim_fail(const char *spec)
{
	pthread_mutex_lock(&lock);
	env_read = true;
	set_rules(spec);
	pthread_mutex_unlock(&lock);
}

unsigned long gdrsim_calls(const char *name)
{
	unsigned long calls = 0;

	pthread_mutex_lock(&lock);
	if (!name)
		calls = total_calls;
	for (unsigned int i = 0; name && i < n_counters; i++)
		if (same_call(name, counters[i].name))
			calls += counters[i].calls;
	pthread_mutex_unlock(&lock);
	return calls;
}

int gdrsim_fail_nth(unsigned long n, int result)
{
	pthread_mutex_lock(&lock);
	nth = n;
	nth_result = result;
	failed = NULL;
	pthread_mutex_unlock(&lock);
	return 0;
}

const char *gdrsim_failed(void)
{
	const char *name;

	pthread_mutex_lock(&lock);
	name = failed;
	pthread_mutex_unlock(&lock);
	return name;
}
