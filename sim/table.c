/* SPDX-License-Identifier: MIT */
/*
 * A sorted table from address ranges to allocations. An allocation whose CPU address differs from
 * its device address has two entries.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct entry {
	sim_addr base;
	size_t size;
	struct sim_alloc *alloc;
};

static struct entry *entries;
static size_t n_entries, room;
static unsigned long long next_id = 1;

/* Index of the first entry that ends after addr. */
static size_t lower(sim_addr addr)
{
	size_t low = 0, high = n_entries;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (entries[mid].base + entries[mid].size <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct sim_alloc *sim_find(sim_addr addr)
{
	size_t at = lower(addr);

	return at < n_entries && entries[at].base <= addr ? entries[at].alloc : NULL;
}

struct sim_alloc *sim_find_next(sim_addr addr, sim_addr *base)
{
	size_t at = lower(addr);

	if (at < n_entries && entries[at].base < addr)
		at++;
	if (at == n_entries)
		return NULL;
	*base = entries[at].base;
	return entries[at].alloc;
}

struct sim_alloc *sim_find_in(sim_addr addr, size_t size)
{
	size_t at = lower(addr);

	if (at == n_entries || (entries[at].base > addr && entries[at].base - addr >= size))
		return NULL;
	return entries[at].alloc;
}

struct sim_alloc *sim_find_of(CUcontext ctx)
{
	for (size_t i = 0; i < n_entries; i++)
		if (entries[i].alloc->ctx == ctx)
			return entries[i].alloc;
	return NULL;
}

static CUresult insert(sim_addr base, size_t size, struct sim_alloc *alloc)
{
	size_t at = lower(base);

	if (n_entries == room) {
		struct entry *more = realloc(entries, (2 * room + 16) * sizeof(*entries));

		if (!more)
			return CUDA_ERROR_OUT_OF_MEMORY;
		entries = more;
		room = 2 * room + 16;
	}
	memmove(&entries[at + 1], &entries[at], (n_entries - at) * sizeof(*entries));
	entries[at] = (struct entry){ base, size, alloc };
	n_entries++;
	return CUDA_SUCCESS;
}

static void erase(sim_addr base)
{
	size_t at = lower(base);

	memmove(&entries[at], &entries[at + 1], (n_entries - at - 1) * sizeof(*entries));
	n_entries--;
}

CUresult sim_alloc_new(enum sim_kind kind, struct sim_alloc **out)
{
	struct sim_alloc *alloc = calloc(1, sizeof(*alloc));

	if (!alloc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	alloc->kind = kind;
	*out = alloc;
	return CUDA_SUCCESS;
}

CUresult sim_insert(struct sim_alloc *alloc)
{
	sim_addr host = (sim_addr)(uintptr_t)alloc->host;
	CUresult r = insert(alloc->base, alloc->size, alloc);

	if (r == CUDA_SUCCESS && host && host != alloc->base) {
		r = insert(host, alloc->size, alloc);
		if (r != CUDA_SUCCESS)
			erase(alloc->base);
	}
	if (r == CUDA_SUCCESS)
		alloc->buffer_id = next_id++;
	return r;
}

void sim_remove(struct sim_alloc *alloc)
{
	sim_addr host = (sim_addr)(uintptr_t)alloc->host;

	erase(alloc->base);
	if (host && host != alloc->base)
		erase(host);
	sim_pins_freed(alloc->base, alloc->size);
}
