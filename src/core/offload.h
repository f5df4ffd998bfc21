/* SPDX-License-Identifier: MIT */
/*
 * The GPU's copy engine for the large copies of one handle. It stands behind a plan of its own around the mapping's common one, so a handle without
 * it has nothing to ask. It knows regions and pins, not handles or contexts; only src/cuda/ knows CUDA.
 */
#ifndef GDRI_OFFLOAD_H
#define GDRI_OFFLOAD_H

#include "barcopy.h"
#include "backend/backend.h"
#include "copy/copy.h"
#include "core/region.h"

struct gdri_offload;

/*
 * As the options say, for copies through that pin's mappings; *offload is NULL if they ask for
 * nothing, or are NULL. region: whose pin it is, or shows; both outlive this. 0 or -errno with its text.
 */
int gdri_offload_new(const struct gdri_region *region, const struct gdri_pin *pin,
		     const barcopy_copy_options_t *options, struct gdri_offload **offload);

/* No copy may be under way on its plan. NULL is nothing. */
void gdri_offload_free(struct gdri_offload *offload);

/*
 * The plan for the pin's mapping as it is now; valid until the next call, or the free. With AUTO the first of
 * a device measures, unless its sizes are known.
 */
const struct gdri_copy_plan *gdri_offload_plan(struct gdri_offload *offload);

/* From how many bytes on the engine is ahead, reading into memory of any kind and into page-locked memory. */
void gdri_offload_know(int device, size_t any, size_t page_locked);

#endif
