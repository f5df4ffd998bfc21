/* SPDX-License-Identifier: MIT */
/*
 * The system calls that a program makes on /dev/gdrdrv (node.c) and on NVIDIA's nodes (rm/),
 * interposed before the C library. Every other path and descriptor goes on to the next definition:
 * the C library's, or a sanitizer's.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "node/node.h"
#include "rm/rm.h"

#define EXPORT __attribute__((visibility("default")))

/* Set by the first caller; concurrent first callers set the same values. */
static struct {
	struct libc_calls calls;
	int (*open)(const char *, int, ...);
	int (*openat)(int, const char *, int, ...);
	int (*ioctl)(int, unsigned long, ...);
	int (*access)(const char *, int);
	int (*stat)(const char *, struct stat *);
	int (*fcntl)(int, int, ...);
	int (*dup2)(int, int);
	int (*dup3)(int, int, int);
	FILE *(*fopen)(const char *, const char *);
	int (*uname)(struct utsname *);
} next;

static atomic_bool ready;

static void find_all(void)
{
#define FIND(at, name) next.at = (__typeof__(next.at))dlsym(RTLD_NEXT, name)
	FIND(calls.close, "close");
	FIND(calls.mmap, "mmap");
	FIND(calls.munmap, "munmap");
	FIND(calls.madvise, "madvise");
	FIND(calls.fstat, "fstat");
	FIND(open, "open");
	FIND(openat, "openat");
	FIND(ioctl, "ioctl");
	FIND(access, "access");
	FIND(stat, "stat");
	FIND(fcntl, "fcntl");
	FIND(dup2, "dup2");
	FIND(dup3, "dup3");
	FIND(fopen, "fopen");
	FIND(uname, "uname");
#undef FIND
}

const struct libc_calls *libc_calls(void)
{
	/* No lock: a sanitizer's run time calls mmap before its locks can be used. */
	if (!atomic_load_explicit(&ready, memory_order_acquire)) {
		find_all();
		atomic_store_explicit(&ready, true, memory_order_release);
	}
	return &next.calls;
}

static bool is_node_path(const char *path)
{
	return path && !strcmp(path, NODE_PATH);
}

/* The mode of an open, which exists only with some flags. */
#define MODE_OF(flags, mode)                                                      \
	do {                                                                      \
		va_list ap_;                                                      \
		va_start(ap_, flags);                                             \
		mode = (flags) & (O_CREAT | O_TMPFILE) ? va_arg(ap_, mode_t) : 0; \
		va_end(ap_);                                                      \
	} while (0)

/* The path below GDRSIM_SYS instead of /sys, or unchanged. */
static const char *sys_path(const char *path, char *text, size_t size)
{
	const char *dir = getenv("GDRSIM_SYS");

	if (!dir || !path || strncmp(path, "/sys/", 5) != 0 ||
	    snprintf(text, size, "%s/%s", dir, path + 5) >= (int)size)
		return path;
	return text;
}

EXPORT int uname(struct utsname *u)
{
	const char *release = getenv("GDRSIM_KERNEL");
	int rc;

	libc_calls();
	rc = next.uname(u);
	if (!rc && release)
		snprintf(u->release, sizeof(u->release), "%s", release);
	return rc;
}

