// SPDX-License-Identifier: MIT
/* See wrap.h. The names after --wrap are in tests/tests.mk. */
#include "wrap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RULES = 4, MAX_NAMES = 32 };

static _Thread_local struct {
	bool on;
	unsigned long nth;
	struct {
		const char *name;
		unsigned long left; /* until it fails; 0: spent */
		bool every;
		int err;
	} rules[MAX_RULES];
	size_t n_rules;
	struct {
		const char *name;
		unsigned long calls;
	} counts[MAX_NAMES];
	const char *before_name;
	void (*before)(void);
	const char *failed;
	const char *deny_library, *deny_symbol;
	const char *path, *instead;
	int ignored, substitute; /* flags of mmap */
	off_t lseek_size;
	uint64_t clock_ns, clock_step, slept;
} w;

static _Atomic long long mapped;
static _Atomic time_t clock_second;

void wrap_reset(void)
{
	memset(&w, 0, sizeof(w));
	w.on = true;
	w.lseek_size = -1;
}

void wrap_fail_nth(unsigned long n)
{
	w.nth = n;
}

void wrap_fail(const char *name, unsigned long nth, int err)
{
	if (w.n_rules == MAX_RULES)
		abort();
	w.rules[w.n_rules].name = name;
	w.rules[w.n_rules].left = nth;
	w.rules[w.n_rules].every = !nth;
	w.rules[w.n_rules].err = err;
	w.n_rules++;
}

void wrap_mmap_ignores(int flag)
{
	w.ignored = flag;
	w.substitute = flag == MAP_SHARED ? MAP_PRIVATE : 0;
}

void wrap_before(const char *name, void (*fn)(void))
{
	w.before_name = name;
	w.before = fn;
}

void wrap_deny_library(const char *part)
{
	w.deny_library = part;
}

void wrap_deny_symbol(const char *part)
{
	w.deny_symbol = part;
}

void wrap_instead(const char *path, const char *file)
{
	w.path = path;
	w.instead = file;
}

void wrap_clock(time_t second)
{
	atomic_store(&clock_second, second);
}

void wrap_clock_steps(uint64_t ns)
{
	w.clock_ns = UINT64_C(1000000000);
	w.clock_step = ns;
}

void wrap_lseek_size(off_t size)
{
	w.lseek_size = size;
}

const char *wrap_failed(void)
{
	return w.failed;
}

unsigned long wrap_calls(const char *name)
{
	for (size_t i = 0; i < MAX_NAMES && w.counts[i].name; i++)
		if (!strcmp(w.counts[i].name, name))
			return w.counts[i].calls;
	return 0;
}

uint64_t wrap_slept(void)
{
	return w.slept;
}

long long wrap_mapped(void)
{
	return atomic_load(&mapped);
}

static void run_before(const char *name)
{
	void (*before)(void) = w.before;

	if (!before || strcmp(w.before_name, name))
		return;
	w.before = NULL;
	before();
}

static void count(const char *name)
{
	size_t i;

	for (i = 0; w.counts[i].name && strcmp(w.counts[i].name, name); i++)
		if (i + 1 == MAX_NAMES)
			abort();
	w.counts[i].name = name;
	w.counts[i].calls++;
}

/* Whether this call is to fail: errno is set then. */
static bool fails(const char *name, int usual)
{
	if (!w.on)
		return false;
	count(name);
	run_before(name);
	for (size_t r = 0; r < w.n_rules; r++)
		if (!strcmp(w.rules[r].name, name) &&
		    (w.rules[r].every || (w.rules[r].left && !--w.rules[r].left))) {
			w.failed = name;
			errno = w.rules[r].err;
			return true;
		}
	if (w.nth && !--w.nth) {
		w.failed = name;
		errno = usual;
		return true;
	}
	return false;
}

#define WRAP(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

