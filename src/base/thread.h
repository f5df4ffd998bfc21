/* SPDX-License-Identifier: MIT */
/*
 * The end of a thread, for what a thread has been lent. One key for the library, made when it is
 * loaded; like process.c it knows who has something to do, and nothing of what.
 *
 * It exists so that a thread's own variables are a few pointers. The library's thread-local storage
 * lies in the static block (initial-exec, the one kind that costs a copy a single load), and a program
 * that loads the library at run time has no more than 1.6 KiB of that left for everybody
 * (glibc's rtld.optional_static_tls): dlopen fails when it is used up.
 */
#ifndef GDRI_THREAD_H
#define GDRI_THREAD_H

#include <stdbool.h>

/* The calling thread's end will be noticed. False: it will not (no key, no memory). No lock. */
bool gdri_thread_watch(void);

#endif
