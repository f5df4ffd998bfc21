/* SPDX-License-Identifier: MIT */
/*
 * Files below a root: "/" or the directory of a captured machine. Symbolic links are followed
 * inside that root only, an absolute one from its top, so that a captured /sys leads into itself
 * and never onto the machine that looks at it. Optionally everything that is read is copied into
 * another directory, which then is such a root. It must not know what the files say.
 */
#ifndef DOCTOR_ROOT_H
#define DOCTOR_ROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ROOT_PATH  1024 /* longest path that is followed, in bytes */
#define ROOT_NAMES 8192 /* most entries of a directory that are listed */

struct root {
	int fd;
	const char *copy; /* directory that gets what is read; NULL: none */
	bool copy_failed; /* and it has been said */
};

/* 0 or -errno. `dir` is "/" for the machine itself. */
int root_open(struct root *r, const char *dir);
void root_close(struct root *r);

/*
 * Reads up to `size` bytes from the start of a regular file: how many, or -errno (ELOOP: links that
 * go round; EINVAL: not a regular file). Never waits for a FIFO, never opens a device.
 */
ssize_t root_read(struct root *r, const char *path, void *buf, size_t size);

/*
 * The same as a string: a NUL is put behind it, NULs inside become newlines, white space at the end
 * goes. 0 or -errno, and "" in buf.
 */
int root_text(struct root *r, const char *path, char *buf, size_t size);

/* A number, decimal or with 0x; 0 or -errno (EINVAL: the file says something else). */
int root_number(struct root *r, const char *path, long long *value);

bool root_exists(struct root *r, const char *path);

/* The path behind all links, from the top of the root ("/sys/devices/..."): 0 or -errno. */
int root_real(struct root *r, const char *path, char *real, size_t size);

/* The names in a directory, sorted, without "." and "..". */
struct root_names {
	char **name;
	size_t count;
};
int root_list(struct root *r, const char *path, struct root_names *names);
void root_names_free(struct root_names *names);

#endif
