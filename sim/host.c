/* SPDX-License-Identifier: MIT */
/*
 * Memory that the CPU reaches at its own address: cuMemHostAlloc, cuMemHostRegister and managed
 * memory. Host allocations lie in 2 MiB blocks, small ones 512 bytes apart in one page, as on the
 * real driver. Write-combined memory has a device address of its own, which the CPU cannot use:
 * CUDA's documentation allows that, though an H200 with driver 580 uses one address for both
 * (GDRSIM_WC_SAME). Where the GPU cannot take host pointers (GDRSIM_HOST_POINTER=0) all of it has.
 * It knows nothing of device memory.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

#define SMALL_ALIGN ((size_t)512)

struct host_block {
	struct host_block *next;
	char *base;
	size_t size;
	bool shared; /* several small allocations */
	bool wc; /* write-combined ones have blocks of their own (H200, 2026-11-20) */
	unsigned int allocs;
};

static struct host_block *blocks;

static size_t round_up(size_t size, size_t to)
{
	return (size + to - 1) / to * to;
}

/* Pages of no file over a range of the arena. */
static bool place(void *at, size_t size, int prot, int flags)
{
	void *map;

	sim_rm_own(true);
	map = mmap(at, size, prot, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	sim_rm_own(false);
	return map == MAP_FAILED;
}

static struct host_block *block_new(size_t size, bool shared, bool wc)
{
	struct host_block *block = calloc(1, sizeof(*block));
	sim_addr base;

	if (!block)
		return NULL;
	base = sim_va_alloc(size, SIM_GRANULE, 0, false);
	if (!base)
		goto err_free;
	block->base = (char *)(uintptr_t)base;
	if (place(block->base, size, PROT_READ | PROT_WRITE, MAP_SHARED))
		goto err_va;
	block->size = size;
	block->shared = shared;
	block->wc = wc;
	block->next = blocks;
	blocks = block;
	return block;
err_va:
	sim_va_free(base);
err_free:
	free(block);
	return NULL;
}

static void block_put(struct host_block *block)
{
	struct host_block **link = &blocks;

	if (block->allocs)
		return;
	while (*link != block)
		link = &(*link)->next;
	*link = block->next;
	/* back to being part of the arena */
	if (place(block->base, block->size, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE))
		abort();
	sim_va_free((sim_addr)(uintptr_t)block->base);
	free(block);
}

static char *place_in(const struct host_block *block, size_t size)
{
	sim_addr at = (sim_addr)(uintptr_t)block->base, end = at + block->size;

	while (end - at >= size) {
		sim_addr base;
		struct sim_alloc *next = sim_find_next(at, &base);

		if (!next || base >= end || base - at >= size)
			return (char *)(uintptr_t)at;
		at = base + round_up(next->size, SMALL_ALIGN);
	}
	return NULL;
}

static char *host_place(size_t size, bool wc, struct host_block **out)
{
	bool shared = size < SIM_PAGE * 8;
	struct host_block *block = NULL;
	char *at = NULL;

	for (block = shared ? blocks : NULL; block; block = block->next) {
		at = block->shared && block->wc == wc ? place_in(block, size) : NULL;
		if (at)
			break;
	}
	if (!block) {
		block = block_new(shared ? SIM_GRANULE : round_up(size, SIM_PAGE), shared, wc);
		at = block ? block->base : NULL;
	}
	*out = block;
	return at;
}

/* Does the device know this memory by an address of its own? */
static bool other_address(enum sim_kind kind, bool wc)
{
	if (kind != SIM_MANAGED && !sim_env("GDRSIM_HOST_POINTER", 1))
		return true;
	return wc && !sim_env("GDRSIM_WC_SAME", 0);
}

/* Into the table, under its device address; the allocation stays the caller's on failure. */
static CUresult host_insert(struct sim_alloc *alloc, bool other)
{
	CUresult r;

	alloc->base = (sim_addr)(uintptr_t)alloc->host;
	if (other)
		alloc->base = sim_va_alloc(round_up(alloc->size, SIM_PAGE), SIM_GRANULE, 0, false);
	r = alloc->base ? sim_insert(alloc) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS && alloc->base && other)
		sim_va_free(alloc->base);
	return r;
}

