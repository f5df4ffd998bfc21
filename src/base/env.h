/* SPDX-License-Identifier: MIT */
/* What the library reads of its surroundings: environment variables, and one-line files. */
#ifndef GDRI_ENV_H
#define GDRI_ENV_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"

/* NULL when unset, and in a set-uid program, which ignores all of the library's variables. */
static inline const char *gdri_env(const char *name)
{
	return secure_getenv(name);
}

/* Returns true if the value is neither empty nor "0". */
static inline bool gdri_env_true(const char *name)
{
	const char *v = gdri_env(name);

	return v && *v && strcmp(v, "0");
}

/*
 * Reads a file's first line. A child closes the file. 0; or -errno, with "", where the file cannot
 * be read.
 */
static inline int gdri_read_line(const char *path, char *text, size_t size)
{
	int fd = gdri_fork_open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
	int rc = n < 0 ? -errno : 0;

	if (fd >= 0)
		gdri_fork_close(fd);
	text[n < 0 ? 0 : n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return rc;
}

#endif
