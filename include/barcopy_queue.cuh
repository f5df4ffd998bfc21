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
 *             __shared__ unsigned long long message[BARCOPY_QUEUE_MESSAGE_MAX / 8];
 *             barcopy_warp_t q;
 *             unsigned size;
 *
 *             barcopy_warp_begin(&q, view);
 *             while ((size = barcopy_warp_receive(&q, message, 0)) != 0) {
 *                     ...
 *                     barcopy_warp_reply(&q, message, size, 0);
 *             }
 *             barcopy_warp_end(&q);
 *     }
 *
 * A kernel may serve many queues, a warp each. Load other kernels before it is launched: with lazy
 * loading, CUDA's default, their first launch waits until it ends (barcopy_queue.h).
 *
 * A message buffer is in shared or global memory, aligned to 8 bytes, a multiple of 8 bytes long.
 * Messages of at most 48 bytes can stay in registers: barcopy_warp_take() and barcopy_warp_put().
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
 *             post = barcopy_port_post(&p, message, sizeof(message), 0);
 *             if (post)
 *                     barcopy_port_wait(&p, post, BARCOPY_PORT_NO_LIMIT, 0);
 *             if (barcopy_port_call(&p, message, sizeof(message), &reply, 1000000, 0)) // 1 ms
 *                     ...
 *     }
 */
#ifndef BARCOPY_QUEUE_CUH
#define BARCOPY_QUEUE_CUH

#include "barcopy_queue.h"

/** A flag. Receive and take: this warp then sees what the CPU copied before its send. Reply and
 *  put: the CPU sees after its receive what this warp stored before. Costs a fence. */
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
#define barcopy_warp_fence_sc() asm volatile("fence.sc.sys;" ::: "memory")
/* Between two looks of a thread that waits for the CPU or for other producers. */
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

/** One warp's use of a queue, in registers. Only this header uses the fields. */
typedef struct barcopy_warp {
	barcopy_queue_view_t view;
	unsigned long long rx, freed; /* request lines before the last look, and freed */
	unsigned long long tx;	      /* reply lines written */
	unsigned room;		      /* reply lines that may be written at once */
	unsigned at, have;	      /* lines [at, have) of the last look: complete, not taken */
	unsigned long long word[2];   /* this lane's two words of the last look's eight lines */
	unsigned ordered;	      /* the flags of the last look */
	unsigned lane, line, shift;
	unsigned long long begun; /* the number of this kernel; 0: it was refused */
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
	unsigned long long taken = q->rx + q->at;

	if ((unsigned)(taken - q->freed) < q->view.lines / 4)
		return;
	q->freed = taken;
	barcopy_warp_store(q->lane == 0, q->view.state + BARCOPY_QUEUE_FREED_AT, taken, 0);
}

/*
 * Loads the next eight lines, two words per lane, once all lines of the last look are taken. With
 * `wait`, repeats until the first line is complete. Returns 1 if it is complete and stops the
 * kernel. Otherwise q->have counts the complete lines, from the first on, up to the stop line; one
 * that is no message's counts as such, and so does any line for a kernel that was refused: a branch
 * for it would cost each look 45 ns (H200, 2026-11-23). A word that is used is the value that was
 * checked: it is not read again.
 */
BARCOPY_WARP_FN int barcopy_warp_look(barcopy_warp_t *q, unsigned flags, int wait)
{
	unsigned long long at;
	unsigned late, place, head;
	int first;

	q->rx += q->have;
	q->at = 0;
	barcopy_warp_free(q);
	place = barcopy_warp_place(q, q->rx);
	at = barcopy_warp_at(q, q->view.requests, place);
	q->ordered = flags & BARCOPY_WARP_ORDERED;
	do {
		barcopy_warp_load(at, q->ordered, q->word);
		late = (((unsigned)(q->word[0] >> 32) ^ place) |
			((unsigned)(q->word[1] >> 32) ^ place)) &
		       BARCOPY_QUEUE_LAP_MASK << 16;
		first = __all_sync(BARCOPY_WARP_ALL, !late || q->line || !q->begun);
	} while (wait && !first);
	head = (unsigned)(q->word[0] >> 56);
	late |= !q->begun || (head - 1 >= BARCOPY_QUEUE_LINE &&
			      head != (BARCOPY_QUEUE_LINE | BARCOPY_QUEUE_HEAD_MORE));
	q->have = barcopy_warp_zeroes(__ballot_sync(BARCOPY_WARP_ALL, (int)late)) / 4;
	return first && !q->have;
}

