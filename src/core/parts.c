/* SPDX-License-Identifier: MIT */
/* The parts of a region: the allocations in it. See region.h. */
#include "core/parts.h"

#include <stdlib.h>

/* cudaMalloc aligns to 256 bytes at least. */
enum { ALLOCATION_ALIGN = 256, LATE_SLOTS = GPU_PAGE_SIZE / ALLOCATION_ALIGN };

/* The late parts of one GPU page, by address: a part has the slots of all its bytes. */
struct gdri_late_page {
	uint64_t page;
	struct gdri_late_page *next;
	_Atomic(struct gdri_part *) at[LATE_SLOTS];
};

static unsigned int late_slot(uint64_t addr)
{
	return (unsigned int)(addr & GPU_PAGE_OFFSET) / ALLOCATION_ALIGN;
}

/* The late parts of the page around addr, or NULL. */
static struct gdri_late_page *late_page(const struct gdri_region *region, uint64_t addr)
{
	struct gdri_late_page *late = atomic_load_explicit(&region->late, memory_order_acquire);

	while (late && late->page != (addr & GPU_PAGE_MASK))
		late = late->next;
	return late;
}

/* Describes the allocation around addr, or else one that reaches into [addr, addr + size). */
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
							  .id = m->buffer_id,
							  .context = m->context,
							  .device = m->device };
	region->parts = parts;
	return 0;
}

