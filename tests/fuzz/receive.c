/* SPDX-License-Identifier: MIT */
/* A queue whose kernel is hostile: any bytes in the ring of replies and in the kernel's words. */
#include <stdlib.h>
#include <string.h>

#include "queue/queue.h"
#include "tests/common/standin.h"

enum { LINES = 16, HEAD = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const barcopy_queue_options_t options = { sizeof(options), .lines = LINES };
	static barcopy_queue_t queue;
	struct gdri_queue *q;
	size_t capacity, got;
	uint8_t *message;

	if (size < HEAD + BARCOPY_QUEUE_STATE)
		return 0;
	if (!queue) {
		standin_start();
		if (barcopy_queue_create(gdr_open(), 0, &options, &queue))
			abort();
	}
	q = gdri_ring_find(&gdri_queues, queue);
	/* Words: capacity, where the ring is read, how many words have their line's lap. */
	capacity = (data[0] | data[1] << 8) % (BARCOPY_QUEUE_LINE + 32);
	q->received = q->credited = data[2] | (uint64_t)data[3] << 40;
	memcpy(q->state, data + HEAD, BARCOPY_QUEUE_STATE);
	memset(q->ring.incoming, 0, LINES * GDRI_LINE);
	size -= HEAD + BARCOPY_QUEUE_STATE;
	memcpy(q->ring.incoming, data + HEAD + BARCOPY_QUEUE_STATE,
	       size < LINES * GDRI_LINE ? size : LINES * GDRI_LINE);
	for (unsigned int i = 0; i < 8u * data[4]; i++) {
		uint64_t line = q->received + i / 8, lap, word;
		char *at = q->ring.incoming + line % LINES * GDRI_LINE + i % 8 * 8;

		if (i >= LINES * 8)
			break;
		lap = (((line >> q->ring.shift) + 1) & BARCOPY_QUEUE_LAP_MASK)
		      << BARCOPY_QUEUE_DATA_BITS;
		memcpy(&word, at, 8);
		word &= ~((uint64_t)BARCOPY_QUEUE_LAP_MASK << BARCOPY_QUEUE_DATA_BITS);
		word |= lap;
		memcpy(at, &word, 8);
	}
	message = malloc(capacity);
	for (int i = 0; i < LINES; i++) {
		uint64_t before = q->received;
		int rc;

		got = 0;
		rc = barcopy_queue_receive(queue, message, capacity, &got, 0);
		if (!rc && (got - 1 >= BARCOPY_QUEUE_LINE || got > capacity))
			abort();
		if (q->received - before != !rc)
			abort();
		if (rc)
			break;
	}
	free(message);
	return 0;
}