static CUresult host_alloc(enum sim_kind kind, size_t size, unsigned int flags, char **out)
{
	struct host_block *block;
	struct sim_alloc *alloc;
	CUresult r = sim_alloc_new(kind, &alloc);
	bool wc = kind == SIM_HOST && (flags & CU_MEMHOSTALLOC_WRITECOMBINED);
	char *at;

	if (r != CUDA_SUCCESS)
		return r;
	at = host_place(size, wc, &block);
	if (!at) {
		free(alloc);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	alloc->host = at;
	alloc->cpu = at;
	alloc->size = size;
	alloc->block = (sim_addr)(uintptr_t)block->base;
	alloc->dev = sim_ctx()->dev;
	alloc->ctx = sim_ctx();
	alloc->host_flags = flags;
	r = host_insert(alloc, other_address(kind, wc));
	if (r != CUDA_SUCCESS) {
		free(alloc);
		block_put(block);
		return r;
	}
	block->allocs++;
	*out = at;
	return CUDA_SUCCESS;
}

void sim_free_host(struct sim_alloc *alloc)
{
	struct host_block *block = blocks;

	sim_remove(alloc);
	if (alloc->base != (sim_addr)(uintptr_t)alloc->host)
		sim_va_free(alloc->base);
	if (alloc->kind != SIM_REGISTERED) {
		while ((sim_addr)(uintptr_t)block->base != alloc->block)
			block = block->next;
		block->allocs--;
		block_put(block);
	}
	free(alloc);
}

CUresult cuMemHostAlloc(void **ptr, size_t size, unsigned int flags)
{
	char *at;
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!ptr || size == 0 || (flags & ~0x7u))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	/* always mapped, and not said to be portable (H200, driver 580, 2026-11-20) */
	flags = (flags & ~(unsigned int)CU_MEMHOSTALLOC_PORTABLE) | CU_MEMHOSTALLOC_DEVICEMAP;
	r = host_alloc(SIM_HOST, size, flags, &at);
	if (r == CUDA_SUCCESS)
		*ptr = at;
	return sim_leave(r);
}

CUresult cuMemFreeHost(void *ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_INIT);
	sim_drain_all();
	alloc = sim_find((sim_addr)(uintptr_t)ptr);
	if (!alloc || alloc->kind != SIM_HOST || alloc->host != ptr)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	sim_free_host(alloc);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
	char *at;
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!ptr || size == 0 || flags != CU_MEM_ATTACH_GLOBAL)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = host_alloc(SIM_MANAGED, size, 0, &at);
	if (r == CUDA_SUCCESS)
		*ptr = (sim_addr)(uintptr_t)at;
	return sim_leave(r);
}

static CUresult host_register(char *ptr, size_t size, unsigned int flags)
{
	sim_addr base = (sim_addr)(uintptr_t)ptr;
	struct sim_alloc *alloc;
	unsigned char resident;
	CUresult r;

	if (!ptr || size == 0 || (flags & ~0xfu))
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_find_in(base, size))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	/* mincore fails where nothing is mapped */
	if (mincore((void *)((uintptr_t)ptr & ~(SIM_PAGE - 1)), 1, &resident))
		return CUDA_ERROR_INVALID_VALUE;
	r = sim_alloc_new(SIM_REGISTERED, &alloc);
	if (r != CUDA_SUCCESS)
		return r;
	alloc->host = ptr;
	alloc->cpu = ptr;
	alloc->size = size;
	alloc->dev = sim_ctx()->dev;
	alloc->ctx = sim_ctx();
	alloc->host_flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
	r = host_insert(alloc, other_address(SIM_REGISTERED, false));
	if (r != CUDA_SUCCESS)
		free(alloc);
	return r;
}

CUresult cuMemHostRegister_v2(void *ptr, size_t size, unsigned int flags)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	return sim_leave(host_register(ptr, size, flags));
}

CUresult cuMemHostUnregister(void *ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_CONTEXT);
	sim_drain_all();
	alloc = sim_find((sim_addr)(uintptr_t)ptr);
	if (!alloc || alloc->kind != SIM_REGISTERED || alloc->host != ptr)
		return sim_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	sim_free_host(alloc);
	return sim_leave(CUDA_SUCCESS);
}

/* The allocation of a CPU pointer; a device address of write-combined memory is none. */
static struct sim_alloc *by_host(const void *ptr)
{
	struct sim_alloc *alloc = sim_find((sim_addr)(uintptr_t)ptr);

	if (!alloc || (alloc->kind != SIM_HOST && alloc->kind != SIM_REGISTERED))
		return NULL;
	return (uintptr_t)ptr - (uintptr_t)alloc->host < alloc->size ? alloc : NULL;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *dptr, void *ptr, unsigned int flags)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_CONTEXT);
	alloc = by_host(ptr);
	if (!dptr || !alloc || flags)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*dptr = alloc->base + (sim_addr)((char *)ptr - alloc->host);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_CONTEXT);
	alloc = by_host(ptr);
	if (!flags || !alloc)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = alloc->host_flags;
	return sim_leave(CUDA_SUCCESS);
}
