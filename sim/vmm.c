/* SPDX-License-Identifier: MIT */
/*
 * Virtual memory management: physical memory by handle, reserved addresses, and maps of one onto
 * the other. Memory lives while it has a handle, a map or an export.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define ALIGNED(x) (((x) & (SIM_GRANULE - 1)) == 0)

static CUresult prop_check(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->win32HandleMetaData)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(prop->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	if ((int)prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
	    prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	CUresult r;

	SIM_ENTER(SIM_NEED_INIT);
	r = prop_check(prop);
	if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
			     option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*granularity = SIM_GRANULE;
	return r;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct sim_obj *obj;
	CUresult r;

	SIM_ENTER(SIM_NEED_INIT);
	r = prop_check(prop);
	if (r == CUDA_SUCCESS && (!handle || size == 0 || !ALIGNED(size) || flags))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = sim_obj_create_vmm(size, prop, &obj);
	if (r == CUDA_SUCCESS)
		*handle = obj->handle;
	return r;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sim_obj *obj;

	SIM_ENTER(SIM_NEED_INIT);
	obj = sim_obj_by_handle(handle);
	if (!obj)
		return CUDA_ERROR_INVALID_VALUE;
	if (--obj->handle_refs == 0)
		sim_obj_put(obj);
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			     unsigned long long flags)
{
	sim_addr base;

	SIM_ENTER(SIM_NEED_INIT);
	if (!ptr || size == 0 || !ALIGNED(size) || (alignment & (alignment - 1)) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (alignment < SIM_GRANULE)
		alignment = SIM_GRANULE;
	base = sim_va_alloc(size, alignment, addr, true);
	if (!base)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ptr = base;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	const struct sim_va *range;

	SIM_ENTER(SIM_NEED_INIT);
	range = sim_va_find(ptr);
	if (!range || !range->reservation || range->base != ptr || range->size != size ||
	    sim_find_in(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	sim_va_free(ptr);
	return CUDA_SUCCESS;
}

static CUresult map_chunk(sim_addr ptr, size_t size, struct sim_obj *obj)
{
	struct sim_alloc *alloc;
	CUresult r = sim_alloc_new(SIM_VMM, &alloc);

	if (r != CUDA_SUCCESS)
		return r;
	alloc->base = ptr;
	alloc->size = size;
	alloc->obj = obj;
	alloc->cpu = obj->cpu;
	alloc->dev = obj->dev;
	alloc->sync_memops = sim_env("GDRSIM_SYNC_MEMOPS", 0) != 0;
	r = sim_insert(alloc);
	if (r != CUDA_SUCCESS)
		free(alloc);
	else
		sim_obj_get(obj);
	return r;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	const struct sim_va *range;
	struct sim_obj *obj;

	SIM_ENTER(SIM_NEED_INIT);
	obj = sim_obj_by_handle(handle);
	range = sim_va_find(ptr);
	if (!obj || !range || !range->reservation || flags || size == 0 || !ALIGNED(ptr) ||
	    !ALIGNED(size) || size > range->base + range->size - ptr || sim_find_in(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (offset || size != obj->size)
		return CUDA_ERROR_NOT_SUPPORTED; /* H200, driver 580 */
	return map_chunk(ptr, size, obj);
}

/* Whether [ptr, ptr + size) is one or several whole chunks without a gap. */
static bool whole_chunks(sim_addr ptr, size_t size)
{
	sim_addr at = ptr, end = ptr + size;

	while (at < end) {
		struct sim_alloc *alloc = sim_find(at);

		if (!alloc || alloc->kind != SIM_VMM || alloc->base != at || alloc->size > end - at)
			return false;
		at += alloc->size;
	}
	return size != 0 && end > ptr;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	sim_addr end = ptr + size;

	SIM_ENTER(SIM_NEED_INIT);
	sim_drain_all();
	if (!whole_chunks(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	while (ptr < end) {
		struct sim_alloc *alloc = sim_find(ptr);

		ptr += alloc->size;
		sim_remove(alloc);
		sim_obj_put(alloc->obj);
		free(alloc);
	}
	return CUDA_SUCCESS;
}

static CUresult access_check(const CUmemAccessDesc *desc)
{
	if (desc->location.type == CU_MEM_LOCATION_TYPE_HOST ||
	    desc->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return CUDA_ERROR_NOT_SUPPORTED; /* as measured on an H200, driver 580 */
	if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(desc->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
	    desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
	    desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult r = CUDA_SUCCESS;

	SIM_ENTER(SIM_NEED_INIT);
	if (!desc || count == 0 || !whole_chunks(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
		r = access_check(&desc[i]);
	for (sim_addr at = ptr; r == CUDA_SUCCESS && at < ptr + size;) {
		struct sim_alloc *alloc = sim_find(at);

		for (size_t i = 0; i < count; i++)
			alloc->access[desc[i].location.id] = (uint8_t)desc[i].flags;
		at += alloc->size;
	}
	return r;
}

/* Gives the memory's one handle, alive again if the program had released it. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_INIT);
	alloc = sim_find((sim_addr)(uintptr_t)addr);
	if (!handle || !alloc || alloc->kind != SIM_VMM)
		return CUDA_ERROR_INVALID_VALUE;
	if (alloc->obj->handle_refs++ == 0)
		sim_obj_get(alloc->obj);
	*handle = alloc->obj->handle;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						CUmemGenericAllocationHandle handle)
{
	struct sim_obj *obj;

	SIM_ENTER(SIM_NEED_INIT);
	obj = sim_obj_by_handle(handle);
	if (!prop || !obj)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = obj->prop;
	return CUDA_SUCCESS;
}
