/* SPDX-License-Identifier: MIT */
/* See rules.h. */
#include "rules.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void rules_set(struct rules *r, const char *spec)
{
	r->count = 0;
	r->all.since = 0;
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

static bool same(const char *name, const char *call)
{
	size_t len = strlen(name);

	return !strncmp(name, call, len) && (!call[len] || !strcmp(call + len, "_v2"));
}

/* Counts a call of a name; what a rule for it makes of this call. */
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

void rules_pass(struct rules *r, const char *name)
{
	r->all.calls++;
	r->all.since++;
	count(r, name);
}

int rules_call(struct rules *r, const char *name, const char *detailed)
{
	int value, more;

	r->all.calls++;
	r->all.since++;
	value = count(r, name);
	more = detailed ? count(r, detailed) : 0;
	value = value ? value : more;
	if (r->nth && !--r->nth && !value)
		value = r->nth_value;
	if (value)
		snprintf(r->failed, RULES_NAME, "%s", detailed ? detailed : name);
	return value;
}

struct rules_counter rules_calls(const struct rules *r, const char *name)
{
	struct rules_counter sum = { .calls = 0 };

	if (!name)
		return r->all;
	for (unsigned int i = 0; i < r->names; i++)
		if (same(name, r->counters[i].name)) {
			sum.calls += r->counters[i].calls;
			sum.since += r->counters[i].since;
		}
	return sum;
}
