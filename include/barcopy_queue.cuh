/* SPDX-License-Identifier: MIT */
/**
 * @file barcopy_queue.cuh
 * The kernel's side of barcopy_queue.h, for compute capability 7.0 and newer. nvcc, clang and NVRTC
 * compile it; it includes only barcopy_queue.h.
 *
 * One warp serves a queue. All 32 lanes of the warp call every function together, with the same arguments
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
 * A message buffer is in shared or global memory, aligned to 8 bytes, and a multiple of 8 bytes long.
 * Messages of at most 48 bytes can stay in registers: barcopy_warp_take() and barcopy_warp_put().
 */
#ifndef BARCOPY_QUEUE_CUH
#define BARCOPY_QUEUE_CUH

#include "barcopy_queue.h"

/** A flag. Receive and take: this warp then sees what the CPU copied before its send. Reply and put: the
 *  CPU sees after its receive what this warp stored before. Costs a fence. */
#define BARCOPY_WARP_ORDERED 1u

#ifndef BARCOPY_WARP_FN /* tests without a GPU define these themselves */
#define BARCOPY_WARP_FN static __device__ __forceinline__

/* Loads a word of the queue in one access of 8 bytes; with `acquire`, later loads follow it. */
BARCOPY_WARP_FN unsigned long long barcopy_warp_load(unsigned long long addr, unsigned acquire)
{
	unsigned long long v;

	if (acquire)
		asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(addr) : "memory");
	else
		asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(addr) : "memory");
	return v;
}

BARCOPY_WARP_FN void barcopy_warp_store(unsigned long long addr, unsigned long long v)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(addr), "l"(v) : "memory");
}

BARCOPY_WARP_FN void barcopy_warp_fence(void)
{
	asm volatile("fence.acq_rel.sys;" ::: "memory");
}

BARCOPY_WARP_FN unsigned barcopy_warp_lane(void)
{
	unsigned lane;

	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane;
}

/* The number of zero bits below the lowest bit that is set; 32 for 0. */
BARCOPY_WARP_FN unsigned barcopy_warp_zeroes(unsigned bits)
{
	return (unsigned)__clz((int)__brev(bits));
}
#endif

#define BARCOPY_WARP_ALL 0xffffffffu

/** One warp's use of a queue, in registers. Only this header uses the fields. */
typedef struct barcopy_warp {
	barcopy_queue_view_t view;
	unsigned long long rx, freed; /* request lines before the last look; lines freed for the CPU */
	unsigned long long tx, tx_at; /* reply lines written, and where this lane's word of the next goes */
	unsigned tx_lap;	      /* the lap of that word, in place in its upper half */
	unsigned room;		      /* reply lines that may be written at once */
	unsigned long long word, next; /* this lane's word of the last look's four lines, and of those behind */
	unsigned heads;		      /* the headers of the four lines, a byte each */
	unsigned at, have;	      /* lines [at, have) of them have arrived and are not taken */
	unsigned has_next, stopped;   /* `next` is not yet checked; the stop line follows the lines */
	unsigned ordered;	      /* the flags of the last look */
	unsigned lane, shift;
	unsigned long long begun; /* the number of this kernel */
} barcopy_warp_t;

/* ---- lines ------------------------------------------------------------------------------------- */

/* This lane's word of the four lines from i on: its address and, below, its lap, in place in the upper half. */
BARCOPY_WARP_FN unsigned long long barcopy_warp_at(const barcopy_warp_t *q, unsigned long long ring,
						   unsigned long long i)
{
	return ring + ((((unsigned)i + q->lane / 8) & (q->view.lines - 1)) * 8 + (q->lane & 7)) * 8;
}

BARCOPY_WARP_FN unsigned barcopy_warp_lap(const barcopy_warp_t *q, unsigned long long i)
{
	return (((unsigned)((i + q->lane / 8) >> q->shift) + 1) & BARCOPY_QUEUE_LAP_MASK)
	       << (BARCOPY_QUEUE_DATA_BITS - 32);
}

/* Frees the lines taken so far, once in a quarter of the ring: writes their count where the CPU polls it. */
BARCOPY_WARP_FN void barcopy_warp_free(barcopy_warp_t *q)
{
	unsigned long long taken = q->rx + q->at;

	if ((unsigned)(taken - q->freed) < q->view.lines / 4)
		return;
	q->freed = taken;
	if (q->lane == 0)
		barcopy_warp_store(q->view.state + BARCOPY_QUEUE_FREED_AT, taken);
}

