/* SPDX-License-Identifier: MIT */
/* See tally.h. */
#include "core/tally.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/thread.h"

_Static_assert(sizeof(struct gdri_tally_record) % 16 == 0, "a copy's numbers share a line");

_Thread_local struct gdri_tally_block *gdri_tally_mine __attribute__((tls_model("initial-exec")));

static gdri_lent_list blocks; /* of struct gdri_tally_block */
static _Atomic uint64_t uncounted;

/* Innermost. Guards `past`, and records against being ended while they are read. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gdri_tally_sum past; /* of handles that have ended */

static const size_t chunk_bytes = GDRI_SLOTS_PER_CHUNK * sizeof(struct gdri_tally_record);

/* ---- blocks ------------------------------------------------------------------------------------ */

static void *pages(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void *make_block(void)
{
	return pages(sizeof(struct gdri_tally_block));
}

static struct gdri_tally_block *take_block(void)
{
	return (struct gdri_tally_block *)gdri_lent_take(&blocks, make_block);
}

/* The first one, and the one after that: for whoever looks at all of them. */
static struct gdri_tally_block *first_block(void)
{
	return (struct gdri_tally_block *)atomic_load_explicit(&blocks, memory_order_acquire);
}

static struct gdri_tally_block *next_block(const struct gdri_tally_block *b)
{
	return (struct gdri_tally_block *)b->lent.next;
}

struct gdri_tally_record *gdri_tally_chunk(uint32_t index)
{
	struct gdri_tally_record *chunk;
	struct gdri_tally_block *mine = gdri_tally_mine;

	if (!mine) {
		/* A block that is not given back would be lost with the thread. */
		mine = gdri_thread_watch() ? take_block() : NULL;
		if (!mine)
			return NULL;
		gdri_tally_mine = mine;
	}
	chunk = atomic_load_explicit(&mine->chunks[index / GDRI_SLOTS_PER_CHUNK],
				     memory_order_relaxed);
	if (!chunk) {
		chunk = pages(chunk_bytes);
		atomic_store_explicit(&mine->chunks[index / GDRI_SLOTS_PER_CHUNK], chunk,
				      memory_order_release);
	}
	return chunk;
}

void gdri_tally_thread_ends(void)
{
	struct gdri_tally_block *mine = gdri_tally_mine;

	gdri_tally_mine = NULL;
	if (mine)
		gdri_lent_give_back(&mine->lent);
}

void gdri_tally_miss(void)
{
	atomic_fetch_add_explicit(&uncounted, 1, memory_order_relaxed);
}

uint64_t gdri_tally_uncounted(void)
{
	return atomic_load_explicit(&uncounted, memory_order_relaxed);
}

/* ---- sums -------------------------------------------------------------------------------------- */

static uint64_t number(const _Atomic uint64_t *n)
{
	return atomic_load_explicit(n, memory_order_relaxed);
}

static void add_record(struct gdri_tally_sum *sum, const struct gdri_tally_record *r)
{
	for (int way = 0; way < GDRI_TALLY_WAYS; way++)
		for (int i = 0; i < BARCOPY_STATS_SIZES; i++) {
			sum->copies[way][i] += number(&r->copied[way][i].copies);
			sum->bytes[way][i] += number(&r->copied[way][i].bytes);
		}
	for (int i = 0; i < GDRI_TALLY_WORDS; i++)
		sum->words[i] += number(&r->words[i]);
}

static void add_sum(struct gdri_tally_sum *to, const struct gdri_tally_sum *from)
{
	for (int way = 0; way < GDRI_TALLY_WAYS; way++)
		for (int i = 0; i < BARCOPY_STATS_SIZES; i++) {
			to->copies[way][i] += from->copies[way][i];
			to->bytes[way][i] += from->bytes[way][i];
		}
	for (int i = 0; i < GDRI_TALLY_WORDS; i++)
		to->words[i] += from->words[i];
}

static void clear_record(struct gdri_tally_record *r)
{
	for (int way = 0; way < GDRI_TALLY_WAYS; way++)
		for (int i = 0; i < BARCOPY_STATS_SIZES; i++) {
			atomic_store_explicit(&r->copied[way][i].copies, 0, memory_order_relaxed);
			atomic_store_explicit(&r->copied[way][i].bytes, 0, memory_order_relaxed);
		}
	for (int i = 0; i < GDRI_TALLY_WORDS; i++)
		atomic_store_explicit(&r->words[i], 0, memory_order_relaxed);
}

/* The handle's record in that block, or NULL. */
static struct gdri_tally_record *record_in(struct gdri_tally_block *b, uint32_t index)
{
	struct gdri_tally_record *chunk = atomic_load_explicit(
		&b->chunks[index / GDRI_SLOTS_PER_CHUNK], memory_order_acquire);

	return chunk ? &chunk[index % GDRI_SLOTS_PER_CHUNK] : NULL;
}

void gdri_tally_read(uint32_t index, struct gdri_tally_sum *sum)
{
	struct gdri_tally_block *b = first_block();

	for (; b; b = next_block(b)) {
		struct gdri_tally_record *r = record_in(b, index);

		if (r)
			add_record(sum, r);
	}
}

void gdri_tally_end(uint32_t index, struct gdri_tally_sum *sum)
{
	struct gdri_tally_block *b = first_block();
	struct gdri_tally_sum own = { .words = { 0 } };

	if (!b)
		return;
	pthread_mutex_lock(&lock);
	for (; b; b = next_block(b)) {
		struct gdri_tally_record *r = record_in(b, index);

		if (!r)
			continue;
		add_record(&own, r);
		clear_record(r);
	}
	add_sum(&past, &own);
	pthread_mutex_unlock(&lock);
	add_sum(sum, &own);
}

void gdri_tally_read_all(struct gdri_tally_sum *sum)
{
	struct gdri_tally_block *b;

	pthread_mutex_lock(&lock);
	add_sum(sum, &past);
	for (b = first_block(); b; b = next_block(b))
		for (uint32_t c = 0; c < GDRI_SLOTS_CHUNKS; c++) {
			struct gdri_tally_record *r = record_in(b, c * GDRI_SLOTS_PER_CHUNK);

			for (int i = 0; r && i < GDRI_SLOTS_PER_CHUNK; i++)
				add_record(sum, &r[i]);
		}
	pthread_mutex_unlock(&lock);
}

/* The only thread: nobody else looks at the blocks. */
void gdri_tally_after_fork(void)
{
	struct gdri_tally_block *b = first_block(), *next;

	pthread_mutex_init(&lock, NULL);
	atomic_store_explicit(&blocks, NULL, memory_order_relaxed);
	atomic_store_explicit(&uncounted, 0, memory_order_relaxed);
	memset(&past, 0, sizeof(past));
	gdri_tally_mine = NULL;
	for (; b; b = next) {
		next = next_block(b);
		for (uint32_t c = 0; c < GDRI_SLOTS_CHUNKS; c++) {
			void *chunk = atomic_load_explicit(&b->chunks[c], memory_order_relaxed);

			if (chunk)
				munmap(chunk, chunk_bytes);
		}
		munmap(b, sizeof(*b));
	}
}
