/* SPDX-License-Identifier: MIT */
/* The inside of the copies: for src/copy, its tests and perf/impls. Others need copy.h only. */
#ifndef GDRI_COPY_IMPL_H
#define GDRI_COPY_IMPL_H

#include "copy.h"
#include "cpu.h"

/* Moves n bytes; struct gdri_copy_impl says what it may assume of dst, src and n. */
typedef void gdri_move_fn(void *dst, const void *src, size_t n);

/* Loads n scattered lines from the addresses in `at` to `line` and the lines behind it. */
typedef void gdri_lines_fn(uint8_t *line, const uint8_t *const *at, size_t n);

/*
 * A plan takes, for each direction, the first entry of the table that the CPU can run and whose flags
 * allow it: the order of the entries is the order of choice.
 */
enum gdri_impl_flags {
	GDRI_IMPL_ANY_MEMORY = 1, /* naturally aligned accesses only: fit for DEVICE mappings */
	GDRI_IMPL_UNCACHED = 2, /* weakly ordered on cacheable memory: WC only */
	GDRI_IMPL_WIDE = 4, /* chosen with GDRI_CPU_AVX512_WIDE only */
	GDRI_IMPL_READS = 8 /* chosen for reads only */
};

/*
 * One implementation. A block of 64 means that the functions move whole lines: the mapping's side
 * (`to`: dst, `from`: src) is 64-byte-aligned and n is a multiple of 64, not 0. A block of 1 means
 * that they take any range. They contain no fences.
 *
 * `to` keeps the store discipline (word.h) on dst and loads nothing outside [src, src + n); dst may
 * be any kind of memory, so it also serves reads of cached mappings, ends swapped (unless UNCACHED
 * is set). `from` is for sources where each access crosses the link: it makes few and large ones,
 * and with block 1 may load the whole lines around the range.
 */
struct gdri_copy_impl {
	const char *name;
	uint32_t needs; /* enum gdri_cpu: all of them */
	uint16_t block;
	uint16_t flags; /* enum gdri_impl_flags */
	gdri_move_fn *to; /* NULL: not in this direction */
	gdri_move_fn *from;
	gdri_lines_fn *lines; /* as `from`, for scattered lines; NULL: none */
};

/* The table, in plan.c; the last entry serves every CPU. */
extern const struct gdri_copy_impl gdri_copy_impls[];
extern const size_t gdri_copy_impl_count;

/* NULL if none has that name. */
const struct gdri_copy_impl *gdri_copy_impl_find(const char *name);

struct gdri_copy_plan {
	gdr_mapping_type_t type;
	gdr_mapping_type_t fences; /* the same, or NONE to show what fences are good for */
	bool posts; /* a posted word is a MOVDIRI */
	bool posts_lines; /* a posted line is a MOVDIR64B */
	bool exact_reads; /* reads load nothing outside the range, through `from`'s `to` function */
	const struct gdri_copy_impl *to, *from;
	/*
	 * `large` does copies of so many bytes and more, fences included. In the common plans both
	 * sizes are SIZE_MAX; a handle with copy options has a plan of its own.
	 */
	size_t large_to_min, large_from_min;
	void (*large)(const struct gdri_copy_plan *plan, void *dst, const void *src, size_t size,
		      bool to);
};

/*
 * Makes the plan for a type from the features that may be used. `impl` (NULL: none) overrides the
 * choice in the directions and types that it serves. Returns 0, or -ENOTSUP where the features do
 * not allow `impl`: the plan is valid then too, without it.
 */
int gdri_copy_plan_init(struct gdri_copy_plan *plan, gdr_mapping_type_t type, uint32_t features,
			const struct gdri_copy_impl *impl);

/* The copies without their fences, of at least one byte. */
void gdri_move_to(const struct gdri_copy_plan *plan, void *map, const void *host, size_t size);
void gdri_move_from(const struct gdri_copy_plan *plan, void *host, const void *map, size_t size);

/* The functions of the table, in moves.c. */
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
