/* SPDX-License-Identifier: MIT */
/*
 * The inside of the copies: rows, plans, and how a plan is made. For src/copy, its tests and the
 * benchmarks, which have rows of their own beside these (dev/rows); the rest of the library needs
 * copy.h only.
 */
#ifndef GDRI_COPY_ROWS_H
#define GDRI_COPY_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy.h"
#include "cpu.h"

/* Moves n bytes; what it may assume of dst, src and n is said by its row and its column. */
typedef void gdri_move_fn(void *dst, const void *src, size_t n);

/* Loads n scattered lines from the addresses in `at` to `line` and the lines behind it. */
typedef void gdri_lines_fn(uint8_t *line, const uint8_t *const *at, size_t n);

enum gdri_row_flags {
	GDRI_ROW_ANY_MEMORY = 1, /* naturally aligned accesses only: fit for DEVICE mappings */
	/* For WC mappings only: faults on cacheable memory, or is not ordered as its fences assume. */
	GDRI_ROW_UNCACHED = 2
};

/*
 * One implementation. A block of 64 means that the function moves whole lines: the mapping's side
 * (`to`: dst, `from`: src) is 64-byte-aligned and n is a multiple of 64, not 0. A block of 1 means
 * that it takes any range and does its own edges. Neither has fences, unless its row says so.
 *
 * `to` keeps the store discipline (word.h) on dst and loads nothing outside [src, src + n); its
 * dst may be any kind of memory, so it also serves reads of cached mappings, ends swapped (unless
 * the row is GDRI_ROW_UNCACHED, which cached mappings never get).
 * `from` is for sources where each access crosses the link: it asks for as few and as large ones
 * as it can, and with block 1 may load the whole lines around the range.
 */
struct gdri_copy_row {
	const char *name;
	uint32_t needs; /* enum gdri_cpu: all of them */
	uint16_t block;
	uint16_t flags; /* enum gdri_row_flags */
	gdri_move_fn *to; /* NULL: not in this direction */
	gdri_move_fn *from;
	gdri_lines_fn *lines; /* as `from`, for scattered lines; NULL: none */
};

/* The table, in plan.c; the last row serves every CPU. */
extern const struct gdri_copy_row gdri_copy_rows[];
extern const size_t gdri_copy_row_count;

/* NULL if there is no row of that name. */
const struct gdri_copy_row *gdri_copy_row_find(const char *name);

struct gdri_copy_plan {
	gdr_mapping_type_t type;
	/* Whose fences: the same type, or NONE in a plan that shows what fences are good for. */
	gdr_mapping_type_t fences;
	bool posts; /* a posted word is MOVDIRI's, */
	bool posts_lines; /* a posted line MOVDIR64B's */
	/* Reads load nothing outside the range, through the `to` function of their row. */
	bool exact_reads;
	const struct gdri_copy_row *to, *from;
	/*
	 * gdri_copy_to() and gdri_copy_from() of large_to_min, large_from_min bytes and more, fences
	 * included: here somebody else may take the copy over, by a plan of his own around a common one.
	 * A common plan hands nothing over: SIZE_MAX.
	 */
	size_t large_to_min, large_from_min;
	void (*large)(const struct gdri_copy_plan *plan, void *dst, const void *src, size_t size,
		      bool to);
};

/*
 * Makes the plan for a type from the features that may be used, and a row that overrides the choice
 * (NULL: none) in the directions and types that it can do. Returns 0, or -ENOTSUP: the features do not
 * allow the row. The plan is good in every case: a row that cannot be used is not.
 */
int gdri_copy_plan_init(struct gdri_copy_plan *plan, gdr_mapping_type_t type, uint32_t features,
			const struct gdri_copy_row *row);

/* The copies without their fences: what copy.h's calls and the vectored ones are made of. */
void gdri_move_to(const struct gdri_copy_plan *plan, void *map, const void *host, size_t size);
void gdri_move_from(const struct gdri_copy_plan *plan, void *host, const void *map, size_t size);

/* The functions of the rows, each in the file of its instruction set. */
gdri_move_fn gdri_ref_to, gdri_ref_from;
#if defined(__x86_64__)
gdri_move_fn gdri_sse2_to;
gdri_move_fn gdri_sse41_to, gdri_sse41_from;
gdri_move_fn gdri_avx2_to, gdri_avx2_from;
gdri_move_fn gdri_avx512_to, gdri_avx512_from;
gdri_lines_fn gdri_sse41_lines, gdri_avx2_lines, gdri_avx512_lines;
#elif defined(__aarch64__)
gdri_move_fn gdri_neon_to, gdri_neon_from;
gdri_lines_fn gdri_neon_lines;
#endif

#endif
