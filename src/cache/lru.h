/* SPDX-License-Identifier: MIT */
/*
 * Least recently used first, although a use only writes a time stamp and moves nothing: a heap
 * whose keys are lower bounds of the stamps. Whoever wants the oldest raises the first key to the
 * stamp until both agree. Under the caller's lock. It knows nothing of what is kept.
 */
#ifndef GDRI_LRU_H
#define GDRI_LRU_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Embedded in what is kept. */
struct gdri_lru_node {
	uint64_t key;
	size_t place; /* in the heap */
};

struct gdri_lru {
	struct gdri_lru_node **heap;
	size_t count, room;
};

/* Adds a node with its key: 0 or -ENOMEM. After a remove there is room for one. */
int gdri_lru_add(struct gdri_lru *lru, struct gdri_lru_node *node, uint64_t key);
void gdri_lru_remove(struct gdri_lru *lru, struct gdri_lru_node *node);
/* Gives it a larger key. */
void gdri_lru_raise(struct gdri_lru *lru, struct gdri_lru_node *node, uint64_t key);
void gdri_lru_destroy(struct gdri_lru *lru);

/* The node with the least key, or NULL. */
static inline struct gdri_lru_node *gdri_lru_first(const struct gdri_lru *lru)
{
	return lru->count ? lru->heap[0] : NULL;
}

/* A time stamp: the CPU's counter, which all cores share (constant rate) and which costs 10 ns. */
static inline uint64_t gdri_lru_now(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
#endif
}

#endif
