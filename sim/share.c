/* SPDX-License-Identifier: MIT */
/*
 * GPU memory as descriptors: VMM memory exported and imported, also between processes, and the
 * dma-buf of an address range.
 */
#include <string.h>
#include <unistd.h>

#include "sim.h"

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	struct sim_obj *obj;
	int fd;

	SIM_ENTER(SIM_NEED_INIT);
	obj = sim_obj_by_handle(handle);
	if (!shareable || !obj || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(obj->prop.requestedHandleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	fd = sim_memfd_handout(obj->fd);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)shareable = fd;
	return CUDA_SUCCESS;
}

/* os_handle is the descriptor itself; it stays the caller's. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
					CUmemAllocationHandleType type)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };
	struct sim_memfd info;
	struct sim_obj *obj;
	CUresult r;
	int opened;

	SIM_ENTER(SIM_NEED_INIT);
	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	opened = sim_memfd_open((int)(intptr_t)os_handle, &info);
	if (opened < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(info.device)) {
		close(opened);
		return CUDA_ERROR_INVALID_DEVICE;
	}
	/*
	 * The memory is the exporter's: RM's duplicate shares its descriptor (memCopyConstruct_IMPL(),
	 * mem.c of open-gpu-kernel-modules), so it is as suitable for GPUDirect RDMA.
	 */
	prop.allocFlags.gpuDirectRDMACapable = (unsigned char)info.rdma;
	/* An imported handle cannot be exported again (H200, driver 580). */
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = info.device;
	r = sim_obj_adopt(opened, info.size, &prop, &obj);
	if (r == CUDA_SUCCESS)
		*handle = obj->handle;
	else
		close(opened);
	return r;
}

/*
 * The memory behind [ptr, ptr + size). For memory that is not VMM, an allocation at ptr, or a whole
 * one in the range, is enough: the other bytes of its block, neighbours and rounding, belong to the
 * driver (cuMemAlloc and pools, driver 580.159.04, 2026-11-23, 240 ranges each).
 */
static CUresult range_pieces(sim_addr ptr, size_t size, struct sim_piece *pieces, unsigned int *n)
{
	struct sim_alloc *alloc = sim_find_in(ptr, size);
	sim_addr end = ptr + size;

	if (!alloc || !alloc->obj)
		return CUDA_ERROR_INVALID_VALUE;
	if (alloc->dev != sim_ctx()->dev)
		return CUDA_ERROR_INVALID_VALUE;
	*n = 0;
	if (alloc->kind != SIM_VMM) {
		if (ptr < alloc->block || end > alloc->block + alloc->block_size ||
		    (ptr < alloc->base && end < alloc->base + alloc->size))
			return CUDA_ERROR_INVALID_VALUE;
		pieces[(*n)++] =
			(struct sim_piece){ alloc->obj, (size_t)(ptr - alloc->block), size };
		return CUDA_SUCCESS;
	}
	for (sim_addr at = ptr; at < end;) {
		struct sim_alloc *chunk = sim_find(at);
		size_t offset, len;

		if (!chunk || chunk->kind != SIM_VMM || *n == SIM_MAX_PIECES ||
		    memcmp(&chunk->obj->prop, &alloc->obj->prop, sizeof(chunk->obj->prop)) != 0)
			return CUDA_ERROR_INVALID_VALUE;
		offset = (size_t)(at - chunk->base);
		len = chunk->size - offset;
		if (len > end - at)
			len = (size_t)(end - at);
		pieces[(*n)++] = (struct sim_piece){ chunk->obj, offset, len };
		at += len;
	}
	return CUDA_SUCCESS;
}

/* A discrete GPU's dma-buf can be mapped from CUDA 13.3 on. */
static bool mappable(void)
{
	return sim_env("GDRSIM_DMABUF_MMAP", sim_driver_version() >= 13030) != 0;
}

/*
 * The size of the real driver's objects: 32 MiB in a pool (40 MiB of cuMemAllocAsync were two
 * objects on an H200, driver 580); 0: one object for all.
 */
static size_t object_size(const struct sim_alloc *alloc)
{
	long mib = sim_env("GDRSIM_RM_OBJECT_MIB", alloc->kind == SIM_POOL ? 32 : 0);

	return alloc->kind == SIM_VMM ? 0 : (size_t)mib << 20;
}

static CUresult export_range(sim_addr ptr, size_t size, bool pcie, int *fd)
{
	static struct sim_piece pieces[SIM_MAX_PIECES]; /* under the lock */
	const struct sim_alloc *alloc = sim_find_in(ptr, size);
	size_t first, object;
	int exported = -1;
	unsigned int n;
	CUresult r;

	r = range_pieces(ptr, size, pieces, &n);
	if (r == CUDA_SUCCESS && sim_rm_running())
		r = sim_rm_export(pieces, n, object_size(alloc), alloc->kind == SIM_POOL, pcie,
				  &exported);
	if (r != CUDA_SUCCESS)
		return r;
	first = pieces[0].size;
	object = object_size(alloc);
	if (object && object - pieces[0].offset % object < first)
		first = object - pieces[0].offset % object;
	r = sim_dmabuf_create(pieces, n, first, mappable(), fd);
	if (r != CUDA_SUCCESS && exported >= 0)
		close(exported);
	else if (exported >= 0)
		sim_rm_replace(exported, fd);
	return r;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t size,
				       CUmemRangeHandleType type, unsigned long long flags)
{
	CUresult r;
	int fd;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || size == 0 || ptr % SIM_PAGE ||
	    size % SIM_PAGE || (flags & ~CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE))
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_exports_dmabuf() || (flags && !sim_env("GDRSIM_DMABUF_PCIE", 0)))
		return CUDA_ERROR_NOT_SUPPORTED;
	r = export_range(ptr, size, flags != 0, &fd);
	if (r == CUDA_SUCCESS)
		*(int *)handle = fd;
	return r;
}
