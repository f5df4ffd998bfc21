/* SPDX-License-Identifier: MIT */
/*
 * Observes the ioctls that libcuda makes on behalf of one call: libcuda's import slot of ioctl()
 * points, for the duration of that call, at a function that passes everything on and reports the
 * ioctls of the watching thread. Hooking import slots is common practice (UCX's memory hooks). Here
 * the slot changes by compare and exchange, so that another library's hook stays in place.
 *
 * Other threads' ioctls pass unreported, and a signal handler uses an import of its own. If another
 * hook is installed on top of this one, that hook stays and this one passes calls on below it for
 * good. A child that is forked during the watch restores the slot.
 */
#ifndef GDRI_WATCH_H
#define GDRI_WATCH_H

/* Receives each ioctl that succeeded, in the watching thread; must not call libcuda. */
typedef void (*gdri_watch_fn)(void *arg, int fd, unsigned long request, const void *data);

/*
 * 0, or -ENOTSUP if libcuda has no slot that could be hooked, or this process may not make its page
 * writable. Loads libcuda.
 */
int gdri_cuda_watch_possible(void);

/*
 * Reports this thread's ioctls to fn until gdri_cuda_watch_end(). One thread watches at a time,
 * others wait; calls do not nest. 0, or -ENOTSUP if libcuda's ioctls cannot be observed.
 */
int gdri_cuda_watch_begin(gdri_watch_fn fn, void *arg);
void gdri_cuda_watch_end(void);

#endif