/* Whether [hole, at) has a whole GPU page, which may belong to anybody. */
static bool has_page(uint64_t hole, uint64_t at)
{
	return ((hole + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) + GPU_PAGE_SIZE <= at;
}

/*
 * Where the hole at addr begins: with its GPU page, or at addr if an allocation before it lies in
 * that page. No part of gdri_region_verify(), as learn_at().
 */
static __attribute__((noinline)) uint64_t hole_at(uint64_t addr)
{
	uint64_t page = addr & GPU_PAGE_MASK;
	struct gdri_memory m;

	return addr > page && !describe(page, addr - page, &m) ? page : addr;
}

/*
 * A range of which CUDA knows neither the first GPU page nor the last byte, nor *m, is an error;
 * where CUDA gives no answer, or does not say where an allocation lies, nothing is noted. Holes are
 * crossed in at most 512 steps of the alignment: a GPU page of a hole is an error, as is a hole at
 * the end.
 */
int gdri_parts_note(struct gdri_region *region, uint64_t low, uint64_t high, struct gdri_memory *m)
{
	uint64_t at = low, hole = low;
	const struct gdri_part *last;
	struct gdri_memory first;

	/* Of a wide range CUDA may know neither end, but the middle that *m describes. */
	if (low - m->base >= m->size && describe(low, high - low, &first))
		*m = first;
	/* A driver that checks its own blocks alone would pin a hole in one. */
	if (m->absent)
		return gdri_fail(EINVAL, "CUDA does not know 0x%llx + 0x%llx: %s",
				 (unsigned long long)low, (unsigned long long)(high - low), m->note);
	if (m->kind == GDRI_MEMORY_UNKNOWN || !m->size)
		return 0;
	region->host = m->kind == GDRI_MEMORY_HOST;
	if (region->host) {
		int rc = add(region, m);

		if (!rc && (low < m->base || high - m->base > m->size))
			rc = gdri_fail(EINVAL, "the range reaches beyond host memory of 0x%zx bytes",
				       m->size);
		return rc;
	}
	if (low - m->base >= m->size)
		hole = hole_at(low);
	while (at && at < high) {
		struct gdri_memory next = *m;
		bool found = at - m->base < m->size || describe(at, 1, &next);

		if (has_page(hole, found ? next.base : at))
			return gdri_fail(EINVAL, "0x%llx is no memory of the GPU",
					 (unsigned long long)hole);
		if (found) {
			int rc = add(region, &next);

			if (rc)
				return rc;
			at = hole = next.base + next.size;
		} else {
			at = (at | (ALLOCATION_ALIGN - 1)) + 1;
		}
	}
	if (hole >= high)
		return 0;
	last = &region->parts[region->part_count - 1];
	return gdri_fail(
		EINVAL,
		"the range ends 0x%llx bytes beyond its allocation of 0x%llx bytes at 0x%llx",
		(unsigned long long)(high - hole), (unsigned long long)(last->end - last->start),
		(unsigned long long)last->start);
}

/* Where CUDA is asked about a part: its first byte in the range. */
static uint64_t first_of(const struct gdri_region *region, const struct gdri_part *part)
{
	return part->start > region->low ? part->start : region->low;
}

void gdri_parts_set_sync_memops(struct gdri_region *region, bool verified)
{
	for (size_t i = 0; i < region->part_count; i++) {
		struct gdri_part *part = &region->parts[i];
		const struct gdri_memory m = {
			.kind = region->host ? GDRI_MEMORY_HOST : GDRI_MEMORY_DEVICE,
			.context = part->context,
			.device = part->device,
			.known = first_of(region, part),
		};

		/* It may have been freed during the pin; the others may exist. */
		if (verified || gdri_cuda_has_buffer_id(m.known, part->id))
			part->sync_memops = gdri_cuda_sync_memops(&m);
	}
}

bool gdri_region_is_intact_from(const struct gdri_region *region, size_t *part, size_t *budget)
{
	for (; *part < region->part_count && *budget; ++*part, --*budget)
		if (!gdri_cuda_has_buffer_id(first_of(region, &region->parts[*part]),
					     region->parts[*part].id))
			return false;
	if (*part >= region->part_count)
		*part = 0;
	return true;
}

static bool is_gone(const struct gdri_part *part, uint64_t low, uint64_t high)
{
	uint64_t at = part && part->start > low ? part->start : low;

	return part && at < part->end && at < high && !gdri_cuda_has_buffer_id(at, part->id);
}

bool gdri_region_is_intact(const struct gdri_region *region, uint64_t low, uint64_t high)
{
	const struct gdri_late_page *late = atomic_load_explicit(&region->late,
								 memory_order_acquire);
	bool gone = false;

	for (size_t i = 0; i < region->part_count && !gone; i++)
		gone = is_gone(&region->parts[i], low, high);
	for (; late; late = late->next)
		for (int i = 0; i < LATE_SLOTS && !gone; i++)
			gone = is_gone(atomic_load_explicit(&late->at[i], memory_order_acquire),
				       low, high);
	return !gone;
}

void gdri_region_free_parts(struct gdri_region *region)
{
	struct gdri_late_page *late = atomic_exchange(&region->late, NULL), *next;

	for (; late; late = next) {
		struct gdri_part *last = NULL;

		next = late->next;
		for (int i = 0; i < LATE_SLOTS; i++) {
			struct gdri_part *part = atomic_load(&late->at[i]);

			if (part != last)
				free(last);
			last = part;
		}
		free(last);
		free(late);
	}
	free(region->parts);
	region->parts = NULL;
	region->part_count = 0;
}

static bool has(const struct gdri_part *part, uint64_t addr)
{
	return addr >= part->start && addr < part->end;
}

const struct gdri_part *gdri_region_part(const struct gdri_region *region, uint64_t addr)
{
	size_t low = 0, high = region->part_count;
	const struct gdri_late_page *late;
	const struct gdri_part *part;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (region->parts[mid].end <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < region->part_count && has(&region->parts[low], addr))
		return &region->parts[low];
	late = late_page(region, addr);
	part = late ? atomic_load_explicit(&late->at[late_slot(addr)], memory_order_acquire) : NULL;
	return part && has(part, addr) ? part : NULL;
}

bool gdri_region_in_one_part(const struct gdri_region *region, uint64_t addr, size_t size)
{
	const struct gdri_part *part = gdri_region_part(region, addr);

	return part && size <= part->end - addr;
}

static void count_sync_memops(const struct gdri_part *part, uint64_t low, uint64_t high, bool *any,
			      bool *all)
{
	if (part && part->start < high && part->end > low) {
		*any = true;
		*all &= part->sync_memops;
	}
}

bool gdri_region_sync_memops(const struct gdri_region *region, uint64_t low, uint64_t high)
{
	const struct gdri_late_page *late = atomic_load_explicit(&region->late,
								 memory_order_acquire);
	bool any = false, all = true;

	for (size_t i = 0; i < region->part_count; i++)
		count_sync_memops(&region->parts[i], low, high, &any, &all);
	for (; late; late = late->next)
		for (int i = 0; i < LATE_SLOTS; i++)
			count_sync_memops(atomic_load_explicit(&late->at[i], memory_order_acquire),
					  low, high, &any, &all);
	return any && all;
}

/* Does a part that still exists touch this GPU page? */
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

/* The late parts of a page, which may have none yet; NULL: no memory. */
static struct gdri_late_page *make_late_page(struct gdri_region *region, uint64_t page)
{
	struct gdri_late_page *late = late_page(region, page);

	if (late)
		return late;
	late = calloc(1, sizeof(*late));
	if (!late)
		return NULL;
	late->page = page;
	late->next = atomic_load(&region->late);
	atomic_store(&region->late, late);
	return late;
}

/*
 * Learns an allocation that lies in one GPU page with a part. Returns false if it does not,
 * or if another allocation has its slot (CUDA aligned them to less): the region does not serve it.
 */
static bool learn(struct gdri_region *region, const struct gdri_memory *m)
{
	uint64_t page = m->base & GPU_PAGE_MASK;
	unsigned int first = late_slot(m->base), last = late_slot(m->base + m->size - 1);
	struct gdri_late_page *late;
	struct gdri_part *part;

	if (m->kind != GDRI_MEMORY_DEVICE || m->base + m->size - page > GPU_PAGE_SIZE ||
	    !page_is_held(region, page))
		return false;
	late = make_late_page(region, page);
	for (unsigned int i = first; late && i <= last; i++)
		if (atomic_load(&late->at[i]))
			return false;
	part = late ? malloc(sizeof(*part)) : NULL;
	if (!part)
		return false;
	*part = (struct gdri_part){ .start = m->base,
				    .end = m->base + m->size,
				    .id = m->buffer_id,
				    .sync_memops = region->sync && gdri_cuda_sync_memops(m) };
	for (unsigned int i = first; i <= last; i++)
		atomic_store(&late->at[i], part);
	return true;
}

/*
 * Learns the allocation around addr. Its end; addr: there is none; 0: it cannot be learnt. No part
 * of gdri_region_verify(): `m` would bring a stack protector's test into each hit of a cache.
 */
static __attribute__((noinline)) uint64_t learn_at(struct gdri_region *learner, uint64_t addr)
{
	struct gdri_memory m;

	if (!describe(addr, 1, &m))
		return addr;
	return learn(learner, &m) ? m.base + m.size : 0;
}

enum gdri_validity gdri_region_verify(const struct gdri_region *region, struct gdri_region *learner,
				      uint64_t addr, size_t size)
{
	uint64_t end = addr + size, hole = addr, offset = addr - region->pin.va, behind;

	if (offset >= region->pin.mapped_size || size > region->pin.mapped_size - offset)
		return GDRI_UNKNOWN;
	while (addr < end) {
		const struct gdri_part *part = gdri_region_part(region, addr);

		if (has_page(hole, addr))
			return GDRI_UNKNOWN;
		if (part) {
			if (!gdri_cuda_has_buffer_id(addr, part->id))
				return GDRI_STALE;
			addr = hole = part->end;
			continue;
		}
		if (!learner || !region->part_count || region->host)
			return GDRI_UNKNOWN;
		behind = learn_at(learner, addr);
		if (!behind)
			return GDRI_UNKNOWN;
		if (behind > addr) {
			addr = hole = behind;
			continue;
		}
		if (addr == end - size)
			hole = hole_at(addr);
		addr = (addr | (ALLOCATION_ALIGN - 1)) + 1;
	}
	return hole >= end ? GDRI_VALID : GDRI_UNKNOWN;
}
