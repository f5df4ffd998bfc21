/* SPDX-License-Identifier: MIT */
/*
 * Stretches in which no fork happens, and descriptors that a forked child closes. A descriptor of a GPU or of
 * a dma-buf that a child keeps would hold the parent's pins after the parent has given them up, or has died.
 * O_CLOEXEC covers a child that execs; this covers one that does not.
 *
 * Effective from the first gdri_process_enter() on. Thread-safe. The lock is the innermost one: its holder
 * calls nothing but the kernel and the C library. One exception: a handler that the application registered
 * before this library's runs under the lock. It may pin and map while no other thread is inside the library.
 */
#ifndef GDRI_FORK_H
#define GDRI_FORK_H

/* Between these two no other thread forks. They nest. */
void gdri_fork_hold(void);
void gdri_fork_release(void);

/* Opens a descriptor that a child closes, with O_CLOEXEC, again after EINTR. It, or -1 with errno. */
int gdri_fork_open(const char *path, int flags);

/* A child closes fd from now on. 0, or -ENOMEM with its text: then fd is closed. */
int gdri_fork_own(int fd);

/* close() of a descriptor of the two calls above. */
void gdri_fork_close(int fd);

/* Called first in a forked child: closes the descriptors and releases the lock. */
void gdri_fork_in_child(void);

#endif
