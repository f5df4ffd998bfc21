/* SPDX-License-Identifier: MIT */
/*
 * A look at the ioctls that libcuda makes on behalf of one call of ours: its import of ioctl() is
 * pointed at a function that passes everything on, and tells of those that the calling thread makes.
 * Changing such a slot is this field's practice (UCX's memory hooks); this one is changed for the
 * length of a call, and by compare and exchange, so that somebody else's hook stays where it is.
 *
 * Everything that others may meet meanwhile: another thread's ioctl of libcuda is passed on unseen;
 * a signal handler has its own import; a hook put on top of ours is left there, and ours passes on
 * below it for good; a child forked meanwhile puts the slot back.
 */
#ifndef GDRI_WATCH_H
#define GDRI_WATCH_H

#include <stdbool.h>

/* Told of each ioctl that succeeded, on the thread that began; must not call libcuda. */
typedef void (*gdri_watch_fn)(void *arg, int fd, unsigned long request, const void *data);

/* Is there a slot to be pointed elsewhere? 0, or -ENOTSUP with its text. Loads libcuda. */
int gdri_cuda_watch_possible(void);

/*
 * Between these two fn is told; one thread at a time, others wait. -ENOTSUP with its text where
 * libcuda's ioctls cannot be seen. Not to be nested.
 */
int gdri_cuda_watch_begin(gdri_watch_fn fn, void *arg);
void gdri_cuda_watch_end(void);

#endif
