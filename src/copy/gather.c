// SPDX-License-Identifier: MIT
/*
 * Scattered reads out of write-combined mappings: the whole lines that the pieces of a vector touch, each
 * once, as many in flight as the core allows, and the pieces picked out of them.
 *
 * Two limits, both measured (H200 under Sapphire Rapids, 2026-11-22). A load that the reorder buffer (512
 * instructions there) has not reached is not in flight: so the lines are listed first and then loaded in a
 * loop of five instructions a line. A core has 8 line buffers for lines whose address bit 6 is clear and 8
 * for those where it is set: so lines of the two kinds are loaded alternately.
 *
 * A branch of the loop that is predicted wrong would load lines that nobody asked for, which take a line
 * buffer each for a round trip: so the loop counts, and what it may load beyond its end is host memory.
 */
#include "gather.h"

#include "fence.h"
#include "rows.h"
#include "word.h"

#define LINE_MASK ((uintptr_t)GDRI_LINE - 1)

/* Pieces of more lines than that fill the line buffers by themselves. */
#define PIECE_LINES 16

/* Lines of each kind in a batch, with room for the last piece that is let in; what a wrong guess may load. */
enum { KIND = 32, KIND_ROOM = KIND + PIECE_LINES / 2, PLACES = 2 * KIND_ROOM, AHEAD = 24 };
enum { PARTS = 128, KNOWN = 64 };

/*
 * Lines that are loaded together, and the pieces that lie in them. Lines with address bit 6 clear have the
 * even places, the others the odd ones. Where no line is, `at` has `none`.
 */
struct batch {
	_Alignas(GDRI_LINE) uint8_t line[PLACES][GDRI_LINE];
	_Alignas(GDRI_LINE) uint8_t none[GDRI_LINE];
	const uint8_t *at[PLACES + AHEAD];
	size_t next[2]; /* free place of each kind */
	uint8_t part[PARTS + PIECE_LINES]; /* of each piece, line by line: its place */
	_Alignas(16) uint8_t known[KNOWN]; /* by a hash of a line's address, its place */
	const barcopy_copy_seg_t *seg; /* the pieces */
	size_t count;
};

static size_t skip_of(const barcopy_copy_seg_t *seg)
{
	return (uintptr_t)seg->map_ptr & LINE_MASK;
}

static size_t lines_of(const barcopy_copy_seg_t *seg)
{
	return (skip_of(seg) + seg->size + LINE_MASK) / GDRI_LINE;
}

/* The line's place in the batch: the one that it has, or a new one. No branch asks which kind it is of. */
static inline uint8_t place_of(struct batch *b, const uint8_t *line)
{
	uintptr_t number = (uintptr_t)line / GDRI_LINE;
	uint8_t *known = &b->known[(number ^ number >> 6) % KNOWN];
	size_t place = *known, kind = number & 1;

	if (b->at[place] == line)
		return (uint8_t)place;
	place = b->next[kind];
	b->next[kind] += 2;
	b->at[place] = line;
	*known = (uint8_t)place;
	return (uint8_t)place;
}

/*
 * Takes pieces from the front, up to one that is ordered, or large, or for which there is no room. Returns
 * how many.
 */
static size_t list(struct batch *b, const barcopy_copy_seg_t *seg, size_t count, size_t step)
{
	size_t left = count, parts = 0;

	b->next[0] = 0;
	b->next[1] = 1;
	for (size_t i = 0; i < PLACES + AHEAD; i++)
		b->at[i] = b->none;
	__builtin_memset(b->known, 0, sizeof(b->known));
	b->seg = seg;
	for (; left; seg = gdri_seg_after(seg, step), left--) {
		size_t lines = lines_of(seg);

		if (!seg->size)
			continue;
		if (((seg->flags & BARCOPY_COPY_ORDERED) && parts) || lines > PIECE_LINES ||
		    b->next[0] > 2 * KIND || b->next[1] > 2 * KIND || parts > PARTS)
			break;
		for (const uint8_t *line = (const uint8_t *)seg->map_ptr - skip_of(seg); lines;
		     lines--, line += GDRI_LINE)
			b->part[parts++] = place_of(b, line);
	}
	b->count = count - left;
	return b->count;
}

static void load(const struct gdri_copy_row *row, struct batch *b)
{
	size_t even = b->next[0], odd = b->next[1] - 1;

	row->lines(b->line[0], b->at, even > odd ? even : odd);
}

/* Stores the pieces' bytes, in the pieces' order. */
static void pick(const struct batch *b, size_t step)
{
	const barcopy_copy_seg_t *seg = b->seg;
	const uint8_t *part = b->part;

	for (size_t n = b->count; n; seg = gdri_seg_after(seg, step), n--) {
		uint8_t *host = seg->host_ptr;
		size_t skip = skip_of(seg), left = seg->size;

		while (left) {
			size_t size = GDRI_LINE - skip < left ? GDRI_LINE - skip : left;

			if (size == GDRI_LINE)
				__builtin_memcpy(host, b->line[*part++], GDRI_LINE);
			else
				gdri_store_exact(host, b->line[*part++] + skip, size);
			host += size, left -= size, skip = 0;
		}
	}
}

void gdri_gather(const struct gdri_copy_plan *plan, const barcopy_copy_seg_t *seg, size_t count,
		 size_t step)
{
	struct batch batches[2];
	struct batch *next = batches, *loaded = NULL;
	bool any = false;

	for (size_t n; count; count -= n) {
		bool ordered = seg->flags & BARCOPY_COPY_ORDERED;
		bool large = lines_of(seg) > PIECE_LINES;

		n = 1;
		if (seg->size && (large || ordered) && loaded) {
			pick(loaded, step);
			loaded = NULL;
		}
		if (seg->size && ordered && any)
			gdri_fence_between_reads(plan->fences);
		any = any || seg->size;
		if (seg->size && large) {
			gdri_move_from(plan, seg->host_ptr, seg->map_ptr, seg->size);
		} else if (seg->size) {
			n = list(next, seg, count, step);
			load(plan->from, next);
			/* The former batch's bytes, while these lines are under way. */
			if (loaded)
				pick(loaded, step);
			loaded = next;
			next = &batches[next == batches];
		}
		seg = gdri_seg_after(seg, n * step);
	}
	if (loaded)
		pick(loaded, step);
}
