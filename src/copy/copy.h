/* SPDX-License-Identifier: MIT */
/*
 * The copies as the rest of the library sees them: a plan per mapping type, chosen once, and calls
 * that include their fences. Nothing here knows handles, backends or CUDA; the caller has validated
 * that the range lies inside the mapping.
 */
#ifndef GDRI_COPY_H
#define GDRI_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "barcopy.h"

/*
 * The plan for a mapping type: never NULL, static, the same pointer every time. The first call
 * reads the CPU's features, GDRCOPY_COPY_IMPL and GDRCOPY_CPU_MASK. Thread-safe.
 */
const struct gdri_copy_plan *gdri_copy_plan(gdr_mapping_type_t type);

/* CPU to mapping, with the store discipline of word.h and the fence behind it. */
void gdri_copy_to(const struct gdri_copy_plan *plan, void *map, const void *host, size_t size);

/* Mapping to CPU; may load the whole aligned 64-byte lines that the range touches. */
void gdri_copy_from(const struct gdri_copy_plan *plan, void *host, const void *map, size_t size);

/* The vectored forms: segments `step` bytes apart, which the caller has validated, as the flags. */
void gdri_copyv_to(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		   size_t step, uint32_t flags);
void gdri_copyv_from(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		     size_t step, uint32_t flags);

/* The plan whose fences serve both mappings; whether one vectored copy may go through both. */
const struct gdri_copy_plan *gdri_copy_stricter(const struct gdri_copy_plan *a,
						const struct gdri_copy_plan *b);
bool gdri_copy_alike(const struct gdri_copy_plan *a, const struct gdri_copy_plan *b);

/* The fence that the plan's mapping type needs for that use, which is a valid one. */
void gdri_fence(const struct gdri_copy_plan *plan, barcopy_fence_t use);

/*
 * Returns when this CPU's earlier writes through the mapping have reached the memory behind it: a
 * fence, then a read-back of the aligned 4-byte word at `map` (any word of the mapping will do).
 */
void gdri_flush_word(const struct gdri_copy_plan *plan, const void *map);

/*
 * Comes before a submission of work to the device that must see this CPU's earlier writes through
 * the mapping: a fence where the submission follows them on the same path, else gdri_flush_word().
 */
void gdri_drain(const struct gdri_copy_plan *plan, const void *map);

/* One naturally aligned word, single-copy atomic; the fences are those of the copies. */
void gdri_put32(const struct gdri_copy_plan *plan, void *map, uint32_t value);
void gdri_put64(const struct gdri_copy_plan *plan, void *map, uint64_t value);
uint32_t gdri_get32(const struct gdri_copy_plan *plan, const void *map);
uint64_t gdri_get64(const struct gdri_copy_plan *plan, const void *map);

/* barcopy_post32(), barcopy_post64() and barcopy_post_line(); the last of a whole line. */
void gdri_post32(const struct gdri_copy_plan *plan, void *map, uint32_t value);
void gdri_post64(const struct gdri_copy_plan *plan, void *map, uint64_t value);
void gdri_post_line(const struct gdri_copy_plan *plan, void *map, const void *line);

/*
 * Polls one naturally aligned word of 4 or 8 bytes until it compares as asked; what is loaded
 * afterwards is at least as new as the word. Returns 0 or -ETIMEDOUT, and the word in *last;
 * -EINVAL for an unknown `cmp`.
 */
int gdri_wait(const struct gdri_copy_plan *plan, const void *map, size_t size, barcopy_cmp_t cmp,
	      uint64_t value, uint64_t timeout_ns, uint64_t *last);

/* Why GDRCOPY_COPY_IMPL or GDRCOPY_CPU_MASK was ignored, a static text; NULL if neither was. */
const char *gdri_copy_env_problem(void);

#endif
