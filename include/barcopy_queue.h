/* SPDX-License-Identifier: MIT */
/**
 * @file barcopy_queue.h
 * Messages between the CPU and a kernel that is running: requests to the kernel, replies from it. The
 * kernel's side is barcopy_queue.cuh; docs/queue.md says when a queue is the right part and why it is
 * correct.
 *
 * A queue has two rings of 64-byte lines: requests in GPU memory, which the CPU writes through the mapping
 * and the kernel polls there; replies in page-locked host memory, which the kernel writes over the link and
 * the CPU polls there. Neither side reads across the link. Each 8-byte word of a line carries 48 bits of the
 * message, one bit of the line's header and 15 bits that name the lap of the ring, so that every word shows
 * by itself whether it has arrived.
 *
 * Threads: at any time at most one thread sends (or stops) and at most one receives; they may be different
 * threads. The kernel's side is one warp. The conventions are those of barcopy.h.
 */
#ifndef BARCOPY_QUEUE_H
#define BARCOPY_QUEUE_H

/** Bytes of a message in one line; a longer message takes as many lines as it needs. */
#define BARCOPY_QUEUE_LINE 48

/** Bytes of a message at most; at least 1. */
#define BARCOPY_QUEUE_MESSAGE_MAX 480

/**
 * What a kernel needs to use a queue: a parameter of the kernel, by value. The addresses are the
 * device's; the fields are barcopy_queue.cuh's.
 */
typedef struct barcopy_queue_view {
	unsigned long long requests; /**< lines in GPU memory */
	unsigned long long replies;  /**< lines in host memory */
	unsigned long long control;  /**< words in GPU memory */
	unsigned long long state;    /**< words in host memory */
	unsigned int lines;	     /**< of each ring; a power of two */
	unsigned int reserved;
} barcopy_queue_view_t;

/* The layout that both sides share: offsets in bytes, and the parts of a word and of a header. */
#define BARCOPY_QUEUE_CREDIT_AT	 0   /* control: reply lines that the CPU has read; the CPU's to write */
#define BARCOPY_QUEUE_STOP_AT	 64  /* control: 1 if the kernel is to stop; the CPU's to write */
#define BARCOPY_QUEUE_SAVED_AT	 128 /* control: three words that one kernel leaves for the next */
#define BARCOPY_QUEUE_CONTROL	 256 /* bytes of it */
#define BARCOPY_QUEUE_FREED_AT	 0   /* state: request lines that the kernel has taken */
#define BARCOPY_QUEUE_BEGUN_AT	 64  /* state: kernels that have begun */
#define BARCOPY_QUEUE_ENDED_AT	 128 /* state: kernels that have ended */
#define BARCOPY_QUEUE_STATE	 256 /* bytes of it */
#define BARCOPY_QUEUE_DATA_BITS	 48  /* of a word, its low bits */
#define BARCOPY_QUEUE_LAP_MASK	 0x7fffu /* above them; then one bit of the header */
#define BARCOPY_QUEUE_HEAD_SIZE	 0x3fu /* header: bytes of the message in this line */
#define BARCOPY_QUEUE_HEAD_MORE	 0x40u /* header: the message goes on in the next line */
#define BARCOPY_QUEUE_HEAD_STOP	 0x80u /* header: no message; the kernel is to stop */

#ifndef __CUDACC_RTC__

#include "barcopy.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/** A queue: opaque, ended by barcopy_queue_destroy() or by gdr_close() of its context. */
struct barcopy_queue;
typedef struct barcopy_queue *barcopy_queue_t;

/** Options of barcopy_queue_create(). Zeroes are the defaults. */
typedef struct barcopy_queue_options {
	size_t struct_size; /**< sizeof(barcopy_queue_options_t) */
	uint32_t lines;	    /**< of each ring: a power of two, 16 to 65536; 0: 256 */
	uint32_t flags;	    /**< 0 */
} barcopy_queue_options_t;

