/* SPDX-License-Identifier: MIT */
/*
 * Pointer attributes, one and many at a time; which of them each kind of memory has is as on an
 * H200 with driver 580 (2026-11-20). It knows nothing of how memory is made.
 */
#include <string.h>

#include "sim.h"

static bool is_host(const struct sim_alloc *alloc)
{
	return alloc->kind == SIM_HOST || alloc->kind == SIM_REGISTERED;
}

/* How far ptr lies in its allocation, by whichever of its two addresses. */
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
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return 8;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		return 4;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
	}
	return 0;
}

static void put4(void *data, uint32_t value)
{
	memcpy(data, &value, sizeof(value));
}

static void put8(void *data, uint64_t value)
{
	memcpy(data, &value, sizeof(value));
}

/* Of VMM memory the range is the whole reservation; cuMemGetAddressRange gives the chunk. */
static struct sim_va range_of(const struct sim_alloc *alloc)
{
	if (alloc->kind == SIM_VMM)
		return *sim_va_find(alloc->base);
	return (struct sim_va){ .base = alloc->base, .size = alloc->size };
}

static CUresult get(void *data, CUpointer_attribute attribute, const struct sim_alloc *alloc,
		    CUdeviceptr ptr)
{
	size_t offset = offset_of(alloc, ptr);

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		put8(data, alloc->kind == SIM_POOL ? 0 : (uint64_t)(uintptr_t)alloc->ctx);
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		put4(data, is_host(alloc) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		if (alloc->kind == SIM_VMM && !alloc->access[alloc->dev])
			return CUDA_ERROR_INVALID_VALUE;
		put8(data, alloc->base + offset);
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!alloc->host)
			return CUDA_ERROR_INVALID_VALUE;
		put8(data, (uint64_t)(uintptr_t)(alloc->host + offset));
		break;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		if (is_host(alloc))
			return CUDA_ERROR_INVALID_VALUE;
		memset(data, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		put4(data, alloc->sync_memops);
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		put8(data, alloc->buffer_id);
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		put4(data, alloc->kind == SIM_MANAGED);
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		put4(data, (uint32_t)alloc->dev);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		put8(data, range_of(alloc).base);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		put8(data, range_of(alloc).size);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		put4(data, 1);
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		put8(data, alloc->kind == SIM_VMM ? alloc->obj->prop.requestedHandleTypes : 0);
		break;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		put4(data, alloc->kind == SIM_DEVICE ||
				   (alloc->kind == SIM_VMM &&
				    alloc->obj->prop.allocFlags.gpuDirectRDMACapable));
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		/* one pool per GPU: its handle need only differ from NULL and from the others */
		put8(data, alloc->kind == SIM_POOL ? 0x7001u + (uint64_t)alloc->dev : 0);
		break;
	}
	return CUDA_SUCCESS;
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
 * Unlike the single form: what a pointer does not have is zero, and an unknown pointer is fine.
 * For one the ordinal is -2 and the host pointer the pointer itself.
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
			put4(data[i], (uint32_t)-2);
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			put8(data[i], ptr);
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
