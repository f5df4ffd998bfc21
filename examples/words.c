/* SPDX-License-Identifier: MIT */
/*
 * Words and their order: the CPU writes data and then a flag into GPU memory, waits for the answer's
 * flag and reads the answer. In a program the other side is a kernel (results.c); here a thread that
 * uses the same memory plays it, so that the example needs no compiler for the GPU.
 *
 *     cc words.c -lgdrapi -pthread -o words && ./words
 *
 * The output counts the answers that were right: all, because the data always arrives before its
 * flag. Without the fence before a flag that follows the program's own stores, it might not. The
 * next data are written after the answer to the last: the other side has read those then.
 */
#include <pthread.h>
#include <stdint.h>
#include "must.h"

enum { WORDS = 16, ROUNDS = 1000 };

static const uint64_t LIMIT = 5000000000; /* ns */

/* In GPU memory. Each side writes lines of its own. */
struct box {
	uint64_t word[WORDS];
	uint32_t flag; /* the number of the data that is there */
	char pad[60];
	uint64_t sum;
	uint32_t answer; /* the number of the data that `sum` is of */
};

static barcopy_mem_t mem;

/* The other side: waits for each flag, adds the words, stores the sum and then the answer's flag. */
static void *other_side(void *unused)
{
	struct box *box = mem.cpu_ptr;
	uint64_t word[WORDS], sum;

	for (uint32_t n = 1; n <= ROUNDS; n++) {
		GDR(barcopy_wait32(mem.handle, &box->flag, BARCOPY_CMP_EQ, n, LIMIT));
		GDR(gdr_copy_from_mapping(mem.handle, word, box->word, sizeof(word)));
		sum = 0;
		for (int i = 0; i < WORDS; i++)
			sum += word[i];
		GDR(barcopy_put64(mem.handle, &box->sum, sum));
		GDR(barcopy_put32(mem.handle, &box->answer, n));
	}
	return unused;
}

int main(void)
{
	uint64_t word[WORDS], sum, want;
	struct box zero = { 0 };
	uint32_t right = 0;
	pthread_t thread;
	gdr_t g = open_any();

	GDR(barcopy_mem_alloc(g, 0, sizeof(zero), 0, &mem));
	volatile struct box *box = mem.cpu_ptr;

	GDR(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, &zero, sizeof(zero)));
	SYSTEM((errno = pthread_create(&thread, NULL, other_side, NULL)) == 0);
	for (uint32_t n = 1; n <= ROUNDS; n++) {
		want = 0;
		for (int i = 0; i < WORDS; i++)
			want += word[i] = (uint64_t)n * WORDS + (uint64_t)i;
		if (n % 2) { /* a copy ends with a fence: the flag may follow */
			GDR(gdr_copy_to_mapping(mem.handle, (void *)box->word, word, sizeof(word)));
		} else { /* the program's own stores do not */
			for (int i = 0; i < WORDS; i++)
				box->word[i] = word[i];
			GDR(barcopy_fence(mem.handle, BARCOPY_FENCE_AFTER_WRITE));
		}
		/* The last word of a message that will be answered: a put that does not wait. */
		GDR(barcopy_post32(mem.handle, (void *)&box->flag, n));
		GDR(barcopy_wait32(mem.handle, (void *)&box->answer, BARCOPY_CMP_EQ, n, LIMIT));
		GDR(barcopy_get64(mem.handle, (void *)&box->sum, &sum));
		right += sum == want;
	}
	pthread_join(thread, NULL);
	printf("%u of %d answers were right\n", right, ROUNDS);
	gdr_close(g);
	return right != ROUNDS;
}
