/* SPDX-License-Identifier: MIT */
/*
 * The copies as the rest of the library sees them: a plan per mapping type, chosen once, and
 * calls that include their fences. It knows nothing of handles, backends or CUDA; a caller
 * has already proven that the range lies inside the mapping.
 */
#ifndef GDRI_COPY_H
#define GDRI_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "barcopy.h"

struct gdri_copy_plan;

/*
 * The plan for a mapping type; never NULL, valid for ever, the same pointer every time.
 * The first call reads the CPU's features and GDRCOPY_COPY_IMPL / GDRCOPY_CPU_MASK. Thread-safe.
 */
const struct gdri_copy_plan *gdri_copy_plan(gdr_mapping_type_t type);

/* CPU to mapping; store discipline and the fence after it as design and fence.h say. */
void gdri_copy_to(const struct gdri_copy_plan *plan, void *map, const void *host, size_t size);

/* Mapping to CPU; may load the whole aligned 64-byte lines that the range touches. */
void gdri_copy_from(const struct gdri_copy_plan *plan, void *host, const void *map, size_t size);

/*
 * The vectored forms: segments `step` bytes apart. They and the flags have been checked by the caller.
 */
void gdri_copyv_to(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		   size_t step, uint32_t flags);
void gdri_copyv_from(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		     size_t step, uint32_t flags);

/* Of two mappings' plans the one whose fences serve both; whether vectored copies by either are the same. */
const struct gdri_copy_plan *gdri_copy_stricter(const struct gdri_copy_plan *a,
						const struct gdri_copy_plan *b);
bool gdri_copy_alike(const struct gdri_copy_plan *a, const struct gdri_copy_plan *b);

/* The fence that the plan's mapping type needs for that use; `use` has been checked. */
void gdri_fence(const struct gdri_copy_plan *plan, barcopy_fence_t use);

/*
 * Returns when this CPU's earlier writes through the mapping have reached the memory behind it: a
 * fence, then a read-back of the aligned 4-byte word at `map` (any word of the mapping will do).
 */
void gdri_flush_word(const struct gdri_copy_plan *plan, const void *map);

/*
 * Before work is submitted to the device that is to find this CPU's earlier writes through the mapping in
 * place: a fence where the submission itself is behind them then, else gdri_flush_word(). `map` likewise.
 */
void gdri_drain(const struct gdri_copy_plan *plan, const void *map);

/* One naturally aligned word, single-copy atomic; the fences are those of the copies. */
void gdri_put32(const struct gdri_copy_plan *plan, void *map, uint32_t value);
void gdri_put64(const struct gdri_copy_plan *plan, void *map, uint64_t value);
/*
 * The same, with nothing behind it that waits: on its way at once where the CPU has a store for that,
 * else a put. See barcopy_post32().
 */
void gdri_post32(const struct gdri_copy_plan *plan, void *map, uint32_t value);
void gdri_post64(const struct gdri_copy_plan *plan, void *map, uint64_t value);

/* 64 bytes at a line's begin. See barcopy_post_line(). */
void gdri_post_line(const struct gdri_copy_plan *plan, void *map, const void *line);

uint32_t gdri_get32(const struct gdri_copy_plan *plan, const void *map);
uint64_t gdri_get64(const struct gdri_copy_plan *plan, const void *map);

/*
 * Polls one naturally aligned word of 4 or 8 bytes until it compares as asked; what is loaded afterwards
 * is at least as new as the word. Returns 0 or -ETIMEDOUT; -EINVAL for an unknown `cmp`.
 */
int gdri_wait(const struct gdri_copy_plan *plan, const void *map, size_t size, barcopy_cmp_t cmp,
	      uint64_t value, uint64_t timeout_ns);

/*
 * What was wrong with GDRCOPY_COPY_IMPL or GDRCOPY_CPU_MASK, for a log; NULL if nothing was. A
 * wrong value is ignored. Static storage.
 */
const char *gdri_copy_env_problem(void);

#endif
