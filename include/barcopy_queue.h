/* SPDX-License-Identifier: MIT */
/**
 * @file barcopy_queue.h
 * Messages between the CPU and kernels that are running. A queue: requests to one warp, replies
 * from it. A port: posts and calls to the CPU from any threads of any kernels of a GPU.
 * The kernel's side is barcopy_queue.cuh; docs/queue.md says when a queue is the right choice,
 * docs/internals/queue-protocol.md why it is correct.
 *
 * A queue has two rings of 64-byte lines: requests in GPU memory, which the CPU writes through the
 * mapping and the warp polls there; replies in page-locked host memory, which the warp writes over
 * the link and the CPU polls there. A message is one line, of which every word shows by itself
 * whether it has arrived. Kernels follow each other on a queue: the end of one stores its two
 * positions, and the begin of the next loads them. Nothing guards them: two kernels on one queue at
 * once corrupt it. Nor does the library know whether one runs: the program waits for its stream
 * before it destroys the queue.
 *
 * Threads: at any time at most one thread sends (or stops) and at most one receives; they may be
 * different threads. The kernel's side is one warp. Of a port one thread receives at a time; its
 * other calls, and the kernels' side, are for any threads. The conventions are those of barcopy.h.
 *
 * A reset of the device ends them. Where a free of memory ends its pins (gdrdrv without persistent
 * mapping) only destroy and gdr_close() are then safe: a call that writes GPU memory, also the
 * receive that retires or credits what was received, raises SIGBUS.
 *
 * Load kernels before one is launched that stays. With lazy loading, CUDA's default, the first
 * launch of any kernel waits until every kernel that runs has ended. CUDA_MODULE_LOADING=EAGER in
 * the environment loads all at once, cudaFuncGetAttributes() one kernel.
 */
#ifndef BARCOPY_QUEUE_H
#define BARCOPY_QUEUE_H

/** The largest message, in bytes: one line. The smallest has 1. */
#define BARCOPY_QUEUE_LINE 48

/** What a warp needs to use a queue; passed by value. Only barcopy_queue.cuh uses the fields. */
typedef struct barcopy_queue_view {
	unsigned long long requests; /**< lines in GPU memory */
	unsigned long long replies;  /**< lines in host memory */
	unsigned long long control;  /**< words in GPU memory */
	unsigned long long state;    /**< words in host memory */
	unsigned int lines;	     /**< per ring; a power of two */
	unsigned int version;	     /**< of the layout */
} barcopy_queue_view_t;

/*
 * The layout that both sides share: offsets in bytes, and the parts of a word and of a header. Not for
 * programs: another BARCOPY_QUEUE_VERSION may have others.
 */
#define BARCOPY_QUEUE_VERSION   3u
#define BARCOPY_QUEUE_CREDIT_AT 0     /* control: reply lines that the CPU has read */
#define BARCOPY_QUEUE_ABORT_AT  8     /* control: 1: the kernel shall not wait for space */
#define BARCOPY_QUEUE_SAVED_AT  64    /* control: two positions of one kernel for the next */
#define BARCOPY_QUEUE_CONTROL   128   /* size of the control block in bytes */
#define BARCOPY_QUEUE_FREED_AT  0     /* state: request lines that the kernel has taken */
#define BARCOPY_QUEUE_STATE     64    /* size of the state block in bytes */
#define BARCOPY_QUEUE_DATA_BITS 48    /* a word's low bits: the message */
#define BARCOPY_QUEUE_LAP_MASK  0xffu /* the next 8 bits: the lap; the last 8: the header */
#define BARCOPY_QUEUE_HEAD_SIZE 0x7fu /* header: bytes of the message, 1 to 48 */
#define BARCOPY_QUEUE_HEAD_STOP 0x80u /* header: no message; the kernel shall stop */

#define BARCOPY_PORT_HEAD_SIZE	    0x3fu /* header of a port's line: bytes of the message, 1 to 48 */
#define BARCOPY_PORT_HEAD_UNAWAITED 0x40u /* header: nobody waits until the post is taken */
#define BARCOPY_PORT_HEAD_CALL	    0x80u /* header: a call; of size 0: no post */

