/* SPDX-License-Identifier: MIT */
/*
 * Counters of a context and of the process: relaxed atomics. Each event is added to both. Events
 * that take microseconds or more are always counted. Copies and words are counted where
 * GDRCOPY_STATS was set at the first open; otherwise their path does not ask (core/handle.h).
 */
#ifndef GDRI_COUNTERS_H
#define GDRI_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

enum gdri_counter {
	GDRI_COUNT_PIN,
	GDRI_COUNT_UNPIN,
	GDRI_COUNT_MAP,
	GDRI_COUNT_UNMAP,
	GDRI_COUNT_REVOKED,
	GDRI_COUNT_ENGINE_COPY,
	GDRI_COUNT_ENGINE_FALLBACK,
	GDRI_COUNT_CACHE_HIT, /* of caches that have ended; a live cache counts its own */
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
extern atomic_bool gdri_copies_counted; /* copies and words are; set once, by the first open */

/* Adds to the process's counters and, unless NULL, to these. */
void gdri_count(struct gdri_counters *counters, enum gdri_counter what, uint64_t n);

#endif
