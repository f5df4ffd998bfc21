/* SPDX-License-Identifier: MIT */
/*
 * The kernels of gdrcopy_pplat -q and of the tests of queues, one warp each. kernels.ptx is the PTX
 * of this file, which ptx.sh makes; the stand-in runs this file as C (sim/warp.h).
 */
#include "barcopy_queue.cuh"

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define ROLLED _Pragma("unroll 1") /* the PTX text stays short */
#else
#define KERNEL __global__ void
#define ROLLED
#endif

#define DATA_MASK ((1ull << BARCOPY_QUEUE_DATA_BITS) - 1)

/* Answers messages, up to eight at a time, by their 4-byte words plus 1. Returns how many; 0: a stop. */
BARCOPY_WARP_FN unsigned answer(barcopy_warp_t *q)
{
	unsigned data[3], size, n = barcopy_warp_take(q, data, &size, 0);

	data[0]++;
	data[1]++;
	data[2]++;
	return n && barcopy_warp_put(q, n, data, size, 0) ? n : 0;
}

/* Answers until a stop, or until `count` messages or up to seven more were answered. */
KERNEL gdrcopy_queue_echo(barcopy_queue_view_t view, unsigned long long count)
{
	unsigned long long left = count;
	barcopy_warp_t q;
	unsigned n = 1;

	if (!barcopy_warp_begin(&q, view))
		return;
	for (; left && n; left -= n < left ? n : left)
		n = answer(&q);
	barcopy_warp_end(&q);
}

/*
 * Each message is a number of 8 bytes, one at a time. `bulk` has 2 * `words` words of 8 bytes: the
 * warp counts the words of the first half that differ from the number, and stores the number into
 * the second half. The answer is the number plus 1, and that count.
 */
KERNEL gdrcopy_queue_bulk(barcopy_queue_view_t view, volatile unsigned long long *bulk, unsigned words)
{
	unsigned data[3], size, i, wrong;
	unsigned long long number;
	barcopy_warp_t q;

	if (!barcopy_warp_begin(&q, view))
		return;
	while (barcopy_warp_take(&q, data, &size, BARCOPY_WARP_ORDERED)) {
		number = (unsigned long long)__shfl_sync(BARCOPY_WARP_ALL, data[1], 0) << 32;
		number |= __shfl_sync(BARCOPY_WARP_ALL, data[0], 0);
		wrong = 0;
		ROLLED
		for (i = q.lane; i < words; i += 32) {
			wrong += bulk[i] != number;
			bulk[words + i] = number;
		}
		ROLLED
		for (i = 16; i; i /= 2)
			wrong += __shfl_sync(BARCOPY_WARP_ALL, wrong, (int)(q.lane ^ i));
		number++;
		data[0] = q.lane ? 0 : (unsigned)number;
		data[1] = (unsigned)(number >> 32);
		data[2] = wrong; /* bytes 8 to 11; those of lane 1 are the next */
		if (!barcopy_warp_put(&q, 1, data, 16, BARCOPY_WARP_ORDERED))
			break;
	}
	barcopy_warp_end(&q);
}

/* Word i of a post or call: who sent it, which of its messages, and what depends on both. */
BARCOPY_WARP_FN unsigned post_word(unsigned who, unsigned n, unsigned i)
{
	return i == 2 ? who : i == 3 ? n : (who * 2654435761u ^ n * 40503u) + i * 97;
}

/*
 * `producers` threads, in blocks of 32, numbered from `first` on, post `count` messages each, of 16 to
 * 48 bytes. Bit 0 of `how`: ordered. Bit 1: they are calls, whose answer is the fifth word * 65536 ^
 * the third. Bit 2: each waits until its post is taken. Bit 3: with a limit of 1 ms, again and again.
 * Bit 4: nobody waits for the posts. Bits 3 and 5: with a limit of 0, again and again.
 * Adds to sum[0] the answers that are wrong, to sum[1] the posts that were accepted.
 */
KERNEL gdrcopy_port_posts(barcopy_port_view_t view, unsigned first, unsigned producers, unsigned count,
			  unsigned how, unsigned long long *sum)
{
	unsigned who = blockIdx.x * 32 + barcopy_warp_lane(), data[12], n, i, open = 1;
	unsigned flags = (how & 1 ? BARCOPY_WARP_ORDERED : 0) | (how & 16 ? BARCOPY_PORT_UNAWAITED : 0);
	unsigned long long reply, post, bad = 0, made = 0;
	unsigned long long limit = how & 32 ? 0 : how & 8 ? 1000000 : BARCOPY_PORT_NO_LIMIT;
	barcopy_poster_t p;

	if (who >= producers)
		return;
	who += first;
	barcopy_port_open(&p, view);
	for (n = 1; n <= count && open; n++) {
		for (i = 0; i < 12; i++)
			data[i] = post_word(who, n, i);
		if (how & 2) {
			do
				post = barcopy_port_ask(&p, data, 48, limit, flags);
			while (!post && how & 8 && !barcopy_port_stopped(&p));
			made += post != 0;
			open = post && barcopy_port_reply(&p, &reply, BARCOPY_PORT_NO_LIMIT, flags);
			bad += open && reply != (((unsigned long long)data[5] << 16) ^ n);
		} else {
			do
				post = barcopy_port_post(&p, data, 16 + (who + n) % 33, limit, flags);
			while (!post && how & 8 && !barcopy_port_stopped(&p));
			made += post != 0;
			open = post && (!(how & 4) ||
					barcopy_port_wait(&p, post, BARCOPY_PORT_NO_LIMIT, flags));
		}
	}
	barcopy_warp_add((unsigned long long)sum, bad);
	barcopy_warp_add((unsigned long long)sum + 8, made);
}

/*
 * The alternatives to a queue: `words` words of 48 bits at `in`, an even number up to 64, each
 * below the number of its round, are answered by the words plus 1 at `out`, in rounds first to
 * last. The kernel polls `in` wherever that lies; a launch for each message is one round, whose
 * words have arrived before it.
 */
KERNEL gdrcopy_queue_slots(unsigned long long in, unsigned long long out, unsigned words,
			   unsigned long long first, unsigned long long last)
{
	unsigned lane = barcopy_warp_lane(), used = lane < words / 2;
	unsigned long long at = used ? lane * 16 : 0, tag, v[2];

	for (; first <= last; first++) {
		tag = first << BARCOPY_QUEUE_DATA_BITS;
		do
			barcopy_warp_load(in + at, 0, v);
		while (!__all_sync(BARCOPY_WARP_ALL, (((v[0] ^ tag) | (v[1] ^ tag)) & ~DATA_MASK) == 0));
		barcopy_warp_store((int)used, out + at, ((v[0] + 1) & DATA_MASK) | tag,
				   ((v[1] + 1) & DATA_MASK) | tag);
	}
}
