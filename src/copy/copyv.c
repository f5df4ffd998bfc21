// SPDX-License-Identifier: MIT
/*
 * The vectored copies. Pieces of one call are unordered among themselves, so one fence serves them
 * all and reads of many pieces are in flight together.
 */
#include "copy.h"

#include "rows.h"
#include "fence.h"
#include "word.h"

#define LINE_MASK (GDRI_LINE - 1)

/*
 * Lines loaded before the first byte is stored. A core has some 16 line buffers (measured: 16
 * scattered reads take two round trips, 8 take one); twice that keeps them busy over the change
 * from one batch to the next.
 */
#define BATCH_LINES 32

void gdri_copyv_to(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		   uint32_t flags)
{
	const struct gdri_copy_row *row = plan->to;
	bool by_lines = row->block == GDRI_LINE;
	bool any = false;

	gdri_compiler_barrier();
	for (const barcopy_copy_seg_t *end = seg + count; seg < end; seg++) {
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

/* The lines of pieces that wait for their bytes to be picked out. */
struct batch {
	_Alignas(GDRI_LINE) uint8_t line[BATCH_LINES * GDRI_LINE];
	size_t used; /* lines */
	const barcopy_copy_seg_t *first; /* pieces from here to the current one are in the batch */
};

static size_t lines_of(const barcopy_copy_seg_t *seg)
{
	size_t skip = (uintptr_t)seg->map_ptr & LINE_MASK;

	return (skip + seg->size + LINE_MASK) / GDRI_LINE;
}

static bool batched(const barcopy_copy_seg_t *seg)
{
	return seg->size && seg->size <= BATCH_LINES * GDRI_LINE / 2;
}

/* Stores what the batch holds for [first, end). */
static void drain(struct batch *batch, const barcopy_copy_seg_t *end)
{
	const uint8_t *line = batch->line;

	for (const barcopy_copy_seg_t *seg = batch->first; seg < end; seg++) {
		size_t skip = (uintptr_t)seg->map_ptr & LINE_MASK;

		if (!batched(seg))
			continue;
		gdri_store_exact(seg->host_ptr, line + skip, seg->size);
		line += lines_of(seg) * GDRI_LINE;
	}
	batch->used = 0;
	batch->first = end;
}

/*
 * Reads of whole lines. Small pieces are gathered line by line; a large one fills the line buffers
 * by itself and goes its own way, at once, since the pieces are unordered.
 */
static void gather(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count)
{
	const struct gdri_copy_row *row = plan->from;
	const barcopy_copy_seg_t *end = seg + count;
	struct batch batch;
	bool any = false;

	batch.used = 0;
	batch.first = seg;
	for (; seg < end; seg++) {
		size_t lines;

		if (!seg->size)
			continue;
		if ((seg->flags & BARCOPY_COPY_ORDERED) && any) {
			drain(&batch, seg);
			gdri_fence_between_reads(plan->fences);
		}
		any = true;
		if (!batched(seg)) {
			gdri_move_from(plan, seg->host_ptr, seg->map_ptr, seg->size);
			continue;
		}
		lines = lines_of(seg);
		if (batch.used + lines > BATCH_LINES)
			drain(&batch, seg);
		row->from(batch.line + batch.used * GDRI_LINE,
			  (const uint8_t *)seg->map_ptr - ((uintptr_t)seg->map_ptr & LINE_MASK),
			  lines * GDRI_LINE);
		batch.used += lines;
	}
	drain(&batch, end);
}

/* Reads where lines cannot be loaded whole, or need not be. */
static void one_by_one(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg,
		       size_t count)
{
	bool any = false;

	for (const barcopy_copy_seg_t *end = seg + count; seg < end; seg++) {
		if (!seg->size)
			continue;
		if ((seg->flags & BARCOPY_COPY_ORDERED) && any)
			gdri_fence_between_reads(plan->fences);
		gdri_move_from(plan, seg->host_ptr, seg->map_ptr, seg->size);
		any = true;
	}
}

void gdri_copyv_from(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		     uint32_t flags)
{
	if (flags & BARCOPY_COPY_NO_FENCE)
		gdri_compiler_barrier();
	else
		gdri_fence_before_read(plan->fences);
	if (plan->exact_reads || plan->from->block != GDRI_LINE || count == 1)
		one_by_one(plan, seg, count);
	else
		gather(plan, seg, count);
	if (flags & BARCOPY_COPY_NO_FENCE)
		gdri_compiler_barrier();
	else
		gdri_fence_after_read(plan->fences);
}
