/* SPDX-License-Identifier: MIT */
/**
 * @file barcopy_queue.h
 * Messages between the CPU and kernels that are running. A queue: requests to one warp, replies
 * from it. A port: posts and calls to the CPU from any threads of any kernels of a GPU.
 * The kernel's side is barcopy_queue.cuh; docs/queue.md says when a queue is the right choice and
 * why it is correct.
 *
 * A queue has two rings of 64-byte lines: requests in GPU memory, which the CPU writes through the
 * mapping and the kernel polls there; replies in page-locked host memory, which the kernel writes
 * over the link and the CPU polls there. While messages flow neither side reads across the link.
 * Each 8-byte word of a line carries 48 bits of the message, 8 bits that name the lap of the ring,
 * and the line's header of 8 bits, so that every word shows by itself whether it has arrived.
 *
 * Threads: at any time at most one thread sends (or stops) and at most one receives; they may be
 * different threads. The kernel's side is one warp. Of a port one thread receives at a time; its
 * other calls, and the kernels' side, are for any threads. The conventions are those of barcopy.h.
 *
 * Load kernels before a kernel on a queue is launched. With lazy loading, CUDA's default, the first
 * launch of any kernel waits until every kernel that runs has ended: for ever, if that one waits
 * for a message. CUDA_MODULE_LOADING=EAGER in the environment loads all at once,
 * cudaFuncGetAttributes() one kernel.
 *
 * This interface is experimental until release 2.7: a change gives its symbols another version, so
 * that a program that was linked before does not start.
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
	unsigned int generation;     /**< the layout's version (8 bits), the queue's number (24) */
} barcopy_queue_view_t;

/* The layout that both sides share: offsets in bytes, and the parts of a word and of a header. */
#define BARCOPY_QUEUE_VERSION       2u
#define BARCOPY_QUEUE_CREDIT_AT     0   /* control: reply lines that the CPU has read */
#define BARCOPY_QUEUE_ABORT_AT      8   /* control: 1 if the kernel shall wait for no room */
#define BARCOPY_QUEUE_GENERATION_AT 16  /* control: the view's generation; 0: the queue has ended */
#define BARCOPY_QUEUE_OWNER_AT      64  /* control: not 0: a kernel has the queue */
#define BARCOPY_QUEUE_SAVED_AT      128 /* control: three words of one kernel for the next */
#define BARCOPY_QUEUE_KERNELS_AT    144 /* control: kernels that have begun; SAVED's third word */
#define BARCOPY_QUEUE_CONTROL       256 /* size of the control block in bytes */
#define BARCOPY_QUEUE_FREED_AT      0   /* state: request lines that the kernel has taken */
#define BARCOPY_QUEUE_BEGUN_AT      64  /* state: kernels that have begun */
#define BARCOPY_QUEUE_ENDED_AT      128 /* state: kernels that have ended: the last store */
#define BARCOPY_QUEUE_REFUSED_AT    192 /* state: not 0 if a kernel found another one's queue */
#define BARCOPY_QUEUE_STATE         256 /* size of the state block in bytes */
#define BARCOPY_QUEUE_DATA_BITS     48  /* a word's low bits: the message */
#define BARCOPY_QUEUE_LAP_MASK      0xffu /* the next 8 bits: the lap; the last 8: the header */
#define BARCOPY_QUEUE_HEAD_SIZE     0x3fu /* header: bytes of the message in this line */
#define BARCOPY_QUEUE_HEAD_MORE     0x40u /* header: the message continues in the next line */
#define BARCOPY_QUEUE_HEAD_STOP     0x80u /* header: no message; the kernel shall stop */
#define BARCOPY_PORT_HEAD_CALL      0x80u /* header of a port's line: a call; of size 0: no post */

/**
 * What a kernel needs to use a port; passed by value, the same to all kernels. Device addresses.
 * Only barcopy_queue.cuh uses the fields.
 */
