/* SPDX-License-Identifier: MIT */
/**
 * @file barcopy_queue.cuh
 * The kernel's side of barcopy_queue.h, for compute capability 7.0 and newer. nvcc, clang and NVRTC
 * compile it; it includes only barcopy_queue.h.
 *
 * One warp serves a queue. All its 32 lanes call every function together, with the same arguments
 * except where a parameter is per lane:
 *
 *     __global__ void serve(barcopy_queue_view_t view)    // <<<1, 32>>>
 *     {
 *             unsigned data[3], size, n; // twelve bytes of a message: four lanes have one
 *             barcopy_warp_t q;
 *
 *             if (!barcopy_warp_begin(&q, view))
 *                     return;
 *             while ((n = barcopy_warp_take(&q, data, &size, 0)) != 0) {
 *                     ...
 *                     if (!barcopy_warp_put(&q, n, data, size, 0))
 *                             break;
 *             }
 *             barcopy_warp_end(&q);
 *     }
 *
 * A kernel may serve many queues, a warp each. Load other kernels before it is launched: with lazy
 * loading, CUDA's default, their first launch waits until it ends (barcopy_queue.h).
 *
 * Any threads of any kernels use a port, without begin and end:
 *
 *     __global__ void work(barcopy_port_view_t view)
 *     {
 *             unsigned message[12];
 *             unsigned long long post, reply;
 *             barcopy_poster_t p;
 *
 *             barcopy_port_open(&p, view);
 *             ...
 *             post = barcopy_port_post(&p, message, sizeof(message), BARCOPY_PORT_NO_LIMIT, 0);
 *             if (post)
 *                     barcopy_port_wait(&p, post, BARCOPY_PORT_NO_LIMIT, 0);
 *             if (barcopy_port_call(&p, message, sizeof(message), &reply, 1000000, 0)) // 1 ms
 *                     ...
 *     }
 */
#ifndef BARCOPY_QUEUE_CUH
#define BARCOPY_QUEUE_CUH

#include "barcopy_queue.h"

/** A flag. Take: this warp then sees what the CPU copied before its send. Put: the CPU sees after
 *  its receive what this warp stored before. Costs a fence. */
#define BARCOPY_WARP_ORDERED 1u

#ifndef BARCOPY_WARP_FN /* tests without a GPU define these themselves */
#define BARCOPY_WARP_FN static __device__ __forceinline__

/* Loads two neighbouring words, 8 bytes an access each; with `acquire`, later loads follow. */
BARCOPY_WARP_FN void barcopy_warp_load(unsigned long long addr, unsigned acquire,
				       unsigned long long *v)
{
#define BARCOPY_WARP_LOAD(order)                                      \
	asm volatile("ld." order ".sys.global.v2.u64 {%0, %1}, [%2];" \
		     : "=l"(v[0]), "=l"(v[1])                         \
		     : "l"(addr)                                      \
		     : "memory")
	if (acquire)
		BARCOPY_WARP_LOAD("acquire");
	else
		BARCOPY_WARP_LOAD("relaxed");
}

/* Stores two neighbouring words, 8 bytes an access each, in the lanes where `yes` is not 0. */
BARCOPY_WARP_FN void barcopy_warp_store(int yes, unsigned long long addr, unsigned long long v0,
					unsigned long long v1)
{
	asm volatile("{ .reg .pred yes; setp.ne.s32 yes, %0, 0;\n"
		     "@yes st.relaxed.sys.global.v2.u64 [%1], {%2, %3}; }" ::"r"(yes),
		     "l"(addr), "l"(v0), "l"(v1)
		     : "memory");
}

#define barcopy_warp_fence() asm volatile("fence.acq_rel.sys;" ::: "memory")
/* Between two polls of a thread that waits for the CPU. */
#define barcopy_warp_pause() asm volatile("nanosleep.u32 100;")

/* Writes `to` into a word that is `from`. Returns what it was. */
BARCOPY_WARP_FN unsigned long long barcopy_warp_claim(unsigned long long addr,
						      unsigned long long from,
						      unsigned long long to)
{
	unsigned long long before;

	asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
		     : "=l"(before)
		     : "l"(addr), "l"(from), "l"(to)
		     : "memory");
	return before;
}

/* Adds to a word of the GPU's own; returns what it was. */
BARCOPY_WARP_FN unsigned long long barcopy_warp_add(unsigned long long addr, unsigned long long n)
{
	unsigned long long before;

	asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
		     : "=l"(before)
		     : "l"(addr), "l"(n)
		     : "memory");
	return before;
}

