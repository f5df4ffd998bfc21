/* SPDX-License-Identifier: MIT */
/*
 * The copy engine as the rest of the library sees it: a plan per mapping type, chosen once, and
 * four calls that include their fences. It knows nothing of handles, backends or CUDA; a caller
 * has already proven that the range lies inside the mapping.
 */
#ifndef GDRI_COPY_H
#define GDRI_COPY_H

#include <stddef.h>

#include "gdrapi.h"

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

/* The vectored forms; flags and segments have been checked by the caller. */
void gdri_copyv_to(const struct gdri_copy_plan *plan, const gdr_copy_seg_t *seg, size_t count,
		   uint32_t flags);
void gdri_copyv_from(const struct gdri_copy_plan *plan, const gdr_copy_seg_t *seg, size_t count,
		     uint32_t flags);

#endif
