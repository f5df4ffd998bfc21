/* SPDX-License-Identifier: MIT */
/* The simulated GPUs and their attributes. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

CUresult cuDeviceGetCount(int *count)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = sim.n_gpus;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)len, "%s", sim.gpu[dev].name);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
	char text[32];
	int n;

	SIM_ENTER(SIM_NEED_INIT);
	if (!id || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	n = snprintf(text, sizeof(text), "%04x:%02x:%02x.0", sim.gpu[dev].pci_domain,
		     sim.gpu[dev].pci_bus, sim.gpu[dev].pci_device);
	if (n >= len)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(id, text, (size_t)n + 1);
	return CUDA_SUCCESS;
}

/* -1: an attribute that this driver does not know. */
static int attribute_value(CUdevice_attribute attribute)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_INTEGRATED:
		return sim_integrated();
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		return 0;
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		return 1;
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
		return sim_env("GDRSIM_HOST_POINTER", 1) != 0;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
		return !sim_integrated();
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
		return sim_env("GDRSIM_COHERENT", 0) != 0;
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
		return sim_exports_dmabuf();
	default:
		return -1;
	}
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	int found;

	SIM_ENTER(SIM_NEED_INIT);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	found = attribute_value(attribute);
	if (found < 0)
		return CUDA_ERROR_INVALID_VALUE;
	*value = found;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = sim.gpu[dev].mem_bytes;
	return CUDA_SUCCESS;
}