/** The same of a port, for all kernels. */
typedef struct barcopy_port_view {
	unsigned long long ring;       /**< lines in host memory */
	unsigned long long control;    /**< words in GPU memory; the slots of calls follow them */
	unsigned long long generation; /**< the state word of a port that was not stopped */
	unsigned int lines;	       /**< a power of two; as many slots */
	unsigned int reserved;
} barcopy_port_view_t;

#define BARCOPY_PORT_RETIRED_AT  0   /* control: posts that the CPU has retired: once in 32 */
#define BARCOPY_PORT_STATE_AT    8   /* control: the generation, and the two bits below */
#define BARCOPY_PORT_TICKET_AT   128 /* control: posts that were begun */
#define BARCOPY_PORT_RESERVED_AT 136 /* control: these, and lines that posts with a limit ask for */
#define BARCOPY_PORT_TAKEN_AT    256 /* control: as RETIRED, but at once, in one of eight lines */
#define BARCOPY_PORT_TAKEN_LINES 8   /* of 64 bytes, in turn, the second one first */
#define BARCOPY_PORT_CONTROL     768 /* size of the control block in bytes */
#define BARCOPY_PORT_SLOT        64  /* size of a slot, which begins with the answer */
#define BARCOPY_PORT_CLAIM_AT    32  /* slot: odd while it is taken; grows with each call */
#define BARCOPY_PORT_DROPPED_BIT (1ull << 63) /* claim: nobody waits for the answer */
#define BARCOPY_PORT_STOPPED_BIT 1u /* state: no post begins */
#define BARCOPY_PORT_ABORTED_BIT 2u /* state: and none waits */
#define BARCOPY_PORT_REPLY_BITS  56 /* of an answer; the other 8 name the call */

#ifndef __CUDACC_RTC__
#include "barcopy.h"
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/** A queue: opaque; barcopy_queue_destroy() or gdr_close() of its context ends it. */
typedef struct barcopy_queue *barcopy_queue_t;

typedef struct barcopy_queue_options {
	size_t struct_size; /**< sizeof(barcopy_queue_options_t) */
	uint32_t lines; /**< per ring: a power of two, 16 to 65536; 0: 256 */
	uint32_t flags; /**< 0 */
} barcopy_queue_options_t;

/** Flags of queues. */
typedef enum barcopy_queue_flags {
	BARCOPY_QUEUE_ORDERED = 1, /**< of a send: costs a fence of the CPU */
	BARCOPY_QUEUE_ABORT = 2 /**< of a stop */
} barcopy_queue_flags_t;

/**
 * Creates a queue for kernels of one GPU, in the device's primary context (that of the CUDA
 * runtime). Initialises CUDA if necessary.
 * @param device   CUDA device ordinal
 * @param options  NULL: the defaults
 * @return 0; EINVAL (g, device, NULL, an option); ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EIO,
 *         EACCES as barcopy_mem_alloc(), and where host memory cannot be registered with CUDA.
 */
int barcopy_queue_create(gdr_t g, int device, const barcopy_queue_options_t *options,
			 barcopy_queue_t *queue);

/**
 * Gets the parameter that a kernel takes; every call gives the same view. A kernel that begins
 * after another kernel's end, in the same stream or by an event, continues where that one stopped.
 * @return 0; EINVAL (queue, NULL); EACCES.
 */
int barcopy_queue_get_view(barcopy_queue_t queue, barcopy_queue_view_t *view);

/**
 * Sends a message of 1 to BARCOPY_QUEUE_LINE bytes; no flush is needed. A kernel that takes it with
 * BARCOPY_WARP_ORDERED sees what the calling thread has copied into a mapping of the same GPU
 * before, by gdr_copy_to_mapping() or another call that fences (not with BARCOPY_COPY_NO_FENCE).
 * @param flags       0 or BARCOPY_QUEUE_ORDERED: that kernel sees all that the thread stored
 *                    before, in host memory too
 * @param timeout_ns  how long to wait for space; 0: do not wait; UINT64_MAX: no limit. A wait
 *                    checks every 100 ms whether the CUDA context works; a call with 0 does
 *                    not, so that a program that only polls never gets EPIPE.
 * @return 0; ETIMEDOUT (the ring is full); EPIPE (the context has ended); EMSGSIZE (size);
 *         ESHUTDOWN (stopped); EINVAL (queue, NULL, flags); EACCES.
 */
