/* SPDX-License-Identifier: MIT */
/**
 * @file barcopy_queue.h
 * Messages between the CPU and a kernel that is running: requests to the kernel, replies from it.
 * The kernel's side is barcopy_queue.cuh; docs/queue.md says when a queue is the right choice and
 * why it is correct.
 *
 * A queue has two rings of 64-byte lines: requests in GPU memory, which the CPU writes through the
 * mapping and the kernel polls there; replies in page-locked host memory, which the kernel writes
 * over the link and the CPU polls there. Neither side reads across the link. Each 8-byte word of a
 * line carries 48 bits of the message, 8 bits that name the lap of the ring, and the line's header
 * of 8 bits, so that every word shows by itself whether it has arrived.
 *
 * Threads: at any time at most one thread sends (or stops) and at most one receives; they may be
 * different threads. The kernel's side is one warp. The conventions are those of barcopy.h.
 */
#ifndef BARCOPY_QUEUE_H
#define BARCOPY_QUEUE_H

/** Bytes of a message in one line; a longer message takes as many lines as it needs. */
#define BARCOPY_QUEUE_LINE 48

/** The largest message, in bytes; the smallest has 1. */
#define BARCOPY_QUEUE_MESSAGE_MAX 480

/**
 * What a kernel needs to use a queue; passed to the kernel by value. All addresses are device
 * addresses. Only barcopy_queue.cuh uses the fields.
 */
typedef struct barcopy_queue_view {
	unsigned long long requests; /**< lines in GPU memory */
	unsigned long long replies;  /**< lines in host memory */
	unsigned long long control;  /**< words in GPU memory */
	unsigned long long state;    /**< words in host memory */
	unsigned int lines;	     /**< per ring; a power of two */
	unsigned int reserved;
} barcopy_queue_view_t;

/* The layout that both sides share: offsets in bytes, and the parts of a word and of a header. */
#define BARCOPY_QUEUE_CREDIT_AT	 0   /* control: reply lines that the CPU has read */
#define BARCOPY_QUEUE_STOP_AT	 8   /* control: 1 if the kernel shall stop */
#define BARCOPY_QUEUE_SAVED_AT	 128 /* control: three words that one kernel leaves for the next */
#define BARCOPY_QUEUE_CONTROL	 256 /* size of the control block in bytes */
#define BARCOPY_QUEUE_FREED_AT	 0   /* state: request lines that the kernel has taken */
#define BARCOPY_QUEUE_BEGUN_AT	 64  /* state: kernels that have begun */
#define BARCOPY_QUEUE_ENDED_AT	 128 /* state: kernels that have ended: the last store */
#define BARCOPY_QUEUE_STATE	 256 /* size of the state block in bytes */
#define BARCOPY_QUEUE_DATA_BITS	 48  /* a word's low bits: the message */
#define BARCOPY_QUEUE_LAP_MASK	 0xffu /* the next 8 bits: the lap; the last 8: the header */
#define BARCOPY_QUEUE_HEAD_SIZE	 0x3fu /* header: bytes of the message in this line */
#define BARCOPY_QUEUE_HEAD_MORE	 0x40u /* header: the message continues in the next line */
#define BARCOPY_QUEUE_HEAD_STOP	 0x80u /* header: no message; the kernel shall stop */

#ifndef __CUDACC_RTC__

#include "barcopy.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/** A queue: opaque; barcopy_queue_destroy() or gdr_close() of its context ends it. */
struct barcopy_queue;
typedef struct barcopy_queue *barcopy_queue_t;

/** Options of barcopy_queue_create(). A field of 0 selects the default. */
typedef struct barcopy_queue_options {
	size_t struct_size; /**< sizeof(barcopy_queue_options_t) */
	uint32_t lines;	    /**< per ring: a power of two, 16 to 65536; 0: 256 */
	uint32_t flags;	    /**< must be 0 */
} barcopy_queue_options_t;