typedef struct barcopy_port_view {
	unsigned long long ring;       /**< lines in host memory */
	unsigned long long control;    /**< words in GPU memory; the slots of calls follow them */
	unsigned long long generation; /**< the state word of a port that was not stopped */
	unsigned int lines;	       /**< a power of two; as many slots */
	unsigned int reserved;
} barcopy_port_view_t;

#define BARCOPY_PORT_RETIRED_AT  0   /* control: posts that the CPU has retired */
#define BARCOPY_PORT_STATE_AT    8   /* control: the generation, and the two bits below */
#define BARCOPY_PORT_TICKET_AT   128 /* control: posts that were begun */
#define BARCOPY_PORT_CONTROL     256 /* size of the control block in bytes */
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
struct barcopy_queue;
typedef struct barcopy_queue *barcopy_queue_t;

/** Options of barcopy_queue_create(). A field of 0 selects the default. */
typedef struct barcopy_queue_options {
	size_t struct_size; /**< sizeof(barcopy_queue_options_t) */
	uint32_t lines; /**< per ring: a power of two, 16 to 65536; 0: 256 */
	uint32_t flags; /**< 0 */
} barcopy_queue_options_t;

/** Flags; the calls that take one stand before it. */
typedef enum barcopy_queue_flags {
	/** send, try_send: a kernel that receives this message with BARCOPY_WARP_ORDERED sees what
	 *  the calling thread stored before, in host memory too. Costs a fence of the CPU. */
	BARCOPY_QUEUE_ORDERED = 1,
	/** send, try_send, receive: EPIPE instead of a wait once all kernels that began have ended,
	 *  and at least one began. Not where another kernel is to continue. */
	BARCOPY_QUEUE_UNTIL_END = 2,
	/** stop: a kernel that waits for room for a reply does not go on waiting. */
	BARCOPY_QUEUE_ABORT = 4
} barcopy_queue_flags_t;

/** What is known about a queue's kernels. */
typedef enum barcopy_queue_phase {
	BARCOPY_QUEUE_NEVER_BEGUN = 0,
	BARCOPY_QUEUE_RUNNING = 1, /**< or returned without barcopy_warp_end() */
	BARCOPY_QUEUE_STOPPED = 2, /**< barcopy_queue_stop() was called; else as RUNNING */
	BARCOPY_QUEUE_ENDED = 3, /**< all that began */
	BARCOPY_QUEUE_DEAD = 4 /**< CUDA's last answer to a wait: its context has ended */
} barcopy_queue_phase_t;

/** Set by barcopy_queue_get_state(). */
typedef struct barcopy_queue_state {
	size_t struct_size; /**< sizeof(barcopy_queue_state_t), set by the caller */
	uint32_t phase; /**< a barcopy_queue_phase_t */
	uint32_t refused; /**< 1: a kernel was refused, since another one had begun and not ended:
			     *	 it ran, or had returned without barcopy_warp_end(). */
	uint64_t begun; /**< kernels that have begun */
} barcopy_queue_state_t;

/**
 * Creates a queue for kernels of one GPU, in the device's primary context (that of the CUDA
 * runtime). Initialises CUDA if necessary.
 * @param device   CUDA device ordinal
 * @param options  NULL: the defaults
 * @param queue    set to the queue; valid until barcopy_queue_destroy() or gdr_close()
 * @return 0; EINVAL (g, device, NULL, an option); ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EIO,
 *         EACCES as barcopy_mem_alloc(), and where host memory cannot be registered with CUDA.
 */
int barcopy_queue_create(gdr_t g, int device, const barcopy_queue_options_t *options,
			 barcopy_queue_t *queue);

/**
 * Gets the parameter that a kernel takes; every call gives the same. One kernel at a time may use
 * it: another one is refused. A kernel that begins after another has ended continues where that one
 * stopped. A kernel that begins after the queue's end is refused.
 * @return 0; EINVAL (queue, NULL); EACCES.
 */
