/* SPDX-License-Identifier: MIT */
/* Pointer attributes of each kind of memory, as on an H200 with driver 580 (2026-11-20). */
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

/* The range of VMM memory is the whole reservation, while cuMemGetAddressRange gives the chunk. */
static struct sim_va range_of(const struct sim_alloc *alloc)
{
	if (alloc->kind == SIM_VMM)
		return *sim_va_find(alloc->base);
	return (struct sim_va){ .base = alloc->base, .size = alloc->size };
}

/* Whether a pointer into this memory has the attribute. */
static bool has(CUpointer_attribute attribute, const struct sim_alloc *alloc)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return alloc->kind != SIM_VMM || alloc->access[alloc->dev];
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return alloc->host;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return !is_host(alloc);
	default:
		return true;
	}
}

static uint64_t value_of(CUpointer_attribute attribute, const struct sim_alloc *alloc,
			 CUdeviceptr ptr)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		return alloc->kind == SIM_POOL ? 0 : (uintptr_t)alloc->ctx;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return is_host(alloc) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return alloc->base + offset_of(alloc, ptr);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return (uintptr_t)alloc->host + offset_of(alloc, ptr);
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return 0;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		return alloc->sync_memops;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		return alloc->buffer_id;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		return alloc->kind == SIM_MANAGED;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return (uint32_t)alloc->dev;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		return range_of(alloc).base;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		return range_of(alloc).size;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		return 1;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		return alloc->kind == SIM_VMM ? alloc->obj->prop.requestedHandleTypes : 0;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		return alloc->kind == SIM_DEVICE ||
		       (alloc->kind == SIM_VMM && alloc->obj->prop.allocFlags.gpuDirectRDMACapable);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: /* one pool per GPU; its handle is not NULL */
		return alloc->kind == SIM_POOL ? 0x7001u + (uint64_t)alloc->dev : 0;
	}
	return 0;
}

/* Writes as many bytes as the attribute has; little-endian. */
static CUresult get(void *data, CUpointer_attribute attribute, const struct sim_alloc *alloc,
		    CUdeviceptr ptr)
{
	uint64_t value[2] = { value_of(attribute, alloc, ptr) };

	if (!has(attribute, alloc))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, value, width_of(attribute));
	return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct sim_alloc *alloc;

	SIM_ENTER(SIM_NEED_INIT);
	alloc = sim_find(ptr);
	if (!data || !width_of(attribute) || !alloc)
		return CUDA_ERROR_INVALID_VALUE;
	return get(data, attribute, alloc, ptr);
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
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		if (!width_of(attributes[i]) || !data[i])
			return CUDA_ERROR_INVALID_VALUE;
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
		return CUDA_ERROR_INVALID_VALUE;
	if (alloc->kind == SIM_VMM && !sim_env("GDRSIM_VMM_SYNC_MEMOPS", 0))
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(&flag, value, sizeof(flag));
	alloc->sync_memops = flag != 0;
	return CUDA_SUCCESS;
}
