/* SPDX-License-Identifier: MIT */
/* A copy of what was read; see root_copy.h. */
#include "doctor/root_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit.h"

#define COPY_PATH (2 * ROOT_PATH)

static void failed(struct root *r, const char *path)
{
	if (!r->copy_failed)
		tool_note("the copy of the files is not complete: %s: %s", path, strerror(errno));
	r->copy_failed = true;
}

/* The name in the copy, its directories made: false if there is nothing to do. */
static bool prepare(struct root *r, const char *name, char path[COPY_PATH])
{
	int n;

	if (!r->copy || r->copy_failed)
		return false;
	n = snprintf(path, COPY_PATH, "%s/%s", r->copy, name);
	if (n < 0 || n >= COPY_PATH) {
		errno = ENAMETOOLONG;
		failed(r, name);
		return false;
	}
	for (char *slash = path + strlen(r->copy); (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(path, 0755) && errno != EEXIST) {
			failed(r, path);
			*slash = '/';
			return false;
		}
		*slash = '/';
	}
	return true;
}

static void put(struct root *r, const char *path, int flags, mode_t mode, const void *bytes,
		size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, mode);

	if (fd < 0) {
		if (errno != EEXIST)
			failed(r, path);
		return;
	}
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n <= 0) {
			failed(r, path);
			break;
		}
		bytes = (const char *)bytes + n;
		size -= (size_t)n;
	}
	if (close(fd))
		failed(r, path);
}

void root_copy_file(struct root *r, const char *name, const void *bytes, size_t size)
{
	char path[COPY_PATH];

	if (prepare(r, name, path))
		put(r, path, O_TRUNC, 0644, bytes, size);
}

void root_copy_link(struct root *r, const char *name, const char *target)
{
	char path[COPY_PATH];

	if (prepare(r, name, path) && symlink(target, path) && errno != EEXIST)
		failed(r, path);
}

void root_copy_name(struct root *r, const char *name, bool directory)
{
	char path[COPY_PATH];

	if (!prepare(r, name, path))
		return;
	if (!directory)
		put(r, path, O_EXCL, 0644, "", 0);
	else if (mkdir(path, 0755) && errno != EEXIST)
		failed(r, path);
}

void root_copy_closed(struct root *r, const char *name)
{
	char path[COPY_PATH];

	if (prepare(r, name, path))
		put(r, path, O_EXCL, 0, "", 0);
}
