/* SPDX-License-Identifier: MIT */
/*
 * Each comparison of barcopy_wait32(), and what it is for. A thread that uses the same GPU memory plays
 * the other side, a kernel: it announces itself, waits for the start, then works off some items.
 *
 *     cc waits.c -lgdrapi -pthread -o waits && ./waits
 *
 * See in the output: a line for each comparison, and a wait that reached its limit on purpose.
 *
 * A wait sees a word from time to time, not each value that it has had. For a word that the other side
 * changes by itself EQ may never see the value: take GE or LE. The comparison is unsigned: a counter
 * that wraps around from 0xffffffff to 0 ends a GE as well as a GT.
 */
#include <pthread.h>
#include <stdint.h>
#include "must.h"

enum { READY = 1, RUNNING = 2, ITEMS = 20, ROOM = 4 };

static const uint64_t LIMIT = 5000000000; /* ns */

/* In GPU memory. A line for each word, and `start` apart from those that the other side writes. */
struct board {
	uint32_t state; /* READY, then RUNNING */
	char pad0[60];
	uint32_t done, /* items: counts up */
		left; /* counts down */
	char pad1[56];
	uint32_t start; /* written by the CPU */
};

static barcopy_mem_t mem;

static void *other_side(void *unused)
{
	struct board *b = mem.cpu_ptr;

	GDR(barcopy_put32(mem.handle, &b->state, READY));
	GDR(barcopy_wait32(mem.handle, &b->start, BARCOPY_CMP_EQ, 1, LIMIT));
	GDR(barcopy_put32(mem.handle, &b->state, RUNNING));
	for (uint32_t n = 1; n <= ITEMS; n++) {
		GDR(barcopy_put32(mem.handle, &b->done, n));
		GDR(barcopy_put32(mem.handle, &b->left, ITEMS - n));
	}
	return unused;
}

static void wait_for(const uint32_t *word, barcopy_cmp_t cmp, uint32_t value, const char *what)
{
	uint32_t seen;

	GDR(barcopy_wait32(mem.handle, word, cmp, value, LIMIT));
	GDR(barcopy_get32(mem.handle, word, &seen));
	printf("%s %u: it is %u now\n", what, value, seen);
}

int main(void)
{
	struct board first = { .left = ITEMS };
	struct board *b;
	pthread_t thread;
	gdr_t g = open_any();
	int err;

	GDR(barcopy_mem_alloc(g, 0, sizeof(first), 0, &mem));
	b = mem.cpu_ptr;
	/* First values, before the other side runs: the memory is not cleared. */
	GDR(gdr_copy_to_mapping(mem.handle, b, &first, sizeof(first)));
	SYSTEM((errno = pthread_create(&thread, NULL, other_side, NULL)) == 0);

	/* EQ: a state that stays until the CPU answers it. */
	wait_for(&b->state, BARCOPY_CMP_EQ, READY, "EQ, state ==");
	/* A limit of 0 looks once. The other side waits for the start, so the state has not changed. */
	err = barcopy_wait32(mem.handle, &b->state, BARCOPY_CMP_NE, READY, 0);
	if (err != ETIMEDOUT)
		fail("the wait with a limit of 0", "it did not time out");
	printf("NE, state != %d, at once: timed out\n", READY);
	GDR(barcopy_put32(mem.handle, &b->start, 1));
	/* NE: whatever comes next. */
	wait_for(&b->state, BARCOPY_CMP_NE, READY, "NE, state !=");
	/* GT: anything new since the last look, which saw 0. */
	wait_for(&b->done, BARCOPY_CMP_GT, 0, "GT, done >");
	/* GE: at least so many. The count may have passed this value: EQ might wait for ever. */
	wait_for(&b->done, BARCOPY_CMP_GE, ITEMS / 2, "GE, done >=");
	/* LT: there is room for another one. */
	wait_for(&b->left, BARCOPY_CMP_LT, ROOM, "LT, left <");
	/* LE: all of it. */
	wait_for(&b->left, BARCOPY_CMP_LE, 0, "LE, left <=");

	pthread_join(thread, NULL);
	gdr_close(g);
	return 0;
}
