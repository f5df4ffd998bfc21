/* SPDX-License-Identifier: MIT */
/*
 * The kernels of gdrcopy_queue and of the tests of queues. perf/queue/ptx.h is what nvcc makes of this
 * file (scripts/queue-ptx.sh); the stand-in runs it as C (sim/warp.h).
 */
#include "barcopy_queue.cuh"

#ifdef __cplusplus
#define KERNEL extern "C" __global__ void
#else
#define KERNEL __global__ void
#endif

/* Answers each message by its 8-byte words plus 1; ends when told to, or after `count` messages. */
KERNEL gdrcopy_queue_echo(barcopy_queue_view_t view, unsigned long long count, unsigned flags)
{
	__shared__ unsigned long long message[BARCOPY_QUEUE_MESSAGE_MAX / 8];
	unsigned size, i;
	barcopy_warp_t q;

	barcopy_warp_begin(&q, view);
	for (; count; count--) {
		size = barcopy_warp_receive(&q, message, flags);
		if (!size)
			break;
		for (i = q.lane; i < (size + 7) / 8; i += 32)
			message[i]++;
		if (!barcopy_warp_reply(&q, message, size, flags))
			break;
	}
	barcopy_warp_end(&q);
}

/* The same for messages of one line, in registers, up to four at a time: 48-bit words plus 1. */
KERNEL gdrcopy_queue_lines(barcopy_queue_view_t view, unsigned flags)
{
	unsigned long long data;
	unsigned n, size;
	barcopy_warp_t q;

	barcopy_warp_begin(&q, view);
	while ((n = barcopy_warp_take(&q, &data, &size, flags)) != 0)
		if (!barcopy_warp_put(&q, n, data + 1, size, flags))
			break;
	barcopy_warp_end(&q);
}

/*
 * Bulk data beside the messages, `words` of 8 bytes in and out: a message is a number. Replies the number
 * and how many words of `in` differ from it; writes the number into `out` before.
 */
KERNEL gdrcopy_queue_bulk(barcopy_queue_view_t view, const unsigned long long *in, unsigned long long *out,
			  unsigned words)
{
	__shared__ unsigned long long message[BARCOPY_QUEUE_MESSAGE_MAX / 8];
	unsigned long long number;
	unsigned i, wrong;
	barcopy_warp_t q;

	barcopy_warp_begin(&q, view);
	while (barcopy_warp_receive(&q, message, BARCOPY_WARP_ORDERED)) {
		number = message[0];
		wrong = 0;
		for (i = q.lane; i < words; i += 32)
			wrong += *(const volatile unsigned long long *)&in[i] != number;
		for (i = q.lane; i < words; i += 32)
			*(volatile unsigned long long *)&out[i] = number;
		for (i = 16; i; i /= 2)
			wrong += __shfl_sync(BARCOPY_WARP_ALL, wrong, (int)(q.lane ^ i));
		if (q.lane == 0)
			message[1] = wrong;
		if (!barcopy_warp_reply(&q, message, 16, BARCOPY_WARP_ORDERED))
			break;
	}
	barcopy_warp_end(&q);
}
