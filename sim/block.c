/* SPDX-License-Identifier: MIT */
/*
 * Blocks of addresses, from which several small allocations take places 512 bytes apart, as on the
 * real driver; a larger allocation has a block to itself. Device memory's block has an object
 * behind it, host memory's has pages.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "sim.h"

#define SMALL_ALIGN ((size_t)512)

static struct sim_block *blocks;

static size_t round_up(size_t size, size_t to)
{
	return (size + to - 1) / to * to;
}

/* Maps anonymous pages over a range of the arena. */
static bool place_pages(const struct sim_block *block, int prot, int flags)
{
	void *at = (void *)(uintptr_t)block->base;
	bool placed;

	sim_rm_own(true);
	placed = mmap(at, block->size, prot, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
	sim_rm_own(false);
	return placed;
}

static bool back(struct sim_block *block)
{
	if (block->dev < 0)
		return place_pages(block, PROT_READ | PROT_WRITE, MAP_SHARED);
	return sim_obj_create(block->dev, block->size, &block->obj) == CUDA_SUCCESS;
}

static struct sim_block *block_new(const struct sim_block *like, size_t size)
{
	struct sim_block *block = malloc(sizeof(*block));

	if (!block)
		return NULL;
	*block = *like;
	block->size = size;
	block->base = sim_va_alloc(size, SIM_GRANULE, 0, false);
	if (!block->base)
		goto err_free;
	if (!back(block))
		goto err_va;
	block->next = blocks;
	blocks = block;
	return block;

err_va:
	sim_va_free(block->base);
err_free:
	free(block);
	return NULL;
}

/* The lowest free place in the block; 0: there is none. */
static sim_addr place_in(const struct sim_block *block, size_t size)
{
	sim_addr at = block->base, end = at + block->size, base;

	while (end - at >= size) {
		struct sim_alloc *next = sim_find_next(at, &base);

		if (!next || base >= end || base - at >= size)
			return at;
		at = base + round_up(next->size, SMALL_ALIGN);
	}
	return 0;
}

sim_addr sim_block_place(const struct sim_block *like, size_t size, struct sim_block **out)
{
	size_t unit = like->dev < 0 ? SIM_PAGE : SIM_GRANULE;
	struct sim_block *block;
	sim_addr at;

	for (block = like->shared ? blocks : NULL; block; block = block->next) {
		if (!block->shared || block->kind != like->kind || block->dev != like->dev ||
		    block->wc != like->wc)
			continue;
		at = place_in(block, size);
		if (at) {
			*out = block;
			return at;
		}
	}
	*out = block_new(like, like->shared ? SIM_GRANULE : round_up(size, unit));
	return *out ? (*out)->base : 0;
}

void sim_block_put(struct sim_block *block)
{
	struct sim_block **link = &blocks;

	if (block->allocs)
		return;
	while (*link != block)
		link = &(*link)->next;
	*link = block->next;
	/* Gives the range back to the arena. */
	if (!block->obj && !place_pages(block, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE))
		abort();
	sim_va_free(block->base);
	if (block->obj)
		sim_obj_put(block->obj);
	free(block);
}

void sim_block_leave(const struct sim_alloc *alloc)
{
	struct sim_block *block = blocks;

	while (block->base != alloc->block)
		block = block->next;
	block->allocs--;
	sim_block_put(block);
}