/* Before a reply: waits for room for n lines. Returns 0 if the kernel shall stop before. */
BARCOPY_WARP_FN int barcopy_warp_make_room(barcopy_warp_t *q, unsigned n, unsigned flags)
{
	unsigned long long v[2];

	__syncwarp(BARCOPY_WARP_ALL);
	if (flags & BARCOPY_WARP_ORDERED)
		barcopy_warp_fence();
	if (q->room >= n)
		return 1;
	if (!q->begun)
		return 0;
	do {
		barcopy_warp_free(q);
		barcopy_warp_load(q->view.control + BARCOPY_QUEUE_CREDIT_AT, 0, v);
		q->room = __shfl_sync(BARCOPY_WARP_ALL,
				      (unsigned)(v[0] + q->view.lines - q->tx), 0);
	} while (q->room < n && !__any_sync(BARCOPY_WARP_ALL, v[1] != 0));
	return q->room >= n;
}

/* Stores 12 bytes of a message as two words, each with lap and header in `tag`. */
BARCOPY_WARP_FN void barcopy_warp_words(int yes, unsigned long long at, unsigned tag,
					const unsigned *data)
{
	barcopy_warp_store(
		yes, at, (unsigned long long)(tag | (data[1] & 0xffff)) << 32 | data[0],
		(unsigned long long)(tag | data[2] >> 16) << 32 | data[2] << 16 | data[1] >> 16);
}

/* Writes this lane's two words of the next n lines, 1 to 8: 12 bytes, each with lap and header. */
BARCOPY_WARP_FN void barcopy_warp_write(barcopy_warp_t *q, unsigned n, const unsigned *data,
					unsigned head)
{
	unsigned place = barcopy_warp_place(q, q->tx);
	unsigned tag = head << 24 | (place & BARCOPY_QUEUE_LAP_MASK << 16);

	barcopy_warp_words(q->line < n, barcopy_warp_at(q, q->view.replies, place), tag, data);
	q->tx += n;
	q->room -= n;
}

/* The 12 bytes of a message in this lane's words. */
BARCOPY_WARP_FN void barcopy_warp_data(const unsigned long long *word, unsigned *data)
{
	data[0] = (unsigned)word[0];
	data[1] = ((unsigned)(word[0] >> 32) & 0xffff) | (unsigned)word[1] << 16;
	data[2] = (unsigned)(word[1] >> 16);
}

/* ---- begin and end --------------------------------------------------------------------------- */

/*
 * In lane 0: takes the queue unless it has ended, was made anew or has a kernel. The generation is
 * read before anything is written, as the memory may be another queue's, and once more when the
 * owner's word is set: barcopy_queue_destroy() clears the one and then reads the other.
 */
BARCOPY_WARP_FN unsigned barcopy_warp_own(const barcopy_queue_view_t *view)
{
	unsigned long long owner = view->control + BARCOPY_QUEUE_OWNER_AT, v[2];
	unsigned won;

	barcopy_warp_load(view->control + BARCOPY_QUEUE_GENERATION_AT, 0, v);
	if (v[0] != view->generation || view->generation >> 24 != BARCOPY_QUEUE_VERSION)
		return 0;
	won = barcopy_warp_claim(owner, 0, 1) == 0;
	barcopy_warp_fence_sc();
	barcopy_warp_store(!won, view->state + BARCOPY_QUEUE_REFUSED_AT, 1, 0);
	barcopy_warp_load(view->control + BARCOPY_QUEUE_GENERATION_AT, 0, v);
	barcopy_warp_store(won && v[0] != view->generation, owner, 0, 0);
	return won && v[0] == view->generation;
}

