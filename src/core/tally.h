/* SPDX-License-Identifier: MIT */
/*
 * Counts of copies and words, by handle and thread. It knows nothing of contexts, events or who
 * reads; see stats.h for what else is counted.
 *
 * Off, the counts cost no instruction: whether a handle is counted is a bit beside its owner's tag,
 * in the word that every copy compares anyway (handle.h). With the bit set that comparison fails,
 * and the copy takes a path of its own, which copies and then counts.
 *
 * On, a thread writes into a block of its own only: a relaxed load and a relaxed store for each
 * number, no lock, no read-modify-write, no line that another thread writes. A block leads from a
 * handle's index to its record, by chunks of as many records as the table of handles has in a
 * chunk. Blocks and chunks are mapped pages, made at the thread's first copy on such a handle
 * (mmap alone, so that not even a copy in a signal handler can meet the lock of malloc; it may miss
 * a count there). Where there is no memory the copy is done and `uncounted` grows.
 *
 * A thread that ends gives its block back as it is, and the next new thread counts on in it: what
 * was counted is never moved, so never lost, and there are only as many blocks as there were threads
 * at one time (lent.h).
 *
 * A handle that ends has its records added up, into its context's past and the process's, and set
 * to 0, so a record always belongs to the handle that has the index now, and all that was ever
 * counted is the past and the records. Nobody may copy on a handle while it ends (gdrapi.h), so
 * nothing is missed. Readers and ends are kept apart by one lock, which no copy takes.
 *
 * A forked child starts with nothing: it unmaps its copy of the blocks.
 */
#ifndef GDRI_TALLY_H
#define GDRI_TALLY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "barcopy.h"
#include "base/lent.h"
#include "base/slots.h"

enum gdri_tally_way { GDRI_TALLY_TO, GDRI_TALLY_FROM, GDRI_TALLY_WAYS };
enum gdri_tally_word { GDRI_TALLY_PUT, GDRI_TALLY_GET, GDRI_TALLY_WAIT, GDRI_TALLY_WORDS };

/* Written by one thread at a time, read by all. Both numbers of a copy lie in one cache line. */
struct gdri_tally_record {
	_Alignas(16) struct {
		_Atomic uint64_t copies, bytes;
	} copied[GDRI_TALLY_WAYS][BARCOPY_STATS_SIZES];
	_Atomic uint64_t words[GDRI_TALLY_WORDS];
};

struct gdri_tally_block {
	struct gdri_lent lent; /* to the thread that counts here */
	_Atomic(struct gdri_tally_record *) chunks[GDRI_SLOTS_CHUNKS];
};

/* The same numbers, added up. */
struct gdri_tally_sum {
	uint64_t copies[GDRI_TALLY_WAYS][BARCOPY_STATS_SIZES];
	uint64_t bytes[GDRI_TALLY_WAYS][BARCOPY_STATS_SIZES];
	uint64_t words[GDRI_TALLY_WORDS];
};

extern _Thread_local struct gdri_tally_block *gdri_tally_mine
	__attribute__((tls_model("initial-exec")));

/* The records of 64 handles in this thread's block, made if they are not there; NULL: no memory. */
struct gdri_tally_record *gdri_tally_chunk(uint32_t index) __attribute__((cold));
void gdri_tally_miss(void) __attribute__((cold));

static inline struct gdri_tally_record *gdri_tally_record(gdr_mh_t h)
{
	uint32_t index = (uint32_t)h.h - 1;
	struct gdri_tally_block *mine = gdri_tally_mine;
	struct gdri_tally_record *chunk = NULL;

	if (__builtin_expect(!!mine, 1))
		chunk = atomic_load_explicit(&mine->chunks[index / GDRI_SLOTS_PER_CHUNK],
					     memory_order_relaxed);
	if (__builtin_expect(!chunk, 0)) {
		chunk = gdri_tally_chunk(index);
		if (!chunk)
			return NULL;
	}
	return &chunk[index % GDRI_SLOTS_PER_CHUNK];
}

static inline void gdri_tally_add(_Atomic uint64_t *number, uint64_t n)
{
	atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* The class of a size, at least 1: up to 4, 16, 64 ... 4 Mi bytes, and larger. */
static inline unsigned int gdri_tally_class(size_t size)
{
	unsigned int class = (63u - (unsigned int)__builtin_clzll((size - 1) | 1)) / 2;

	return class < BARCOPY_STATS_SIZES ? class : BARCOPY_STATS_SIZES - 1;
}

/* One copy of `size` bytes, not 0, by this thread on a handle that was found. */
static inline void gdri_tally_copy(gdr_mh_t h, enum gdri_tally_way way, size_t size)
{
	struct gdri_tally_record *record = gdri_tally_record(h);
	unsigned int class = gdri_tally_class(size);

	if (__builtin_expect(!record, 0)) {
		gdri_tally_miss();
		return;
	}
	gdri_tally_add(&record->copied[way][class].copies, 1);
	gdri_tally_add(&record->copied[way][class].bytes, size);
}

static inline void gdri_tally_word(gdr_mh_t h, enum gdri_tally_word word)
{
	struct gdri_tally_record *record = gdri_tally_record(h);

	if (__builtin_expect(!record, 0))
		gdri_tally_miss();
	else
		gdri_tally_add(&record->words[word], 1);
}

/* Adds what was counted on the handle with that index. Its lock, or its context's, is held. */
void gdri_tally_read(uint32_t index, struct gdri_tally_sum *sum);
/* The same for a handle that ends: counted no more, but in the process's past. */
void gdri_tally_end(uint32_t index, struct gdri_tally_sum *sum);
/* Everything that this process has counted, and the copies that it could not count. */
void gdri_tally_read_all(struct gdri_tally_sum *sum);
uint64_t gdri_tally_uncounted(void);

/* The calling thread ends: its block is the next one's. */
void gdri_tally_thread_ends(void);

/* In a forked child. */
void gdri_tally_after_fork(void);

#endif
