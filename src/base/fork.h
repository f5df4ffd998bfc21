/* SPDX-License-Identifier: MIT */
/*
 * Stretches of the parent in which no fork happens, and descriptors that a forked child closes. A
 * descriptor of a GPU, or of a dma-buf, that a child keeps would hold the parent's pins after the
 * parent has given them up, or has died. O_CLOEXEC covers a child that execs; this covers one that
 * does not.
 *
 * It knows not what descriptors are. Effective from the first gdri_process_enter() on. Thread-safe. Its
 * lock is the innermost one: while it is held nothing is called but the kernel and the C library.
 */
#ifndef GDRI_FORK_H
#define GDRI_FORK_H

/* Between these two no other thread forks. They nest. */
void gdri_fork_hold(void);
void gdri_fork_release(void);

/* open() of a descriptor that a child closes: it, or -1 with errno. O_CLOEXEC is added, EINTR is retried. */
int gdri_fork_open(const char *path, int flags);

/* From now on a child closes fd: 0, or -ENOMEM with its text, and fd is closed. */
int gdri_fork_own(int fd);

/* close() of a descriptor of the two calls above. */
void gdri_fork_close(int fd);

/* In a forked child, where a thread of the parent held: closes, and releases. Async-signal-safe. */
void gdri_fork_in_child(void);

#endif
