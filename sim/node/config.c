/* SPDX-License-Identifier: MIT */
/*
 * What the node's stand-in was told to be: its environment, and the calls that shall fail. It
 * knows nothing of what the calls do.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/node.h"

enum { MAX_RULES = 32, MAX_NAMES = 32, NAME_SIZE = 24 };

struct rule {
	char name[NAME_SIZE];
	unsigned long number; /* 0: every call */
	int err;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[MAX_RULES];
static unsigned int n_rules;
static struct {
	const char *name; /* a literal */
	unsigned long calls;
} counters[MAX_NAMES];
static bool env_read;

static const struct {
	const char *name;
	int err;
} errno_names[] = {
	{ "EPERM", EPERM },   { "ENOENT", ENOENT },	  { "EINTR", EINTR },
	{ "EIO", EIO },	      { "ENXIO", ENXIO },	  { "EAGAIN", EAGAIN },
	{ "ENOMEM", ENOMEM }, { "EACCES", EACCES },	  { "EFAULT", EFAULT },
	{ "EBUSY", EBUSY },   { "ENODEV", ENODEV },	  { "EINVAL", EINVAL },
	{ "ENFILE", ENFILE }, { "EMFILE", EMFILE },	  { "ENOTTY", ENOTTY },
	{ "ENOSPC", ENOSPC }, { "EOVERFLOW", EOVERFLOW }, { "EOPNOTSUPP", EOPNOTSUPP },
	{ "EBADF", EBADF },   { "ENOTSUPP", 524 },	  { "REVOKE", NODE_REVOKE },
};

static int errno_of(const char *text, size_t len)
{
	for (size_t i = 0; i < sizeof(errno_names) / sizeof(errno_names[0]); i++)
		if (strlen(errno_names[i].name) == len && !strncmp(errno_names[i].name, text, len))
			return errno_names[i].err;
	return atoi(text);
}

static void add_rule(const char *text, size_t len)
{
	const char *colon = memchr(text, ':', len), *equal = memchr(text, '=', len);
	struct rule *rule = &rules[n_rules];
	size_t name_len;

	if (n_rules == MAX_RULES || !colon || !equal || equal < colon)
		abort(); /* a rule that is not one would make a test that cannot fail */
	name_len = (size_t)(colon - text);
	if (!name_len || name_len >= NAME_SIZE)
		abort();
	memcpy(rule->name, text, name_len);
	rule->name[name_len] = '\0';
	rule->number = colon[1] == '*' ? 0 : strtoul(colon + 1, NULL, 10);
	rule->err = errno_of(equal + 1, len - (size_t)(equal + 1 - text));
	n_rules++;
}

static void set_rules_locked(const char *spec)
{
	env_read = true;
	n_rules = 0;
	memset(counters, 0, sizeof(counters));
	while (spec && *spec) {
		size_t len = strcspn(spec, ",");

		add_rule(spec, len);
		spec += len;
		spec += *spec == ',';
	}
}

void gdrsim_node_fail(const char *spec)
{
	pthread_mutex_lock(&lock);
	set_rules_locked(spec);
	pthread_mutex_unlock(&lock);
}

unsigned long gdrsim_node_calls(const char *name)
{
	unsigned long calls = 0;

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < MAX_NAMES && counters[i].name; i++)
		if (!strcmp(counters[i].name, name))
			calls = counters[i].calls;
	pthread_mutex_unlock(&lock);
	return calls;
}

int node_fault(const char *name)
{
	unsigned int i = 0;
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!env_read)
		set_rules_locked(getenv("GDRSIM_NODE_FAIL"));
	while (i < MAX_NAMES && counters[i].name && strcmp(counters[i].name, name) != 0)
		i++;
	if (i == MAX_NAMES)
		abort();
	counters[i].name = name;
	counters[i].calls++;
	for (unsigned int r = 0; r < n_rules && !err; r++)
		if (!strcmp(rules[r].name, name) &&
		    (!rules[r].number || rules[r].number == counters[i].calls))
			err = rules[r].err;
	pthread_mutex_unlock(&lock);
	return err;
}

static const char *env(const char *name, const char *absent)
{
	const char *v = getenv(name);

	return v && *v ? v : absent;
}

static uint32_t level_of(const char *name, const char *absent)
{
	unsigned int major = 0, minor = 0;

	if (sscanf(env(name, absent), "%u.%u", &major, &minor) != 2)
		abort();
	return major << 16 | minor;
}

/* Unless told otherwise it is there where it was asked for: preloaded under its own name. */
int node_presence(void)
{
	const char *preload = getenv("LD_PRELOAD");
	const char *absent = preload && strstr(preload, "libnvidia_node.so") &&
					     !strstr(preload, "libgdrdrv_node.so")
				     ? "absent"
				     : "present";
	const char *v = env("GDRSIM_NODE", absent);

	if (!strcmp(v, "absent"))
		return ENOENT;
	return strcmp(v, "denied") ? 0 : EACCES;
}

void node_config_read(struct node_config *c)
{
	c->level = level_of("GDRSIM_NODE_LEVEL", "2.6");
	c->min_api = level_of("GDRSIM_NODE_MIN_API", "2.0");
	c->persistent = atoi(env("GDRSIM_NODE_PERSISTENT", "1"));
	c->poll = atoi(env("GDRSIM_NODE_POLL", "1"));
	c->pcie = atoi(env("GDRSIM_NODE_PCIE", "0"));
	c->device = atoi(env("GDRSIM_NODE_DEVICE", "0"));
	c->type = (uint32_t)atoi(env("GDRSIM_NODE_TYPE", "1"));
	c->sources = (uint32_t)atoi(env("GDRSIM_NODE_SOURCES", "0"));
	c->first_handle = strtoull(env("GDRSIM_NODE_HANDLE", "1"), NULL, 0);
	c->skew = strtoll(env("GDRSIM_NODE_SKEW", "0"), NULL, 0);
}