int barcopy_queue_send(barcopy_queue_t queue, const void *message, size_t size, uint32_t flags,
		       uint64_t timeout_ns);

/**
 * Receives the kernel's next reply. If the kernel sent it with BARCOPY_WARP_ORDERED, the calling
 * thread then sees what the kernel had stored before: in host memory, and in a mapping of the GPU's
 * by gdr_copy_from_mapping() or another call that fences (not with BARCOPY_COPY_NO_FENCE), or by
 * its own loads after barcopy_fence(BARCOPY_FENCE_BEFORE_READ).
 * @param size        set to the bytes of the reply, also with EMSGSIZE; may be NULL
 * @param timeout_ns  as in barcopy_queue_send()
 * @return 0; ETIMEDOUT (no reply has come; if the stream was synchronised before, none is left);
 *         EPIPE (no reply, and the context has ended); EMSGSIZE (a reply larger than capacity) or
 *         EBADMSG (not of 1 to 48 bytes): it stays in the queue; EINVAL (queue, NULL); EACCES.
 */
int barcopy_queue_receive(barcopy_queue_t queue, void *message, size_t capacity, size_t *size,
			  uint64_t timeout_ns);

/**
 * Stops the kernel: after all messages sent before, its take returns 0. Continue to receive: a
 * kernel that has no space for a reply waits. With BARCOPY_QUEUE_ABORT such a put returns 0 at
 * once; those replies, and messages that were not taken, are lost. Only the sending thread may call
 * it; a second call may add BARCOPY_QUEUE_ABORT.
 * @return 0; EINVAL (queue, flags); EACCES.
 */
int barcopy_queue_stop(barcopy_queue_t queue, uint32_t flags);

/**
 * Ends a queue at once. No other thread may be in a call on it, and no kernel that has its view may
 * run or be pending, as for cudaFree(): stop it, and synchronise its stream. gdr_close() aborts
 * queues and ports of its context and leaves their memory allocated. It does not wait for calls on
 * them, and may end the mapping: no other thread may be in such a call then. If a part of the end
 * fails, the call does the rest and returns the first failure.
 * @return 0; EINVAL (queue); EACCES; ENOMEM (munmap() failed); EIO.
 */
int barcopy_queue_destroy(barcopy_queue_t queue);

/* ---- ports ----------------------------------------------------------------------------------- */

/** A port: opaque; barcopy_port_destroy() or gdr_close() of its context ends it. */
typedef struct barcopy_port *barcopy_port_t;

/** Flags of ports. */
typedef enum barcopy_port_flags {
	/** Of a create: barcopy_port_retire() retires posts, not the receive after theirs. */
	BARCOPY_PORT_MANUAL = 1,
	BARCOPY_PORT_ABORT = 2 /**< of a stop */
} barcopy_port_flags_t;

/**
 * A receive that finds nothing polls; once nothing has come for spin_ns it calls sched_yield()
 * between polls; yield_ns later it sleeps for sleep_ns, at most 100 ms, between them. The thread's
 * timer slack comes on top: see prctl(PR_SET_TIMERSLACK).
 */
typedef struct barcopy_port_options {
	size_t struct_size; /**< sizeof(barcopy_port_options_t) */
	uint32_t lines; /**< of the ring: a power of two, 16 to 65536; 0: 1024 */
	uint32_t flags; /**< 0 or BARCOPY_PORT_MANUAL */
	uint64_t spin_ns; /**< 0: it polls without end */
	uint64_t yield_ns;
	uint64_t sleep_ns; /**< 0: it yields without end */
} barcopy_port_options_t;

typedef struct barcopy_port_message {
	uint64_t post; /**< its number: 1, 2 and so on; a number that is left out was no post */
	uint32_t size; /**< bytes, 1 to 48; 0: the kernel wrote another size */
	uint32_t call; /**< 0; or the name of a call, which is in the first 4 bytes, too */
	uint64_t data[6]; /**< bytes after `size` are undefined */
} barcopy_port_message_t;

/** Creates a port for the kernels of one GPU: as barcopy_queue_create(). */
int barcopy_port_create(gdr_t g, int device, const barcopy_port_options_t *options,
			barcopy_port_t *port);