/**
 * The first call: starts, or continues where the last kernel on this queue ended, whose last store
 * it waits for. Returns 1; 0: the queue has ended, or another kernel is on it or returned without
 * barcopy_warp_end(). Then the other calls return as if the kernel were to stop, and do nothing.
 */
BARCOPY_WARP_FN int barcopy_warp_begin(barcopy_warp_t *q, barcopy_queue_view_t view)
{
	unsigned long long saved = view.control + BARCOPY_QUEUE_SAVED_AT, count[2], kernels[2];
	unsigned long long ended[2];

	q->view = view;
	q->lane = barcopy_warp_lane();
	q->line = q->lane / 4;
	q->shift = 16 - barcopy_warp_zeroes(view.lines);
	q->at = q->have = q->ordered = q->room = 0;
	q->word[0] = q->word[1] = q->rx = q->freed = q->tx = q->begun = 0;
	if (!__any_sync(BARCOPY_WARP_ALL, q->lane == 0 && barcopy_warp_own(&view)))
		return 0;
	__syncwarp(BARCOPY_WARP_ALL);
	barcopy_warp_load(saved, 0, count);
	barcopy_warp_load(saved + 16, 0, kernels);
	/* The kernel before stores ENDED behind its release of the queue, and nothing orders stores of
	 * two kernels: until both words of it have arrived, they could hide this kernel's. */
	do
		barcopy_warp_load(view.state + BARCOPY_QUEUE_ENDED_AT, 0, ended);
	while (__any_sync(BARCOPY_WARP_ALL, ended[0] != kernels[0] || ended[1] != kernels[0]));
	q->rx = q->freed = count[0];
	q->tx = count[1];
	q->begun = kernels[0] + 1;
	__syncwarp(BARCOPY_WARP_ALL);
	barcopy_warp_store(q->lane == 0, saved + 16, q->begun, 0);
	barcopy_warp_store(q->lane == 0, view.state + BARCOPY_QUEUE_BEGUN_AT, q->begun, 0);
	__syncwarp(BARCOPY_WARP_ALL);
	barcopy_warp_fence(); /* in each lane: no reply is seen before the count */
	return 1;
}

/** The last call: from now on the CPU may free the queue, and another kernel may begin. */
BARCOPY_WARP_FN void barcopy_warp_end(barcopy_warp_t *q)
{
	unsigned long long taken = q->rx + q->at;

	if (!q->begun)
		return;
	__syncwarp(BARCOPY_WARP_ALL);
	barcopy_warp_store(q->lane == 0, q->view.control + BARCOPY_QUEUE_SAVED_AT, taken, q->tx);
	barcopy_warp_store(q->lane == 0, q->view.state + BARCOPY_QUEUE_FREED_AT, taken, 0);
	barcopy_warp_fence();
	barcopy_warp_store(q->lane == 0, q->view.control + BARCOPY_QUEUE_OWNER_AT, 0, 0);
	barcopy_warp_fence();
	__syncwarp(BARCOPY_WARP_ALL);
	barcopy_warp_store(q->lane == 0, q->view.state + BARCOPY_QUEUE_ENDED_AT, q->begun,
			   q->begun);
}

/* ---- messages of any size, through a buffer -------------------------------------------------- */