/*
 * Loads the next four lines, one word per lane, once all lines of the last look are taken. With `wait`,
 * repeats until the first line is complete. Returns how many lines are complete, from the first on, up to
 * the stop line. Loads the four lines after them too, for the next look. A word that is used is the value
 * that was checked: it is not read again.
 */
BARCOPY_WARP_FN unsigned barcopy_warp_look(barcopy_warp_t *q, unsigned flags, int wait)
{
	unsigned long long at, at_next;
	unsigned good, lap, stop, fresh;

	q->rx += q->have;
	q->at = 0;
	barcopy_warp_free(q);
	at = barcopy_warp_at(q, q->view.requests, q->rx);
	at_next = barcopy_warp_at(q, q->view.requests, q->rx + 4);
	lap = barcopy_warp_lap(q, q->rx);
	do {
		fresh = !q->has_next;
		q->word = q->next;
		if (fresh) {
			q->ordered = flags & BARCOPY_WARP_ORDERED;
			q->word = barcopy_warp_load(at, q->ordered);
			q->next = barcopy_warp_load(at_next, q->ordered);
		}
		q->has_next = 0;
		good = __ballot_sync(BARCOPY_WARP_ALL, (((unsigned)(q->word >> 32) ^ lap) &
							BARCOPY_QUEUE_LAP_MASK << 16) == 0);
	} while (wait && (good & 0xff) != 0xff);
	q->heads = __ballot_sync(BARCOPY_WARP_ALL, (int)(q->word >> 63));
	q->have = barcopy_warp_zeroes(~good) / 8;
	q->has_next = fresh && q->have == 4;
	stop = barcopy_warp_zeroes(q->heads & BARCOPY_QUEUE_HEAD_STOP * 0x01010101u) / 8;
	q->stopped = stop < q->have;
	q->have = q->stopped ? stop : q->have;
	return q->have;
}

/* After a message's last look: with the flag, later loads see what the CPU copied before its send. */
BARCOPY_WARP_FN void barcopy_warp_ordered(const barcopy_warp_t *q, unsigned flags)
{
	if (flags & BARCOPY_WARP_ORDERED && !q->ordered)
		barcopy_warp_fence();
}

/* Before a reply: waits for room for n more lines. Returns 0 if there is none and the kernel shall stop. */
BARCOPY_WARP_FN int barcopy_warp_make_room(barcopy_warp_t *q, unsigned n, unsigned flags)
{
	unsigned long long control = q->view.control, stop, read;

	__syncwarp(BARCOPY_WARP_ALL);
	if (flags & BARCOPY_WARP_ORDERED)
		barcopy_warp_fence();
	while (q->room < n) {
		barcopy_warp_free(q);
		stop = barcopy_warp_load(control + BARCOPY_QUEUE_STOP_AT, 0);
		stop = __shfl_sync(BARCOPY_WARP_ALL, stop, 0);
		read = barcopy_warp_load(control + BARCOPY_QUEUE_CREDIT_AT, 0);
		read = __shfl_sync(BARCOPY_WARP_ALL, read, 0);
		q->room = (unsigned)(read + q->view.lines - q->tx);
		if (stop && q->room < n)
			return 0;
	}
	return 1;
}

/* After n lines were written: computes where the next lines go, early, so that no message waits for it. */
BARCOPY_WARP_FN void barcopy_warp_wrote(barcopy_warp_t *q, unsigned n)
{
	q->tx += n;
	q->room -= n;
	q->tx_at = barcopy_warp_at(q, q->view.replies, q->tx);
	q->tx_lap = barcopy_warp_lap(q, q->tx);
}

/* Writes this lane's word of the next lines: 48 bits, the lap and one bit of its line's header. */
BARCOPY_WARP_FN void barcopy_warp_write(const barcopy_warp_t *q, unsigned long long data, unsigned head)
{
	unsigned high = (unsigned)(data >> 32) & 0xffff;

	high |= q->tx_lap | head >> (q->lane & 7) << 31;
	barcopy_warp_store(q->tx_at, (unsigned long long)high << 32 | (unsigned)data);
}

