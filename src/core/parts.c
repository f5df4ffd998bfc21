/* SPDX-License-Identifier: MIT */
/* The allocations of a region. See region.h. It knows nothing of pins and maps. */
#include "core/region.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

/* cudaMalloc aligns to 256 bytes at least. */
enum { ALLOCATION_ALIGN = 256 };

/* The allocation around addr; size: and failing that, whether one lies behind it. */
static bool describe(uint64_t addr, size_t size, struct gdri_memory *m)
{
	gdri_cuda_describe(addr, size, m);
	return m->kind != GDRI_MEMORY_UNKNOWN && m->size;
}

static int add(struct gdri_region *region, const struct gdri_memory *m)
{
	struct gdri_part *parts = realloc(region->parts, (region->part_count + 1) * sizeof(*parts));

	if (!parts)
		return gdri_fail(ENOMEM, "no memory for the allocations of a region");
	parts[region->part_count++] = (struct gdri_part){ .start = m->base,
							  .end = m->base + m->size,
							  .id = m->buffer_id };
	region->parts = parts;
	return 0;
}

/*
 * The first question answers for the whole range: where neither its first GPU page nor its last byte
 * is known none is asked after it. Holes are crossed by what an allocation is aligned to; one with a whole
 * GPU page in it, at the latest after 512 steps, is the end: nobody can pin that.
 */