/* Takes the next message; without `wait`, only if it has arrived. Size, 0 (none), -1 (stopped). */
BARCOPY_WARP_FN int barcopy_warp_next(barcopy_warp_t *q, void *buffer, unsigned flags, int wait)
{
	unsigned *to = (unsigned *)buffer + q->lane % 4 * 3, data[3], size = 0, first, end, head, i;
	int left;

	do {
		/* The rest of a message was sent together with its first part. */
		if (q->at == q->have && barcopy_warp_look(q, flags, wait || size))
			return -1;
		if (!q->have)
			return 0;
		__syncwarp(BARCOPY_WARP_ALL); /* all lanes have read the previous message */
		head = (unsigned)(q->word[0] >> 56);
		first = q->at;
		end = __ballot_sync(BARCOPY_WARP_ALL,
				    !(head & BARCOPY_QUEUE_HEAD_MORE) && q->line >= first);
		end = barcopy_warp_zeroes(end) / 4 + 1;
		q->at = end < q->have ? end : q->have;
		barcopy_warp_data(q->word, data);
		head &= BARCOPY_QUEUE_HEAD_SIZE;
		if (size + (q->at - first) * BARCOPY_QUEUE_LINE > BARCOPY_QUEUE_MESSAGE_MAX)
			return -1;
		left = q->line >= first && q->line < q->at ? (int)(head - q->lane % 4 * 12) : 0;
		for (i = 0; i < 3; i++)
			if (left > (int)i * 4)
				to[size / 4 + (q->line - first) * 12 + i] = data[i];
		size += (q->at - 1 - first) * BARCOPY_QUEUE_LINE +
			__shfl_sync(BARCOPY_WARP_ALL, head, (int)(q->at * 4 - 1));
	} while (end > q->have);
	if (flags & BARCOPY_WARP_ORDERED && !q->ordered)
		barcopy_warp_fence();
	__syncwarp(BARCOPY_WARP_ALL);
	return (int)size;
}

/**
 * Takes the next message if one has arrived. Returns its size in bytes; 0: none yet; -1: the kernel
 * shall stop. The buffer must hold the CPU's largest message, rounded up to 8 bytes.
 */
BARCOPY_WARP_FN int barcopy_warp_try_receive(barcopy_warp_t *q, void *buffer, unsigned flags)
{
	return barcopy_warp_next(q, buffer, flags, 0);
}

/** Waits for the next message. Returns its size; 0: the kernel shall stop. See try_receive. */
BARCOPY_WARP_FN unsigned barcopy_warp_receive(barcopy_warp_t *q, void *buffer, unsigned flags)
{
	int size = barcopy_warp_next(q, buffer, flags, 1);

	return size < 0 ? 0 : (unsigned)size;
}

/* Writes the message's lines from `first` on, at most 8. */
BARCOPY_WARP_FN void barcopy_warp_write_from(barcopy_warp_t *q, const void *buffer, unsigned size,
					     unsigned first)
{
	unsigned line = first + q->line, at = line * 12 + q->lane % 4 * 3, data[3], i;
	unsigned lines = (size + BARCOPY_QUEUE_LINE - 1) / BARCOPY_QUEUE_LINE;

	for (i = 0; i < 3; i++)
		data[i] = at + i < (size + 3) / 4 ? ((const unsigned *)buffer)[at + i] : 0;
	barcopy_warp_write(q, lines - first < 8 ? lines - first : 8, data,
			   line + 1 < lines ? BARCOPY_QUEUE_LINE | BARCOPY_QUEUE_HEAD_MORE
					    : size - line * BARCOPY_QUEUE_LINE);
}

/**
 * Sends `size` bytes (1 to BARCOPY_QUEUE_MESSAGE_MAX) to the CPU; waits while the ring of replies
 * is full. Returns 1; 0: the ring is full and the kernel shall stop, or the size is another one.
 */
BARCOPY_WARP_FN int barcopy_warp_reply(barcopy_warp_t *q, const void *buffer, unsigned size,
				       unsigned flags)
{
	unsigned lines = (size + BARCOPY_QUEUE_LINE - 1) / BARCOPY_QUEUE_LINE;

	if (size - 1 >= BARCOPY_QUEUE_MESSAGE_MAX || !barcopy_warp_make_room(q, lines, flags))
		return 0;
	barcopy_warp_write_from(q, buffer, size, 0);
	if (lines > 8)
		barcopy_warp_write_from(q, buffer, size, 8);
	__syncwarp(BARCOPY_WARP_ALL);
	return 1;
}

/* ---- messages of at most 48 bytes, in registers ---------------------------------------------- */

/**
 * Waits for messages of one line each, takes up to eight and returns how many; 0: the kernel shall
 * stop. Lanes 4 i to 4 i + 3 get message i: data[3] holds 12 bytes of it, from byte 12 * (lane & 3)
 * on, *size its size in bytes. Only for queues on which the CPU sends no message of more than a
 * line.
 */