/**
 * Makes a queue to kernels of one GPU, in the device's primary context (that of the CUDA runtime). CUDA
 * is initialised if it was not.
 * @param device   CUDA device ordinal
 * @param options  NULL: the defaults
 * @param queue    the caller's until barcopy_queue_destroy() or gdr_close()
 * @return 0; EINVAL (g, device, NULL, an option); ENOTSUP, ENOMEM, ENODEV, EIO, EACCES as
 *         barcopy_mem_alloc(), and where host memory cannot be registered with CUDA.
 */
int barcopy_queue_create(gdr_t g, int device, const barcopy_queue_options_t *options,
			 barcopy_queue_t *queue);

/**
 * What a kernel takes as its parameter; the same at every call. One kernel at a time may use it: a kernel
 * that begins after another has ended goes on where that one stopped.
 * @return 0; EINVAL (queue, NULL); EACCES.
 */
int barcopy_queue_get_view(barcopy_queue_t queue, barcopy_queue_view_t *view);

/**
 * Sends a message to the kernel: it leaves without a further call. What the calling thread has copied into
 * a mapping of the same GPU before (gdr_copy_to_mapping() and the calls that fence; not those with
 * BARCOPY_COPY_NO_FENCE) is seen by a kernel that receives this message with BARCOPY_WARP_ORDERED.
 * @param size        bytes, 1 to BARCOPY_QUEUE_MESSAGE_MAX
 * @param timeout_ns  how long to wait for room; 0: look once; UINT64_MAX: for ever
 * @return 0; ETIMEDOUT (the ring is full: the kernel is slow, hangs, has ended or was never launched);
 *         EMSGSIZE (size); ESHUTDOWN (stopped); EINVAL (queue, NULL); EACCES; EBUSY (builds with a
 *         sanitizer only: another thread is sending).
 */
int barcopy_queue_send(barcopy_queue_t queue, const void *message, size_t size, uint64_t timeout_ns);

/** barcopy_queue_send() that does not wait: EAGAIN instead of ETIMEDOUT. */
int barcopy_queue_try_send(barcopy_queue_t queue, const void *message, size_t size);

/**
 * Receives the kernel's next reply. What the kernel has stored before a reply with BARCOPY_WARP_ORDERED is
 * seen by what the calling thread reads afterwards, from a mapping of GPU memory or from host memory.
 * @param message     `capacity` bytes
 * @param size        bytes of the message; NULL: not asked for
 * @param timeout_ns  as in barcopy_queue_send()
 * @return 0; ETIMEDOUT (no reply); EMSGSIZE (larger than capacity: it stays the next one); EINVAL
 *         (queue, NULL); EACCES; EBUSY (builds with a sanitizer only: another thread is receiving).
 */
int barcopy_queue_receive(barcopy_queue_t queue, void *message, size_t capacity, size_t *size,
			  uint64_t timeout_ns);

/**
 * Tells the kernel to stop, behind all messages sent before: its receive returns 0 then. A reply that waits
 * for room returns false. After it only barcopy_queue_receive() and barcopy_queue_destroy() are of use.
 * Belongs to the sending thread. A second call does nothing.
 * @return 0; EINVAL (queue); EACCES.
 */
int barcopy_queue_stop(barcopy_queue_t queue);

/**
 * Ends a queue. No other thread may be in a call on it. A kernel that was told to stop is waited for; a
 * kernel that was launched and has not begun is not known, so synchronise first, or receive a reply.
 * After an error of the context that CUDA reports, or a reset of the device, it succeeds without touching
 * the device. CUDA may report an error of another stream only when this queue's kernel has ended: until
 * then the call gives EBUSY, or ETIMEDOUT after barcopy_queue_stop().
 * @param timeout_ns  how long to wait for the kernel's end
 * @return 0; EBUSY (a kernel is on it and was not told to stop); ETIMEDOUT (it does not end): nothing was
 *         done; EINVAL (queue); EACCES.
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
