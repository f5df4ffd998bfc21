/* SPDX-License-Identifier: MIT */
/*
 * Events: what calls of microseconds and more have done, counted always, by one atomic addition
 * each to the numbers of the pin, of its context and of the process. See stats.h.
 */
#ifndef GDRI_EVENTS_H
#define GDRI_EVENTS_H

#include <stdatomic.h>
#include <stdint.h>

enum gdri_event {
	GDRI_EVENT_PIN,
	GDRI_EVENT_UNPIN,
	GDRI_EVENT_MAP,
	GDRI_EVENT_UNMAP,
	GDRI_EVENT_REVOKED,
	GDRI_EVENT_ENGINE_COPY,
	GDRI_EVENT_ENGINE_FALLBACK,
	GDRI_EVENT_CACHE_HIT, /* of caches that have ended; the others have their own counters */
	GDRI_EVENT_CACHE_MISS,
	GDRI_EVENT_CACHE_EVICTION,
	GDRI_EVENTS
};

struct gdri_events {
	_Atomic uint64_t count[GDRI_EVENTS];
};

extern struct gdri_events gdri_process_events;

static inline void gdri_events_add(struct gdri_events *events, enum gdri_event event, uint64_t n)
{
	atomic_fetch_add_explicit(&events->count[event], n, memory_order_relaxed);
}

static inline uint64_t gdri_events_get(const struct gdri_events *events, enum gdri_event event)
{
	return atomic_load_explicit(&events->count[event], memory_order_relaxed);
}

static inline void gdri_events_clear(struct gdri_events *events)
{
	for (int i = 0; i < GDRI_EVENTS; i++)
		atomic_store_explicit(&events->count[i], 0, memory_order_relaxed);
}

#endif
