/* SPDX-License-Identifier: MIT */
/*
 * Is the calling thread inside the library? The library's own munmap(), cuMemFree() and others run
 * the program's hooks too, while locks are held. What a hook's call defers is done when a thread
 * leaves the library.
 */
#ifndef GDRI_INSIDE_H
#define GDRI_INSIDE_H

#include <stdbool.h>

/*
 * Around what takes a lock or calls CUDA or the kernel. They nest. A thread that is cancelled
 * between them ends after the outermost leave: nothing stays locked.
 */
void gdri_inside_enter(void);
void gdri_inside_leave(void);
bool gdri_is_inside(void);
void gdri_inside_defer(void (*fn)(void)); /* the next thread that leaves calls fn, the only one */

#endif
