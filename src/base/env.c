/* SPDX-License-Identifier: MIT */
/* See env.h. */
#include "base/env.h"

#include <stdlib.h>
#include <string.h>

const char *gdri_env(const char *name)
{
	return secure_getenv(name);
}

bool gdri_env_true(const char *name)
{
	const char *v = gdri_env(name);

	return v && *v && strcmp(v, "0");
}
