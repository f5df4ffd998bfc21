/* SPDX-License-Identifier: MIT */
/*
 * Memory that the CPU reaches at its own address: cuMemHostAlloc, cuMemHostRegister and managed
 * memory. Write-combined memory has another device address, which the CPU cannot use: CUDA's
 * documentation allows that, though an H200 with driver 580 uses one address for both
 * (GDRSIM_WC_SAME). If the GPU takes no host pointers (GDRSIM_HOST_POINTER=0), all host memory has.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

/* Whether the device address of this memory differs from its CPU address. */
static bool other_address(enum sim_kind kind, bool wc)
{
	if (kind != SIM_MANAGED && !sim_env("GDRSIM_HOST_POINTER", 1))
		return true;
	return wc && !sim_env("GDRSIM_WC_SAME", 0);
}

/* Adds the allocation to the table; on failure it remains the caller's. */
static CUresult host_insert(struct sim_alloc *alloc, bool other)
{
	CUresult r;

	alloc->base = (sim_addr)(uintptr_t)alloc->host;
	if (other)
		alloc->base = sim_va_alloc(alloc->size, SIM_GRANULE, 0, false);
	r = alloc->base ? sim_insert(alloc) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS && alloc->base && other)
		sim_va_free(alloc->base);
	return r;
}

static CUresult host_alloc(enum sim_kind kind, size_t size, unsigned int flags, char **out)
{
	bool wc = kind == SIM_HOST && (flags & CU_MEMHOSTALLOC_WRITECOMBINED);
	struct sim_block like = { .dev = -1, .wc = wc, .shared = size < SIM_PAGE * 8 }, *block;
	struct sim_alloc *alloc;
	CUresult r = sim_alloc_new(kind, &alloc);
	sim_addr at;

	if (r != CUDA_SUCCESS)
		return r;
	at = sim_block_place(&like, size, &block);
	if (!at) {
		free(alloc);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	alloc->host = (char *)(uintptr_t)at;
	alloc->cpu = alloc->host;
	alloc->size = size;
	alloc->block = block->base;
	alloc->dev = sim_ctx()->dev;
	alloc->ctx = sim_ctx();
	alloc->host_flags = flags;
	r = host_insert(alloc, other_address(kind, wc));
	if (r != CUDA_SUCCESS) {
		free(alloc);
		sim_block_put(block);
		return r;
	}
	block->allocs++;
	*out = alloc->host;
	return CUDA_SUCCESS;
}

void sim_free_host(struct sim_alloc *alloc)
{
	sim_remove(alloc);
	if (alloc->base != (sim_addr)(uintptr_t)alloc->host)
		sim_va_free(alloc->base);
	if (alloc->kind != SIM_REGISTERED)
		sim_block_leave(alloc);
	free(alloc);
}

CUresult cuMemHostAlloc(void **ptr, size_t size, unsigned int flags)
{
	char *at;
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!ptr || size == 0 || (flags & ~0x7u))
		return CUDA_ERROR_INVALID_VALUE;
	/* always mapped, and not reported as portable (H200, driver 580, 2026-11-20) */
	flags = (flags & ~(unsigned int)CU_MEMHOSTALLOC_PORTABLE) | CU_MEMHOSTALLOC_DEVICEMAP;
	r = host_alloc(SIM_HOST, size, flags, &at);
	if (r == CUDA_SUCCESS)
		*ptr = at;
	return r;
}

CUresult cuMemFreeHost(void *ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_INIT);
	sim_drain_all();
	alloc = sim_find((sim_addr)(uintptr_t)ptr);
	if (!alloc || alloc->kind != SIM_HOST || alloc->host != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	sim_free_host(alloc);
	return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
	char *at;
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!ptr || size == 0 || flags != CU_MEM_ATTACH_GLOBAL)
		return CUDA_ERROR_INVALID_VALUE;
	r = host_alloc(SIM_MANAGED, size, 0, &at);
	if (r == CUDA_SUCCESS)
		*ptr = (sim_addr)(uintptr_t)at;
	return r;
}

CUresult cuMemHostRegister_v2(void *ptr, size_t size, unsigned int flags)
{
	sim_addr base = (sim_addr)(uintptr_t)ptr;
	struct sim_alloc *alloc;
	unsigned char resident;
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!ptr || size == 0 || (flags & ~0xfu))
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_find_in(base, size))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	/* mincore() fails where nothing is mapped. */
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

CUresult cuMemHostUnregister(void *ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_CONTEXT);
	sim_drain_all();
	alloc = sim_find((sim_addr)(uintptr_t)ptr);
	if (!alloc || alloc->kind != SIM_REGISTERED || alloc->host != ptr)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	sim_free_host(alloc);
	return CUDA_SUCCESS;
}

/* The allocation of a CPU pointer, which a device address of write-combined memory is not. */
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
		return CUDA_ERROR_INVALID_VALUE;
	*dptr = alloc->base + (sim_addr)((char *)ptr - alloc->host);
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_CONTEXT);
	alloc = by_host(ptr);
	if (!flags || !alloc)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = alloc->host_flags;
	return CUDA_SUCCESS;
}
