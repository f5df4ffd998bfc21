/* SPDX-License-Identifier: MIT */
/*
 * Copy options: the GPU's copy engine makes the large copies of one handle. They are a plan around the
 * mapping's common plan, so a handle without options pays nothing.
 */
#ifndef GDRI_OFFLOAD_H
#define GDRI_OFFLOAD_H

#include "barcopy.h"
#include "backend/backend.h"
#include "copy/copy.h"
#include "core/region.h"

struct gdri_offload;

/*
 * As the options say, for copies through that pin's mappings; *offload is NULL where they ask for nothing,
 * or are NULL. The pin is the region's, or shows a part of it; both outlive the offload. 0 or -errno.
 */
int gdri_offload_new(const struct gdri_region *region, const struct gdri_pin *pin,
		     const barcopy_copy_options_t *options, struct gdri_offload **offload);

/* No copy may be under way on its plan. NULL is nothing. */
void gdri_offload_free(struct gdri_offload *offload);

/*
 * The plan for the pin's present mapping, valid until the next call or the free. With AUTO the first call for
 * a device measures.
 */
const struct gdri_copy_plan *gdri_offload_plan(struct gdri_offload *offload);

/* Sets what AUTO would measure for reads from a device, for tests. */
void gdri_offload_know(int device, size_t any, size_t page_locked);

#endif
