/* SPDX-License-Identifier: MIT */
/*
 * Which process is this, and what does a forked child do first?
 *
 * A tag that differs between a parent and its forked children and costs one load to read: it lies
 * in a page that the kernel empties in a child (MADV_WIPEONFORK, Linux 4.14), with a
 * pthread_atfork handler beside it for what needs more than the tag.
 *
 * It knows nobody who is told of a fork: they lay down a line of their own. Effective from the first
 * gdri_process_enter() on. Thread-safe.
 */
#ifndef GDRI_PROCESS_H
#define GDRI_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* Points at the tag; read through gdri_process_tag() only. */
extern _Atomic(const _Atomic uint32_t *) gdri_process_page;

/* 0 in a child that has not yet opened a context of its own; never the tag of another process. */
static inline uint32_t gdri_process_tag(void)
{
	return atomic_load_explicit(atomic_load_explicit(&gdri_process_page, memory_order_relaxed),
				    memory_order_relaxed);
}

/* Gives this process a tag if it has none yet. Returns 0 or -ENOMEM. Thread-safe. */
int gdri_process_enter(void);

/*
 * At the top level of a file: fn is called in a forked child, once there has been a
 * gdri_process_enter(). A table in a section of its own, so that nothing has to run to make it: it is
 * whole whenever a fork comes, and reading it is async-signal-safe, which fn must be too. In no
 * particular order.
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

/* A mutex of a file that is made anew in a child, whoever held it in the parent. */
#define GDRI_MUTEX(name)                                         \
	static pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER; \
	static void name##_anew(void)                            \
	{                                                        \
		pthread_mutex_init(&name, NULL);                 \
	}                                                        \
	GDRI_IN_CHILD(name##_anew)

#endif
