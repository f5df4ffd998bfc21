// SPDX-License-Identifier: MIT
/*
 * The vectored copies. The pieces of a call are unordered among themselves, so one fence serves them all and
 * the reads of many pieces are in flight together.
 *
 * Reads of write-combined mappings go by batches: the lines that the pieces touch are listed, each once, then
 * loaded in a loop of five instructions, and then the pieces are picked out of them. Two limits make that the
 * fastest, both measured (H200 under Sapphire Rapids, 2026-11-22). A load that the reorder buffer (512
 * instructions there) has not reached is not in flight. A core has 8 line buffers for lines with address bit 6
 * clear and 8 for lines with it set; in a loop as short as this one the order of the two kinds does not matter.
 */
#include "copy.h"

#include "fence.h"
#include "impl.h"
#include "word.h"

#define LINE_MASK ((uintptr_t)GDRI_LINE - 1)

enum {
	PIECE_LINES = 16, /* a piece of more lines fills the line buffers by itself */
	FULL = 128, /* a batch is full from so many parts on; a part is what a piece has in one line */
	PARTS = FULL + PIECE_LINES, /* room for the last piece of a batch */
	AHEAD = 24, /* loads that a wrongly predicted end of the loop may start */
	KNOWN = 64,
};

struct batch {
	_Alignas(GDRI_LINE) uint8_t line[PARTS][GDRI_LINE];
	_Alignas(GDRI_LINE) uint8_t none[GDRI_LINE];
	uint8_t part[PARTS]; /* the line's index, part by part of each piece */
	const uint8_t
		*at[PARTS + AHEAD]; /* where each line is in the mapping; behind the last, `none` */
	_Alignas(GDRI_LINE) uint8_t known[KNOWN]; /* a line's index, by a hash of its address */
	size_t lines;
};

static inline const barcopy_copy_seg_t *seg_after(const barcopy_copy_seg_t *seg, size_t step)
{
	return (const barcopy_copy_seg_t *)(const void *)((const char *)seg + step);
}

static inline size_t skip_of(const barcopy_copy_seg_t *seg)
{
	return (uintptr_t)seg->map_ptr & LINE_MASK;
}

static inline bool is_large(const barcopy_copy_seg_t *seg)
{
	return skip_of(seg) + seg->size > PIECE_LINES * GDRI_LINE;
}

/* The index of a line, which is listed if it is not yet. */
static inline uint8_t index_of(struct batch *b, const uint8_t *line, size_t *lines)
{
	uintptr_t number = (uintptr_t)line / GDRI_LINE;
	uint8_t *known = &b->known[(number ^ number >> 6) % KNOWN];

	if (b->at[*known] != line) {
		b->at[*lines] = line;
		*known = (uint8_t)(*lines)++;
	}
	return *known;
}

/* Lists the lines of pieces up to an ordered or a large one, or a full batch. Returns how many pieces. */
static size_t list_lines(struct batch *b, const barcopy_copy_seg_t *seg, size_t count, size_t step)
{
	size_t left = count, parts = 0, lines = 0;

	__builtin_memset(b->known, 0, sizeof(b->known));
	b->at[0] = b->none;
	for (; left && parts < FULL; seg = seg_after(seg, step), left--) {
		const uint8_t *line = (const uint8_t *)seg->map_ptr - skip_of(seg);
		const uint8_t *end = (const uint8_t *)seg->map_ptr + seg->size;

		if (__builtin_expect(!seg->size, 0))
			continue;
		if (__builtin_expect((seg->flags & BARCOPY_COPY_ORDERED && parts) || is_large(seg),
				     0))
			break;
		b->part[parts++] = index_of(b, line, &lines);
		while (__builtin_expect((line += GDRI_LINE) < end, 0))
			b->part[parts++] = index_of(b, line, &lines);
	}
	b->lines = lines;
	for (size_t i = 0; i < AHEAD; i++)
		b->at[lines + i] = b->none;
	return count - left;
}

static inline void store_part(uint8_t *host, const uint8_t *from, size_t size)
{
	if (size == GDRI_LINE)
		__builtin_memcpy(host, from, GDRI_LINE);
	else if (size == sizeof(uint64_t))
		__builtin_memcpy(host, from, sizeof(uint64_t));
	else
		gdri_store_exact(host, from, size);
}

/* Stores the bytes of `count` pieces, in the pieces' order. */
static void store_pieces(const struct batch *b, const barcopy_copy_seg_t *seg, size_t count,
			 size_t step)
{
	size_t part = 0;

	for (; count; seg = seg_after(seg, step), count--) {
		uint8_t *host = seg->host_ptr;
		size_t skip = skip_of(seg), left = seg->size;

		for (; skip + left > GDRI_LINE; skip = 0) {
			size_t size = GDRI_LINE - skip;

			store_part(host, b->line[b->part[part++]] + skip, size);
			host += size, left -= size;
		}
		if (left)
			store_part(host, b->line[b->part[part++]] + skip, left);
	}
}

void gdri_copyv_from(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		     size_t step, uint32_t flags)
{
	bool fences = !(flags & BARCOPY_COPY_NO_FENCE);
	bool one_by_one = plan->exact_reads || !plan->from->lines || count == 1;
	bool any = false;
	struct batch batch;

	gdri_compiler_barrier();
	for (size_t n; count; seg = seg_after(seg, n * step), count -= n) {
		bool batched = !one_by_one && !is_large(seg);

		n = 1;
		if (!seg->size)
			continue;
		if (batched)
			n = list_lines(&batch, seg, count, step);
		/*
		 * The fence comes behind the list: MFENCE lets no load begin on a guess at an address or at the
		 * number of lines, which would take a line buffer for a round trip.
		 */
		if (!any && fences)
			gdri_fence_before_read(plan->fences);
		if (any && seg->flags & BARCOPY_COPY_ORDERED)
			gdri_fence_between_reads(plan->fences);
		any = true;
		if (batched) {
			plan->from->lines(batch.line[0], batch.at, batch.lines);
			store_pieces(&batch, seg, n, step);
		} else {
			gdri_move_from(plan, seg->host_ptr, seg->map_ptr, seg->size);
		}
	}
	if (fences)
		gdri_fence_after_read(plan->fences);
	else
		gdri_compiler_barrier();
}

void gdri_copyv_to(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		   size_t step, uint32_t flags)
{
	const struct gdri_copy_impl *impl = plan->to;
	bool by_lines = impl->block == GDRI_LINE;
	bool any = false;

	gdri_compiler_barrier();
	for (; count; seg = seg_after(seg, step), count--) {
		size_t size = seg->size;

		if (!size)
			continue;
		if (__builtin_expect((seg->flags & BARCOPY_COPY_ORDERED) && any, 0))
			gdri_fence_after_write(plan->fences);
		any = true;
		/* A piece of whole lines needs no edges. */
		if (by_lines && !(((uintptr_t)seg->map_ptr | size) & LINE_MASK))
			impl->to(seg->map_ptr, seg->host_ptr, size);
		else
			gdri_move_to(plan, seg->map_ptr, seg->host_ptr, size);
	}
	if (flags & BARCOPY_COPY_NO_FENCE)
		gdri_compiler_barrier();
	else
		gdri_fence_after_write(plan->fences);
}
