/* SPDX-License-Identifier: MIT */
/*
 * This process and its forks: a tag that tells a parent from its children, stretches in which no
 * fork happens, descriptors that a child closes, and what a child does first. Effective from the
 * first gdri_process_enter() on: a fork that another thread has begun before calls no handler, and
 * its child may find the fork lock held for ever. (Handlers that are registered at the load run in
 * another order with those of preloaded libraries: two tests of the stand-ins hung.) Thread-safe.
 *
 * A descriptor of a GPU or of a dma-buf that a child keeps would hold the parent's pins after the
 * parent has given them up, or has died. O_CLOEXEC covers a child that execs; gdri_fork_own()
 * covers one that does not.
 *
 * The fork lock is the innermost one: its holder calls nothing but the kernel and the C library.
 * One exception: a handler that the application registered before this library's runs under the
 * lock. It may pin and map while no other thread is inside the library.
 */
#ifndef GDRI_PROCESS_H
#define GDRI_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Points at the tag, in a page that the kernel empties in a child (MADV_WIPEONFORK, Linux 4.14). */
extern _Atomic(const _Atomic uint32_t *) gdri_process_page;

/* 0 in a child that has not yet opened a context of its own; never the tag of another process. */
static inline uint32_t gdri_process_tag(void)
{
	return atomic_load_explicit(atomic_load_explicit(&gdri_process_page, memory_order_relaxed),
				    memory_order_relaxed);
}

int gdri_process_enter(void); /* gives this process a tag if it has none yet; 0 or -ENOMEM */

/* Between these two no other thread forks. They nest. */
void gdri_fork_hold(void);
void gdri_fork_release(void);

/* open() of a descriptor that a child closes, with O_CLOEXEC, again after EINTR. */
int gdri_fork_open(const char *path, int flags);
/* A child closes fd from now on. 0, or -ENOMEM with its text: then fd is closed. */
int gdri_fork_own(int fd);
/*
 * close() of a descriptor of these two calls, unless its number is another file's by now. A second
 * open of the same node is the same file here: a program that closes the library's descriptors
 * loses what gets their numbers.
 */
void gdri_fork_close(int fd);

/*
 * mmap() of pages that a child does not inherit: between the two calls that make them no thread
 * forks. at: replaces the pages there, or NULL. Returns 0, mmap's positive errno, or the negative
 * one of madvise(): then the pages are gone, and at `at` lie pages without access. *map is
 * MAP_FAILED if no pages remain.
 */
int gdri_fork_map(void *at, size_t length, int prot, int flags, int fd, off_t offset, void **map);
/* The same of zeroes, for reading and writing. 0 or -errno with its text. flags: as mmap()'s. */
int gdri_fork_pages(size_t length, int flags, void **pages);

/*
 * At the top level of a file: a forked child calls fn, which must be async-signal-safe. The
 * pointers form a table in a section of their own, so no code has to run to fill it, and a child
 * may read it whenever the fork came. In no particular order.
 */
#if defined(__has_attribute) && __has_attribute(retain)
#define GDRI_RETAINED \
	used, retain /* by a linker that drops sections, as lld does with --gc-sections */
#else
#define GDRI_RETAINED used
#endif
#define GDRI_IN_CHILD(fn)                        \
	static void (*const fn##_in_child)(void) \
		__attribute__((GDRI_RETAINED, section("gdri_in_child"))) = (fn)

/* Defines a mutex of a file that a child makes anew, as a thread of the parent may have held it. */
#define GDRI_MUTEX(name)                                         \
	static pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER; \
	static void name##_anew(void)                            \
	{                                                        \
		pthread_mutex_init(&name, NULL);                 \
	}                                                        \
	GDRI_IN_CHILD(name##_anew)

#endif
