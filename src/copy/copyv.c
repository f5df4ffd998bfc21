// SPDX-License-Identifier: MIT
/*
 * The vectored copies. Pieces of one call are unordered among themselves, so one fence serves them
 * all and reads of many pieces are in flight together (gather.c).
 */
#include "copy.h"

#include "rows.h"
#include "fence.h"
#include "gather.h"
#include "word.h"

#define LINE_MASK (GDRI_LINE - 1)

void gdri_copyv_to(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		   size_t step, uint32_t flags)
{
	const struct gdri_copy_row *row = plan->to;
	bool by_lines = row->block == GDRI_LINE;
	bool any = false;

	gdri_compiler_barrier();
	for (; count; seg = gdri_seg_after(seg, step), count--) {
		size_t size = seg->size;

		if (!size)
			continue;
		if (__builtin_expect((seg->flags & BARCOPY_COPY_ORDERED) && any, 0))
			gdri_fence_after_write(plan->fences);
		any = true;
		/* Pieces of whole lines are the row's own. */
		if (by_lines && !(((uintptr_t)seg->map_ptr | size) & LINE_MASK))
			row->to(seg->map_ptr, seg->host_ptr, size);
		else
			gdri_move_to(plan, seg->map_ptr, seg->host_ptr, size);
	}
	if (flags & BARCOPY_COPY_NO_FENCE)
		gdri_compiler_barrier();
	else
		gdri_fence_after_write(plan->fences);
}

/* Reads where lines cannot be loaded whole, or need not be. */
static void one_by_one(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg,
		       size_t count, size_t step)
{
	bool any = false;

	for (; count; seg = gdri_seg_after(seg, step), count--) {
		if (!seg->size)
			continue;
		if ((seg->flags & BARCOPY_COPY_ORDERED) && any)
			gdri_fence_between_reads(plan->fences);
		gdri_move_from(plan, seg->host_ptr, seg->map_ptr, seg->size);
		any = true;
	}
}

void gdri_copyv_from(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		     size_t step, uint32_t flags)
{
	if (flags & BARCOPY_COPY_NO_FENCE)
		gdri_compiler_barrier();
	else
		gdri_fence_before_read(plan->fences);
	if (plan->exact_reads || !plan->from->lines || count == 1)
		one_by_one(plan, seg, count, step);
	else
		gdri_gather(plan, seg, count, step);
	if (flags & BARCOPY_COPY_NO_FENCE)
		gdri_compiler_barrier();
	else
		gdri_fence_after_read(plan->fences);
}
