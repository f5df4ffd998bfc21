/* SPDX-License-Identifier: MIT */
/*
 * A second reader of the same block, in a tight loop, on the other hyperthread of the caller's core where
 * the system tells which that is: the two share line buffers. What it reads is looked at too: a word is
 * whole, and never older than it was before.
 */
#ifndef PERF_LITMUS_TWIN_H
#define PERF_LITMUS_TWIN_H

#include "copies.h"

/* Ties the caller to its CPU; says which two they are and whether they are known to share a core. */
void twin_tie(char *text, size_t room);

void twin_start(const struct copies *copies, const uint8_t *data, size_t size);
/* Ends it: how many of its copies had a torn word, and one that had gone back. */
void twin_stop(uint64_t *copies, uint64_t *torn, uint64_t *back);

#endif