BARCOPY_WARP_FN unsigned barcopy_warp_take(barcopy_warp_t *q, unsigned *data, unsigned *size,
					   unsigned flags)
{
	unsigned at, i;

	if (q->at == q->have && barcopy_warp_look(q, flags, 1))
		return 0;
	barcopy_warp_data(q->word, data);
	*size = (unsigned)(q->word[0] >> 56) & BARCOPY_QUEUE_HEAD_SIZE;
	at = q->at;
	if (at) { /* barcopy_warp_receive() has taken the first of these lines */
		for (i = 0; i < 3; i++)
			data[i] = __shfl_sync(BARCOPY_WARP_ALL, data[i],
					      (int)((q->lane + 4 * at) & 31));
		*size = __shfl_sync(BARCOPY_WARP_ALL, *size, (int)((q->lane + 4 * at) & 31));
	}
	q->at = q->have;
	if (flags & BARCOPY_WARP_ORDERED && !q->ordered)
		barcopy_warp_fence();
	__syncwarp(BARCOPY_WARP_ALL); /* other lanes load these places next, and what was ordered */
	return q->have - at;
}

/**
 * Sends `n` such messages, at most 8, from the same lanes. Returns what barcopy_warp_reply() does.
 * A size that is not 1 to 48 reaches the CPU as EBADMSG: a refusal would cost each batch 30 ns.
 */
BARCOPY_WARP_FN int barcopy_warp_put(barcopy_warp_t *q, unsigned n, const unsigned *data,
				     unsigned size, unsigned flags)
{
	n = n < 8 ? n : 8;
	if (!barcopy_warp_make_room(q, n, flags))
		return 0;
	barcopy_warp_write(q, n, data, size - 1 < BARCOPY_QUEUE_LINE ? size : 0);
	return 1;
}

/* ---- ports: posts and calls from any threads of any kernels ---------------------------------- */

#define BARCOPY_PORT_NO_LIMIT (~0ull)

/** One thread's use of a port, in registers. Only this header uses the fields. */
typedef struct barcopy_poster {
	barcopy_port_view_t view;
	unsigned long long retired, state; /* the CPU's two words, as last read */
	unsigned slot;			   /* of the open call, or where to look for one first */
	unsigned call;			   /* the name of the open call; 0: none is */
} barcopy_poster_t;

/* No thread waits for this load until the words are used: in its next post, or for room. */
BARCOPY_WARP_FN void barcopy_port_look(barcopy_poster_t *p, unsigned acquire)
{
	unsigned long long v[2];

	barcopy_warp_load(p->view.control + BARCOPY_PORT_RETIRED_AT, acquire, v);
	p->retired = v[0];
	p->state = v[1];
}

/** The first call of a thread, as early as it can be; there is no last one. */
BARCOPY_WARP_FN void barcopy_port_open(barcopy_poster_t *p, barcopy_port_view_t view)
{
	p->view = view;
	if (view.generation >> 56 != BARCOPY_QUEUE_VERSION)
		p->view.generation = ~0ull; /* no state */
	p->call = 0;
	p->slot = barcopy_warp_hint();
	barcopy_port_look(p, 0);
}

/* Also of a port that was destroyed: its memory has another generation. */
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

BARCOPY_WARP_FN void barcopy_port_line(const barcopy_poster_t *p, unsigned long long i,
				       const unsigned *data, unsigned head)
{
	unsigned shift = 16 - barcopy_warp_zeroes(p->view.lines), k;
	unsigned place = ((unsigned)i << shift) + (1 << 16); /* as barcopy_warp_place() */

	for (k = 0; k < 4; k++)
		barcopy_warp_words(1, p->view.ring + ((place & 0xffff) >> shift) * 64 + k * 16,
				   head << 24 | (place & BARCOPY_QUEUE_LAP_MASK << 16),
				   data + 3 * k);
}

/*
 * Writes line i, this thread's, as soon as there is room: after a stop, too, so that no line is
 * left out. The first test is of what was read before the ticket: nothing waits for the look beside
 * it, which shows a stop to the next post. Returns the post's number; 0: the CPU has aborted.
 */
