/* SPDX-License-Identifier: MIT */
/* The environment: a set-uid program ignores all of the library's variables. */
#ifndef GDRI_ENV_H
#define GDRI_ENV_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* NULL when unset or when the process runs with raised privileges. */
static inline const char *gdri_env(const char *name)
{
	return secure_getenv(name);
}

/* True for a value that is not empty and not "0". */
static inline bool gdri_env_true(const char *name)
{
	const char *v = gdri_env(name);

	return v && *v && strcmp(v, "0");
}

#endif
