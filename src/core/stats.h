/* SPDX-License-Identifier: MIT */
/*
 * Statistics: what barcopy_get_stats() tells of a handle, a context or the process, and the summary at
 * exit. Two kinds of numbers, since they may cost differently:
 *
 *   events   pins, maps, evictions, fallbacks, revocations: always counted     events.h
 *   tally    copies and words, by size, direction, handle: when switched on    tally.h
 *
 * The switch is for the whole process: barcopy_set_stats(), or GDRCOPY_STATS at the first open. The
 * summary is written by a destructor of the library, which runs at exit() (the library is never
 * unloaded; a static one in a module is with its module), once, and only in a process that has opened
 * a context itself: a forked child that has not has no tag (process.h).
 */
#ifndef GDRI_STATS_H
#define GDRI_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "barcopy.h"

struct gdri_events;
struct gdri_tally_sum;

/* Reads GDRCOPY_STATS; the first call decides, later ones do nothing. */
void gdri_stats_init(void);

/* Did GDRCOPY_STATS ask for it? */
bool gdri_stats_asked_for(void);

/* Are copies counted now? */
bool gdri_stats_on(void);

/* Fills in the caller's struct but for cache_hits of live caches. */
void gdri_stats_fill(barcopy_stats_t *stats, const struct gdri_events *events,
		     const struct gdri_tally_sum *sum);

/* What barcopy_get_stats() tells of the process. */
void gdri_stats_of_process(barcopy_stats_t *stats);

/* The text of the summary into `text`: at most `room` bytes, always terminated; its length. */
size_t gdri_stats_summary(const barcopy_stats_t *stats, char *text, size_t room);

void gdri_stats_after_fork(void);

#endif
