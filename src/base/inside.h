/* SPDX-License-Identifier: MIT */
/*
 * Is the calling thread inside the library? A program's hooks of munmap(), cuMemFree() and others are
 * called from the library's own calls too, with its locks held: what such a hook asks for is deferred to
 * the moment at which a thread leaves. It knows nothing of what is deferred.
 */
#ifndef GDRI_INSIDE_H
#define GDRI_INSIDE_H

#include <stdbool.h>

/*
 * Entry points that take a lock or call CUDA or the kernel lie between these two, which nest. A thread that
 * is cancelled meanwhile ends behind the outermost leave: nothing stays locked.
 */
void gdri_inside_enter(void);
void gdri_inside_leave(void);

bool gdri_is_inside(void);

/* fn is called by the next thread that leaves. There is one such function. */
void gdri_inside_defer(void (*fn)(void));

#endif