/* ---- begin and end ----------------------------------------------------------------------------- */

/** The first call: starts, or continues where the last kernel on this queue ended. */
BARCOPY_WARP_FN void barcopy_warp_begin(barcopy_warp_t *q, barcopy_queue_view_t view)
{
	unsigned long long saved = view.control + BARCOPY_QUEUE_SAVED_AT;

	q->view = view;
	q->lane = barcopy_warp_lane();
	q->shift = barcopy_warp_zeroes(view.lines);
	q->rx = q->freed = barcopy_warp_load(saved, 0);
	q->tx = barcopy_warp_load(saved + 8, 0);
	q->begun = barcopy_warp_load(saved + 16, 0) + 1;
	q->word = q->next = 0;
	q->has_next = q->heads = q->at = q->have = q->stopped = q->ordered = q->room = 0;
	barcopy_warp_wrote(q, 0);
	__syncwarp(BARCOPY_WARP_ALL);
	if (q->lane == 0) {
		barcopy_warp_store(saved + 16, q->begun);
		barcopy_warp_store(view.state + BARCOPY_QUEUE_BEGUN_AT, q->begun);
	}
}

/** The last call: from now on the CPU may free the queue, and another kernel may begin. */
BARCOPY_WARP_FN void barcopy_warp_end(barcopy_warp_t *q)
{
	unsigned long long saved = q->view.control + BARCOPY_QUEUE_SAVED_AT;

	__syncwarp(BARCOPY_WARP_ALL);
	if (q->lane == 0) {
		barcopy_warp_store(saved, q->rx + q->at);
		barcopy_warp_store(saved + 8, q->tx);
		barcopy_warp_store(q->view.state + BARCOPY_QUEUE_FREED_AT, q->rx + q->at);
	}
	barcopy_warp_fence();
	__syncwarp(BARCOPY_WARP_ALL);
	if (q->lane == 0)
		barcopy_warp_store(q->view.state + BARCOPY_QUEUE_ENDED_AT, q->begun);
}

/* ---- messages of any size, through a buffer ---------------------------------------------------- */

/*
 * Returns 8-byte word `lane & 7` of this lane's line of the message, joined from the 6-byte words of two
 * neighbouring lanes. Lanes 6 and 7 of a line have none.
 */
BARCOPY_WARP_FN unsigned long long barcopy_warp_unpack(const barcopy_warp_t *q)
{
	unsigned k = q->lane & 7, from = (q->lane & 24) + (k < 6 ? k * 8 / 6 : 0), skip = k * 8 % 6 * 8;
	unsigned long long data = q->word & ((1ull << BARCOPY_QUEUE_DATA_BITS) - 1), low, high;

	low = __shfl_sync(BARCOPY_WARP_ALL, data, (int)from);
	high = __shfl_sync(BARCOPY_WARP_ALL, data, (int)(from + 1));
	return low >> skip | high << (BARCOPY_QUEUE_DATA_BITS - skip);
}

/* Takes the next message; without `wait`, only if it has arrived. Size, 0 (none) or -1 (stopped). */
BARCOPY_WARP_FN int barcopy_warp_next(barcopy_warp_t *q, void *buffer, unsigned flags, int wait)
{
	unsigned line = q->lane >> 3, k = q->lane & 7, size = 0, head = BARCOPY_QUEUE_HEAD_MORE, first;
	unsigned long long *to = (unsigned long long *)buffer, data;

	if (q->at == q->have && (q->stopped || !barcopy_warp_look(q, flags, wait)))
		return -(int)q->stopped;
	__syncwarp(BARCOPY_WARP_ALL); /* all lanes have read the previous message from the buffer */
	while (head & BARCOPY_QUEUE_HEAD_MORE) {
		if (q->at == q->have) /* the rest was sent together with this part */
			barcopy_warp_look(q, flags, 1);
		first = q->at;
		do
			head = q->heads >> 8 * q->at++;
		while (head & BARCOPY_QUEUE_HEAD_MORE && q->at < q->have);
		data = barcopy_warp_unpack(q);
		if (line >= first && line < q->at &&
		    k * 8 < (q->heads >> 8 * line & BARCOPY_QUEUE_HEAD_SIZE))
			to[size / 8 + (line - first) * 6 + k] = data;
		size += (q->at - 1 - first) * BARCOPY_QUEUE_LINE + (head & BARCOPY_QUEUE_HEAD_SIZE);
	}
	barcopy_warp_ordered(q, flags);
	__syncwarp(BARCOPY_WARP_ALL);
	return (int)size;
}

