/* SPDX-License-Identifier: MIT */
/*
 * What a call may leave behind: descriptors, mappings of simulated memory, the thread's CUDA
 * context and capture mode. Two looks that are equal mean that nothing was left.
 */
#ifndef TEST_COMMON_RESOURCES_H
#define TEST_COMMON_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>

struct resources {
	int fds; /* open descriptors */
	int maps; /* lines of /proc/self/maps that are simulated memory */
	long long mapped; /* wrap_mapped() */
	void *context; /* current */
	int capture_mode;
	long retained; /* primary contexts retained and not released, by anybody */
};

/* Open descriptors, this look at them among them. */
int resources_fds(void);

/* Bytes of the heap in use; 0 under a sanitizer, whose heap is another. */
size_t resources_heap(void);

void resources_look(struct resources *r);

/* NULL, or what differs, in static storage. */
const char *resources_differ(const struct resources *before, const struct resources *after);

/* The same in two calls of one thread. */
void resources_note(void);
const char *resources_changed(void);

#endif
