/* SPDX-License-Identifier: MIT */
/* See process.h. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

/* Before the first open there is no page: everything reads as "no tag". */
static const _Atomic uint32_t no_tag;
_Atomic(const _Atomic uint32_t *) gdri_process_page = &no_tag;

/* All under lock; last_tag is inherited by a child, so its own tags are new ones. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t *page;
static uint32_t last_tag;
static int *owned; /* descriptors that a child closes */
static size_t count, room;

/* What GDRI_IN_CHILD() has laid down, between the names that the linker gives to a section's ends. */
extern void (*const __start_gdri_in_child[])(void) __attribute__((visibility("hidden")));
extern void (*const __stop_gdri_in_child[])(void) __attribute__((visibility("hidden")));

void gdri_fork_hold(void)
{
	pthread_mutex_lock(&lock);
}

void gdri_fork_release(void)
{
	pthread_mutex_unlock(&lock);
}

/*
 * The child has one thread, and locks that other threads held in the parent stay locked for ever:
 * all but ours are made anew. What they guard is only ever reached after a tag check.
 */
static void in_child(void)
{
	/* Locked before the fork, in this very thread: so the table is whole. */
	while (count)
		close(owned[--count]);
	pthread_mutex_unlock(&lock);
	/* Where the kernel does not know MADV_WIPEONFORK. */
	if (page)
		atomic_store_explicit(page, 0, memory_order_relaxed);
	for (void (*const *fn)(void) = __start_gdri_in_child; fn < __stop_gdri_in_child; fn++)
		(*fn)();
}

static int make_page_locked(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	if (pthread_atfork(gdri_fork_hold, gdri_fork_release, in_child)) {
		munmap(p, size);
		return -ENOMEM;
	}
	/* Refused by kernels before 4.14: then in_child() alone tells a child. */
	(void)madvise(p, size, MADV_WIPEONFORK);
	page = p;
	atomic_store_explicit(&gdri_process_page, page, memory_order_release);
	return 0;
}

int gdri_process_enter(void)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = page ? 0 : make_page_locked();
	if (!rc && !atomic_load_explicit(page, memory_order_relaxed))
		atomic_store_explicit(page, ++last_tag, memory_order_relaxed);
	pthread_mutex_unlock(&lock);
	return rc ? gdri_fail(ENOMEM, "no memory for the fork guard") : 0;
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

	pthread_mutex_lock(&lock);
	fd = open(path, flags | O_CLOEXEC);
	err = errno;
	if (fd >= 0 && own_locked(fd)) {
		close(fd);
		err = ENOMEM;
		fd = -1;
	}
	pthread_mutex_unlock(&lock);
	errno = err;
	return fd;
}

int gdri_fork_own(int fd)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = own_locked(fd);
	pthread_mutex_unlock(&lock);
	if (!rc)
		return 0;
	close(fd);
	return gdri_fail(ENOMEM, "no memory to keep a descriptor from child processes");
}

void gdri_fork_close(int fd)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count; i++)
		if (owned[i] == fd) {
			owned[i] = owned[--count];
			break;
		}
	close(fd);
	pthread_mutex_unlock(&lock);
}
