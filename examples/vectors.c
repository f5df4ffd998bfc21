/* SPDX-License-Identifier: MIT */
/*
 * Vectored copies: one call writes the pieces of a message with one fence, and one call reads the
 * flags of several queues in one round trip of the link.
 *
 *     cc vectors.c -lgdrapi -o vectors && ./vectors
 *
 * See in the output: flags 1, 3, 5 and so on were set, so one call that read 16 flags found 8.
 */
#include "must.h"

enum {
	FLAGS = 16,
	APART = 3 * BARCOPY_LINE
}; /* odd multiples of a line: see barcopy_copyv_from_mapping() */

struct message {
	char header[64], payload[192];
	uint32_t ready;
};

int main(void)
{
	char header[64] = "to: kernel", payload[192] = "hello", *flags;
	uint32_t one = 1, seen[FLAGS], set = 0;
	barcopy_copy_seg_t get[FLAGS] = { { 0 } };
	struct message *message;
	barcopy_mem_t mem;
	gdr_t g = open_any();

	GDR(barcopy_mem_alloc(g, 0, 1 << 16, 0, &mem));
	message = mem.cpu_ptr;
	/* The memory is new: a message follows another one only after the other side has answered.
	 * Header and payload may arrive in any order; the flag arrives after both. */
	barcopy_copy_seg_t put[] = {
		{ message->header, header, sizeof(header), 0, 0 },
		{ message->payload, payload, sizeof(payload), 0, 0 },
		{ &message->ready, &one, sizeof(one), BARCOPY_COPY_ORDERED, 0 },
	};
	GDR(barcopy_copyv_to_mapping(mem.handle, put, 3, 0));

	/* One flag of each of 16 queues: the loads are in flight together. */
	flags = (char *)mem.cpu_ptr + 4096;
	for (int i = 0; i < FLAGS; i++) {
		get[i].map_ptr = flags + i * APART;
		get[i].host_ptr = &seen[i];
		get[i].size = sizeof(seen[i]);
		GDR(barcopy_put32(mem.handle, get[i].map_ptr, i % 2));
	}
	GDR(barcopy_copyv_from_mapping(mem.handle, get, FLAGS, 0));
	for (int i = 0; i < FLAGS; i++)
		set += seen[i];
	printf("one call sent a message of 3 pieces\n");
	printf("flags 1, 3, 5, ... were set; one call read all %d and found %u set\n", FLAGS, set);
	gdr_close(g);
	return set != FLAGS / 2;
}