int gdri_parts_take(struct gdri_region *region, uint64_t low, uint64_t high)
{
	uint64_t at = low, hole = low;
	struct gdri_memory m;
	bool any = describe(low, high - low, &m);

	region->host = any && m.kind == GDRI_MEMORY_HOST;
	if (region->host)
		return add(region, &m);
	while (any && at < high) {
		if ((at == low && m.known == low) || (at != low && describe(at, 1, &m))) {
			int rc = add(region, &m);

			if (rc)
				return rc;
			at = hole = m.base + m.size;
		} else {
			/* Who could pin a GPU page with nothing in it? */
			if (((hole + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) + GPU_PAGE_SIZE <= at)
				return gdri_fail(EINVAL, "0x%llx is no memory of the GPU",
						 (unsigned long long)hole);
			at = (at | (ALLOCATION_ALIGN - 1)) + 1;
		}
		if (!at)
			break;
	}
	return 0;
}

/* The byte of [low, high) that a part is asked about at. */
static uint64_t first_of(const struct gdri_region *region, const struct gdri_part *part)
{
	return part->start > region->low ? part->start : region->low;
}

void gdri_parts_set_sync_memops(struct gdri_region *region)
{
	for (size_t i = 0; i < region->part_count; i++) {
		struct gdri_part *part = &region->parts[i];
		struct gdri_memory m;

		/* An allocation that was freed meanwhile says nothing of the others. */
		if (!describe(first_of(region, part), 1, &m) || m.buffer_id != part->id)
			continue;
		part->sync_memops = gdri_cuda_sync_memops(&m);
		/* CUDA refuses it for VMM memory; then all chunks are. */
		if (!part->sync_memops)
			break;
	}
}

bool gdri_region_holds_on(const struct gdri_region *region, size_t *part, size_t *budget)
{
	for (; *part < region->part_count && *budget; ++*part, --*budget)
		if (!gdri_cuda_has_buffer_id(first_of(region, &region->parts[*part]),
					 region->parts[*part].id))
			return false;
	if (*part >= region->part_count)
		*part = 0;
	return true;
}

bool gdri_region_holds(const struct gdri_region *region)
{
	size_t part = 0, budget = SIZE_MAX;

	return gdri_region_holds_on(region, &part, &budget);
}

void gdri_region_free_parts(struct gdri_region *region)
{
	struct gdri_part *late = atomic_load_explicit(&region->late, memory_order_relaxed);

	while (late) {
		struct gdri_part *next = late->next;

		free(late);
		late = next;
	}
	atomic_store_explicit(&region->late, NULL, memory_order_relaxed);
	free(region->parts);
	region->parts = NULL;
	region->part_count = 0;
}

static bool has(const struct gdri_part *part, uint64_t addr)
{
	return addr >= part->start && addr < part->end;
}

/* The allocation around addr, or NULL. */
static const struct gdri_part *find(const struct gdri_region *region, uint64_t addr)
{
	const struct gdri_part *late = atomic_load_explicit(&region->late, memory_order_acquire);
	size_t low = 0, high = region->part_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (region->parts[mid].end <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < region->part_count && has(&region->parts[low], addr))
		return &region->parts[low];
	while (late && !has(late, addr))
		late = late->next;
	return late;
}

bool gdri_region_notes(const struct gdri_region *region, uint64_t addr, size_t size)
{
	const struct gdri_part *part = find(region, addr);

	return part && size <= part->end - addr;
}

bool gdri_region_sync_memops(const struct gdri_region *region, uint64_t low, uint64_t high)
{
	const struct gdri_part *part = atomic_load_explicit(&region->late, memory_order_acquire);
	bool any = false, all = true;

	for (size_t i = 0; part || i < region->part_count; part = part ? part->next : NULL) {
		const struct gdri_part *p = part ? part : &region->parts[i++];

		if (p->start < high && p->end > low) {
			any = true;
			all &= p->sync_memops;
		}
	}
	return any && all;
}

/* Does a noted allocation that is still there touch this GPU page? */
static bool page_is_held(const struct gdri_region *region, uint64_t page)
{
	for (size_t i = 0; i < region->part_count; i++) {
		const struct gdri_part *part = &region->parts[i];
		uint64_t at = part->start > page ? part->start : page;

		if (at < part->end && at - page < GPU_PAGE_SIZE &&
		    gdri_cuda_has_buffer_id(at, part->id))
			return true;
	}
	return false;
}

/* Notes an allocation that lies in one GPU page together with a noted one: 0, or not. */
static int add_late(struct gdri_region *region, const struct gdri_memory *m)
{
	uint64_t page = m->base & GPU_PAGE_MASK;
	struct gdri_part *late;

	if (region->host || m->kind != GDRI_MEMORY_DEVICE ||
	    m->base + m->size - page > GPU_PAGE_SIZE || !page_is_held(region, page))
		return -1;
	late = malloc(sizeof(*late));
	if (!late)
		return -1;
	*late = (struct gdri_part){ .start = m->base,
				    .end = m->base + m->size,
				    .id = m->buffer_id,
				    .sync_memops = region->sync && gdri_cuda_sync_memops(m),
				    .next = atomic_load_explicit(&region->late,
								 memory_order_relaxed) };
	atomic_store_explicit(&region->late, late, memory_order_release);
	return 0;
}

/* note: what is not noted yet is, where it can be proven; NULL: it is unknown. */
static enum gdri_proof prove(const struct gdri_region *region, struct gdri_region *note,
			     uint64_t addr, size_t size)
{
	uint64_t end = addr + size, hole = addr;

	if (!gdri_region_has(region, addr, size))
		return GDRI_UNKNOWN;
	while (addr < end) {
		const struct gdri_part *part = find(region, addr);
		struct gdri_memory m;

		if (part) {
			if (!gdri_cuda_has_buffer_id(addr, part->id))
				return GDRI_STALE;
			addr = hole = part->end;
		} else if (!note) {
			return GDRI_UNKNOWN;
		} else if (describe(addr, 1, &m)) {
			if (add_late(note, &m))
				return GDRI_UNKNOWN;
			addr = hole = m.base + m.size;
		} else {
			/* Nobody's: where a whole GPU page holds nothing, nothing is proven. */
			if (addr - hole >= GPU_PAGE_SIZE)
				return GDRI_UNKNOWN;
			addr = (addr | (ALLOCATION_ALIGN - 1)) + 1;
		}
	}
	return GDRI_PROVEN;
}

enum gdri_proof gdri_region_prove(const struct gdri_region *region, uint64_t addr, size_t size)
{
	return prove(region, NULL, addr, size);
}

enum gdri_proof gdri_region_prove_late(struct gdri_region *region, uint64_t addr, size_t size)
{
	return prove(region, region->part_count ? region : NULL, addr, size);
}
