/* SPDX-License-Identifier: MIT */
/* Counts calls and makes them fail: GDRSIM_FAIL and the hooks of gdrsim.h. */
#include <stddef.h>

#pragma GCC visibility push(default)
#include "gdrsim.h"
#pragma GCC visibility pop
#include "machine.h"
#include "rules.h"

static struct rules rules = { .variable = "GDRSIM_FAIL" };

bool sim_fault(const char *name, int *result)
{
	int value = 0;

	if (result)
		value = rules_call(&rules, name, NULL);
	else
		rules_pass(&rules, name);
	if (value)
		*result = value;
	return value;
}

void gdrsim_fail(const char *spec)
{
	rules_set(&rules, spec);
}

unsigned long gdrsim_calls(const char *name)
{
	return rules_calls(&rules, name).calls;
}

int gdrsim_fail_nth(unsigned long n, int result)
{
	rules_fail_nth(&rules, n, result);
	return 0;
}

const char *gdrsim_failed(void)
{
	return rules.failed[0] ? rules.failed : NULL;
}