/**
 * Gets the parameter of any number of kernels, streams and graphs at once. After barcopy_port_end()
 * posts through it return 0; after barcopy_port_destroy() no kernel with it may run or be pending.
 * @return 0; EINVAL (port, NULL); EACCES.
 */
int barcopy_port_get_view(barcopy_port_t port, barcopy_port_view_t *view);

/**
 * Receives 1 to `n` posts, in the order of their numbers; waits for the first. If a thread posted
 * one with BARCOPY_WARP_ORDERED, the calling thread then sees what the poster had stored before, as
 * after barcopy_queue_receive(). One thread at a time.
 *
 * Without BARCOPY_PORT_MANUAL it first retires the posts of the receive before, and kernels that
 * wait for these see that at once. Kernels that wait for space see it later: when 32 are retired (a
 * quarter of a ring of less than 128 lines), or before a receive waits; so do those that wait for
 * posts of BARCOPY_PORT_UNAWAITED alone. Do not wait between two receives for a kernel that may
 * wait for space. Retiring comes behind the calling thread's copies, but not behind a word or line
 * that it has posted: barcopy_fence() with BARCOPY_FENCE_AFTER_WRITE orders these.
 * @param messages    entries from *count on are undefined afterwards
 * @param count       set to the number of posts received; to 0 with ETIMEDOUT and EPIPE
 * @param timeout_ns  as in barcopy_queue_send(), but calls with 0 check the CUDA context as well
 * @return 0; ETIMEDOUT; EPIPE (no post is left, and barcopy_port_end() was called or the context
 *         has ended); EINVAL (port, NULL, n is 0); EACCES.
 */
int barcopy_port_receive(barcopy_port_t port, barcopy_port_message_t *messages, uint32_t n,
			 uint32_t *count, uint64_t timeout_ns);

/**
 * Retires posts `post` to post + n - 1 of a port of BARCOPY_PORT_MANUAL, in any order. Once all
 * posts before them are retired, too, kernels see them as taken and may write their lines again. A
 * kernel that waits with BARCOPY_WARP_ORDERED then sees what the calling thread has copied into a
 * mapping of the same GPU before. Any thread. A number that was no post counts as retired: a range
 * that includes it is refused. Each call that moves the front stores a word, which takes 150 ns if
 * the last was stored just before: retire ranges.
 * @return 0; EINVAL (port, not manual, a post not received or retired before: nothing is done);
 *         EACCES.
 */
int barcopy_port_retire(barcopy_port_t port, uint64_t post, uint32_t n);

/**
 * Answers `count` calls, 56 bits each, in any order, before or after they are retired; costs one
 * push for all. A caller that waits with BARCOPY_WARP_ORDERED sees what the calling thread has
 * copied before into a mapping of the same GPU. Any thread; each call once.
 * @return 0; EINVAL (port, NULL, a call that is not open, an answer of more than 56 bits: no call
 *         was answered); EACCES.
 */
int barcopy_port_answer(barcopy_port_t port, const uint32_t *calls, const uint64_t *answers,
			uint32_t count);

/**
 * Tells kernels to post nothing more. A post returns 0 once its thread has seen the stop. Until
 * then each thread may make one more call of a post; all of these are received if the caller
 * continues to receive until the kernels have ended. With BARCOPY_PORT_ABORT kernels do not wait
 * for the CPU any more: a post that has no space is lost, and so is each with a higher number. Any
 * thread; a second call may add the flag.
 * @return 0; EINVAL (port, flags); EACCES.
 */
int barcopy_port_stop(barcopy_port_t port, uint32_t flags);

/**
 * Says that no kernel posts any more: receive gives what is left, then EPIPE. Takes no lock and
 * makes no call of CUDA: a host function of the kernels' stream may call it (cudaLaunchHostFunc()).
 * CUDA calls no host function after an error: receive then ends by its check of the context. For a
 * kernel that posts all the same it is a stop with BARCOPY_PORT_ABORT. Any thread.
 * @return 0; EINVAL (port); EACCES.
 */
int barcopy_port_end(barcopy_port_t port);

/** Ends a port: as barcopy_queue_destroy(). */
int barcopy_port_destroy(barcopy_port_t port);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
#endif
