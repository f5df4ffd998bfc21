/* SPDX-License-Identifier: MIT */
/*
 * The process's tag, and what a forked child does first. The tag differs between a parent and its forked
 * children and costs one load to read: it lies in a page that the kernel empties in a child
 * (MADV_WIPEONFORK, Linux 4.14). A pthread_atfork() handler does the rest. Both take effect with the first
 * gdri_process_enter(). Thread-safe.
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

/* Gives this process a tag if it has none yet. 0 or -ENOMEM. */
int gdri_process_enter(void);

/*
 * At the top level of a file: a forked child calls fn, which must be async-signal-safe. The pointers form a
 * table in a section of their own, so no code has to run to fill it, and a child may read it whenever the
 * fork came. In no particular order.
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
