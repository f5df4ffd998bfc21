/* SPDX-License-Identifier: MIT */
/*
 * barcopy_mem_alloc(): memory that is allocated so that it can be mapped here, and mapped. It knows
 * nothing of other ranges or of the cache.
 */
#include "core/handle.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "core/ctx.h"

/* Ends with its handle. */
struct block {
	struct gdri_region region;
	struct gdri_allocation
		allocation; /* addr 0: a dma-buf, with none of CUDA's in this process */
};

/*
 * Which allocator suits this platform. An integrated GPU has no BAR, the CPU's own memory is the
 * way there (GPUDirect RDMA guide, section 13.4.1). Elsewhere plain memory is the first choice: it is
 * not rounded up to 2 MiB, and CUDA keeps SYNC_MEMOPS for it. Another process can only have VMM memory.
 */
static int choose(struct gdri_ctx *ctx, int device, uint32_t flags, enum gdri_allocation_kind *kind)
{
	bool integrated;
	int rc = gdri_cuda_is_integrated(device, &integrated);

	if (rc)
		return rc;
	*kind = integrated ? GDRI_ALLOCATION_HOST : GDRI_ALLOCATION_VMM;
	if (integrated && flags & BARCOPY_MEM_SHAREABLE)
		return gdri_fail(ENOTSUP, "GPU %d is integrated: its memory cannot be shared",
				 device);
	for (size_t i = 0; !integrated && i < ctx->backends.count; i++)
		if (ctx->backends.of[i]->caps & GDRI_CAP_DEVICE_MEMORY &&
		    !(flags & BARCOPY_MEM_SHAREABLE))
			*kind = GDRI_ALLOCATION_PLAIN;
	return 0;
}

static int put_block(struct gdri_region *region)
{
	struct block *block = (struct block *)region;

	if (gdri_region_close(region))
		gdri_log(GDRI_LOG_ERROR, "unmapping memory of barcopy_mem_alloc: %s",
			 gdri_error_text());
	if (block->allocation.addr && gdri_cuda_free(&block->allocation))
		gdri_log(GDRI_LOG_ERROR, "freeing memory of barcopy_mem_alloc: %s",
			 gdri_error_text());
	free(block);
	return 0;
}

const struct gdri_region_kind gdri_kind_mem = { "barcopy_mem_alloc", "barcopy_mem_free", false,
						put_block };

/*
 * Pins and maps what block->allocation holds (address 0 and the size alone for a dma-buf), or frees it.
 * Takes the block. rc: what came of the allocation; imported: how it came, or NULL.
 */
static int finish(struct gdri_ctx *ctx, struct block *block, int rc,
		  const struct gdri_imported *imported, barcopy_mem_t *mem)
{
	const struct gdri_allocation *a = &block->allocation;
	struct gdri_pin_request request = { .addr = a->addr,
					    .size = a->size,
					    .imported = imported };
	barcopy_mem_t result = { .device_ptr = a->addr, .size = a->size };

	if (rc)
		goto err_free;
	rc = gdri_region_open(&block->region, &ctx->backends, &request, GDRI_REGION_MAPPED);
	if (rc)
		goto err_free_memory;
	block->region.kind = &gdri_kind_mem;
	result.cpu_ptr = gdri_region_pointer(&block->region, a->addr);
	rc = gdri_handle_new(ctx, &block->region, a->addr, a->addr + a->size, &result.handle);
	if (rc) {
		put_block(&block->region);
		return rc;
	}
	*mem = result;
	return 0;

err_free_memory:
	if (a->addr)
		gdri_cuda_free(&block->allocation);
err_free:
	free(block);
	return rc;
}

static int alloc_kind(struct gdri_ctx *ctx, enum gdri_allocation_kind kind, int device, size_t size,
		      bool cached, barcopy_mem_t *mem)
{
	struct block *block = calloc(1, sizeof(*block));
	int rc;

	if (!block)
		return gdri_fail(ENOMEM, "no memory for an allocation");
	rc = gdri_cuda_alloc(&block->allocation, kind, device, NULL, size, cached);
	return finish(ctx, block, rc, NULL, mem);
}

int gdri_mem_alloc(struct gdri_ctx *ctx, int device, size_t size, uint32_t flags,
		   barcopy_mem_t *mem)
{
	enum gdri_allocation_kind kind;
	int rc = choose(ctx, device, flags, &kind);

	if (rc)
		return rc;
	if (flags & BARCOPY_MEM_CACHED && kind != GDRI_ALLOCATION_HOST)
		return gdri_fail(ENOTSUP,
				 "GPU %d has its own memory, whose mapping is not cached: "
				 "BARCOPY_MEM_CACHED is for integrated GPUs",
				 device);
	rc = alloc_kind(ctx, kind, device, size, flags & BARCOPY_MEM_CACHED, mem);
	/* Where the driver exports no plain memory, exportable memory is served all the same. */
	if (rc == -ENOTSUP && kind == GDRI_ALLOCATION_PLAIN)
		rc = alloc_kind(ctx, GDRI_ALLOCATION_VMM, device, size, false, mem);
	return rc;
}

int gdri_mem_import(struct gdri_ctx *ctx, const struct gdri_imported *imported, size_t size,
		    barcopy_mem_t *mem)
{
	struct block *block = calloc(1, sizeof(*block));
	int rc = 0;

	if (!block)
		return gdri_fail(ENOMEM, "no memory for an allocation");
	if (imported->dmabuf)
		block->allocation.size = size;
	else
		rc = gdri_cuda_import(&block->allocation, imported->device, imported->fd, size);
	return finish(ctx, block, rc, imported, mem);
}

int gdri_mem_export(gdr_t g, gdr_mh_t h, int *fd)
{
	struct gdri_handle *handle;
	struct block *block;
	uint64_t base;
	size_t size;
	int rc = gdri_handle_enter(g, h, &gdri_kind_mem, &handle);

	if (rc)
		return rc;
	block = (struct block *)handle->region;
	if (!block->allocation.addr)
		rc = gdri_fail(ENOTSUP, "this memory came as a dma-buf: pass on that descriptor");
	else if (block->allocation.kind != GDRI_ALLOCATION_VMM)
		rc = gdri_fail(ENOTSUP, "this memory cannot be shared: allocate it with "
					"BARCOPY_MEM_SHAREABLE");
	else
		rc = gdri_cuda_export_chunk(block->allocation.addr, -1, &base, &size, fd);
	gdri_handle_leave(handle);
	return rc;
}
