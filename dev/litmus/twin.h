/* SPDX-License-Identifier: MIT */
/*
 * A second reader of the same block, in a tight loop. It runs on the other hyperthread of the caller's
 * core, if the system reports one: the two share line buffers. Checks its copies too: no word is torn,
 * and no word is older than in an earlier copy.
 */
#ifndef PERF_LITMUS_TWIN_H
#define PERF_LITMUS_TWIN_H

#include "copies.h"

/* Binds the caller to its CPU. `text` names both CPUs, and says whether they share a core. */
void twin_tie(char *text, size_t room);

void twin_start(const struct copies *copies, const uint8_t *data, size_t size);
/* Ends the reader; counts its copies, those with a torn word and those with an older word. */
void twin_stop(uint64_t *copies, uint64_t *torn, uint64_t *back);

#endif
