/* SPDX-License-Identifier: MIT */
/*
 * The shared memory that stands for the kernel's: one file, mapped shared before any fork, so that
 * a child's call finds the parent's objects. Descriptors of the nodes are opens of the same file
 * (files.c).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "node/node.h"
#include "rm/rm.h"

struct shared {
	uint64_t size; /* 0: not set up yet */
	pthread_mutex_t lock;
	struct rm_state state;
};

struct rm_state *rm;

static struct shared *shared;
static int state_fd = -1;
static struct stat state_stat;
static bool wanted;
static _Thread_local sigset_t unblocked;

/* The C library's own: a sanitizer's would treat the lock of the forking thread as the child's. */
static int (*mutex_lock)(pthread_mutex_t *), (*mutex_unlock)(pthread_mutex_t *);

static void find_locks(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	void *locks = libc ? dlsym(libc, "pthread_mutex_lock") : NULL;
	void *unlocks = libc ? dlsym(libc, "pthread_mutex_unlock") : NULL;

	if (!locks || !unlocks)
		abort();
	memcpy(&mutex_lock, &locks, sizeof(locks));
	memcpy(&mutex_unlock, &unlocks, sizeof(unlocks));
}

static void set_up(struct shared *s)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&s->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	s->size = sizeof(*s);
}

static int open_state(void)
{
	return (int)syscall(SYS_memfd_create, "nvidia-nodes", 1u /* MFD_CLOEXEC */);
}

/* A forked child has the lock's memory, not the lock: its own data must be consistent. */
static void before_fork(void)
{
	rm_lock();
}

static void in_parent(void)
{
	rm_unlock();
}

static void in_child(void)
{
	pthread_sigmask(SIG_SETMASK, &unblocked, NULL);
}

/*
 * Before any test counts descriptors, and before any fork. First of the constructors: so fork()
 * takes this lock last and releases it first, and no other handler of fork() runs meanwhile.
 */
__attribute__((constructor(101))) static void make_state(void)
{
	const char *preload = getenv("LD_PRELOAD");
	void *at;

	find_locks();
	wanted = preload && strstr(preload, "libnvidia_node.so");
	state_fd = open_state();
	if (state_fd < 0 || flock(state_fd, LOCK_EX) || ftruncate(state_fd, sizeof(*shared)) ||
	    fstat(state_fd, &state_stat))
		return;
	at = libc_calls()->mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, state_fd,
				0);
	if (at != MAP_FAILED) {
		shared = at;
		if (!shared->size)
			set_up(shared);
		if (shared->size != sizeof(*shared))
			abort();
		rm = &shared->state;
		pthread_atfork(before_fork, in_parent, in_child);
	}
	flock(state_fd, LOCK_UN);
}

bool rm_present(void)
{
	const char *v = getenv("GDRSIM_RM");

	if (!rm)
		return false;
	return v && *v ? true : wanted;
}

int rm_state_fd(void)
{
	return state_fd;
}

bool rm_is_state(const struct stat *st)
{
	return rm && st->st_ino == state_stat.st_ino && st->st_dev == state_stat.st_dev;
}

/* As in the kernel, no signal handler of the caller runs in the middle of a call. */
void rm_lock(void)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (mutex_lock(&shared->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&shared->lock);
	unblocked = old;
}

void rm_unlock(void)
{
	sigset_t old = unblocked;

	mutex_unlock(&shared->lock);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int rm_slot(struct rm_table *table, int max, bool (*is_free)(int index))
{
	if (!table->hint)
		table->hint = table->top = 1;
	for (int i = table->hint; i < max; i++) {
		if (i < table->top && !is_free(i))
			continue;
		table->hint = i + 1;
		if (i >= table->top)
			table->top = i + 1;
		return i;
	}
	return 0;
}

void rm_slot_free(struct rm_table *table, int index)
{
	if (index < table->hint)
		table->hint = index;
	if (index == table->top - 1)
		table->top--;
}
