/* SPDX-License-Identifier: MIT */
/* Files below a root; see doctor.h. */
#include "doctor/doctor.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int root_open(struct root *r, const char *dir)
{
	char real[PATH_MAX];
	struct stat st;

	if (!realpath(dir, real) || stat(real, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (strlen(real) >= sizeof(r->top))
		return -ENAMETOOLONG;
	strcpy(r->top, strcmp(real, "/") ? real : "");
	return 0;
}

static int full_path(const struct root *r, const char *path, char full[PATH_MAX])
{
	int n = snprintf(full, PATH_MAX, "%s%s", r->top, path);

	return strlen(path) < ROOT_PATH && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

ssize_t root_read(const struct root *r, const char *path, void *buf, size_t size)
{
	char full[PATH_MAX];
	struct stat st;
	size_t got = 0;
	ssize_t n = 0;
	int err = full_path(r, path, full), fd;

	if (err)
		return err;
	if (stat(full, &st))
		return -errno;
	if (!S_ISREG(st.st_mode)) /* before it is opened: opening a device has effects */
		return -EINVAL;
	fd = open(full, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (got < size && (n = read(fd, (char *)buf + got, size - got)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		got += n > 0 ? (size_t)n : 0;
	}
	err = n < 0 && !got ? -errno : 0; /* what came before an error is kept */
	close(fd);
	return err ? err : (ssize_t)got;
}

int root_text(const struct root *r, const char *path, char *buf, size_t size)
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

int root_number(const struct root *r, const char *path, long long *value)
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

bool root_exists(const struct root *r, const char *path)
{
	char full[PATH_MAX];

	return !full_path(r, path, full) && !faccessat(AT_FDCWD, full, F_OK, 0);
}

int root_link(const struct root *r, const char *path, char *name, size_t size)
{
	char full[PATH_MAX], target[PATH_MAX];
	int err = full_path(r, path, full);
	ssize_t n = err ? -1 : readlink(full, target, sizeof(target) - 1);

	name[0] = '\0';
	if (n < 0)
		return err ? err : -errno;
	target[n] = '\0';
	snprintf(name, size, "%s", basename(target));
	return 0;
}

static int no_dots(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
}

int root_list(const struct root *r, const char *path, struct dirent ***names)
{
	char full[PATH_MAX];
	int n = full_path(r, path, full);

	*names = NULL;
	if (!n)
		n = scandir(full, names, no_dots, alphasort);
	return n == -1 ? -errno : n;
}

void root_list_free(struct dirent **names, int count)
{
	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
}
