/* SPDX-License-Identifier: MIT */
/* See pages.h. Below, addresses are counted in pages. */
#include "cache/pages.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

#define NODE_SLOTS ((uint64_t)1 << GDRI_PAGES_NODE_BITS)

static gdri_pages_slot *node_of(uintptr_t v)
{
	return v && !(v & 1) ? (gdri_pages_slot *)v : NULL;
}

/* The node behind a slot. A new node has in all its slots what this slot had. */
static gdri_pages_slot *make_node(gdri_pages_slot *slot)
{
	uintptr_t is = atomic_load(slot);
	gdri_pages_slot *node = node_of(is);

	if (node)
		return node;
	node = calloc(NODE_SLOTS, sizeof(*node));
	if (!node)
		return NULL;
	for (uint64_t i = 0; is && i < NODE_SLOTS; i++)
		atomic_store(&node[i], is);
	atomic_store(slot, (uintptr_t)node);
	return node;
}

/*
 * Sets the slots for [first, last) in a node that begins at page `base` to v; with `only`, just
 * those that have it, which never need a further node.
 */
static int set(gdri_pages_slot *slots, unsigned int shift, uint64_t base, uint64_t first,
	       uint64_t last, uintptr_t v, uintptr_t only)
{
	uint64_t span = (uint64_t)1 << shift;

	for (uint64_t i = (first - base) >> shift; first < last; i++) {
		uint64_t at = base + (i << shift);
		uint64_t stop = at + span < last ? at + span : last;
		uintptr_t is = atomic_load(&slots[i]);

		if (node_of(is) || (!only && stop - first < span)) {
			gdri_pages_slot *node = make_node(&slots[i]);
			int rc = node ? set(node, shift - GDRI_PAGES_NODE_BITS, at, first, stop, v,
					    only)
				      : gdri_fail(ENOMEM, "no memory for a table of pages");

			if (rc)
				return rc;
		} else if (!only || is == only) {
			atomic_store(&slots[i], v);
		}
		first = stop;
	}
	return 0;
}

int gdri_pages_enter(struct gdri_pages *pages, uint64_t start, uint64_t end, void *item)
{
	return set(pages->root, GDRI_PAGES_ROOT_SHIFT, 0, start >> GPU_PAGE_SHIFT,
		   end >> GPU_PAGE_SHIFT, (uintptr_t)item + 1, 0);
}

void gdri_pages_erase(struct gdri_pages *pages, uint64_t start, uint64_t end, const void *item)
{
	(void)set(pages->root, GDRI_PAGES_ROOT_SHIFT, 0, start >> GPU_PAGE_SHIFT,
		  end >> GPU_PAGE_SHIFT, 0, (uintptr_t)item + 1);
}

static void *next(const gdri_pages_slot *slots, uint64_t count, unsigned int shift, uint64_t base,
		  uint64_t *first, uint64_t last, uint64_t *stop)
{
	for (uint64_t i = (*first - base) >> shift; i < count && base + (i << shift) < last; i++) {
		uint64_t at = base + (i << shift);
		uintptr_t v = atomic_load(&slots[i]);
		void *item;

		if (!v)
			continue;
		if (at > *first)
			*first = at;
		if (v & 1) {
			*stop = at + ((uint64_t)1 << shift);
			return (void *)(v - 1);
		}
		item = next(node_of(v), NODE_SLOTS, shift - GDRI_PAGES_NODE_BITS, at, first, last,
			    stop);
		if (item)
			return item;
	}
	return NULL;
}

void *gdri_pages_next(const struct gdri_pages *pages, uint64_t *start, uint64_t end, uint64_t *stop)
{
	uint64_t first = *start >> GPU_PAGE_SHIFT, last;
	void *item;

	if (end > GDRI_PAGES_LIMIT)
		end = GDRI_PAGES_LIMIT;
	if (*start >= end)
		return NULL;
	last = (end + GPU_PAGE_OFFSET) >> GPU_PAGE_SHIFT;
	item = next(pages->root, GDRI_PAGES_ROOT_SLOTS, GDRI_PAGES_ROOT_SHIFT, 0, &first, last,
		    stop);
	if (!item)
		return NULL;
	*start = first << GPU_PAGE_SHIFT;
	*stop = (*stop < last ? *stop : last) << GPU_PAGE_SHIFT;
	return item;
}