int barcopy_queue_get_view(barcopy_queue_t queue, barcopy_queue_view_t *view);

/**
 * Gets what kernels have written and CUDA last answered. Makes no call of CUDA; any thread.
 * @param state  struct_size is set before the call; see barcopy.h
 * @return 0; EINVAL (queue, NULL, struct_size); EACCES.
 */
int barcopy_queue_get_state(barcopy_queue_t queue, barcopy_queue_state_t *state);

/**
 * Sends a message to the kernel; no flush is needed. A kernel that receives it with
 * BARCOPY_WARP_ORDERED sees what the calling thread has copied into a mapping of the same GPU
 * before, by gdr_copy_to_mapping() or another call that fences (not with BARCOPY_COPY_NO_FENCE).
 * With BARCOPY_QUEUE_ORDERED it sees all that the thread has stored before.
 * @param size        bytes, 1 to BARCOPY_QUEUE_MESSAGE_MAX
 * @param flags       0, BARCOPY_QUEUE_ORDERED, BARCOPY_QUEUE_UNTIL_END
 * @param timeout_ns  how long to wait for room; 0: do not wait; UINT64_MAX: no limit. A wait asks
 *                    CUDA in every 100 ms whether its context still works.
 * @return 0; ETIMEDOUT (the ring is full: the kernel is slow, hangs, has ended or was never
 *         launched); EPIPE (the context has ended, or what BARCOPY_QUEUE_UNTIL_END says); EMSGSIZE
 *         (size); ESHUTDOWN (stopped); EINVAL (queue, NULL, flags); EACCES;
 *         EBUSY (builds with a sanitizer only: another thread is sending).
 */
int barcopy_queue_send(barcopy_queue_t queue, const void *message, size_t size, uint32_t flags,
		       uint64_t timeout_ns);

/**
 * Sends `count` messages of `size` bytes each, which lie one behind the other: all or none. Costs
 * one fence where the CPU has no MOVDIR64B, as one send does. Conditions and errors as
 * barcopy_queue_send(), and EMSGSIZE where they need more than 3/4 of the ring's lines; a count of
 * 0 sends nothing, asks nothing of the size or a stop, and is 0.
 */
int barcopy_queue_send_batch(barcopy_queue_t queue, const void *messages, size_t size,
			     uint32_t count, uint32_t flags, uint64_t timeout_ns);

/** Like barcopy_queue_send(), but does not wait: a full ring gives EAGAIN. */
int barcopy_queue_try_send(barcopy_queue_t queue, const void *message, size_t size, uint32_t flags);

/**
 * Receives the kernel's next reply. If the kernel sent it with BARCOPY_WARP_ORDERED, the calling
 * thread then sees what the kernel had stored before: in host memory, and in a mapping of the GPU's
 * by gdr_copy_from_mapping() or another call that fences (not with BARCOPY_COPY_NO_FENCE), or by
 * its own loads behind barcopy_fence(BARCOPY_FENCE_BEFORE_READ).
 * @param message     a buffer of `capacity` bytes
 * @param size        set to the bytes of the reply, also with EMSGSIZE; may be NULL
 * @param flags       0, BARCOPY_QUEUE_UNTIL_END
 * @param timeout_ns  as in barcopy_queue_send()
 * @return 0; ETIMEDOUT (no reply); EPIPE (no reply is left, and: the queue was stopped and its
 *         kernel has ended; what BARCOPY_QUEUE_UNTIL_END says; the context has ended); EMSGSIZE
 *         (larger than capacity) or EBADMSG (the kernel wrote what is no message): the reply stays
 *         in the queue; EINVAL (queue, NULL, flags); EACCES; EBUSY (builds with a sanitizer only:
 *         another thread is receiving).
 */
int barcopy_queue_receive(barcopy_queue_t queue, void *message, size_t capacity, size_t *size,
			  uint32_t flags, uint64_t timeout_ns);