/* Sets bits of a word of the GPU's own; returns what it was. */
BARCOPY_WARP_FN unsigned long long barcopy_warp_or(unsigned long long addr, unsigned long long bits)
{
	unsigned long long before;

	asm volatile("atom.relaxed.gpu.global.or.b64 %0, [%1], %2;"
		     : "=l"(before)
		     : "l"(addr), "l"(bits)
		     : "memory");
	return before;
}

BARCOPY_WARP_FN unsigned long long barcopy_warp_now(void)
{
	unsigned long long ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

/* Differs between the threads of a kernel whose blocks have one dimension. */
BARCOPY_WARP_FN unsigned barcopy_warp_hint(void)
{
	return blockIdx.x * blockDim.x + threadIdx.x;
}

BARCOPY_WARP_FN unsigned barcopy_warp_lane(void)
{
	unsigned lane;

	asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane;
}

#endif

#define BARCOPY_WARP_ALL 0xffffffffu

/** One warp's use of a queue, in registers. Only this header uses the fields but for `lane`. */
typedef struct barcopy_warp {
	barcopy_queue_view_t view;
	unsigned long long rx, freed; /* request lines that were taken, and freed */
	unsigned long long tx;	      /* reply lines written */
	unsigned space;		      /* reply lines that may be written at once */
	unsigned lane, line, shift;
} barcopy_warp_t;

/* ---- lines ----------------------------------------------------------------------------------- */

/* The number of zero bits below the lowest bit that is set; 32 for 0. */
BARCOPY_WARP_FN unsigned barcopy_warp_zeroes(unsigned bits)
{
	return (unsigned)__popc(~bits & (bits - 1));
}

/*
 * Where this lane's two words of the eight lines from i on are. Bits 16 and up are the lap, as in
 * the upper half of a word; below is the line's place, in units that make a ring 1 << 16 long.
 */
BARCOPY_WARP_FN unsigned barcopy_warp_place(const barcopy_warp_t *q, unsigned long long i)
{
	return (((unsigned)i + q->line) << q->shift) + (1 << 16);
}

BARCOPY_WARP_FN unsigned long long barcopy_warp_at(const barcopy_warp_t *q, unsigned long long ring,
						   unsigned place)
{
	return ring + ((place & 0xffff) >> q->shift) * 64 + q->lane % 4 * 16;
}

/* Once in a quarter of the ring, writes the count of lines taken where the CPU polls it. */
BARCOPY_WARP_FN void barcopy_warp_free(barcopy_warp_t *q)
{
	if ((unsigned)(q->rx - q->freed) < q->view.lines / 4)
		return;
	q->freed = q->rx;
	barcopy_warp_store(q->lane == 0, q->view.state + BARCOPY_QUEUE_FREED_AT, q->rx, 0);
}

/* Stores 12 bytes of a message as two words, each with lap and header in `tag`. */
BARCOPY_WARP_FN void barcopy_warp_words(int yes, unsigned long long at, unsigned tag,
					const unsigned *data)
{
	barcopy_warp_store(
		yes, at, (unsigned long long)(tag | (data[1] & 0xffff)) << 32 | data[0],
		(unsigned long long)(tag | data[2] >> 16) << 32 | data[2] << 16 | data[1] >> 16);
}

/* The 12 bytes of a message in this lane's words. */
BARCOPY_WARP_FN void barcopy_warp_data(const unsigned long long *word, unsigned *data)
{
	data[0] = (unsigned)word[0];
	data[1] = ((unsigned)(word[0] >> 32) & 0xffff) | (unsigned)word[1] << 16;
	data[2] = (unsigned)(word[1] >> 16);
}

/* ---- queues ---------------------------------------------------------------------------------- */

/**
 * The first call: starts, or continues where the kernel before on this queue ended. Returns 1, or 0
 * if the library has another layout: then make no other call.
 */
BARCOPY_WARP_FN int barcopy_warp_begin(barcopy_warp_t *q, barcopy_queue_view_t view)
{
	unsigned long long saved[2];

	q->view = view;
	q->lane = barcopy_warp_lane();
	q->line = q->lane / 4;
	q->shift = 16 - barcopy_warp_zeroes(view.lines);
	q->space = 0;
	if (view.version != BARCOPY_QUEUE_VERSION)
		return 0;
	barcopy_warp_load(view.control + BARCOPY_QUEUE_SAVED_AT, 0, saved);
	q->rx = q->freed = saved[0];
	q->tx = saved[1];
	return 1;
}

/** The last call. Another kernel may begin after this kernel's end. */
BARCOPY_WARP_FN void barcopy_warp_end(const barcopy_warp_t *q)
{
	barcopy_warp_store(q->lane == 0, q->view.control + BARCOPY_QUEUE_SAVED_AT, q->rx, q->tx);
	barcopy_warp_store(q->lane == 0, q->view.state + BARCOPY_QUEUE_FREED_AT, q->rx, 0);
}

/**
 * Waits for messages, takes up to eight. Returns their number, or 0 if the kernel shall stop. Lanes
 * 4 i to 4 i + 3 get message i: data[3] holds 12 bytes of it, from byte 12 * (lane & 3) on, *size
 * its size in bytes. A word that is used is the value that was checked: it is not read again.
 */
BARCOPY_WARP_FN unsigned barcopy_warp_take(barcopy_warp_t *q, unsigned *data, unsigned *size,
					   unsigned flags)
{
	unsigned long long at, word[2];
	unsigned late, place, n;

	barcopy_warp_free(q);
	place = barcopy_warp_place(q, q->rx);
	at = barcopy_warp_at(q, q->view.requests, place);
	do {
		barcopy_warp_load(at, flags & BARCOPY_WARP_ORDERED, word);
		late = (((unsigned)(word[0] >> 32) ^ place) | ((unsigned)(word[1] >> 32) ^ place)) &
		       BARCOPY_QUEUE_LAP_MASK << 16;
	} while (!__all_sync(BARCOPY_WARP_ALL, !late || q->line));
	*size = (unsigned)(word[0] >> 56);
	late |= *size - 1 >= BARCOPY_QUEUE_LINE; /* a stop */
	n = barcopy_warp_zeroes(__ballot_sync(BARCOPY_WARP_ALL, (int)late)) / 4;
	barcopy_warp_data(word, data);
	q->rx += n;
	__syncwarp(BARCOPY_WARP_ALL); /* other lanes load these places next, and what was ordered */
	return n;
}

/* Waits for space for n replies. Returns 1, or 0 if the CPU has aborted and there is none. */
BARCOPY_WARP_FN int barcopy_warp_make_room(barcopy_warp_t *q, unsigned n, unsigned flags)
{
	unsigned long long v[2];

	__syncwarp(BARCOPY_WARP_ALL);
	if (flags & BARCOPY_WARP_ORDERED)
		barcopy_warp_fence();
	if (q->space >= n)
		return 1;
	do {
		barcopy_warp_free(q);
		barcopy_warp_load(q->view.control + BARCOPY_QUEUE_CREDIT_AT, 0, v);
		q->space = __shfl_sync(BARCOPY_WARP_ALL,
				      (unsigned)(v[0] + q->view.lines - q->tx), 0);
	} while (q->space < n && !__any_sync(BARCOPY_WARP_ALL, v[1] != 0));
	return q->space >= n;
}

/**
 * Sends `n` messages, at most 8, from the lanes to which take would give them; waits while the ring
 * of replies is full. `data` and `size` are per lane: the four lanes of a message have its size.
 * Returns 1, or 0 if the ring is full and the CPU has aborted. The CPU gets EBADMSG for a size that
 * is not 1 to 48: to refuse it here would cost each batch 30 ns.
 */
BARCOPY_WARP_FN int barcopy_warp_put(barcopy_warp_t *q, unsigned n, const unsigned *data,
				     unsigned size, unsigned flags)
{
	unsigned place = barcopy_warp_place(q, q->tx);

	n = n < 8 ? n : 8;
	if (!barcopy_warp_make_room(q, n, flags))
		return 0;
	size = size - 1 < BARCOPY_QUEUE_LINE ? size : 0;
	barcopy_warp_words(q->line < n, barcopy_warp_at(q, q->view.replies, place),
			   size << 24 | (place & BARCOPY_QUEUE_LAP_MASK << 16), data);
	q->tx += n;
	q->space -= n;
	return 1;
}

/* ---- ports: posts and calls from any threads of any kernels ---------------------------------- */

#define BARCOPY_PORT_NO_LIMIT (~0ull)

/** A flag of posts and asks: nobody waits until this post is taken. A CPU that receives posts one by
 *  one then takes more in a second. A wait for it, or for all posts, may end later. */
#define BARCOPY_PORT_UNAWAITED BARCOPY_PORT_HEAD_UNAWAITED

/** One thread's use of a port, in registers. Only this header uses the fields. */
typedef struct barcopy_poster {
	barcopy_port_view_t view;
	unsigned long long retired, state; /* the CPU's two words, as last read */
	unsigned long long taken;	   /* posts retired, by the eight lines */
	unsigned line;			   /* of these, the one that said so */
	unsigned asks;			   /* 0: a post with a limit looks before it asks for a line:
					      the first post, one behind a post that found no
					      space, or behind a call that left a line out */
	unsigned slot;			   /* of the open call, or the first to try for the next */
	unsigned call;			   /* the name of the open call; 0: none is */
} barcopy_poster_t;

#define BARCOPY_PORT_NO_LINE (~0u) /* none was read yet; the next is the first */

/* The thread waits for this load when it uses the words: in its next post, or for space. */
BARCOPY_WARP_FN void barcopy_port_look(barcopy_poster_t *p, unsigned acquire)
{
	unsigned long long v[2];

	barcopy_warp_load(p->view.control + BARCOPY_PORT_RETIRED_AT, acquire, v);
	p->retired = v[0];
	p->state = v[1];
}

/** The first call of a thread, as early as it can be. No call ends the use. Returns 1, or 0 if the
 *  library has another layout: then make no call that waits; posts return 0. */
BARCOPY_WARP_FN int barcopy_port_open(barcopy_poster_t *p, barcopy_port_view_t view)
{
	int known = view.generation >> 56 == BARCOPY_QUEUE_VERSION;

	p->view = view;
	if (!known)
		p->view.generation = ~0ull; /* no state */
	p->call = 0;
	p->slot = barcopy_warp_hint();
	p->asks = 0;
	p->taken = 0;
	p->line = BARCOPY_PORT_NO_LINE;
	barcopy_port_look(p, 0);
	return known;
}

/** Returns 1 if this thread has seen that the port was stopped or has ended. If a post returned 0
 *  without that, it had another size or no space within its limit. */
BARCOPY_WARP_FN int barcopy_port_stopped(const barcopy_poster_t *p)
{
	return p->state != p->view.generation;
}

/* Returns 1 after an abort, and after an end or a destroy: they leave another generation. */
BARCOPY_WARP_FN int barcopy_port_aborted(const barcopy_poster_t *p)
{
	return (p->state | BARCOPY_PORT_STOPPED_BIT) !=
	       (p->view.generation | BARCOPY_PORT_STOPPED_BIT);
}

BARCOPY_WARP_FN int barcopy_port_fits(const barcopy_poster_t *p, unsigned long long i,
				      unsigned long long retired)
{
	return (long long)(i - retired - p->view.lines) < 0;
}

/* Stores a message of `words` words; zeroes fill the line. */
BARCOPY_WARP_FN void barcopy_port_line(const barcopy_poster_t *p, unsigned long long i,
				       const unsigned *data, unsigned words, unsigned head)
{
	unsigned shift = 16 - barcopy_warp_zeroes(p->view.lines), k, d[12];
	unsigned place = ((unsigned)i << shift) + (1 << 16); /* as barcopy_warp_place() */

	for (k = 0; k < 12; k++)
		d[k] = k < words ? data[k] : 0;
	for (k = 0; k < 4; k++)
		barcopy_warp_words(1, p->view.ring + ((place & 0xffff) >> shift) * 64 + k * 16,
				   head << 24 | (place & BARCOPY_QUEUE_LAP_MASK << 16), d + 3 * k);
}

/*
 * Writes line i, this thread's, as soon as there is space: after a stop, too, so that no line is
 * left out. The first test uses `retired`, which was read before the number was taken: it does not
 * wait for the look that began since. Returns the post's number, or 0 if the CPU has aborted.
 */
BARCOPY_WARP_FN unsigned long long barcopy_port_put(barcopy_poster_t *p, unsigned long long i,
						    unsigned long long retired,
						    const unsigned *data, unsigned words,
						    unsigned head)
{
	if (barcopy_port_fits(p, i, retired)) {
		barcopy_port_line(p, i, data, words, head);
		return i + 1;
	}
	for (;;) {
		if (barcopy_port_fits(p, i, p->retired)) { /* here: no lane waits for others */
			barcopy_port_line(p, i, data, words, head);
			return i + 1;
		}
		if (barcopy_port_aborted(p))
			return 0;
		barcopy_warp_pause();
		barcopy_port_look(p, 0);
	}
}

/* ---- ports: numbers -------------------------------------------------------------------------- */

/*
 * Nobody can give a number back: the CPU waits for its line. So a post with a limit takes a number only
 * if its line is free. Two words count. TICKET: the numbers that were taken. RESERVED: these, and the
 * lines that posts with a limit ask for. Who asks adds to RESERVED, and what the addition returns says
 * whether so many lines are free. If they are not, a subtraction takes the question back.
 */

/* Returns 1 if `limit` ns have passed since *start, which the first question sets. */
BARCOPY_WARP_FN int barcopy_port_late(unsigned long long *start, unsigned long long limit)
{
	if (limit == BARCOPY_PORT_NO_LIMIT)
		return 0;
	if (!*start)
		*start = barcopy_warp_now();
	return barcopy_warp_now() - *start >= limit;
}

BARCOPY_WARP_FN unsigned long long barcopy_port_add(const barcopy_poster_t *p, unsigned word,
						    unsigned long long n)
{
	return barcopy_warp_add(p->view.control + word, n);
}

/*
 * Waits until n lines are free, and reserves them. Returns 1, or 0: not in time, or a stop. A thread whose
 * last post found no space looks before it asks, as in its first post: the questions of many tries at a
 * time would outnumber the lines, and each would be in vain, in an empty ring too.
 */
BARCOPY_WARP_FN int barcopy_port_reserve(barcopy_poster_t *p, unsigned n, unsigned long long *start,
					 unsigned long long limit)
{
	unsigned long long v[2];
	unsigned looks = 0;

	while (!p->asks ||
	       !barcopy_port_fits(p, barcopy_port_add(p, BARCOPY_PORT_RESERVED_AT, n) + n - 1,
				  p->retired)) {
		if (p->asks)
			barcopy_port_add(p, BARCOPY_PORT_RESERVED_AT, 0ull - n);
		p->asks = 0;
		do { /* without questions: those of all who wait would look like posts */
			if (barcopy_port_late(start, limit) && looks)
				return 0;
			if (looks++)
				barcopy_warp_pause();
			barcopy_port_look(p, 0);
			barcopy_warp_load(p->view.control + BARCOPY_PORT_TICKET_AT, 0, v);
			if (barcopy_port_stopped(p))
				return 0;
		} while (!barcopy_port_fits(p, v[1] + n - 1, p->retired));
		p->asks = 1;
	}
	return 1;
}

/*
 * Takes the next n numbers, *i and those behind it. Returns 1, or 0: no space in time, or a stop.
 * *retired: what was known before: a test by it does not wait for the look that begins here, which
 * shows a stop to the next post.
 *
 * Each post with a limit asks, though that takes as long as a number. That the thread's last post
 * found space says nothing about this one: others fill the ring in a microsecond.
 */
BARCOPY_WARP_FN int barcopy_port_take(barcopy_poster_t *p, unsigned n, unsigned long long *i,
				      unsigned long long *retired, unsigned long long *start,
				      unsigned long long limit)
{
	if (limit == BARCOPY_PORT_NO_LIMIT)
		barcopy_port_add(p, BARCOPY_PORT_RESERVED_AT, n);
	else if (!barcopy_port_reserve(p, n, start, limit))
		return 0;
	*i = barcopy_port_add(p, BARCOPY_PORT_TICKET_AT, n);
	*retired = p->retired;
	barcopy_port_look(p, 0);
	return 1;
}

/** Returns the number of the last post that any thread has begun: a wait for it is one for all of
 *  them. Less the posts that are retired, it is how many are outstanding. */
BARCOPY_WARP_FN unsigned long long barcopy_port_begun(const barcopy_poster_t *p)
{
	unsigned long long v[2];

	barcopy_warp_load(p->view.control + BARCOPY_PORT_TICKET_AT, 0, v);
	return v[0];
}

/**
 * Posts n messages of `size` bytes each, 1 to 48, with numbers in a row, for one number's price and
 * n lines. `data`: each message begins in a word of its own, (size + 3) / 4 words behind the one
 * before. Waits, and returns 0, as barcopy_port_post(); 0, too, if n is not 1 to the port's lines.
 * No message was posted then, unless the CPU has aborted. Otherwise returns the last one's number.
 */
BARCOPY_WARP_FN unsigned long long barcopy_port_post_many(barcopy_poster_t *p, const unsigned *data,
							  unsigned size, unsigned n,
							  unsigned long long limit, unsigned flags)
{
	unsigned long long i, retired, start = 0, post = 0;
	unsigned k, words = (size + 3) / 4;

	if (barcopy_port_stopped(p) || size - 1 >= BARCOPY_QUEUE_LINE || n - 1 >= p->view.lines)
		return 0;
	if (flags & BARCOPY_WARP_ORDERED)
		barcopy_warp_fence(); /* before the number: who holds one delays all behind it */
	if (!barcopy_port_take(p, n, &i, &retired, &start, limit))
		return 0;
	for (k = 0; k < n; k++) {
		post = barcopy_port_put(p, i + k, retired, data + k * words, words,
					size | (flags & BARCOPY_PORT_UNAWAITED));
		if (!post)
			return 0;
	}
	return post;
}

/**
 * Posts a message of 1 to 48 bytes, from the words of `data` that it fills; waits while the ring is
 * full, `limit` ns, 0 or BARCOPY_PORT_NO_LIMIT. Returns the post's number. Returns 0 if the size is
 * another, if the ring was full for so long, if this thread has seen that the port was stopped or has
 * ended, or after an abort. BARCOPY_WARP_ORDERED: the CPU sees after its receive what this thread
 * stored before, and what others stored before a barrier.
 *
 * A limit of 0 is a try. It may fail while some lines are free, if other threads ask for as many lines
 * at the same time. A post may end later than its limit if other posts have none.
 */
BARCOPY_WARP_FN unsigned long long barcopy_port_post(barcopy_poster_t *p, const unsigned *data,
						     unsigned size, unsigned long long limit,
						     unsigned flags)
{
	return barcopy_port_post_many(p, data, size, 1, limit, flags);
}

/* ---- ports: waits and calls ------------------------------------------------------------------ */

/* Between two polls. Returns 0 after an abort, or when `limit` ns have passed since *start. */
BARCOPY_WARP_FN int barcopy_port_patience(barcopy_poster_t *p, unsigned *polls,
					  unsigned long long *start, unsigned long long limit)
{
	if (++*polls % 16)
		return 1;
	barcopy_port_look(p, 0);
	return !barcopy_port_aborted(p) && !barcopy_port_late(start, limit);
}

BARCOPY_WARP_FN unsigned long long barcopy_port_taken_at(const barcopy_poster_t *p, unsigned line)
{
	return p->view.control + BARCOPY_PORT_TAKEN_AT + line * 64;
}

BARCOPY_WARP_FN int barcopy_port_counted(const barcopy_poster_t *p, unsigned long long post)
{
	return p->line != BARCOPY_PORT_NO_LINE && (long long)(p->taken - post) >= 0;
}

/*
 * The CPU stores its count into eight lines in turn (src/queue/port.c), the first time into the second
 * one. So behind the newest count that this thread has read is the next one; where a line has an older
 * one, none has come. All eight at each poll of many threads would keep a part of L2 busy.
 */
BARCOPY_WARP_FN void barcopy_port_follow(barcopy_poster_t *p, unsigned long long post)
{
	unsigned long long v[2];
	unsigned k, next;

	for (k = 0; k < BARCOPY_PORT_TAKEN_LINES && !barcopy_port_counted(p, post); k++) {
		next = (p->line + 1) % BARCOPY_PORT_TAKEN_LINES;
		barcopy_warp_load(barcopy_port_taken_at(p, next), 0, v);
		if (p->line != BARCOPY_PORT_NO_LINE && (long long)(v[0] - p->taken) <= 0)
			return;
		p->taken = v[0];
		p->line = next;
	}
}

/* barcopy_port_taken(), without a look at the CPU's two words. */
BARCOPY_WARP_FN int barcopy_port_passed(barcopy_poster_t *p, unsigned long long post, unsigned flags)
{
	const int retired = (long long)(p->retired - post) >= 0;
	unsigned long long v[2];

	if (!retired)
		barcopy_port_follow(p, post);
	/* An acquire of the same word, which does not go back. */
	if (barcopy_port_counted(p, post)) {
		if (flags & BARCOPY_WARP_ORDERED)
			barcopy_warp_load(barcopy_port_taken_at(p, p->line), 1, v);
	} else if (retired && flags & BARCOPY_WARP_ORDERED) {
		barcopy_port_look(p, 1);
	}
	return retired || barcopy_port_counted(p, post);
}

/** Returns 1 if the CPU has retired this post and all before it; always for 0, which is no post.
 *  BARCOPY_WARP_ORDERED: the thread then sees what the CPU copied before that. */
BARCOPY_WARP_FN int barcopy_port_taken(barcopy_poster_t *p, unsigned long long post, unsigned flags)
{
	if ((long long)(p->retired - post) < 0)
		barcopy_port_look(p, 0); /* shows a stop, too */
	return barcopy_port_passed(p, post, flags);
}

/** Waits until a post is taken, `limit` ns or BARCOPY_PORT_NO_LIMIT. Returns 1, or 0 if the limit
 *  has passed or the CPU has aborted. */
BARCOPY_WARP_FN int barcopy_port_wait(barcopy_poster_t *p, unsigned long long post,
				      unsigned long long limit, unsigned flags)
{
	unsigned long long start = 0;
	unsigned polls = 0;

	while (!barcopy_port_passed(p, post, 0))
		if (!barcopy_port_patience(p, &polls, &start, limit))
			return 0;
	/* Here: in the loop it would empty L1 at each poll. */
	return !(flags & BARCOPY_WARP_ORDERED) || barcopy_port_passed(p, post, flags);
}

/* A call is a post that names a slot in GPU memory, where the CPU stores the answer. */
BARCOPY_WARP_FN unsigned long long barcopy_port_slot(const barcopy_poster_t *p)
{
	return p->view.control + BARCOPY_PORT_CONTROL +
	       (p->slot & (p->view.lines - 1)) * (0ull + BARCOPY_PORT_SLOT);
}

/*
 * `claim` is the slot's word before this thread set its lowest bit. Returns the number of this
 * thread's call on the slot, or 0 if another call has the slot. A call that was dropped has its
 * slot until its answer has come.
 */
BARCOPY_WARP_FN unsigned long long barcopy_port_claim(const barcopy_poster_t *p,
						      unsigned long long claim)
{
	unsigned long long word[2], to = (claim & ~BARCOPY_PORT_DROPPED_BIT) + 2;

	if (!(claim & 1))
		return claim + 1;
	if (!(claim & BARCOPY_PORT_DROPPED_BIT))
		return 0;
	barcopy_warp_load(barcopy_port_slot(p), 0, word);
	if (word[0] >> BARCOPY_PORT_REPLY_BITS != (claim & 0xff) ||
	    barcopy_warp_claim(barcopy_port_slot(p) + BARCOPY_PORT_CLAIM_AT, claim, to) != claim)
		return 0;
	return to;
}

/* Tries the next slots until one is free. Returns the number of the call on it, or 0 as
 * barcopy_port_patience(). */
BARCOPY_WARP_FN unsigned long long barcopy_port_seek(barcopy_poster_t *p, unsigned long long *start,
						     unsigned long long limit)
{
	unsigned long long claim;
	unsigned polls = 0;

	do {
		barcopy_warp_pause();
		if (!barcopy_port_patience(p, &polls, start, limit))
			return 0;
		p->slot++;
		claim = barcopy_warp_or(barcopy_port_slot(p) + BARCOPY_PORT_CLAIM_AT, 1);
		claim = barcopy_port_claim(p, claim);
	} while (!claim);
	return claim;
}

/*
 * barcopy_port_ask(), of whose limit the time since *start has passed. Who looks before it asks for a
 * number, or has left a line out, asks only with a slot: the lines that many tries leave out would take
 * the space of those that have one.
 */
BARCOPY_WARP_FN unsigned long long barcopy_port_ask_by(barcopy_poster_t *p, unsigned *data,
						       unsigned size, unsigned long long *start,
						       unsigned long long limit, unsigned flags)
{
	int asks = p->asks || limit == BARCOPY_PORT_NO_LIMIT, taken = 0;
	unsigned long long claim, i = 0, retired = 0;

	if (p->call || barcopy_port_stopped(p) || size - 4 > BARCOPY_QUEUE_LINE - 4)
		return 0;
	if (flags & BARCOPY_WARP_ORDERED)
		barcopy_warp_fence();
	claim = barcopy_warp_or(barcopy_port_slot(p) + BARCOPY_PORT_CLAIM_AT, 1);
	if (asks) /* at the same time */
		taken = barcopy_port_take(p, 1, &i, &retired, start, limit);
	else
		barcopy_port_late(start, limit); /* the search for a slot counts from here on */
	claim = barcopy_port_claim(p, claim);
	for (;; asks = 1) {
		if (asks && !taken) {
			if (claim) /* the next call has the same name, which the CPU never saw */
				barcopy_warp_add(barcopy_port_slot(p) + BARCOPY_PORT_CLAIM_AT, ~0ull);
			return 0;
		}
		if (asks) {
			/* No line waits for a slot: the answer that frees one may be a later call's. */
			p->call = (p->slot & (p->view.lines - 1)) << 8 | ((unsigned)claim & 0xff);
			p->call = claim ? p->call : 0;
			data[0] = p->call;
			i = barcopy_port_put(
				p, i, retired, data, (size + 3) / 4,
				BARCOPY_PORT_HEAD_CALL |
					(claim ? size | (flags & BARCOPY_PORT_UNAWAITED) : 0));
			if (claim || !i)
				break;
			p->asks = 0;
		}
		if (!claim)
			claim = barcopy_port_seek(p, start, limit);
		if (!claim)
			return 0;
		taken = barcopy_port_take(p, 1, &i, &retired, start, limit);
	}
	if (!i)
		p->call = 0;
	return i;
}

/**
 * The first half of a call: posts a message of 4 to 48 bytes whose first 4 this call writes into
 * `data`. Takes a free slot, of which there are as many as lines; waits while there is none, or no
 * space, `limit` ns in all. Returns the post's number, or 0 as barcopy_port_post(), and if this thread
 * has an open call.
 */
BARCOPY_WARP_FN unsigned long long barcopy_port_ask(barcopy_poster_t *p, unsigned *data,
						    unsigned size, unsigned long long limit,
						    unsigned flags)
{
	unsigned long long start = 0;

	return barcopy_port_ask_by(p, data, size, &start, limit, flags);
}

/* barcopy_port_reply(), of whose limit the time since *start has passed. */
BARCOPY_WARP_FN int barcopy_port_reply_by(barcopy_poster_t *p, unsigned long long *reply,
					  unsigned long long *start, unsigned long long limit,
					  unsigned flags)
{
	unsigned long long at = barcopy_port_slot(p), word[2];
	unsigned polls = 0;

	if (!p->call)
		return 0;
	for (;;) {
		barcopy_warp_load(at, 0, word);
		if (word[0] >> BARCOPY_PORT_REPLY_BITS == (p->call & 0xff))
			break;
		if (!barcopy_port_patience(p, &polls, start, limit))
			return 0;
	}
	if (flags & BARCOPY_WARP_ORDERED)
		barcopy_warp_load(at, 1, word);
	*reply = word[0] & ((1ull << BARCOPY_PORT_REPLY_BITS) - 1);
	barcopy_warp_add(at + BARCOPY_PORT_CLAIM_AT, 1);
	p->call = 0;
	return 1;
}

/** The other half: waits for the answer to the open call, 56 bits. Returns 1, or 0 if no call is
 *  open, if `limit` ns have passed (the call stays open) or if the CPU has aborted. Flags as
 *  barcopy_port_taken(). */
BARCOPY_WARP_FN int barcopy_port_reply(barcopy_poster_t *p, unsigned long long *reply,
				       unsigned long long limit, unsigned flags)
{
	unsigned long long start = 0;

	return barcopy_port_reply_by(p, reply, &start, limit, flags);
}

/** Drops the open call: its slot is free again when the answer has come. A thread that ends with an
 *  open call, and has neither dropped it nor got its answer, leaves the slot taken for ever. */
BARCOPY_WARP_FN void barcopy_port_drop(barcopy_poster_t *p)
{
	if (p->call)
		barcopy_warp_or(barcopy_port_slot(p) + BARCOPY_PORT_CLAIM_AT,
				BARCOPY_PORT_DROPPED_BIT);
	p->call = 0;
}

/** A whole call, both halves within `limit` ns. Returns 1, or 0 as they do; no call stays open. */
BARCOPY_WARP_FN int barcopy_port_call(barcopy_poster_t *p, unsigned *data, unsigned size,
				      unsigned long long *reply, unsigned long long limit,
				      unsigned flags)
{
	unsigned long long start = 0;

	if (barcopy_port_ask_by(p, data, size, &start, limit, flags) &&
	    barcopy_port_reply_by(p, reply, &start, limit, flags))
		return 1;
	barcopy_port_drop(p);
	return 0;
}

#endif
