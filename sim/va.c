/* SPDX-License-Identifier: MIT */
/*
 * The CUDA address space: one arena without access rights, so that the CPU faults on a device
 * address, and the ranges in use. First fit from the bottom: a freed address is soon used again,
 * which exposes stale caches.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim.h"

#define ARENA_GIB 256

static sim_addr arena;
static struct sim_va *ranges; /* sorted by base */
static size_t n_ranges, room;

/*
 * Calls the kernel directly: a sanitizer's mmap would need shadow memory for all of it. A smaller
 * arena is tried if address space is limited.
 */
static bool arena_make(void)
{
	size_t most = (size_t)sim_env("GDRSIM_ARENA_GIB", ARENA_GIB) << 30;

	if (arena)
		return true;
	for (size_t size = most; size && size >= most >> 4; size >>= 1) {
		long addr = syscall(SYS_mmap, NULL, size, PROT_NONE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (addr == -1)
			continue;
		arena = ((sim_addr)addr + SIM_GRANULE - 1) & ~(sim_addr)(SIM_GRANULE - 1);
		/* Two permanent ranges at either end stand for all other addresses. */
		ranges = malloc(2 * sizeof(*ranges));
		if (!ranges)
			abort();
		room = 2;
		ranges[0] = (struct sim_va){ 0, arena, false };
		ranges[1] = (struct sim_va){ (sim_addr)addr + size, 0, false };
		ranges[1].size = (size_t)(0 - ranges[1].base);
		n_ranges = 2;
		return true;
	}
	return false;
}

/* The first place for size in the gap after ranges[i], 0 when it does not fit. */
static sim_addr fit(size_t i, size_t size, size_t align, sim_addr hint)
{
	sim_addr low = ranges[i].base + ranges[i].size;
	sim_addr high = ranges[i + 1].base;
	sim_addr at = (low + align - 1) & ~(sim_addr)(align - 1);

	if (hint && hint >= low && hint < high)
		at = hint;
	else if (hint)
		return 0;
	return at >= low && at <= high && high - at >= size ? at : 0;
}

static bool insert(size_t at, struct sim_va range)
{
	if (n_ranges == room) {
		struct sim_va *more = realloc(ranges, 2 * room * sizeof(*ranges));

		if (!more)
			return false;
		ranges = more;
		room *= 2;
	}
	memmove(&ranges[at + 1], &ranges[at], (n_ranges - at) * sizeof(*ranges));
	ranges[at] = range;
	n_ranges++;
	return true;
}

sim_addr sim_va_alloc(size_t size, size_t align, sim_addr hint, bool reservation)
{
	if (!arena_make() || size == 0)
		return 0;
	if (hint % align)
		hint = 0;
	for (int pass = hint ? 0 : 1; pass < 2; pass++) {
		for (size_t i = 0; i + 1 < n_ranges; i++) {
			sim_addr at = fit(i, size, align, pass == 0 ? hint : 0);

			if (at)
				return insert(i + 1, (struct sim_va){ at, size, reservation }) ? at
											       : 0;
		}
	}
	return 0;
}

const struct sim_va *sim_va_find(sim_addr addr)
{
	size_t low = 1, high = n_ranges ? n_ranges - 1 : 0;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (addr < ranges[mid].base)
			high = mid;
		else if (addr - ranges[mid].base >= ranges[mid].size)
			low = mid + 1;
		else
			return &ranges[mid];
	}
	return NULL;
}

void sim_va_free(sim_addr base)
{
	const struct sim_va *range = sim_va_find(base);
	size_t at;

	if (!range || range->base != base)
		abort();
	at = (size_t)(range - ranges);
	memmove(&ranges[at], &ranges[at + 1], (n_ranges - at - 1) * sizeof(*ranges));
	n_ranges--;
}

bool sim_va_inside(sim_addr addr)
{
	return n_ranges && addr >= arena && addr < ranges[n_ranges - 1].base;
}
