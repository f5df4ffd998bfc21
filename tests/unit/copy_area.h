/* SPDX-License-Identifier: MIT */
/*
 * For the copy engine's tests: memory between two guard pages, and places in it that lie against
 * them. It knows nothing of the engine but the size of a line.
 */
#ifndef COPY_AREA_H
#define COPY_AREA_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/unit.h"
#include "copy/cpu.h"

#define LINE   ((size_t)64)
#define CANARY 0xcc

struct area {
	uint8_t *base;
	size_t size;
};

/* At least `size` bytes in whole pages, with a page that may not be touched on either side. */
static inline struct area area_new(size_t size, int map_flags)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct area area;
	uint8_t *p;

	area.size = (size + page - 1) / page * page;
	p = mmap(NULL, area.size + 2 * page, PROT_READ | PROT_WRITE, map_flags | MAP_ANONYMOUS, -1,
		 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_int_eq(mprotect(p, page, PROT_NONE), 0);
	ck_assert_int_eq(mprotect(p + page + area.size, page, PROT_NONE), 0);
	area.base = p + page;
	return area;
}

/* Bytes that never equal the canary and never repeat in a period that a copy could hide behind. */
static inline void area_fill(const struct area *area)
{
	unsigned long long state = 2463534242u;

	for (size_t i = 0; i < area->size; i++) {
		uint8_t byte = (uint8_t)(unit_random(&state) >> 32);

		area->base[i] = byte == CANARY ? 1 : byte;
	}
}

/*
 * A place for n bytes, `align` bytes into a line: front, so that its first line is the area's
 * first, or back, so that its last line is the area's last.
 */
static inline uint8_t *area_at(const struct area *area, size_t align, size_t n, bool back)
{
	size_t lines = (align + n + LINE - 1) / LINE * LINE;

	return back ? area->base + area->size - lines + align : area->base + align;
}

#endif
