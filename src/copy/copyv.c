// SPDX-License-Identifier: MIT
/*
 * The vectored copies. The pieces of a call are unordered among themselves, so one fence serves
 * them all and the reads of many pieces are in flight together.
 *
 * Reads of write-combined mappings go by batches: list the lines that the pieces touch, each once;
 * load them; store the pieces. Two limits, both measured (H200 under Sapphire Rapids, 2026-11-22),
 * decide the shape:
 *  - A core has 8 line buffers for lines with address bit 6 clear and 8 for lines with it set. In a
 *    loop as short as the loading one the order of the two kinds does not matter.
 *  - Only what is in the reorder buffer (512 instructions there) runs while the loads are in
 *    flight. So the loops are short: an instruction a piece is 15 to 20 ns in a vector of 64
 *    pieces.
 */
#include "copy.h"

#include "fence.h"
#include "impl.h"
#include "word.h"

#define LINE_MASK ((uintptr_t)GDRI_LINE - 1)

enum {
	PIECE_LINES = 16, /* a piece of more lines fills the line buffers by itself */
	FULL = 128, /* parts of a full batch; a part is what a piece has in one line */
	PARTS = FULL + PIECE_LINES, /* room for the last piece of a batch */
	MORE = 0x8000, /* set in a part: the next part belongs to the same piece */
	AHEAD = 24, /* loads that a wrongly predicted end of the loop may start */
	KNOWN = 64,
};

struct batch {
	_Alignas(GDRI_LINE) uint8_t line[PARTS][GDRI_LINE];
	_Alignas(GDRI_LINE) uint8_t known[KNOWN]; /* a line's index, by a hash of its address */
	const uint8_t *at[PARTS + AHEAD]; /* lines of the mapping, then `known`, which is cached */
	uint16_t part[PARTS]; /* where each begins in `line`; a piece of size 0 has one too */
	size_t lines;
};

static inline const barcopy_copy_seg_t *seg_after(const barcopy_copy_seg_t *seg, size_t step)
{
	return (const barcopy_copy_seg_t *)(const void *)((const char *)seg + step);
}

static inline bool is_large(const barcopy_copy_seg_t *seg)
{
	return ((uintptr_t)seg->map_ptr & LINE_MASK) + seg->size > PIECE_LINES * GDRI_LINE;
}

/* The index of a line, which is listed if it is not yet. */
static inline size_t index_of(struct batch *b, const uint8_t *line, size_t *lines)
{
	uintptr_t number = (uintptr_t)line / GDRI_LINE;
	uint8_t *known = &b->known[(number ^ number >> 6) % KNOWN];
	size_t index = *known;

	if (b->at[index] != line) {
		index = (*lines)++;
		b->at[index] = line;
		*known = (uint8_t)index;
	}
	return index;
}

/* Lists lines until an ordered piece, a large one, or a full batch. Returns how many pieces. */
static size_t list_lines(struct batch *b, const barcopy_copy_seg_t *seg, size_t count, size_t step)
{
	size_t left = count, parts = 0, lines = 0, first = 0;
	const uint8_t *line = b->known;

	__builtin_memset(b->known, 0, sizeof(b->known));
	b->at[0] = b->known;
	for (; left && parts < FULL; seg = seg_after(seg, step), left--) {
		const uint8_t *from = seg->map_ptr;
		size_t skip = (uintptr_t)from - (uintptr_t)line, size = seg->size;

		if (__builtin_expect(seg->flags & BARCOPY_COPY_ORDERED && parts, 0))
			break;
		/* A piece in the same line as the one before it needs no look-up. */
		if (skip >= GDRI_LINE || skip + size > GDRI_LINE) {
			skip = (uintptr_t)from & LINE_MASK;
			if (__builtin_expect(!size, 0)) {
				b->part[parts++] = 0;
				continue;
			}
			if (__builtin_expect(skip + size > PIECE_LINES * GDRI_LINE, 0))
				break;
			line = from - skip;
			first = index_of(b, line, &lines) * GDRI_LINE;
			for (; __builtin_expect(skip + size > GDRI_LINE, 0); skip = 0) {
				b->part[parts++] = (uint16_t)(first + skip) | MORE;
				size -= GDRI_LINE - skip;
				line += GDRI_LINE;
				first = index_of(b, line, &lines) * GDRI_LINE;
			}
		}
		b->part[parts++] = (uint16_t)(first + skip);
	}
	b->lines = lines;
	for (size_t i = 0; i < AHEAD; i++)
		b->at[lines + i] = b->known;
	return count - left;
}

static inline void store_part(uint8_t *host, const uint8_t *from, size_t size)
{
	if (size == sizeof(uint64_t))
		__builtin_memcpy(host, from, sizeof(uint64_t));
	else if (size == GDRI_LINE)
		__builtin_memcpy(host, from, GDRI_LINE);
	else
		gdri_store_exact(host, from, size);
}

/* Stores the bytes of `count` pieces, in the pieces' order. */
static void store_pieces(const struct batch *b, const barcopy_copy_seg_t *seg, size_t count,
			 size_t step)
{
	const uint16_t *part = b->part;

	for (; count; seg = seg_after(seg, step), count--, part++) {
		uint8_t *host = seg->host_ptr;
		size_t left = seg->size;

		for (; __builtin_expect(*part & MORE, 0); part++) {
			size_t room = GDRI_LINE - *part % GDRI_LINE;

			store_part(host, b->line[0] + *part % MORE, room);
			host += room, left -= room;
		}
		store_part(host, b->line[0] + *part, left);
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
		 * Behind the list: MFENCE holds back loads that a wrong guess at an address or at
		 * the number of lines would start. Each takes a line buffer for a round trip.
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
