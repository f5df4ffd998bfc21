/* SPDX-License-Identifier: MIT */
/*
 * Device memory that is not VMM: cuMemAlloc and the default pool of cuMemAllocAsync. Two small
 * allocations may lie in one 64 KiB GPU page, as on the real driver (block.c).
 */
#include <stdlib.h>

#include "sim.h"

#define SMALL ((size_t)1 << 20) /* from here on a block of its own */

static CUresult device_alloc(enum sim_kind kind, CUdeviceptr *ptr, size_t size)
{
	CUcontext ctx = sim_ctx();
	struct sim_block like = { .kind = kind, .dev = ctx->dev, .shared = size < SMALL }, *block;
	struct sim_alloc *alloc;
	sim_addr at;
	CUresult r;

	if (!ptr || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > sim.gpu[ctx->dev].mem_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	at = sim_block_place(&like, size, &block);
	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = sim_alloc_new(kind, &alloc);
	if (r != CUDA_SUCCESS) {
		sim_block_put(block);
		return r;
	}
	alloc->base = at;
	alloc->size = size;
	alloc->obj = block->obj;
	alloc->obj_offset = (size_t)(at - block->base);
	alloc->cpu = block->obj->cpu + alloc->obj_offset;
	alloc->block = block->base;
	alloc->block_size = block->size;
	alloc->dev = ctx->dev;
	alloc->ctx = ctx;
	alloc->sync_memops = sim_env("GDRSIM_SYNC_MEMOPS", 0) != 0;
	r = sim_insert(alloc);
	if (r != CUDA_SUCCESS) {
		free(alloc);
		sim_block_put(block);
		return r;
	}
	block->allocs++;
	*ptr = at;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	r = sim_capture_forbids();
	return r == CUDA_SUCCESS ? device_alloc(SIM_DEVICE, ptr, size) : r;
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t size, CUstream stream)
{
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	r = sim_stream(stream, &stream);
	return r == CUDA_SUCCESS ? device_alloc(SIM_POOL, ptr, size) : r;
}

/* The caller has drained the streams: nothing is still on its way to the memory. */
void sim_free(struct sim_alloc *alloc)
{
	sim_remove(alloc);
	sim_block_leave(alloc);
	free(alloc);
}

/* Freeing needs no current context (H200, driver 580, 2026-11-20). */
CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_INIT);
	if (!ptr)
		return CUDA_SUCCESS;
	sim_drain_all();
	alloc = sim_find(ptr);
	if (!alloc || alloc->base != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (alloc->kind == SIM_DEVICE || alloc->kind == SIM_POOL)
		sim_free(alloc);
	else if (alloc->kind == SIM_MANAGED)
		sim_free_host(alloc);
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* Waits for its stream only, also for memory of cuMemAlloc (H100, driver 580, 2026-11-22). */
CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	struct sim_alloc *alloc;
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	r = sim_stream(stream, &stream);
	if (r != CUDA_SUCCESS)
		return r;
	sim_drain_stream(stream);
	alloc = sim_find(ptr);
	if (!alloc || alloc->base != ptr || (alloc->kind != SIM_POOL && alloc->kind != SIM_DEVICE))
		return CUDA_ERROR_INVALID_VALUE;
	sim_free(alloc);
	return CUDA_SUCCESS;
}

/* Of the current context's device, whole blocks of it. */
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUdevice dev;

	SIM_ENTER(SIM_NEED_CONTEXT);
	sim_dmabuf_sweep();
	dev = sim_ctx()->dev;
	*total = sim.gpu[dev].mem_bytes;
	*free_bytes = *total - (size_t)sim.used_bytes[dev];
	return CUDA_SUCCESS;
}

/*
 * Whether cuMemGetAddressRange answers in the current context: for device memory on its device, for
 * VMM memory on devices with access, for host memory on any (two H200, driver 580, 2026-11-21).
 */
static bool answers_here(const struct sim_alloc *alloc)
{
	CUdevice dev = sim_ctx()->dev;

	if (alloc->kind == SIM_VMM)
		return alloc->access[dev];
	return alloc->kind != SIM_DEVICE || alloc->dev == dev;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_CONTEXT);
	alloc = sim_find(ptr);
	if (!alloc || !answers_here(alloc))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = alloc->base;
	if (size)
		*size = alloc->size;
	return CUDA_SUCCESS;
}

/* The end of a context frees its memory; VMM memory belongs to none. */
void sim_free_of_context(CUcontext ctx)
{
	struct sim_alloc *alloc;

	while ((alloc = sim_find_of(ctx))) {
		if (alloc->kind == SIM_DEVICE || alloc->kind == SIM_POOL)
			sim_free(alloc);
		else
			sim_free_host(alloc);
	}
}
