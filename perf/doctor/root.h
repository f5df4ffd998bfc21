/* SPDX-License-Identifier: MIT */
/*
 * Files below a root: "/", or the directory of a described machine. The target of a link is used as it
 * stands. It must not know what the files mean.
 */
#ifndef DOCTOR_ROOT_H
#define DOCTOR_ROOT_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ROOT_PATH 1024 /* longest path, in bytes */

struct root {
	char top[ROOT_PATH]; /* without links and the last slash: "" is the machine itself */
};

/* 0 or -errno. `dir` is "/" for the machine itself. */
int root_open(struct root *r, const char *dir);

/*
 * Reads up to `size` bytes from the start of a regular file. Their number, or -errno (EINVAL: not a
 * regular file). Never waits for a FIFO, never opens a device.
 */
ssize_t root_read(const struct root *r, const char *path, void *buf, size_t size);

/*
 * Reads it as a string: a NUL inside becomes a newline, white space at the end is removed. 0, or -errno
 * with "" in buf.
 */
int root_text(const struct root *r, const char *path, char *buf, size_t size);

/* A number, decimal or with 0x; 0 or -errno (EINVAL: the file contains something else). */
int root_number(const struct root *r, const char *path, long long *value);

bool root_exists(const struct root *r, const char *path);

/* The path behind all links, from the top of the root ("/sys/devices/..."): 0 or -errno. */
int root_real(const struct root *r, const char *path, char *real, size_t size);

/* The names in a directory, sorted, without "." and "..": their number, or -errno. */
int root_list(const struct root *r, const char *path, struct dirent ***names);
void root_list_free(struct dirent **names, int count);

#endif