/* A call that fails with ENOMEM, or is made. */
#define PLAIN(type, name, failed, params, args)                            \
	type __real_##name params;                                         \
	type __wrap_##name params;                                         \
	type __wrap_##name params                                          \
	{                                                                  \
		return fails(#name, ENOMEM) ? failed : __real_##name args; \
	}

PLAIN(int, mprotect, -1, (void *addr, size_t size, int prot), (addr, size, prot))
PLAIN(int, madvise, -1, (void *addr, size_t size, int advice), (addr, size, advice))
PLAIN(void *, malloc, NULL, (size_t size), (size))
PLAIN(void *, calloc, NULL, (size_t count, size_t size), (count, size))
PLAIN(void *, realloc, NULL, (void *p, size_t size), (p, size))
PLAIN(void *, aligned_alloc, NULL, (size_t align, size_t size), (align, size))
PLAIN(int, pthread_atfork, ENOMEM,
      (void (*prepare)(void), void (*parent)(void), void (*child)(void)), (prepare, parent, child))

int __real_munmap(void *addr, size_t size);

/* Where a driver's mmap fails, Linux has emptied the place of MAP_FIXED before (seen on 6.18). */
WRAP(void *, mmap, void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
	bool fixed = flags & MAP_FIXED, failed = fails("mmap", ENOMEM);
	void *p = failed ? MAP_FAILED
			 : __real_mmap(addr, size, prot, (flags & ~w.ignored) | w.substitute, fd,
				       offset);
	int err = errno;

	if (failed && fixed)
		__real_munmap(addr, size);
	/* With MAP_FIXED it takes the place of what has been counted. */
	if (p != MAP_FAILED && !fixed)
		atomic_fetch_add(&mapped, (long long)size);
	else if (p == MAP_FAILED && fixed && msync(addr, size, MS_ASYNC))
		atomic_fetch_sub(&mapped, (long long)size);
	errno = err;
	return p;
}

WRAP(int, munmap, void *addr, size_t size)
{
	if (fails("munmap", ENOMEM))
		return -1;
	if (__real_munmap(addr, size))
		return -1;
	atomic_fetch_sub(&mapped, (long long)size);
	return 0;
}

WRAP(off_t, lseek, int fd, off_t offset, int whence)
{
	if (fails("lseek", ESPIPE))
		return -1;
	return w.on && w.lseek_size >= 0 ? w.lseek_size + offset : __real_lseek(fd, offset, whence);
}

int __real_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	long arg;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	return fails("fcntl", EINVAL) ? -1 : __real_fcntl(fd, cmd, arg);
}

/* As Linux does it: the descriptor is gone even where close reports an error. */
WRAP(int, close, int fd)
{
	bool failed = fails("close", EINTR);
	int rc = __real_close(fd);

	if (failed)
		errno = EINTR;
	return failed ? -1 : rc;
}

static const char *path_of(const char *path)
{
	return w.on && w.path && !strncmp(path, w.path, strlen(w.path)) ? w.instead : path;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, int) : 0;
	va_end(ap);
	if (fails("open", EMFILE))
		return -1;
	return __real_open(path_of(path), flags, mode);
}

/* Each longer read() gives a part. */
WRAP(ssize_t, read, int fd, void *buf, size_t size)
{
	return fails("read", EIO) ? -1 : __real_read(fd, buf, w.on && size > 4096 ? 5 : size);
}

/* open() of a hardened library. */
int __wrap___open_2(const char *path, int flags);
int __wrap___open_2(const char *path, int flags)
{
	return __wrap_open(path, flags);
}

WRAP(FILE *, fopen, const char *path, const char *mode)
{
	return fails("fopen", EMFILE) ? NULL : __real_fopen(path_of(path), mode);
}

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	return fails("ioctl", ENOMEM) ? -1 : __real_ioctl(fd, request, arg);
}

static _Thread_local int dl_err; /* of a dlopen() that was made to fail */

WRAP(void *, dlopen, const char *file, int flags)
{
	bool denied = w.on && w.deny_library && file && strstr(file, w.deny_library);

	dl_err = fails("dlopen", ENOENT) ? errno : denied ? ENOENT : 0;
	return dl_err ? NULL : __real_dlopen(file, flags);
}

/* With the errno's text at its end, as in the C libraries'. */
WRAP(char *, dlerror, void)
{
	static _Thread_local char denied[96];

	if (!dl_err)
		return __real_dlerror();
	snprintf(denied, sizeof(denied), "a test denied this library: %s", strerror(dl_err));
	return denied;
}

WRAP(void *, dlsym, void *lib, const char *name)
{
	if (w.on && w.deny_symbol && strstr(name, w.deny_symbol))
		return NULL;
	return fails("dlsym", 0) ? NULL : __real_dlsym(lib, name);
}

/* Only the library's probe of a mapping comes this way. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	long a, b, c, d;
	va_list ap;

	va_start(ap, number);
	a = va_arg(ap, long);
	b = va_arg(ap, long);
	c = va_arg(ap, long);
	d = va_arg(ap, long);
	va_end(ap);
	return fails("syscall", EFAULT) ? -1 : __real_syscall(number, a, b, c, d);
}

/*
 * The clock does not fail, and is not counted. Where its second stands the rest of it goes on: what
 * is made of it differs from call to call.
 */
WRAP(int, clock_gettime, clockid_t id, struct timespec *t)
{
	time_t second = atomic_load(&clock_second);
	int rc;

	run_before("clock_gettime");
	rc = __real_clock_gettime(id, t);
	if (second && id == CLOCK_MONOTONIC)
		t->tv_sec = second;
	if (w.clock_step && id == CLOCK_MONOTONIC) {
		w.clock_ns += w.clock_step;
		t->tv_sec = (time_t)(w.clock_ns / 1000000000);
		t->tv_nsec = (long)(w.clock_ns % 1000000000);
	}
	return rc;
}

/* Rests do not fail. */
WRAP(int, sched_yield, void)
{
	if (w.on)
		count("sched_yield");
	return __real_sched_yield();
}

WRAP(int, nanosleep, const struct timespec *t, struct timespec *left)
{
	if (w.on)
		count("nanosleep");
	w.slept += (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
	return __real_nanosleep(t, left);
}
