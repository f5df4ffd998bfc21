/* SPDX-License-Identifier: MIT */
/* See watch.h. */
#include "cuda/watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "cuda/got.h"
#include "cuda/private.h"
#include "base/fork.h"
#include "base/process.h"
#include "base/error.h"

typedef int (*ioctl_fn)(int, unsigned long, ...);

/* Held from begin to end; guards what follows, but for what ioctls of other threads read. */
GDRI_MUTEX(lock);

static enum { NOT_LOOKED, FOUND, NOT_FOUND } state;
static struct gdri_got got;
static uintptr_t before[GDRI_GOT_SLOTS]; /* what each slot held when ours went in */
static bool buried; /* a slot was not ours any more when it was put back */
static gdri_watch_fn told;
static void *told_arg;

/*
 * Read by every ioctl that passes: who is being watched (0: nobody), where they go on, and what the
 * slots hold where nobody has changed them (constant once `state` is FOUND).
 */
static _Atomic(uintptr_t) watched;
static _Atomic(uintptr_t) next;
static uintptr_t unhooked;

/* This thread is in passing_ioctl(). */
static _Thread_local bool inside;

static uintptr_t this_thread(void)
{
	return (uintptr_t)pthread_self();
}

/*
 * Called by what it called, if somebody's hook lies below it and has put itself on top as well: that is
 * no call of libcuda's, and ends here.
 */
static int passing_ioctl(int fd, unsigned long request, ...)
{
	ioctl_fn go_on = (ioctl_fn)atomic_load_explicit(&next, memory_order_acquire);
	va_list ap;
	void *data;
	int rc;

	va_start(ap, request);
	data = va_arg(ap, void *);
	va_end(ap);
	if (inside)
		return ((ioctl_fn)unhooked)(fd, request, data);
	inside = true;
	rc = go_on(fd, request, data);
	inside = false;
	if (!rc && atomic_load_explicit(&watched, memory_order_relaxed) == this_thread()) {
		int err = errno;

		told(told_arg, fd, request, data);
		errno = err;
	}
	return rc;
}

static int look_locked(void)
{
	int rc = gdri_cuda_load();

	if (rc)
		return rc;
	if (state == NOT_LOOKED) {
		unhooked = (uintptr_t)dlsym(RTLD_DEFAULT, "ioctl");
		if (!unhooked)
			unhooked = (uintptr_t)(ioctl_fn)ioctl;
		state = gdri_got_find(gdri_cuda_library, "ioctl", &got) ? FOUND : NOT_FOUND;
	}
	if (state == NOT_FOUND)
		return gdri_fail(ENOTSUP, "libcuda imports no ioctl() that could be watched");
	return 0;
}

int gdri_cuda_watch_possible(void)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = look_locked();
	pthread_mutex_unlock(&lock);
	return rc;
}

/* No child has half of a change: `before` knows of it first, and a sealed page is sealed again. */
static bool change(size_t slot, uintptr_t *expected, uintptr_t value)
{
	bool done;

	gdri_fork_hold();
	done = gdri_got_write(&got, slot, expected, value);
	gdri_fork_release();
	return done;
}

/* Puts back the first `count` slots, where they are still ours. */
static void put_back_locked(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uintptr_t held = (uintptr_t)passing_ioctl;

		if (before[i] != held && !change(i, &held, before[i]))
			buried = true;
	}
}

/*
 * Where the ioctl behind a slot goes on: what the slot holds; or, where that is still the stub that
 * would look the function up and write the slot, what it would find.
 */
static uintptr_t target_of(uintptr_t held)
{
	return held >= got.start && held < got.end ? unhooked : held;
}

/*
 * Below somebody's hook ours has stayed, and is reached through it. (Not where the slot is as the
 * loader left it: then the hook has gone, and ours with it.)
 */
static bool reached_through(uintptr_t target)
{
	return buried && target != unhooked && target != atomic_load(&next);
}

enum { TRIES = 100 }; /* of a slot that others change meanwhile */

static int install_slot_locked(size_t i)
{
	const uintptr_t ours = (uintptr_t)passing_ioctl;

	for (int tries = 0; tries < TRIES; tries++) {
		uintptr_t held = atomic_load(got.slots[i]), was = held;
		uintptr_t target = target_of(held);

		before[i] = ours;
		if (held == ours)
			return 0; /* a hook above ours has gone again */
		buried &= target != unhooked;
		if (reached_through(target))
			return 0;
		if (i && target != atomic_load(&next))
			return gdri_fail(ENOTSUP, "libcuda's imports of ioctl() differ");
		atomic_store_explicit(&next, target, memory_order_release);
		before[i] = held;
		errno = 0;
		if (change(i, &held, ours))
			return 0;
		if (held == was)
			break; /* the page stays sealed */
	}
	before[i] = ours;
	return gdri_fail(errno == ENOMEM ? ENOMEM : ENOTSUP,
			 "libcuda's import of ioctl() cannot be changed");
}

static int install_locked(void)
{
	for (size_t i = 0; i < got.count; i++) {
		int rc = install_slot_locked(i);

		if (rc) {
			put_back_locked(i);
			return rc;
		}
	}
	return 0;
}

int gdri_cuda_watch_begin(gdri_watch_fn fn, void *arg)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = look_locked();
	if (!rc) {
		told = fn;
		told_arg = arg;
		rc = install_locked();
	}
	if (rc) {
		pthread_mutex_unlock(&lock);
		return rc;
	}
	atomic_store_explicit(&watched, this_thread(), memory_order_relaxed);
	return 0;
}

void gdri_cuda_watch_end(void)
{
	atomic_store_explicit(&watched, 0, memory_order_relaxed);
	put_back_locked(got.count);
	pthread_mutex_unlock(&lock);
}

/* Alone in the child: if another thread of the parent was between begin and end, this ends it. */
static void after_fork(void)
{
	atomic_store_explicit(&watched, 0, memory_order_relaxed);
	inside = false;
	for (size_t i = 0; i < got.count; i++) {
		uintptr_t held = (uintptr_t)passing_ioctl;

		if (before[i] && before[i] != held)
			gdri_got_write_alone(&got, i, &held, before[i]);
	}
}

GDRI_IN_CHILD(after_fork);
