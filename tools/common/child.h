/* SPDX-License-Identifier: MIT */
/* A function in a process that may crash, hang, or be unkillable, without ending the tool. */
#ifndef PERF_CHILD_H
#define PERF_CHILD_H

#include <stdbool.h>
#include <stddef.h>

enum child_end {
	CHILD_ENDED, /* by itself, or by a signal: SIGALRM after its time limit */
	CHILD_KILLED, /* by this process, some seconds after the limit */
	CHILD_STUCK /* in the kernel; it is left behind */
};

/*
 * Runs fn(arg) in a child that leads a process group, gets SIGALRM (default action) after
 * `seconds`, and is killed with this process. When the child has ended, the rest of its group is
 * killed. fn ends the process; if it returns, the exit status is CHILD_RETURNED. *status is as of
 * waitpid(), unless the child is stuck. One call at a time; the tool ends if fork() fails.
 */
#define CHILD_RETURNED 93
enum child_end child_run(void (*fn)(void *arg), void *arg, unsigned int seconds, int *status);

/* The child's end in words: "ended by signal 11 (Segmentation fault)". */
void child_why(enum child_end end, int status, unsigned int seconds, char *why, size_t size);

/* child_run() with the output discarded. True if fn returned; else sets `why`. */
bool child_isolate(void (*fn)(void *arg), void *arg, unsigned int seconds, char *why, size_t size);

#endif
