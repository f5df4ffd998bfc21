// SPDX-License-Identifier: MIT
/*
 * What waits, sleeps or asks for the time, for every object of the process, stand-ins too: these
 * definitions come before the C library's. A thread that would wait gives the baton away; no lock
 * is ever waited for in the C library. See explore.h.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "explore/explore.h"

#define PC __builtin_return_address(0)

static void *next_of(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (!p)
		abort();
	return p;
}

/* The C library's. */
#define NEXT(name)                                                 \
	({                                                         \
		static __typeof__(&name) next_;                    \
		if (!next_)                                        \
			next_ = (__typeof__(&name))next_of(#name); \
		next_;                                             \
	})

static bool by_library(const void *pc);

/*
 * Each thread's last unlock, until its next fence. In C11 the loads behind an unlock may come before
 * it. So a thread that has not seen the unlock finds the lock taken, if it only tries it: else
 * "whoever holds the lock looks again after the unlock" would seem to need no fence.
 */
static const void *unseen[EX_THREADS];

/* The library's locks order its accesses; those of others do not. */
static int taken(int rc, const void *lock, const void *pc)
{
	for (int t = 0; !rc && t < EX_THREADS; t++)
		unseen[t] = unseen[t] == lock ? NULL : unseen[t];
	if (!rc && by_library(pc))
		ex_race_acquire(lock);
	return rc;
}

void ex_unlocks_are_seen(void)
{
	if (ex_inside())
		unseen[ex_me()] = NULL;
}

static bool seems_taken(const pthread_mutex_t *m)
{
	for (int t = 0; t < EX_THREADS; t++)
		if (unseen[t] == m && t != ex_me() && !ex_race_has_seen(m))
			return true;
	return false;
}

static void to_be_given(const void *lock, const void *pc)
{
	if (by_library(pc))
		ex_race_release(lock);
}

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

/* ---- locks ----------------------------------------------------------------------------------- */

int pthread_mutex_lock(pthread_mutex_t *m)
{
	int rc;

	if (!ex_inside())
		return NEXT(pthread_mutex_lock)(m);
	ex_at_point(false, PC);
	while ((rc = NEXT(pthread_mutex_trylock)(m)) == EBUSY)
		ex_wait(m, "a mutex", 0, PC);
	return taken(rc, m, PC);
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
	ex_at_point(false, PC);
	if (by_library(PC) && seems_taken(m))
		return EBUSY;
	return taken(NEXT(pthread_mutex_trylock)(m), m, PC);
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
	int rc;

	to_be_given(m, PC);
	rc = NEXT(pthread_mutex_unlock)(m);
	if (ex_inside()) {
		unseen[ex_me()] = by_library(PC) ? m : NULL;
		ex_wake(m, false);
		ex_at_point(false, PC);
	}
	return rc;
}

static int wait_for(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until_ns, void *pc)
{
	bool woken;

	to_be_given(m, pc);
	NEXT(pthread_mutex_unlock)(m);
	ex_wake(m, false);
	woken = ex_wait(c, "a condition", until_ns, pc);
	while (NEXT(pthread_mutex_trylock)(m) == EBUSY)
		ex_wait(m, "a condition's mutex", 0, pc);
	(void)taken(0, m, pc);
	return woken ? 0 : ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	return ex_inside() ? wait_for(c, m, 0, PC) : NEXT(pthread_cond_wait)(c, m);
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
	return ex_inside() ? wait_for(c, m, ns_of(t), PC) : NEXT(pthread_cond_timedwait)(c, m, t);
}

int pthread_cond_signal(pthread_cond_t *c)
{
	if (!ex_inside())
		return NEXT(pthread_cond_signal)(c);
	ex_wake(c, true);
	ex_at_point(false, PC);
	return 0;
}

int pthread_cond_broadcast(pthread_cond_t *c)
{
	if (!ex_inside())
		return NEXT(pthread_cond_broadcast)(c);
	ex_wake(c, false);
	ex_at_point(false, PC);
	return 0;
}

int sem_wait(sem_t *s)
{
	if (!ex_inside())
		return NEXT(sem_wait)(s);
	ex_at_point(false, PC);
	while (sem_trywait(s))
		ex_wait(s, "a semaphore", 0, PC);
	return taken(0, s, PC);
}

int sem_post(sem_t *s)
{
	int rc;

	to_be_given(s, PC);
	rc = NEXT(sem_post)(s);
	if (ex_inside()) {
		ex_wake(s, true);
		ex_at_point(false, PC);
	}
	return rc;
}

/* A lock of the scheduler's that its holder may take again. */
struct again {
	pthread_t holder;
	int depth;
};

static void take(struct again *a, const char *what)
{
	if (!ex_inside())
		return;
	while (a->depth && !pthread_equal(a->holder, pthread_self()))
		ex_wait(a, what, 0, PC);
	a->holder = pthread_self();
	a->depth++;
}

static void give(struct again *a)
{
	if (ex_inside() && !--a->depth)
		ex_wake(a, false);
}

/* What runs once may switch to another thread, which then waits here and not in the C library. */
static struct again once;

int pthread_once(pthread_once_t *control, void (*fn)(void))
{
	pthread_once_t before;
	int rc;

	take(&once, "pthread_once()");
	before = *control;
	rc = NEXT(pthread_once)(control, fn);
	if (*control != before)
		to_be_given(control, PC);
	give(&once);
	return taken(rc, control, PC);
}

/* ---- the loader's lock, which is held across callbacks and constructors ------------------------ */

static struct again loader;
static bool loader_of_library; /* the library holds it */

struct iteration {
	int (*fn)(struct dl_phdr_info *, size_t, void *);
	void *arg;
};

static int with_lock(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct iteration *i = arg;

	ex_at_point(ex_inside() && !ex_random(ex_patience), PC);
	return i->fn(info, size, i->arg);
}

int dl_iterate_phdr(int (*fn)(struct dl_phdr_info *, size_t, void *), void *arg)
{
	struct iteration iteration = { fn, arg };
	bool before;
	int rc;

	take(&loader, "the loader");
	before = loader_of_library;
	loader_of_library |= by_library(PC);
	rc = NEXT(dl_iterate_phdr)(with_lock, &iteration);
	loader_of_library = before;
	give(&loader);
	return rc;
}

void *dlopen(const char *file, int flags)
{
	void *p;

	take(&loader, "the loader");
	p = NEXT(dlopen)(file, flags);
	give(&loader);
	return p;
}

int dlclose(void *library)
{
	int rc;

	take(&loader, "the loader");
	rc = NEXT(dlclose)(library);
	give(&loader);
	return rc;
}

/*
 * fork() does not take the loader's lock: a child of a process in which another thread holds it
 * never gets it (glibc 2.36, tried). The library must not be that thread. For all others, which are
 * the stand-ins' and not what is tested, it waits. Runs after the library's own handler.
 */
static void before_fork(void)
{
	if (ex_inside() && loader.depth && loader_of_library &&
	    !pthread_equal(loader.holder, pthread_self()))
		ex_fail("fork() while the library holds the loader's lock");
	take(&loader, "the loader");
}

static void in_parent(void)
{
	give(&loader);
}

/* What another thread runs once runs anew in the child (pthread_once(3), glibc). */
static void in_child(void)
{
	if (once.depth && !pthread_equal(once.holder, pthread_self()))
		once.depth = 0;
	give(&loader);
}

void ex_hook_fork(void)
{
	if (pthread_atfork(before_fork, in_parent, in_child))
		abort();
}

/* ---- time ------------------------------------------------------------------------------------ */

int sched_yield(void)
{
	if (!ex_inside())
		return NEXT(sched_yield)();
	ex_at_point(true, PC);
	return 0;
}

int nanosleep(const struct timespec *t, struct timespec *rest)
{
	if (!ex_inside())
		return NEXT(nanosleep)(t, rest);
	ex_sleep(ns_of(t), PC);
	return 0;
}

int usleep(useconds_t us)
{
	if (!ex_inside())
		return NEXT(usleep)(us);
	ex_sleep((uint64_t)us * 1000, PC);
	return 0;
}

/*
 * Each look takes a microsecond, and after some another thread has to run: a loop that polls ends.
 */
int clock_gettime(clockid_t id, struct timespec *t)
{
	static _Thread_local unsigned int looks;
	uint64_t now;

	if (!ex_inside())
		return (int)syscall(SYS_clock_gettime, id, t);
	now = ex_clock(1000);
	ex_at_point(++looks % ex_patience == 0, PC);
	t->tv_sec = (time_t)(now / 1000000000);
	t->tv_nsec = (long)(now % 1000000000);
	return 0;
}

/* ---- system calls of the library, whose objects are this program's ------------------------------ */

extern char __executable_start, etext;

void (*ex_before_munmap)(void);

static bool by_library(const void *pc)
{
	return ex_inside() && (const char *)pc >= &__executable_start && (const char *)pc < &etext;
}

static void system_call(void *pc)
{
	if (by_library(pc))
		ex_at_point(false, pc);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	system_call(PC);
	return NEXT(ioctl)(fd, request, arg);
}

void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	void *p;

	system_call(PC);
	p = NEXT(mmap)(at, size, prot, flags, fd, offset);
	if (p != MAP_FAILED)
		ex_race_new(p, size);
	return p;
}

int munmap(void *at, size_t size)
{
	system_call(PC);
	if (by_library(PC) && ex_before_munmap)
		ex_before_munmap();
	return NEXT(munmap)(at, size);
}

static bool of_library[1024]; /* by number: the devices that the library has open */

int ex_open_devices(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += of_library[fd];
	return n;
}

int open(const char *path, int flags, ...)
{
	va_list ap;
	int fd, mode;

	va_start(ap, flags);
	mode = va_arg(ap, int);
	va_end(ap);
	system_call(PC);
	fd = NEXT(open)(path, flags, mode);
	if (fd >= 0 && fd < 1024)
		of_library[fd] = !strncmp(path, "/dev/", 5) && by_library(PC);
	return fd;
}

int close(int fd)
{
	system_call(PC);
	if (fd >= 0 && fd < 1024)
		of_library[fd] = false;
	return NEXT(close)(fd);
}