BARCOPY_WARP_FN unsigned long long barcopy_port_put(barcopy_poster_t *p, unsigned long long i,
						    const unsigned *data, unsigned head)
{
	unsigned long long retired = p->retired;

	barcopy_port_look(p, 0);
	if (barcopy_port_fits(p, i, retired)) {
		barcopy_port_line(p, i, data, head);
		return i + 1;
	}
	for (;;) {
		if (barcopy_port_fits(p, i, p->retired)) { /* here: no lane waits for others */
			barcopy_port_line(p, i, data, head);
			return i + 1;
		}
		if (barcopy_port_aborted(p))
			return 0;
		barcopy_warp_pause();
		barcopy_port_look(p, 0);
	}
}

BARCOPY_WARP_FN unsigned long long barcopy_port_ticket(const barcopy_poster_t *p)
{
	return barcopy_warp_add(p->view.control + BARCOPY_PORT_TICKET_AT, 1);
}

/**
 * Posts a message of 1 to 48 bytes; waits while the ring is full. `data`: twelve words, whatever
 * the size. Returns the post's number; 0: the port was stopped, as this thread's last look showed,
 * or has ended, or another size. BARCOPY_WARP_ORDERED: the CPU sees after its receive what this thread
 * stored before, and what others stored before a barrier.
 */
BARCOPY_WARP_FN unsigned long long barcopy_port_post(barcopy_poster_t *p, const unsigned *data,
						     unsigned size, unsigned flags)
{
	if (p->state != p->view.generation || size - 1 >= BARCOPY_QUEUE_LINE)
		return 0;
	if (flags & BARCOPY_WARP_ORDERED)
		barcopy_warp_fence(); /* before the ticket: who holds one delays all behind it */
	return barcopy_port_put(p, barcopy_port_ticket(p), data, size);
}

/* Between two looks of a wait. 0: the CPU has aborted, or `limit` ns have passed since *start. */
BARCOPY_WARP_FN int barcopy_port_patience(barcopy_poster_t *p, unsigned *looks,
					  unsigned long long *start, unsigned long long limit)
{
	if (++*looks % 16)
		return 1;
	barcopy_port_look(p, 0);
	if (barcopy_port_aborted(p))
		return 0;
	if (limit == BARCOPY_PORT_NO_LIMIT)
		return 1;
	if (!*start)
		*start = barcopy_warp_now();
	return barcopy_warp_now() - *start < limit;
}

/** 1: the CPU has retired this post, and all before it; always of 0, which is no post.
 *  BARCOPY_WARP_ORDERED: the thread then sees what the CPU copied before that. */
BARCOPY_WARP_FN int barcopy_port_taken(barcopy_poster_t *p, unsigned long long post, unsigned flags)
{
	if ((long long)(p->retired - post) < 0 || flags & BARCOPY_WARP_ORDERED)
		barcopy_port_look(p, flags & BARCOPY_WARP_ORDERED);
	return (long long)(p->retired - post) >= 0;
}

/** Waits for that, `limit` ns or BARCOPY_PORT_NO_LIMIT. 1; 0: the limit, or the CPU has aborted. */
BARCOPY_WARP_FN int barcopy_port_wait(barcopy_poster_t *p, unsigned long long post,
				      unsigned long long limit, unsigned flags)
{
	unsigned long long start = 0;
	unsigned looks = 0;

	while (!barcopy_port_taken(p, post, 0))
		if (!barcopy_port_patience(p, &looks, &start, limit))
			return 0;
	/* Here: in the loop it would empty L1 at each look. */
	return !(flags & BARCOPY_WARP_ORDERED) || barcopy_port_taken(p, post, flags);
}

/* A call is a post that names a slot in GPU memory, where the CPU stores the answer. */
BARCOPY_WARP_FN unsigned long long barcopy_port_slot(const barcopy_poster_t *p)
{
	return p->view.control + BARCOPY_PORT_CONTROL +
	       (p->slot & (p->view.lines - 1)) * (0ull + BARCOPY_PORT_SLOT);
}

