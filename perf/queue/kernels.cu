/* SPDX-License-Identifier: MIT */
/*
 * The kernels of gdrcopy_pplat -q and of the tests of queues, one warp each. ptx.h has the PTX text of this
 * file and the command that makes it; the stand-in runs this file as C (sim/warp.h).
 */
#include "barcopy_queue.cuh"

#ifdef __cplusplus
#define KERNEL extern "C" __global__ void
#else
#define KERNEL __global__ void
#endif

#define DATA_MASK ((1ull << BARCOPY_QUEUE_DATA_BITS) - 1)

/*
 * Answers each message by its 8-byte words plus 1; ends when the CPU stops it, or after `count` messages.
 * With `bulk`, 2 * `words` words of 8 bytes, each message is a number: the warp counts the words of the
 * first half that differ from the number, stores the number into the second half, and the second word of
 * the answer is that count.
 */
BARCOPY_WARP_FN void serve(barcopy_queue_view_t view, unsigned long long count, unsigned flags,
			   volatile unsigned long long *bulk, unsigned words)
{
	__shared__ unsigned long long message[BARCOPY_QUEUE_MESSAGE_MAX / 8];
	unsigned long long number;
	unsigned size, i, wrong;
	barcopy_warp_t q;

	barcopy_warp_begin(&q, view);
	for (; count; count--) {
		size = barcopy_warp_receive(&q, message, flags);
		if (!size)
			break;
		if (words) {
			number = message[0];
			wrong = 0;
			for (i = q.lane; i < words; i += 32) {
				wrong += bulk[i] != number;
				bulk[words + i] = number;
			}
			for (i = 16; i; i /= 2)
				wrong += __shfl_sync(BARCOPY_WARP_ALL, wrong, (int)(q.lane ^ i));
			if (q.lane == 1)
				message[1] = wrong - 1ull;
			size = 16;
		}
		for (i = 0; i < 64; i += 32)
			if (q.lane + i < (size + 7) / 8)
				message[q.lane + i]++;
		if (!barcopy_warp_reply(&q, message, size, flags))
			break;
	}
	barcopy_warp_end(&q);
}

KERNEL gdrcopy_queue_echo(barcopy_queue_view_t view, unsigned long long count)
{
	serve(view, count, 0, 0, 0);
}

/* The same, ordered; without bulk data if `words` is 0. */
KERNEL gdrcopy_queue_bulk(barcopy_queue_view_t view, volatile unsigned long long *bulk, unsigned words)
{
	serve(view, ~0ull, BARCOPY_WARP_ORDERED, bulk, words);
}

/* For messages of one line, in registers, up to eight at a time: 4-byte words plus 1. */
KERNEL gdrcopy_queue_lines(barcopy_queue_view_t view)
{
	unsigned data[3], n, size;
	barcopy_warp_t q;

	barcopy_warp_begin(&q, view);
	while ((n = barcopy_warp_take(&q, data, &size, 0)) != 0) {
		data[0]++;
		data[1]++;
		data[2]++;
		if (!barcopy_warp_put(&q, n, data, size, 0))
			break;
	}
	barcopy_warp_end(&q);
}

/*
 * The alternatives to a queue: at most 64 words of 48 bits at `in`, each below the number of its round, are
 * answered by the words plus 1 at `out`, in rounds first to last. The kernel polls `in` wherever that lies; a
 * launch for each message is one round, whose words have arrived before it.
 */
KERNEL gdrcopy_queue_slots(unsigned long long in, unsigned long long out, unsigned words,
			   unsigned long long first, unsigned long long last)
{
	unsigned long long low, high = 0, at = 8 * (barcopy_warp_lane() % words), tag;
	unsigned long long at_high = 8 * ((barcopy_warp_lane() + 32) % words);

	for (; first <= last; first++) {
		tag = first << BARCOPY_QUEUE_DATA_BITS;
		do {
			low = barcopy_warp_load(in + at) ^ tag;
			if (words > 32)
				high = barcopy_warp_load(in + at_high) ^ tag;
		} while (__ballot_sync(BARCOPY_WARP_ALL, ((low | high) & ~DATA_MASK) == 0) !=
			 BARCOPY_WARP_ALL);
		barcopy_warp_store(out + at, ((low + 1) & DATA_MASK) | tag);
		if (words > 32)
			barcopy_warp_store(out + at_high, ((high + 1) & DATA_MASK) | tag);
	}
}