/**
 * Creates a queue for kernels of one GPU, in the device's primary context (that of the CUDA
 * runtime). Initialises CUDA if necessary.
 * @param device   CUDA device ordinal
 * @param options  NULL: the defaults
 * @param queue    set to the queue; valid until barcopy_queue_destroy() or gdr_close()
 * @return 0; EINVAL (g, device, NULL, an option); ENOTSUP, ENOMEM, ENODEV, EIO, EACCES as
 *         barcopy_mem_alloc(), and where host memory cannot be registered with CUDA.
 */
int barcopy_queue_create(gdr_t g, int device, const barcopy_queue_options_t *options,
			 barcopy_queue_t *queue);

/**
 * Gets the parameter that a kernel takes; every call gives the same. One kernel at a time may use
 * it. A kernel that begins after another has ended continues where that one stopped.
 * @return 0; EINVAL (queue, NULL); EACCES.
 */
int barcopy_queue_get_view(barcopy_queue_t queue, barcopy_queue_view_t *view);

/**
 * Sends a message to the kernel; no flush or fence is needed. A kernel that receives it with
 * BARCOPY_WARP_ORDERED sees what the calling thread has copied into a mapping of the same GPU
 * before, by gdr_copy_to_mapping() or another call that fences (not with BARCOPY_COPY_NO_FENCE).
 * The thread's own stores, in host memory too, are ordered only by barcopy_fence() with
 * BARCOPY_FENCE_AFTER_WRITE on a mapping of the same GPU, before the send.
 * @param size        bytes, 1 to BARCOPY_QUEUE_MESSAGE_MAX
 * @param timeout_ns  how long to wait for room; 0: do not wait; UINT64_MAX: no limit
 * @return 0; ETIMEDOUT (the ring is full: the kernel is slow, hangs, has ended or was never
 *         launched); EMSGSIZE (size); ESHUTDOWN (stopped); EINVAL (queue, NULL); EACCES; EBUSY
 *         (builds with a sanitizer only: another thread is sending).
 */
int barcopy_queue_send(barcopy_queue_t queue, const void *message, size_t size,
		       uint64_t timeout_ns);

/** Like barcopy_queue_send(), but does not wait: a full ring gives EAGAIN. */
int barcopy_queue_try_send(barcopy_queue_t queue, const void *message, size_t size);

/**
 * Receives the kernel's next reply. If the kernel sent it with BARCOPY_WARP_ORDERED, later reads of
 * the calling thread, of mapped GPU memory or of host memory, see what the kernel had stored
 * before.
 * @param message     a buffer of `capacity` bytes
 * @param size        set to the bytes of the reply; may be NULL
 * @param timeout_ns  as in barcopy_queue_send()
 * @return 0; ETIMEDOUT (no reply); EMSGSIZE (larger than capacity: it stays in the queue); EINVAL
 *         (queue, NULL); EACCES; EBUSY (builds with a sanitizer only: another thread is receiving).
 */
int barcopy_queue_receive(barcopy_queue_t queue, void *message, size_t capacity, size_t *size,
			  uint64_t timeout_ns);

/**
 * Stops the kernel: after all messages sent before, its receive returns 0. A reply that waits for
 * room returns 0 at once. After this call only barcopy_queue_receive() and barcopy_queue_destroy()
 * are useful. Only the sending thread may call it. A second call does nothing.
 * @return 0; EINVAL (queue); EACCES.
 */
int barcopy_queue_stop(barcopy_queue_t queue);

/**
 * Ends a queue. No other thread may be in a call on it. Waits for a kernel that
 * barcopy_queue_stop() has stopped. It cannot see a kernel that was launched and has not begun:
 * synchronise, or receive a reply, before. If CUDA reports an error of the context, or the device
 * was reset, the call succeeds without touching the device. CUDA may report another stream's error
 * only when this queue's kernel has ended: until then the call fails with EBUSY, or with ETIMEDOUT
 * after barcopy_queue_stop().
 * @param timeout_ns  how long to wait for the kernel's end
 * @return 0; EBUSY (a kernel uses the queue and was not stopped) or ETIMEDOUT (the kernel has not
 *         ended): nothing was done; EINVAL (queue); EACCES.
 */
int barcopy_queue_destroy(barcopy_queue_t queue, uint64_t timeout_ns);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
#endif
