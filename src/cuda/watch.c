/* SPDX-License-Identifier: MIT */
/* See watch.h. */
#include "cuda/watch.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cuda/import_slots.h"
#include "cuda/private.h"
#include "base/process.h"

typedef int (*ioctl_fn)(int, unsigned long, ...);

/* Held from begin to end; guards all that follows except what the ioctls of other threads read. */
GDRI_MUTEX(lock);

static atomic_bool searched; /* then the next one and libc_ioctl are constant */
static struct gdri_import_slots slots; /* of libcuda; none where it imports no ioctl() */
static uintptr_t saved[GDRI_IMPORT_SLOTS]; /* what each held before; ours: nothing to restore */
static bool overridden; /* another hook was found in a slot that was to be restored */
static gdri_watch_fn callback;
static void *callback_arg;

/* Read by every ioctl of libcuda's. */
static _Atomic(uintptr_t) watching_thread; /* 0: none */
static _Atomic(uintptr_t) next_ioctl;
static uintptr_t libc_ioctl;

/* watched_ioctl() */
static _Thread_local bool inside __attribute__((tls_model("initial-exec")));

static int watched_ioctl(int fd, unsigned long request, ...)
{
	ioctl_fn next = (ioctl_fn)atomic_load_explicit(&next_ioctl, memory_order_acquire);
	va_list ap;
	void *data;
	int rc;

	va_start(ap, request);
	data = va_arg(ap, void *);
	va_end(ap);
	/* Re-entered: another hook calls back into this one. This is no call of libcuda's. */
	if (inside)
		return ((ioctl_fn)libc_ioctl)(fd, request, data);
	inside = true;
	rc = next(fd, request, data);
	inside = false;
	if (!rc && atomic_load_explicit(&watching_thread, memory_order_relaxed) ==
			   (uintptr_t)pthread_self()) {
		int err = errno;

		callback(callback_arg, fd, request, data);
		errno = err;
	}
	return rc;
}

/* Once, without a lock around dlsym(): see gdri_cuda_load(). */
static int search(void)
{
	struct gdri_import_slots found;
	uintptr_t libc;
	bool any;
	int rc = gdri_cuda_load();

	if (rc)
		return rc;
	if (!atomic_load_explicit(&searched, memory_order_acquire)) {
		libc = (uintptr_t)dlsym(RTLD_DEFAULT, "ioctl");
		/*
		 * A child never gets a loader's lock that another thread held. That of
		 * dl_iterate_phdr() is not held while constructors run.
		 */
		gdri_fork_hold();
		any = gdri_import_slots_find(gdri_cuda_library, "ioctl", &found);
		gdri_fork_release();
		if (!any)
			found.count = 0;
		pthread_mutex_lock(&lock);
		if (!atomic_load_explicit(&searched, memory_order_relaxed)) {
			libc_ioctl = libc ? libc : (uintptr_t)(ioctl_fn)ioctl;
			slots = found;
			atomic_store_explicit(&searched, true, memory_order_release);
		}
		pthread_mutex_unlock(&lock);
	}
	if (!slots.count)
		return gdri_fail(ENOTSUP, "libcuda imports no ioctl() that could be watched");
	return 0;
}

#define SEALED "libcuda's import of ioctl() is in a read-only page, and mprotect() fails: %s"

int gdri_cuda_watch_possible(void)
{
	int err, rc = search();

	if (rc)
		return rc;
	gdri_fork_hold(); /* as in search() */
	err = gdri_import_slots_locked_out(&slots);
	gdri_fork_release();
	return err ? gdri_fail(ENOTSUP, SEALED, strerror(err)) : 0;
}

/* No fork during the write: a child gets no writable page, and no slot without its `saved`. */
static bool write_slot(size_t slot, uintptr_t *expected, uintptr_t value)
{
	bool done;

	gdri_fork_hold();
	done = gdri_import_slot_write(&slots, slot, expected, value, false);
	gdri_fork_release();
	return done;
}

static void restore_locked(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uintptr_t held = (uintptr_t)watched_ioctl;

		if (saved[i] != held && !write_slot(i, &held, saved[i]))
			overridden = true;
	}
}

enum { TRIES = 100 }; /* of a slot that other threads change at the same time */

static int install_slot_locked(size_t i)
{
	const uintptr_t ours = (uintptr_t)watched_ioctl;

	for (int tries = 0; tries < TRIES; tries++) {
		uintptr_t held = atomic_load(slots.at[i]), was = held;
		/* An unbound slot holds a stub, which would look up ioctl() and bind it. */
		uintptr_t target = held >= slots.start && held < slots.end ? libc_ioctl : held;

		saved[i] = ours;
		if (held == ours)
			return 0; /* a hook above ours has been removed */
		/* As the loader left it: the other hook is gone, and ours with it. */
		overridden &= target != libc_ioctl;
		if (overridden && target != atomic_load(&next_ioctl))
			return 0; /* the other hook calls ours */
		if (i && target != atomic_load(&next_ioctl))
			return gdri_fail(
				ENOTSUP,
				"libcuda's imports of ioctl() lead to different functions");
		atomic_store_explicit(&next_ioctl, target, memory_order_release);
		saved[i] = held;
		errno = 0;
		if (write_slot(i, &held, ours))
			return 0;
		if (held == was)
			break; /* the page remains read-only */
	}
	saved[i] = ours;
	if (errno)
		return gdri_fail(errno == ENOMEM ? ENOMEM : ENOTSUP, SEALED, strerror(errno));
	return gdri_fail(ENOTSUP, "libcuda's import of ioctl() cannot be changed");
}

int gdri_cuda_watch_begin(gdri_watch_fn fn, void *arg)
{
	int rc = search();

	if (rc)
		return rc;
	pthread_mutex_lock(&lock);
	callback = fn;
	callback_arg = arg;
	for (size_t i = 0; !rc && i < slots.count; i++) {
		rc = install_slot_locked(i);
		if (rc)
			restore_locked(i);
	}
	if (rc)
		pthread_mutex_unlock(&lock);
	else
		atomic_store_explicit(&watching_thread, (uintptr_t)pthread_self(),
				      memory_order_relaxed);
	return rc;
}

void gdri_cuda_watch_end(void)
{
	atomic_store_explicit(&watching_thread, 0, memory_order_relaxed);
	restore_locked(slots.count);
	pthread_mutex_unlock(&lock);
}

/* Another thread of the parent may have been between begin and end: this ends its watch. */
static void after_fork(void)
{
	atomic_store_explicit(&watching_thread, 0, memory_order_relaxed);
	inside = false;
	for (size_t i = 0; i < slots.count; i++) {
		uintptr_t held = (uintptr_t)watched_ioctl;

		if (saved[i] && saved[i] != held)
			gdri_import_slot_write(&slots, i, &held, saved[i], true);
	}
}

GDRI_IN_CHILD(after_fork);
