/* SPDX-License-Identifier: MIT */
/*
 * A thread that runs a step at a time, and memory whose every access is seen: the processor's trap
 * flag ends each instruction in SIGTRAP, whose handler looks at what comes next; the watched pages
 * have no access rights, so a load or a store of them is a fault first, which opens the page for
 * that one instruction. It knows fences and accesses, nothing of copies.
 */
#ifndef STEP_H
#define STEP_H

#include <stddef.h>
#include <stdint.h>

/* For main: ends the program as skipped where nothing can be watched. */
void step_start(void);

/* Watches memory of that size; one per process. */
uint8_t *step_watch(size_t size);

/* Watches the calling thread up to step_end(), which gives the steps' text (copy_fences.h). */
void step_begin(void);
const char *step_end(void);

/* Called behind each instruction that is watched; NULL: nothing. */
extern void (*step_behind)(void);

/* The nth access from here on finds that value in the word. */
void step_set_before(unsigned int nth, uint64_t *word, uint64_t value);

/* Copies that line of the memory at the first fence, or before the last access if none comes. */
void step_keep_line(uint8_t *line, uint8_t *copy);

#endif
