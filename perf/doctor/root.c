/* SPDX-License-Identifier: MIT */
/* Files below a root; see root.h. */
#include "doctor/root.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit.h"
#include "doctor/root_copy.h"

#define MAX_LINKS 40 /* as the kernel has it */

int root_open(struct root *r, const char *dir)
{
	*r = (struct root){ .fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	return r->fd < 0 ? -errno : 0;
}

void root_close(struct root *r)
{
	close(r->fd);
	r->fd = -1;
}

static void cut_last(char *real)
{
	char *slash = strrchr(real, '/');

	*(slash ? slash : real) = '\0';
}

/*
 * One step of the walk: `real` is a name below the root whose last component may be a link. If so,
 * the link's text goes before `rest` and true is returned; *err is 0 or -errno.
 */
static bool follow(struct root *r, char *real, char *rest, int *err)
{
	char target[ROOT_PATH], joined[ROOT_PATH];
	ssize_t n = readlinkat(r->fd, real, target, sizeof(target));

	*err = 0;
	if (n < 0) {
		if (errno != EINVAL) /* EINVAL: it is there and no link */
			*err = -errno;
		return false;
	}
	if ((size_t)n + strlen(rest) + 2 > sizeof(joined)) {
		*err = -ENAMETOOLONG;
		return false;
	}
	target[n] = '\0';
	root_copy_link(r, real, target);
	memcpy(joined, target, (size_t)n);
	joined[n] = '/';
	strcpy(joined + n + 1, rest);
	strcpy(rest, joined);
	if (target[0] == '/')
		*real = '\0';
	else
		cut_last(real);
	return true;
}

/* `path` without links, relative to the root's top ("sys/devices/..."): 0 or -errno. */
static int resolve(struct root *r, const char *path, char real[ROOT_PATH])
{
	char rest[ROOT_PATH], *at;
	int links = 0, err;

	if (strlen(path) >= sizeof(rest))
		return -ENAMETOOLONG;
	strcpy(rest, path);
	*real = '\0';
	for (at = rest; *at;) {
		size_t n = strcspn(at, "/"), used = strlen(real);

		if (!n || (n == 1 && *at == '.')) {
			at += n + (at[n] == '/');
			continue;
		}
		if (n == 2 && !strncmp(at, "..", 2)) {
			cut_last(real);
			at += n + (at[n] == '/');
			continue;
		}
		if (used + n + 2 > ROOT_PATH)
			return -ENAMETOOLONG;
		if (used)
			real[used++] = '/';
		memcpy(real + used, at, n);
		real[used + n] = '\0';
		at += n + (at[n] == '/');
		memmove(rest, at, strlen(at) + 1);
		at = rest;
		if (follow(r, real, rest, &err) && ++links > MAX_LINKS)
			return -ELOOP;
		if (err)
			return err;
	}
	if (!*real)
		strcpy(real, ".");
	return 0;
}

static int open_inside(struct root *r, const char *path, int flags, char real[ROOT_PATH])
{
	int err = resolve(r, path, real), fd;

	if (err)
		return err;
	fd = openat(r->fd, real, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Refuses what is not a regular file before it is opened: opening a device does things. */
static int check_regular(struct root *r, const char *path)
{
	char real[ROOT_PATH];
	struct stat st;
	int err = resolve(r, path, real);

	if (err)
		return err;
	if (fstatat(r->fd, real, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	return S_ISREG(st.st_mode) ? 0 : -EINVAL;
}

ssize_t root_read(struct root *r, const char *path, void *buf, size_t size)
{
	char real[ROOT_PATH];
	size_t got = 0;
	int err = check_regular(r, path), fd;

	if (err)
		return err;
	fd = open_inside(r, path, O_RDONLY, real);
	if (fd < 0) {
		if (fd == -EACCES)
			root_copy_closed(r, real);
		return fd;
	}
	while (got < size) {
		ssize_t n = read(fd, (char *)buf + got, size - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			err = -errno;
			break;
		}
		if (!n)
			break;
		got += (size_t)n;
	}
	close(fd);
	/* what came before an error is kept: a config space may end in one */
	if (err && !got)
		return err;
	root_copy_file(r, real, buf, got);
	return (ssize_t)got;
}

int root_text(struct root *r, const char *path, char *buf, size_t size)
{
	ssize_t n = root_read(r, path, buf, size - 1);

	buf[n < 0 ? 0 : n] = '\0';
	if (n < 0)
		return (int)n;
	for (ssize_t i = 0; i < n; i++)
		if (!buf[i])
			buf[i] = '\n';
	while (n && isspace((unsigned char)buf[n - 1]))
		buf[--n] = '\0';
	return 0;
}

int root_number(struct root *r, const char *path, long long *value)
{
	char text[64], *end;
	long long v;
	int err = root_text(r, path, text, sizeof(text));

	if (err)
		return err;
	errno = 0;
	v = strtoll(text, &end, 0);
	if (end == text || *end || errno)
		return -EINVAL;
	*value = v;
	return 0;
}

bool root_exists(struct root *r, const char *path)
{
	char real[ROOT_PATH];
	struct stat st;

	if (resolve(r, path, real) || fstatat(r->fd, real, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	root_copy_name(r, real, S_ISDIR(st.st_mode));
	return true;
}

int root_real(struct root *r, const char *path, char *real, size_t size)
{
	char inside[ROOT_PATH];
	int err = resolve(r, path, inside);

	if (err)
		return err;
	if (strlen(inside) + 2 > size)
		return -ENAMETOOLONG;
	real[0] = '/';
	strcpy(real + 1, strcmp(inside, ".") ? inside : "");
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int root_list(struct root *r, const char *path, struct root_names *names)
{
	char real[ROOT_PATH];
	struct dirent *entry;
	DIR *dir;
	int fd = open_inside(r, path, O_RDONLY | O_DIRECTORY, real);

	*names = (struct root_names){ 0 };
	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	root_copy_name(r, real, true);
	names->name = tool_calloc(ROOT_NAMES, sizeof(*names->name));
	while ((entry = readdir(dir)) && names->count < ROOT_NAMES) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		names->name[names->count] = strdup(entry->d_name);
		if (!names->name[names->count])
			tool_fail("out of memory");
		names->count++;
	}
	closedir(dir);
	qsort(names->name, names->count, sizeof(*names->name), by_name);
	return 0;
}

void root_names_free(struct root_names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->name[i]);
	free(names->name);
	*names = (struct root_names){ 0 };
}
