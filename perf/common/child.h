/* SPDX-License-Identifier: MIT */
/*
 * A function in a process of its own, which may crash, hang, or not even be killable, without ending
 * or holding up the tool. It must not know what is run.
 */
#ifndef PERF_CHILD_H
#define PERF_CHILD_H

enum child_end {
	CHILD_ENDED, /* by itself, or by a signal: SIGALRM if its time was up */
	CHILD_KILLED, /* it had to be, some seconds after that */
	CHILD_STUCK /* in the kernel: it is left behind */
};

/*
 * Runs fn(arg) in a child that leads a process group, with the default SIGALRM after `seconds`, and
 * that is killed with this process. Whatever is left of the group when the child has ended is killed.
 * fn ends the process; if it returns, the exit status is CHILD_RETURNED. *status is as of waitpid(),
 * unless the child is stuck. One at a time; the tool ends if there is no process to be had.
 */
#define CHILD_RETURNED 93
enum child_end child_run(void (*fn)(void *arg), void *arg, unsigned int seconds, int *status);

#endif
