/* SPDX-License-Identifier: MIT */
/*
 * One life of a buffer: open, pin, map, copy, unmap, unpin, close, with whatever fails on the way
 * checked for its errno and its outputs. It knows nothing of why something should fail.
 */
#ifndef ATTACK_LIFE_H
#define ATTACK_LIFE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct life {
	const char *name;
	const char *backend; /* GDRCOPY_BACKEND */
	uint64_t addr;
	size_t size;
};

enum { LIVES = 6 };

/*
 * CUDA in this process, and memory of every kind: one life for each. Returns their number; the last
 * is there only where the stand-in of /dev/gdrdrv has been preloaded.
 */
size_t lives_make(struct life lives[LIVES]);

/*
 * NULL, or what is wrong (in static storage of the thread). *worked: every call succeeded and the
 * bytes were right; a failure with a documented errno is not wrong.
 */
const char *life_run(const struct life *life, bool *worked);

#endif