/*
 * What `claim`, the slot's word before this thread set its lowest bit, means: the number of this
 * thread's call on the slot; 0: another call has it. One that was dropped has it until its answer
 * has come.
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

/**
 * The first half of a call: posts a message of 4 to 48 bytes whose first 4 this call writes into
 * `data`. Takes a free slot, of which there are as many as lines; waits while there is none.
 * Returns the post's number; 0 as barcopy_port_post(), and while this thread has an open call.
 */
BARCOPY_WARP_FN unsigned long long barcopy_port_ask(barcopy_poster_t *p, unsigned *data,
						    unsigned size, unsigned flags)
{
	unsigned long long claim, start = 0, i;
	unsigned looks = 0;

	if (p->call || p->state != p->view.generation || size - 4 > BARCOPY_QUEUE_LINE - 4)
		return 0;
	if (flags & BARCOPY_WARP_ORDERED)
		barcopy_warp_fence();
	claim = barcopy_warp_or(barcopy_port_slot(p) + BARCOPY_PORT_CLAIM_AT, 1);
	i = barcopy_port_ticket(p); /* beside that */
	claim = barcopy_port_claim(p, claim);
	for (;;) {
		/* No line waits for a slot: the answer that frees one may be a later call's. */
		p->call = (p->slot & (p->view.lines - 1)) << 8 | ((unsigned)claim & 0xff);
		p->call = claim ? p->call : 0;
		data[0] = p->call;
		i = barcopy_port_put(p, i, data, BARCOPY_PORT_HEAD_CALL | (claim ? size : 0));
		if (claim || !i)
			break;
		do {
			barcopy_warp_pause();
			if (!barcopy_port_patience(p, &looks, &start, BARCOPY_PORT_NO_LIMIT))
				return 0;
			p->slot++;
			claim = barcopy_warp_or(barcopy_port_slot(p) + BARCOPY_PORT_CLAIM_AT, 1);
			claim = barcopy_port_claim(p, claim);
		} while (!claim);
		i = barcopy_port_ticket(p);
	}
	if (!i)
		p->call = 0;
	return i;
}

/** The other half: waits for the answer to the open call, 56 bits. 1; 0: none is open, or `limit`
 *  ns have passed (it stays open), or the CPU has aborted. Flags as barcopy_port_taken(). */
BARCOPY_WARP_FN int barcopy_port_reply(barcopy_poster_t *p, unsigned long long *reply,
				       unsigned long long limit, unsigned flags)
{
	unsigned long long at = barcopy_port_slot(p), word[2], start = 0;
	unsigned looks = 0;

	if (!p->call)
		return 0;
	for (;;) {
		barcopy_warp_load(at, 0, word);
		if (word[0] >> BARCOPY_PORT_REPLY_BITS == (p->call & 0xff))
			break;
		if (!barcopy_port_patience(p, &looks, &start, limit))
			return 0;
	}
	if (flags & BARCOPY_WARP_ORDERED)
		barcopy_warp_load(at, 1, word);
	*reply = word[0] & ((1ull << BARCOPY_PORT_REPLY_BITS) - 1);
	barcopy_warp_add(at + BARCOPY_PORT_CLAIM_AT, 1);
	p->call = 0;
	return 1;
}

/** Gives the open call up: its slot is free again when the answer has come. A thread that ends, or
 *  forgets its call, without this and without the answer leaves the slot taken for ever. */
BARCOPY_WARP_FN void barcopy_port_drop(barcopy_poster_t *p)
{
	if (p->call)
		barcopy_warp_or(barcopy_port_slot(p) + BARCOPY_PORT_CLAIM_AT,
				BARCOPY_PORT_DROPPED_BIT);
	p->call = 0;
}

/** A whole call. 1; 0: as the two halves, and no call stays open. */
BARCOPY_WARP_FN int barcopy_port_call(barcopy_poster_t *p, unsigned *data, unsigned size,
				      unsigned long long *reply, unsigned long long limit,
				      unsigned flags)
{
	if (barcopy_port_ask(p, data, size, flags) && barcopy_port_reply(p, reply, limit, flags))
		return 1;
	barcopy_port_drop(p);
	return 0;
}

#endif
