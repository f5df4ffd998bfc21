/* SPDX-License-Identifier: MIT */
/*
 * The environment: every variable is read through here, so that a set-uid program ignores it.
 * It knows nothing of what the variables mean.
 */
#ifndef GDRI_ENV_H
#define GDRI_ENV_H

#include <stdbool.h>

/* secure_getenv(): NULL when unset or when the process runs with raised privileges. */
const char *gdri_env(const char *name);

/* True for a value that is not empty and not "0". */
bool gdri_env_true(const char *name);

#endif
