/* SPDX-License-Identifier: MIT */
/*
 * Are these addresses still the memory that was pinned? CUDA gives each allocation an ID that is
 * never used again (GPUDirect RDMA guide, section 12.5); a region notes the IDs in its range before
 * it is pinned. It knows nothing of pins and maps.
 */
#include "core/tags.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

/* cudaMalloc aligns to 256 bytes at least. */
enum { ALLOCATION_ALIGN = 256 };

static int add(struct gdri_region *region, size_t *room, const struct gdri_cuda_tag *tag)
{
	if (region->tag_count == *room) {
		size_t more = *room ? 2 * *room : 1;
		struct gdri_cuda_tag *tags = realloc(region->tags, more * sizeof(*tags));

		if (!tags)
			return gdri_fail(ENOMEM, "no memory for the tags of a region");
		region->tags = tags;
		*room = more;
	}
	region->tags[region->tag_count++] = *tag;
	return 0;
}

int gdri_tags_take(struct gdri_region *region)
{
	uint64_t at = region->low;
	struct gdri_cuda_tag tag;
	size_t room = 0;
	int rc, first = 0;

	while (at < region->high) {
		rc = gdri_cuda_tag(at, &tag);
		if (!rc)
			rc = add(region, &room, &tag);
		else if (rc == -EINVAL)
			first = first ? first : rc;
		if (rc && rc != -EINVAL)
			goto err_free;
		at = rc ? (at | (ALLOCATION_ALIGN - 1)) + 1 : tag.end;
		if (!at)
			break;
	}
	if (region->tag_count)
		return 0;
	rc = first;
err_free:
	gdri_tags_free(region);
	return rc;
}

/* The byte of [low, high) that a tag is checked at. */
static bool tag_holds(const struct gdri_region *region, const struct gdri_cuda_tag *tag)
{
	return gdri_cuda_tag_holds(tag->start > region->low ? tag->start : region->low, tag->id);
}

bool gdri_tags_hold(const struct gdri_region *region)
{
	for (size_t i = 0; i < region->tag_count; i++)
		if (!tag_holds(region, &region->tags[i]))
			return false;
	return true;
}

void gdri_tags_free(struct gdri_region *region)
{
	struct gdri_late_tag *late = atomic_load_explicit(&region->late, memory_order_relaxed);

	while (late) {
		struct gdri_late_tag *next = late->next;

		free(late);
		late = next;
	}
	atomic_store_explicit(&region->late, NULL, memory_order_relaxed);
	free(region->tags);
	region->tags = NULL;
	region->tag_count = 0;
}

static bool tag_has(const struct gdri_cuda_tag *tag, uint64_t addr)
{
	return addr >= tag->start && addr < tag->end;
}

/* The tag of the allocation around addr, or NULL. */
static const struct gdri_cuda_tag *find(const struct gdri_region *region, uint64_t addr)
{
	size_t low = 0, high = region->tag_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (region->tags[mid].end <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < region->tag_count && tag_has(&region->tags[low], addr))
		return &region->tags[low];
	for (const struct gdri_late_tag *late =
		     atomic_load_explicit(&region->late, memory_order_acquire);
	     late; late = late->next)
		if (tag_has(&late->tag, addr))
			return &late->tag;
	return NULL;
}

enum gdri_proof gdri_region_prove(const struct gdri_region *region, uint64_t addr, size_t size)
{
	uint64_t end = addr + size;

	while (addr < end) {
		const struct gdri_cuda_tag *tag = find(region, addr);

		if (!tag)
			return GDRI_UNKNOWN;
		if (!gdri_cuda_tag_holds(addr, tag->id))
			return GDRI_STALE;
		addr = tag->end;
	}
	return GDRI_PROVEN;
}

/* Does a tagged allocation that is still there touch this GPU page? */
static bool page_is_held(const struct gdri_region *region, uint64_t page)
{
	for (size_t i = 0; i < region->tag_count; i++) {
		const struct gdri_cuda_tag *tag = &region->tags[i];
		uint64_t at = tag->start > page ? tag->start : page;

		if (at < tag->end && at - page < GPU_PAGE_SIZE && gdri_cuda_tag_holds(at, tag->id))
			return true;
	}
	return false;
}

/* Tags an allocation that lies in one GPU page together with a tagged one: 0, or not. */
static int tag_late(struct gdri_region *region, const struct gdri_cuda_tag *tag)
{
	uint64_t page = tag->start & GPU_PAGE_MASK;
	struct gdri_late_tag *late;

	if (tag->end - page > GPU_PAGE_SIZE || !page_is_held(region, page))
		return -1;
	late = malloc(sizeof(*late));
	if (!late)
		return -1;
	late->tag = *tag;
	late->next = atomic_load_explicit(&region->late, memory_order_relaxed);
	atomic_store_explicit(&region->late, late, memory_order_release);
	return 0;
}

enum gdri_proof gdri_region_prove_late(struct gdri_region *region, uint64_t addr, size_t size)
{
	uint64_t end = addr + size;

	if (!region->tag_count)
		return GDRI_UNKNOWN;
	while (addr < end) {
		const struct gdri_cuda_tag *known = find(region, addr);
		struct gdri_cuda_tag tag;

		if (known) {
			if (!gdri_cuda_tag_holds(addr, known->id))
				return GDRI_STALE;
			addr = known->end;
		} else if (gdri_cuda_tag(addr, &tag)) {
			addr = (addr | (ALLOCATION_ALIGN - 1)) + 1; /* nobody's */
		} else if (tag_late(region, &tag)) {
			return GDRI_UNKNOWN;
		} else {
			addr = tag.end;
		}
	}
	return GDRI_PROVEN;
}
