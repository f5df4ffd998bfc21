/* SPDX-License-Identifier: MIT */
/* See fork.h. */
#include "base/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/*
 * How often this thread holds the lock: a thread that forks holds it while the application's own handlers run,
 * which may map. A recursive mutex would not do: its owner is the parent's thread, so a child cannot unlock it.
 */
static _Thread_local unsigned held __attribute__((tls_model("initial-exec")));
static int *owned; /* descriptors that a child closes; under lock */
static size_t count, room;

void gdri_fork_hold(void)
{
	if (!held++)
		pthread_mutex_lock(&lock);
}

void gdri_fork_release(void)
{
	if (!--held)
		pthread_mutex_unlock(&lock);
}

void gdri_fork_in_child(void)
{
	/* The forking thread holds the lock, so the table is whole. */
	while (count)
		close(owned[--count]);
	gdri_fork_release();
}

static int own_locked(int fd)
{
	if (count == room) {
		size_t more = room ? 2 * room : 16;
		int *bigger = realloc(owned, more * sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		owned = bigger;
		room = more;
	}
	owned[count++] = fd;
	return 0;
}

int gdri_fork_open(const char *path, int flags)
{
	int fd, err;

	gdri_fork_hold();
	do
		fd = open(path, flags | O_CLOEXEC);
	while (fd < 0 && errno == EINTR);
	err = errno;
	if (fd >= 0 && own_locked(fd)) {
		close(fd);
		err = ENOMEM;
		fd = -1;
	}
	gdri_fork_release();
	errno = err;
	return fd;
}

int gdri_fork_own(int fd)
{
	int rc;

	gdri_fork_hold();
	rc = own_locked(fd);
	gdri_fork_release();
	if (!rc)
		return 0;
	close(fd);
	return gdri_fail(ENOMEM, "no memory to keep a descriptor from child processes");
}

void gdri_fork_close(int fd)
{
	gdri_fork_hold();
	for (size_t i = 0; i < count; i++)
		if (owned[i] == fd) {
			owned[i] = owned[--count];
			break;
		}
	close(fd);
	gdri_fork_release();
}
