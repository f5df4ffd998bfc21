/* SPDX-License-Identifier: MIT */
/* Memory of barcopy_mem_alloc() and barcopy_mem_import(). */
#include "core/mem.h"

#include <stdlib.h>

#include "core/ctx.h"
#include "core/handle.h"

/* Ends with its handle. */
struct block {
	struct gdri_region region;
	struct gdri_allocation allocation; /* addr 0: an imported dma-buf */
	bool stays;
};

/*
 * Chooses an allocator. An integrated GPU has no BAR; the CPU reaches memory of cudaHostAlloc there
 * (GPUDirect RDMA guide, "Changing the allocator"). Elsewhere plain memory comes first: it is not
 * rounded up to 2 MiB, and CUDA keeps SYNC_MEMOPS for it. Only VMM memory can be exported.
 */
static int choose(struct gdri_ctx *ctx, int device, uint32_t flags, enum gdri_allocation_kind *kind)
{
	bool integrated, can_share = true;
	int rc = gdri_cuda_is_integrated(device, &integrated);

	if (rc)
		return rc;
	if (integrated && flags & BARCOPY_MEM_SHAREABLE)
		return gdri_fail(ENOTSUP, "GPU %d is integrated: its memory cannot be shared",
				 device);
	if (!integrated && flags & BARCOPY_MEM_CACHED)
		return gdri_fail(ENOTSUP,
				 "GPU %d has its own memory, whose mapping is not cached: "
				 "BARCOPY_MEM_CACHED is for integrated GPUs",
				 device);
	if (flags & BARCOPY_MEM_SHAREABLE)
		rc = gdri_cuda_can_share(device, &can_share);
	if (!rc && !can_share)
		rc = gdri_fail(ENOTSUP, "CUDA exports no memory of GPU %d as a file descriptor",
			       device);
	*kind = integrated ? GDRI_ALLOCATION_HOST : GDRI_ALLOCATION_VMM;
	if (rc || integrated || flags & BARCOPY_MEM_SHAREABLE)
		return rc;
	for (size_t i = 0; i < ctx->backends.count; i++)
		if (ctx->backends.of[i]->caps & GDRI_CAP_DEVICE_MEMORY)
			*kind = GDRI_ALLOCATION_PLAIN;
	return 0;
}

static int end_allocation(struct gdri_allocation *a, bool stays)
{
	return stays ? gdri_cuda_keep(a) : gdri_cuda_free(a);
}

static int put_block(struct gdri_region *region)
{
	struct block *block = (struct block *)region;
	struct gdri_first first = { 0 };

	gdri_first_note(&first, gdri_region_close(region));
	if (block->allocation.addr)
		gdri_first_note(&first, end_allocation(&block->allocation, block->stays));
	free(block);
	return gdri_first_failure(&first);
}

const struct gdri_region_kind gdri_kind_mem = { "barcopy_mem_alloc", "barcopy_mem_free",
						put_block };
/* GDRI_MEM_STAYS: the program does not get the handle of such memory. */
static const struct gdri_region_kind kind_ring = {
	"barcopy_queue_create", "barcopy_queue_destroy() or barcopy_port_destroy", put_block
};

/* Pins and maps an allocation, or frees it. imported: the descriptor of the memory, or NULL. */
static int map(struct gdri_ctx *ctx, struct gdri_allocation *a, bool stays,
	       const struct gdri_imported *imported, barcopy_mem_t *mem)
{
	struct gdri_pin_request request = { .addr = a->addr,
					    .size = a->size,
					    .imported = imported };
	barcopy_mem_t result = { .device_ptr = a->addr, .size = a->size };
	struct gdri_first first = { 0 };
	struct block *block = malloc(sizeof(*block));
	int rc = block ? gdri_region_open(&block->region, &ctx->backends, &request,
					  GDRI_REGION_MAPPED)
		       : gdri_fail(ENOMEM, "no memory for an allocation");

	if (rc) {
		gdri_first_note(&first, rc);
		if (a->addr)
			gdri_first_note(&first, end_allocation(a, stays));
		free(block);
		return gdri_first_failure(&first);
	}
	block->allocation = *a;
	block->stays = stays;
	block->region.kind = stays ? &kind_ring : &gdri_kind_mem;
	result.cpu_ptr = gdri_region_pointer(&block->region, a->addr);
	rc = gdri_handle_new(ctx, &block->region, a->addr, a->addr + a->size, &result.handle);
	gdri_first_note(&first, rc);
	if (rc)
		gdri_first_note(&first, put_block(&block->region));
	else
		*mem = result;
	return gdri_first_failure(&first);
}

static int alloc_kind(struct gdri_ctx *ctx, enum gdri_allocation_kind kind, int device, size_t size,
		      uint32_t flags, barcopy_mem_t *mem, bool *allocated)
{
	bool stays = flags & GDRI_MEM_STAYS;
	struct gdri_allocation a = { 0 };
	int rc = 0;

	if (!stays || !gdri_cuda_take_kept(&a, kind, device, size))
		rc = gdri_cuda_alloc(&a, kind, device, NULL, size, flags & BARCOPY_MEM_CACHED, -1);
	*allocated = !rc;
	return rc ?: map(ctx, &a, stays, NULL, mem);
}

int gdri_mem_alloc(struct gdri_ctx *ctx, int device, size_t size, uint32_t flags,
		   barcopy_mem_t *mem, bool *allocated)
{
	enum gdri_allocation_kind kind;
	int rc = choose(ctx, device, flags, &kind);

	if (rc)
		return rc;
	rc = alloc_kind(ctx, kind, device, size, flags, mem, allocated);
	/* Where the driver exports no plain memory, exportable memory can still be mapped. */
	if (rc == -ENOTSUP && kind == GDRI_ALLOCATION_PLAIN)
		rc = alloc_kind(ctx, GDRI_ALLOCATION_VMM, device, size, flags, mem, allocated);
	return rc;
}

int gdri_mem_import(struct gdri_ctx *ctx, const struct gdri_imported *imported, size_t size,
		    barcopy_mem_t *mem)
{
	struct gdri_allocation a = { .size = size };
	int rc = 0;

	if (!imported->dmabuf)
		rc = gdri_cuda_alloc(&a, GDRI_ALLOCATION_VMM, imported->device, NULL, size, false,
				     imported->fd);
	return rc ?: map(ctx, &a, false, imported, mem);
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
	return gdri_handle_leave(handle, rc);
}
