/* SPDX-License-Identifier: MIT */
/* See process.h. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* Before the first open there is no page: everything reads as "no tag". */
static const _Atomic uint32_t no_tag;
_Atomic(const _Atomic uint32_t *) gdri_process_page = &no_tag;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static _Atomic uint32_t *page;
static uint32_t last_tag; /* a child inherits it, so its own tags are new ones */
/*
 * Descriptors that a child closes. The program may have closed one by mistake and have a file of
 * its own at that number, so a number alone does not identify it.
 */
static struct owned {
	int fd;
	dev_t dev;
	ino_t ino;
} * owned;
static size_t count, room;

/*
 * How often this thread holds the lock: a thread that forks holds it while the application's own
 * handlers run, which may map. A child could not unlock a recursive mutex of the parent.
 */
static _Thread_local unsigned held __attribute__((tls_model("initial-exec")));

/* The table of GDRI_IN_CHILD(), whose ends the linker names; weak: a program may have no entry. */
extern void (*const __start_gdri_in_child[])(void) __attribute__((weak, visibility("hidden")));
extern void (*const __stop_gdri_in_child[])(void) __attribute__((weak, visibility("hidden")));

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

static struct owned identify(int fd)
{
	struct stat st = { .st_ino = 0 };

	(void)fstat(fd, &st);
	return (struct owned){ fd, st.st_dev, st.st_ino };
}

static bool is_same(struct owned a, struct owned b)
{
	return a.fd == b.fd && a.dev == b.dev && a.ino == b.ino;
}

/*
 * The child has one thread, and a lock that another thread held in the parent stays locked for
 * ever. So all locks but the fork lock, which the forking thread holds, are made anew; what they
 * guard is only reached after the tag was checked.
 */
static void in_child(void)
{
	for (; count; count--)
		if (is_same(owned[count - 1], identify(owned[count - 1].fd)))
			close(owned[count - 1].fd);
	/* Kernels before 4.14 do not know MADV_WIPEONFORK. */
	if (page)
		atomic_store_explicit(page, 0, memory_order_relaxed);
	gdri_fork_release();
	for (void (*const *fn)(void) = __start_gdri_in_child; fn < __stop_gdri_in_child; fn++)
		(*fn)();
}

static int make_page_locked(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	/* EINVAL: a kernel before 4.14; in_child() empties the page. */
	if (madvise(p, size, MADV_WIPEONFORK) && errno != EINVAL) {
		munmap(p, size);
		return -ENOMEM;
	}
	if (pthread_atfork(gdri_fork_hold, gdri_fork_release, in_child)) {
		munmap(p, size);
		return -ENOMEM;
	}
	page = p;
	atomic_store_explicit(&gdri_process_page, page, memory_order_release);
	return 0;
}

int gdri_process_enter(void)
{
	int rc;

	gdri_fork_hold();
	rc = page ? 0 : make_page_locked();
	if (!rc && !atomic_load_explicit(page, memory_order_relaxed))
		atomic_store_explicit(page, ++last_tag, memory_order_relaxed);
	gdri_fork_release();
	return rc ? gdri_fail(ENOMEM, "no memory for the fork guard") : 0;
}

int gdri_fork_map(void *at, size_t length, int prot, int flags, int fd, off_t offset, void **map)
{
	const int nothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	int err = 0;

	gdri_fork_hold();
	*map = mmap(at, length, prot, flags | (at ? MAP_FIXED : 0), fd, offset);
	if (*map == MAP_FAILED) {
		err = errno;
	} else if (madvise(*map, length, MADV_DONTFORK)) {
		err = -errno;
		/* A hole at `at` could become another thread's. */
		if (at)
			(void)mmap(at, length, PROT_NONE, nothing, -1, 0);
		else if (!munmap(*map, length))
			*map = MAP_FAILED;
	}
	gdri_fork_release();
	return err;
}

int gdri_fork_pages(size_t length, int flags, void **pages)
{
	int rc = gdri_fork_map(NULL, length, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0,
			       pages);

	if (!rc)
		return 0;
	return gdri_fail(rc > 0 || rc == -ENOMEM ? ENOMEM : ENOTSUP,
			 "no memory for pages of the host: %s: %s",
			 rc > 0 ? "mmap" : "madvise(MADV_DONTFORK)", strerror(abs(rc)));
}

static int own_locked(int fd)
{
	if (count == room) {
		size_t more = room ? 2 * room : 16;
		struct owned *bigger = realloc(owned, more * sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		owned = bigger;
		room = more;
	}
	owned[count++] = identify(fd);
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
	struct owned found = identify(fd);

	gdri_fork_hold();
	for (size_t i = 0; i < count; i++)
		if (is_same(owned[i], found)) {
			owned[i] = owned[--count];
			close(fd);
			break;
		}
	gdri_fork_release();
}
