/* SPDX-License-Identifier: MIT */
/* The scattered reads of a vector; see gather.c. */
#ifndef GDRI_COPY_GATHER_H
#define GDRI_COPY_GATHER_H

#include "copy.h"

static inline const barcopy_copy_seg_t *gdri_seg_after(const barcopy_copy_seg_t *seg, size_t step)
{
	return (const barcopy_copy_seg_t *)(const void *)((const char *)seg + step);
}

/*
 * Reads by whole lines; the plan's `from` row has `lines`. Segments `step` bytes apart, count not 0. Pieces are unordered up to the next ORDERED one,
 * behind the fence between reads; where host destinations overlap, the later piece's bytes remain. No fence
 * before or after.
 */
void gdri_gather(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		 size_t step);

#endif
