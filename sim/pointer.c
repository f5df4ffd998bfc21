/* SPDX-License-Identifier: MIT */
/*
 * Pointer attributes, one and many at a time. Each kind of memory has those that it has on an H200
 * with driver 580 (2026-11-20).
 */
#include <string.h>

#include "sim.h"

static bool is_host(const struct sim_alloc *alloc)
{
	return alloc->kind == SIM_HOST || alloc->kind == SIM_REGISTERED;
}

/* The offset of ptr in its allocation, by either of its two addresses. */
static size_t offset_of(const struct sim_alloc *alloc, CUdeviceptr ptr)
{
	sim_addr host = (sim_addr)(uintptr_t)alloc->host;

	if (ptr - alloc->base < alloc->size)
		return (size_t)(ptr - alloc->base);
	return (size_t)(ptr - host);
}

static size_t width_of(CUpointer_attribute attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		return 4;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return 8;
	}
	return 0;
}

/* Of VMM memory the range is the whole reservation; cuMemGetAddressRange gives the chunk. */
static struct sim_va range_of(const struct sim_alloc *alloc)
{
	if (alloc->kind == SIM_VMM)
		return *sim_va_find(alloc->base);
	return (struct sim_va){ .base = alloc->base, .size = alloc->size };
}

static CUresult value_of(uint64_t *value, CUpointer_attribute attribute,
			 const struct sim_alloc *alloc, CUdeviceptr ptr)
{
	size_t offset = offset_of(alloc, ptr);

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*value = alloc->kind == SIM_POOL ? 0 : (uintptr_t)alloc->ctx;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*value = is_host(alloc) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*value = alloc->base + offset;
		return alloc->kind == SIM_VMM && !alloc->access[alloc->dev]
			       ? CUDA_ERROR_INVALID_VALUE
			       : CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*value = (uintptr_t)alloc->host + offset;
		return alloc->host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS: /* zeros */
		return is_host(alloc) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*value = alloc->sync_memops;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*value = alloc->buffer_id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*value = alloc->kind == SIM_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*value = (uint32_t)alloc->dev;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*value = range_of(alloc).base;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*value = range_of(alloc).size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*value = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*value = alloc->kind == SIM_VMM ? alloc->obj->prop.requestedHandleTypes : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*value = alloc->kind == SIM_DEVICE ||
			 (alloc->kind == SIM_VMM &&
			  alloc->obj->prop.allocFlags.gpuDirectRDMACapable);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: /* one pool per GPU; its handle is not NULL */
		*value = alloc->kind == SIM_POOL ? 0x7001u + (uint64_t)alloc->dev : 0;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* Writes as many bytes as the attribute has; little-endian. */
static CUresult get(void *data, CUpointer_attribute attribute, const struct sim_alloc *alloc,
		    CUdeviceptr ptr)
{
	uint64_t value[2] = { 0 };
	CUresult r = value_of(value, attribute, alloc, ptr);

	if (r == CUDA_SUCCESS)
		memcpy(data, value, width_of(attribute));
	return r;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_INIT);
	alloc = sim_find(ptr);
	if (!data || !width_of(attribute) || !alloc)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	return sim_leave(get(data, attribute, alloc, ptr));
}

/*
 * Unlike the single form, gives zero for an attribute that a pointer does not have, and accepts an
 * unknown pointer: its ordinal is -2, its host pointer the pointer itself.
 */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
				CUdeviceptr ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_INIT);
	if (!attributes || !data || count == 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	for (unsigned int i = 0; i < count; i++)
		if (!width_of(attributes[i]) || !data[i])
			return sim_leave(CUDA_ERROR_INVALID_VALUE);
	alloc = sim_find(ptr);
	for (unsigned int i = 0; i < count; i++) {
		memset(data[i], 0, width_of(attributes[i]));
		if (alloc)
			get(data[i], attributes[i], alloc, ptr);
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			memcpy(data[i], &(int){ -2 }, sizeof(int));
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			memcpy(data[i], &ptr, sizeof(ptr));
	}
	return sim_leave(CUDA_SUCCESS);
}

static CUresult set_sync_memops(struct sim_alloc *alloc, unsigned int value)
{
	if (alloc->kind == SIM_VMM && !sim_env("GDRSIM_VMM_SYNC_MEMOPS", 0))
		return CUDA_ERROR_NOT_SUPPORTED;
	alloc->sync_memops = value != 0;
	return CUDA_SUCCESS;
}

/* Needs no current context, and waits for no kernel (H100, driver 580, 2026-11-21). */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct sim_alloc *alloc;
	unsigned int flag;

	SIM_ENTER(SIM_NEED_INIT);
	alloc = sim_find(ptr);
	if (!value || !alloc || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	memcpy(&flag, value, sizeof(flag));
	return sim_leave(set_sync_memops(alloc, flag));
}
