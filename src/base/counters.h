/* SPDX-License-Identifier: MIT */
/*
 * Counters: what has happened in a context, and in the process. Relaxed atomics, each event added to
 * both. It knows nothing of contexts or of who reads.
 *
 * What takes microseconds and more is counted always. Copies and words are counted where GDRCOPY_STATS
 * is set, which is looked at once; elsewhere nothing asks on their way whether they are (core/handle.h).
 */
#ifndef GDRI_COUNTERS_H
#define GDRI_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum gdri_counter {
	GDRI_COUNT_PIN,
	GDRI_COUNT_UNPIN,
	GDRI_COUNT_MAP,
	GDRI_COUNT_UNMAP,
	GDRI_COUNT_REVOKED,
	GDRI_COUNT_ENGINE_COPY,
	GDRI_COUNT_ENGINE_FALLBACK,
	GDRI_COUNT_CACHE_HIT, /* of caches that have ended; the others have their own counters */
	GDRI_COUNT_CACHE_MISS,
	GDRI_COUNT_CACHE_EVICTION,
	/* copies and words */
	GDRI_COUNT_COPIES_TO,
	GDRI_COUNT_BYTES_TO,
	GDRI_COUNT_COPIES_FROM,
	GDRI_COUNT_BYTES_FROM,
	GDRI_COUNT_PUT,
	GDRI_COUNT_GET,
	GDRI_COUNT_WAIT,
	GDRI_COUNTERS
};

struct gdri_counters {
	_Atomic uint64_t n[GDRI_COUNTERS];
};

extern struct gdri_counters gdri_of_process;

/* Adds to the process's and, unless NULL, to these too. */
void gdri_count(struct gdri_counters *counters, enum gdri_counter what, uint64_t n);

void gdri_counters_clear(struct gdri_counters *counters);

static inline uint64_t gdri_counted(const struct gdri_counters *counters, enum gdri_counter what)
{
	return atomic_load_explicit(&counters->n[what], memory_order_relaxed);
}

/* Does GDRCOPY_STATS ask for copies to be counted? The first call decides. */
bool gdri_copies_counted(void);

#endif