EXPORT int open(const char *path, int flags, ...)
{
	char text[512];
	mode_t mode;

	MODE_OF(flags, mode);
	libc_calls();
	if (rm_is_path(path))
		return rm_open(path, flags);
	path = sys_path(path, text, sizeof(text));
	return is_node_path(path) ? node_open() : next.open(path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) __attribute__((alias("open")));

/* open() of a program built with -D_FORTIFY_SOURCE, as packages are. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);

EXPORT int __open_2(const char *path, int flags)
{
	return open(path, flags);
}

EXPORT int __open64_2(const char *path, int flags)
{
	return open(path, flags);
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode;

	MODE_OF(flags, mode);
	libc_calls();
	if (rm_is_path(path))
		return rm_open(path, flags);
	return is_node_path(path) ? node_open() : next.openat(dir, path, flags, mode);
}

EXPORT int openat64(int dir, const char *path, int flags, ...) __attribute__((alias("openat")));

EXPORT int access(const char *path, int how)
{
	int err;

	libc_calls();
	if (!is_node_path(path))
		return next.access(path, how);
	err = node_presence();
	if (err == EACCES && how == F_OK)
		err = 0;
	if (!err && (how & X_OK))
		err = EACCES;
	errno = err;
	return err ? -1 : 0;
}

EXPORT int stat(const char *path, struct stat *st)
{
	libc_calls();
	return rm_is_path(path) ? rm_stat(path, st) : next.stat(path, st);
}

EXPORT int stat64(const char *path, struct stat64 *st)
{
	return stat(path, (struct stat *)st);
}

EXPORT int fstat(int fd, struct stat *st)
{
	int rc = libc_calls()->fstat(fd, st), file;

	if (!rc && rm_is_state(st)) {
		file = rm_file_of(fd);
		if (file)
			rm_fstat(file, st);
	}
	return rc;
}

EXPORT int fstat64(int fd, struct stat64 *st)
{
	return fstat(fd, (struct stat *)st);
}

/* fstat() in programs of glibc before 2.33; the library of a wheel calls it. */
int __fxstat(int version, int fd, struct stat *st);
int __fxstat64(int version, int fd, struct stat64 *st);

EXPORT int __fxstat(int version, int fd, struct stat *st)
{
	(void)version; /* one on each architecture that has a wheel */
	return fstat(fd, st);
}

EXPORT int __fxstat64(int version, int fd, struct stat64 *st)
{
	return __fxstat(version, fd, (struct stat *)st);
}

/* Interposed for the files of /proc/driver/nvidia. */
EXPORT FILE *fopen(const char *path, const char *mode)
{
	int fd;

	libc_calls();
	if (!rm_is_path(path) || mode[0] != 'r')
		return next.fopen(path, mode);
	fd = rm_open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? NULL : fdopen(fd, "r");
}

EXPORT FILE *fopen64(const char *path, const char *mode) __attribute__((alias("fopen")));

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	int file;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	libc_calls();
	file = rm_file_of(fd);
	if (file)
		return rm_ioctl(file, fd, request, arg);
	return node_is(fd) ? node_ioctl(fd, request, arg) : next.ioctl(fd, request, arg);
}

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	int file;

	libc_calls();
	file = flags & MAP_ANONYMOUS ? 0 : rm_file_of(fd);
	if (file)
		return rm_node_mmap(file, fd, addr, len, prot, flags, (uint64_t)off);
	if (flags & MAP_FIXED)
		rm_unmapped(addr, len);
	if (!(flags & MAP_ANONYMOUS) && node_is(fd))
		return node_mmap(fd, addr, len, prot, flags, (uint64_t)off);
	return next.calls.mmap(addr, len, prot, flags, fd, off);
}

EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t off)
	__attribute__((alias("mmap")));

EXPORT int munmap(void *addr, size_t len)
{
	libc_calls();
	/* Before the call: after it the range may already be another thread's. */
	node_unmapped(addr, len);
	rm_unmapped(addr, len);
	return next.calls.munmap(addr, len);
}

EXPORT int madvise(void *addr, size_t len, int advice)
{
	int err = advice == MADV_DONTFORK ? node_fault("MADVISE") : 0;

	libc_calls();
	if (err) {
		errno = err;
		return -1;
	}
	if (advice == MADV_DONTFORK)
		rm_dontfork(addr, len);
	return next.calls.madvise(addr, len, advice);
}

EXPORT int close(int fd)
{
	int file;

	libc_calls();
	file = rm_file_of(fd);
	if (file)
		return rm_close(file, fd);
	return node_is(fd) ? node_close(fd) : next.calls.close(fd);
}

/* Counts a node's further descriptors. */
EXPORT int fcntl(int fd, int what, ...)
{
	va_list ap;
	void *arg;
	int rc;

	va_start(ap, what);
	arg = va_arg(ap, void *);
	va_end(ap);
	libc_calls();
	rc = next.fcntl(fd, what, arg);
	if (rc >= 0 && (what == F_DUPFD || what == F_DUPFD_CLOEXEC) && node_dup(fd, rc)) {
		next.calls.close(rc);
		errno = EMFILE;
		rc = -1;
	}
	return rc;
}

EXPORT int fcntl64(int fd, int what, ...) __attribute__((alias("fcntl")));

/* newfd's former file is closed. */
static int dup_onto(int fd, int newfd, int flags, bool has_flags)
{
	int file, rc;

	libc_calls();
	file = fd == newfd ? 0 : rm_file_of(newfd);
	rc = has_flags ? next.dup3(fd, newfd, flags) : next.dup2(fd, newfd);
	if (rc >= 0 && file)
		rm_closed(file);
	return rc;
}

EXPORT int dup3(int fd, int newfd, int flags)
{
	return dup_onto(fd, newfd, flags, true);
}

EXPORT int dup2(int fd, int newfd)
{
	return dup_onto(fd, newfd, 0, false);
}
