/* SPDX-License-Identifier: MIT */
/*
 * Vectored copies: one call writes the pieces of a message with one fence, and one call reads the
 * flags of several queues in one round trip of the link.
 *
 *     cc vectors.c -lgdrapi -o vectors && ./vectors
 */
#include <barcopy.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	FLAGS = 16,
	APART = 3 * BARCOPY_LINE
}; /* odd multiples of a line: see barcopy_copyv_from_mapping() */

struct message {
	char header[64], payload[192];
	uint32_t ready;
};

static void must(int failed, const char *call)
{
	if (!failed)
		return;
	fprintf(stderr, "%s: %s\n", call, barcopy_last_error());
	exit(1);
}

int main(void)
{
	char header[64] = "to: kernel", payload[192] = "hello", *flags;
	uint32_t one = 1, seen[FLAGS], set = 0;
	barcopy_copy_seg_t get[FLAGS] = { { 0 } };
	struct message *message;
	barcopy_mem_t mem;
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);

	must(!g, "barcopy_open");
	must(barcopy_mem_alloc(g, 0, 1 << 16, 0, &mem), "barcopy_mem_alloc");
	message = mem.cpu_ptr;
	/* Header and payload may arrive in any order; the flag arrives after both. */
	barcopy_copy_seg_t put[] = {
		{ message->header, header, sizeof(header), 0, 0 },
		{ message->payload, payload, sizeof(payload), 0, 0 },
		{ &message->ready, &one, sizeof(one), BARCOPY_COPY_ORDERED, 0 },
	};
	must(barcopy_copyv_to_mapping(mem.handle, put, 3, 0), "barcopy_copyv_to_mapping");

	/* One flag of each of 16 queues: the loads are in flight together. */
	flags = (char *)mem.cpu_ptr + 4096;
	for (int i = 0; i < FLAGS; i++) {
		get[i].map_ptr = flags + i * APART;
		get[i].host_ptr = &seen[i];
		get[i].size = sizeof(seen[i]);
		must(barcopy_put32(mem.handle, get[i].map_ptr, i % 2), "barcopy_put32");
	}
	must(barcopy_copyv_from_mapping(mem.handle, get, FLAGS, 0), "barcopy_copyv_from_mapping");
	for (int i = 0; i < FLAGS; i++)
		set += seen[i];
	printf("a message of 3 pieces sent; %u of %d flags are set\n", set, FLAGS);
	gdr_close(g);
	return set != FLAGS / 2;
}
