/* SPDX-License-Identifier: MIT */
/* Copy options: the copy engine makes the large copies of one handle. */
#ifndef GDRI_OFFLOAD_H
#define GDRI_OFFLOAD_H

#include "copy/copy.h"
#include "core/region.h"

struct gdri_offload;

/*
 * For the handle of [low, high). 0 or -errno; *offload: NULL where nothing is asked for. Region and
 * pin outlive the offload.
 */
int gdri_offload_new(const struct gdri_region *region, const struct gdri_pin *pin, uint64_t low,
		     uint64_t high, const barcopy_copy_options_t *options,
		     struct gdri_offload **offload);

/* No copy may be under way on its plan. NULL is nothing. 0 or -errno: it ends in either case. */
int gdri_offload_free(struct gdri_offload *offload);

/* The plan for the pin's mapping, until the next call. */
const struct gdri_copy_plan *gdri_offload_plan(struct gdri_offload *offload);

#endif
