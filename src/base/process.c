/* SPDX-License-Identifier: MIT */
/* See process.h. */
#include "base/process.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"

/* Before the first open there is no page: everything reads as "no tag". */
static const _Atomic uint32_t no_tag;
_Atomic(const _Atomic uint32_t *) gdri_process_page = &no_tag;

/* All under lock; last_tag is inherited by a child, so its own tags are new ones. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t *page;
static uint32_t last_tag;

/* What GDRI_IN_CHILD() has laid down, between the names that the linker gives to a section's ends. */
extern void (*const __start_gdri_in_child[])(void) __attribute__((visibility("hidden")));
extern void (*const __stop_gdri_in_child[])(void) __attribute__((visibility("hidden")));

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
	gdri_fork_before();
}

static void in_parent(void)
{
	gdri_fork_in_parent();
	pthread_mutex_unlock(&lock);
}

/*
 * The child has one thread, and locks that other threads held in the parent stay locked for ever:
 * all but ours are made anew. What they guard is only ever reached after a tag check.
 */
static void in_child(void)
{
	gdri_fork_in_child();
	pthread_mutex_unlock(&lock); /* locked by before_fork(), in this very thread */
	if (page)
		atomic_store_explicit(
			page, 0,
			memory_order_relaxed); /* where the kernel does not know MADV_WIPEONFORK */
	for (void (*const *fn)(void) = __start_gdri_in_child; fn < __stop_gdri_in_child; fn++)
		(*fn)();
}

int gdri_process_enter(void)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!page) {
		long size = sysconf(_SC_PAGESIZE);
		void *p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED || pthread_atfork(before_fork, in_parent, in_child)) {
			rc = gdri_fail(ENOMEM, "no memory for the fork guard");
			if (p != MAP_FAILED)
				munmap(p, (size_t)size);
			goto out;
		}
		/* Refused by kernels before 4.14: then in_child() alone tells a child. */
		(void)madvise(p, (size_t)size, MADV_WIPEONFORK);
		page = p;
		atomic_store_explicit(&gdri_process_page, page, memory_order_release);
	}
	if (!atomic_load_explicit(page, memory_order_relaxed))
		atomic_store_explicit(page, ++last_tag, memory_order_relaxed);
out:
	pthread_mutex_unlock(&lock);
	return rc;
}
