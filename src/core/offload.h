/* SPDX-License-Identifier: MIT */
/* Copy options: the copy engine makes the large copies of one handle. */
#ifndef GDRI_OFFLOAD_H
#define GDRI_OFFLOAD_H

#include "copy/copy.h"
#include "core/region.h"

struct gdri_offload;

/*
 * *offload is NULL where the options ask for nothing. The pin is the region's, or shows a part of
 * it; both outlive the offload. 0 or -errno.
 */
int gdri_offload_new(const struct gdri_region *region, const struct gdri_pin *pin,
		     const barcopy_copy_options_t *options, struct gdri_offload **offload);

/* No copy may be under way on its plan. NULL is nothing. */
void gdri_offload_free(struct gdri_offload *offload);

/* The plan for the pin's mapping, until the next call. AUTO measures at a device's first call. */
const struct gdri_copy_plan *gdri_offload_plan(struct gdri_offload *offload);

/*
 * AUTO's sizes. Reads are measured; the first two serve where that cannot be. Writes from
 * page-locked memory cross between 256 and 320 KiB on an H200 and an H100; from pageable memory the
 * engine never writes faster (1 MiB: 50 us by the mapping, 80 by the engine).
 */
#define GDRI_ENGINE_MIN_FROM	    ((size_t)11 << 10)
#define GDRI_ENGINE_MIN_FROM_LOCKED ((size_t)6 << 10)
#define GDRI_ENGINE_LEAST	    ((size_t)1 << 10) /* the bounds of a measured size */
#define GDRI_ENGINE_MOST	    ((size_t)1 << 20)
#define GDRI_ENGINE_MIN_TO	    SIZE_MAX
#define GDRI_ENGINE_MIN_TO_LOCKED   ((size_t)320 << 10)

/* Sets what AUTO would measure for reads from a device, for tests. */
void gdri_offload_know(int device, size_t any, size_t page_locked);

#endif