/**
 * Stops the kernel: after all messages sent before, its receive returns 0. Replies are still to be
 * received, as before: a kernel that has no room for one waits. With BARCOPY_QUEUE_ABORT such a
 * reply returns 0 at once; that and messages not yet taken are lost. Only the sending thread may
 * call it; a second call may add BARCOPY_QUEUE_ABORT.
 * @param flags  0 or BARCOPY_QUEUE_ABORT
 * @return 0; EINVAL (queue, flags); EACCES.
 */
int barcopy_queue_stop(barcopy_queue_t queue, uint32_t flags);

/**
 * Ends a queue. No other thread may be in a call on it. After barcopy_queue_stop(queue, 0) it drops
 * replies and waits for the kernel to serve all messages and end; at the deadline it adds
 * BARCOPY_QUEUE_ABORT and waits 100 ms more. gdr_close() stops all queues of its context and gives
 * them together 1 s. If CUDA reports an error of the context, or the device was reset, the call
 * succeeds without touching the device. CUDA may report another stream's error only when this queue's kernel
 * has ended: until then the call fails.
 *
 * A kernel that was launched and has not begun is refused when it begins. Have none: synchronise
 * its stream, or wait until barcopy_queue_get_state() has counted it. Otherwise one that begins in
 * the microsecond of this call may meet the next queue in the same memory, and have that queue's
 * kernel refused, or let in a second one.
 * @param timeout_ns  how long to wait for the kernel's end; 0: do not wait, nor abort
 * @return 0; EBUSY (a kernel uses the queue and was not stopped: nothing was done, but a kernel
 *         that begins meanwhile may be refused) or ETIMEDOUT (the kernel has not ended; the queue
 *         can be destroyed later); EINVAL (queue); EACCES.
 */
int barcopy_queue_destroy(barcopy_queue_t queue, uint64_t timeout_ns);

/* ---- ports ----------------------------------------------------------------------------------- */

/** A port: opaque; barcopy_port_destroy() or gdr_close() of its context ends it. */
struct barcopy_port;
typedef struct barcopy_port *barcopy_port_t;

/** Flags of ports; the calls that take one stand before it. */
typedef enum barcopy_port_flags {
	/** create, in the options: barcopy_port_retire() retires posts. Without it the next receive
	 *  retires what the last one gave. */
	BARCOPY_PORT_MANUAL = 1,
	/** stop: nor does a kernel wait for room, for its post to be taken, or for an answer. */
	BARCOPY_PORT_ABORT = 2
} barcopy_port_flags_t;

/**
 * Options of barcopy_port_create(). A receive that finds nothing polls; once nothing has come for
 * spin_ns it calls sched_yield() between polls; yield_ns later it sleeps for sleep_ns, at most
 * 100 ms, between them. The thread's timer slack comes on top: see prctl(PR_SET_TIMERSLACK).
 */
typedef struct barcopy_port_options {
	size_t struct_size; /**< sizeof(barcopy_port_options_t) */
	uint32_t lines;	    /**< of the ring: a power of two, 16 to 65536; 0: 1024 */
	uint32_t flags;	    /**< 0 or BARCOPY_PORT_MANUAL */
	uint64_t spin_ns;   /**< 0: it polls without end */
	uint64_t yield_ns;
	uint64_t sleep_ns; /**< 0: it yields without end */
} barcopy_port_options_t;

/** A post. */
typedef struct barcopy_port_message {
	uint64_t post;	  /**< its number: 1, 2 and so on; a number that is left out was no post */
	uint32_t size;	  /**< bytes, 1 to 48; 0: the kernel wrote another size */
	uint32_t call;	  /**< 0; or the name of a call: the first 4 bytes are not the caller's */
	uint64_t data[6]; /**< bytes behind `size` are undefined */
} barcopy_port_message_t;

