/* SPDX-License-Identifier: MIT */
/*
 * Memory that notes each access to it. Its pages have no access rights; the fault's handler reads
 * the instruction, does what it says on another mapping of the same pages, notes place and size,
 * and goes on behind it. It works on an arm64 CPU and under user-mode emulation, where there is no
 * single-stepping. It knows nothing of the copy engine.
 */
#ifndef WATCH_H
#define WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct watch_access {
	size_t at; /* bytes from the start of the memory */
	unsigned int size;
	bool store;
	bool pair; /* half of an LDP or STP */
};

enum { WATCH_MAX = 1 << 16 };

struct watch {
	uint8_t *memory; /* what is watched */
	uint8_t *plain; /* the same bytes, not watched */
	size_t size;
	size_t count; /* accesses noted; set it to 0 to begin anew */
	struct watch_access access[WATCH_MAX];
	/* What happened since watch_begin(), barriers too, as copy_fences.h writes it. */
	char text[64];
	size_t length;
};

/*
 * From here on every barrier of the program is noted too: its DMB and DSB words are replaced by
 * breakpoints, whose handler does in their place what is stronger than any of them.
 */
void watch_barriers(void);

/* The text begins anew; the text. */
void watch_begin(void);
const char *watch_end(void);

/* Copies that line at the first barrier, or before the last access if none comes. */
void watch_keep_line(uint8_t *line, uint8_t *copy);

/* One per process. Any other fault, and an instruction that is not known, ends the process. */
struct watch *watch_new(size_t size);

#endif
