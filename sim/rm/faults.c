/* SPDX-License-Identifier: MIT */
/* Counts calls and makes them fail. Every process has rules and counters of its own. */
#include <stdio.h>

#include "rm/rm.h"
#include "rules.h"

static struct rules rules = { .sign = -1 }; /* a value: errno, or -status */

void gdrsim_rm_fail(const char *spec)
{
	rules_set(&rules, spec);
	rules_fail_nth(&rules, 0, 0);
}

void gdrsim_rm_fail_nth(unsigned long n, int value)
{
	rules_set(&rules, NULL);
	rules_fail_nth(&rules, n, -value);
}

const char *gdrsim_rm_failed(void)
{
	return rules.failed[0] ? rules.failed : NULL;
}

unsigned long gdrsim_rm_calls(const char *name)
{
	return rules_calls(&rules, name).since;
}

int rm_fault(const char *name, unsigned int detail)
{
	char detailed[RULES_NAME];

	snprintf(detailed, sizeof(detailed), "%s.%x", name, detail);
	return rules_call(&rules, name, detail ? detailed : NULL);
}