/**
 * Takes the next message if one has arrived. Returns its size in bytes; 0: none yet; -1: the kernel shall
 * stop. The buffer must hold the CPU's largest message, rounded up to 8 bytes.
 */
BARCOPY_WARP_FN int barcopy_warp_try_receive(barcopy_warp_t *q, void *buffer, unsigned flags)
{
	return barcopy_warp_next(q, buffer, flags, 0);
}

/** Waits for the next message. Returns its size in bytes; 0: the kernel shall stop. See try_receive. */
BARCOPY_WARP_FN unsigned barcopy_warp_receive(barcopy_warp_t *q, void *buffer, unsigned flags)
{
	int size = barcopy_warp_next(q, buffer, flags, 1);

	return size < 0 ? 0 : (unsigned)size;
}

/**
 * Sends `size` bytes (1 to BARCOPY_QUEUE_MESSAGE_MAX) to the CPU; waits while the ring of replies is
 * full. Returns 1; 0: the ring is full and the kernel shall stop.
 */
BARCOPY_WARP_FN int barcopy_warp_reply(barcopy_warp_t *q, const void *buffer, unsigned size,
				       unsigned flags)
{
	unsigned lines = (size + BARCOPY_QUEUE_LINE - 1) / BARCOPY_QUEUE_LINE, words = (size + 7) / 8;
	unsigned k = q->lane & 7, skip = k * 6 % 8 * 8, first, line, at, head;
	const unsigned long long *from = (const unsigned long long *)buffer;
	unsigned long long data;

	if (!barcopy_warp_make_room(q, lines, flags))
		return 0;
	for (first = 0; first < lines; first += 4) {
		line = first + q->lane / 8;
		at = line * 6 + k * 6 / 8;
		data = at < words ? from[at] >> skip : 0;
		if (skip > 16 && at + 1 < words)
			data |= from[at + 1] << (64 - skip);
		head = line + 1 < lines ? BARCOPY_QUEUE_LINE | BARCOPY_QUEUE_HEAD_MORE
					: size - line * BARCOPY_QUEUE_LINE;
		if (line < lines)
			barcopy_warp_write(q, data, head);
		barcopy_warp_wrote(q, lines - first < 4 ? lines - first : 4);
	}
	__syncwarp(BARCOPY_WARP_ALL);
	return 1;
}

/* ---- messages of at most 48 bytes, in registers ------------------------------------------------ */

/**
 * Waits for messages of one line each, takes up to four and returns how many; 0: the kernel shall stop.
 * Lanes 8 i to 8 i + 7 get message i: *data holds 6 bytes of it, from byte 6 * (lane & 7) on, *size its
 * size in bytes. Only for queues on which the CPU sends no message of more than one line.
 */
BARCOPY_WARP_FN unsigned barcopy_warp_take(barcopy_warp_t *q, unsigned long long *data, unsigned *size,
					   unsigned flags)
{
	unsigned at;

	if (q->at == q->have && !q->stopped)
		barcopy_warp_look(q, flags, 1);
	at = q->at;
	*data = q->word;
	if (at)
		*data = __shfl_sync(BARCOPY_WARP_ALL, *data, (int)((q->lane + 8 * at) & 31));
	*data &= (1ull << BARCOPY_QUEUE_DATA_BITS) - 1;
	*size = q->heads >> 8 * ((q->lane / 8 + at) & 3) & BARCOPY_QUEUE_HEAD_SIZE;
	q->at = q->have;
	barcopy_warp_ordered(q, flags);
	return q->have - at;
}

/** Sends `n` such messages, 1 to 4, from the same lanes. Returns what barcopy_warp_reply() does. */
BARCOPY_WARP_FN int barcopy_warp_put(barcopy_warp_t *q, unsigned n, unsigned long long data, unsigned size,
				     unsigned flags)
{
	if (!barcopy_warp_make_room(q, n, flags))
		return 0;
	if (q->lane / 8 < n)
		barcopy_warp_write(q, data, size);
	barcopy_warp_wrote(q, n);
	return 1;
}

#endif