/**
 * Creates a port for the kernels of one GPU, in the device's primary context. Initialises CUDA if
 * necessary.
 * @param options  NULL: the defaults
 * @return as barcopy_queue_create()
 */
int barcopy_port_create(gdr_t g, int device, const barcopy_port_options_t *options,
			barcopy_port_t *port);

/**
 * Gets the parameter of kernels: any number of kernels, streams and graphs at once. A kernel that
 * opens it after barcopy_port_end(), or after destroy and before the process's last gdr_close(), is
 * refused.
 * @return 0; EINVAL (port, NULL); EACCES.
 */
int barcopy_port_get_view(barcopy_port_t port, barcopy_port_view_t *view);

/**
 * Receives 1 to `n` posts, in the order of their numbers; waits for the first. If the kernel posted
 * it with BARCOPY_WARP_ORDERED, the calling thread then sees what the poster had stored before, as
 * after barcopy_queue_receive(). One thread at a time.
 * @param count       set to the number of posts received
 * @param timeout_ns  0: do not wait; UINT64_MAX: no limit. A wait asks CUDA in every 100 ms whether
 *                    its context still works.
 * @return 0; ETIMEDOUT; EPIPE (barcopy_port_end() was called and all posts are received, or the
 *         context has ended); EINVAL (port, NULL, n is 0); EACCES.
 */
int barcopy_port_receive(barcopy_port_t port, barcopy_port_message_t *messages, uint32_t n,
			 uint32_t *count, uint64_t timeout_ns);

/**
 * Retires the posts with numbers `post` to post + n - 1 of a port of BARCOPY_PORT_MANUAL, in any
 * order: their lines may be written again, and kernels see them as taken, once all before them are
 * retired, too. A kernel that waits with BARCOPY_WARP_ORDERED then sees what the calling thread has
 * copied into a mapping of the same GPU before. Any thread. A number that was no post counts as
 * retired.
 * @return 0; EINVAL (port, not manual, one that was not received or is retired: nothing is done);
 *         EACCES.
 */
int barcopy_port_retire(barcopy_port_t port, uint64_t post, uint32_t n);

/**
 * Answers calls, in any order, before or after they are retired; costs one push for all. A caller
 * that waits with BARCOPY_WARP_ORDERED sees what the calling thread has copied before into a
 * mapping of the same GPU. Any thread; each call once.
 * @param calls    `count` names
 * @param answers  their answers, 56 bits each
 * @return 0; EINVAL (port, NULL, one that is no open call, an answer of more than 56 bits: nothing
 *         was answered); EACCES.
 */
int barcopy_port_answer(barcopy_port_t port, const uint32_t *calls, const uint64_t *answers,
			uint32_t count);

/**
 * Tells kernels to post nothing more. A post that sees it returns 0; each thread may make one whose
 * number is not 0, and all of these are received if the caller goes on receiving until the kernels
 * have ended. With BARCOPY_PORT_ABORT kernels do not wait for the CPU any more, and posts that had
 * no room are lost, as is each with a higher number. Any thread; a second call may add the flag.
 * @return 0; EINVAL (port, flags); EACCES.
 */
int barcopy_port_stop(barcopy_port_t port, uint32_t flags);

/**
 * Says that no kernel posts any more: receive gives what is left, then EPIPE. A kernel that opens
 * the view later is refused. Takes no lock and makes no call of CUDA: a host function of the kernels'
 * stream may call it (cudaLaunchHostFunc()). CUDA calls none after an error; receive then ends by
 * its questions to CUDA. Any thread.
 * @return 0; EINVAL (port); EACCES.
 */
int barcopy_port_end(barcopy_port_t port);

/**
 * Ends a port at once. No other thread may be in a call on it, and no kernel that has its view may
 * run or be pending, as for cudaFree(). gdr_close() of a context with ports aborts them and keeps
 * their memory for as long as the process lives.
 * @return 0; EINVAL (port); EACCES.
 */
int barcopy_port_destroy(barcopy_port_t port);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
#endif
