/* SPDX-License-Identifier: MIT */
/* The simulated GPUs and their attributes. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

CUresult cuDeviceGetCount(int *count)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!count)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*count = sim.n_gpus;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!device)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sim_device_ok(ordinal))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	*device = ordinal;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!name || len <= 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sim_device_ok(dev))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	snprintf(name, (size_t)len, "%s", sim.gpu[dev].name);
	return sim_leave(CUDA_SUCCESS);
}

int gdrsim_device_at(unsigned int domain, unsigned int bus, unsigned int device)
{
	int found = -1;

	pthread_mutex_lock(&sim.lock);
	for (int i = 0; i < (int)(sizeof(sim.gpu) / sizeof(sim.gpu[0])); i++)
		if (sim_device_ok(i) && (unsigned int)sim.gpu[i].pci_domain == domain &&
		    (unsigned int)sim.gpu[i].pci_bus == bus &&
		    (unsigned int)sim.gpu[i].pci_device == device)
			found = i;
	pthread_mutex_unlock(&sim.lock);
	return found;
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
	char text[32];
	int n;

	SIM_ENTER(SIM_NEED_INIT);
	if (!id || len <= 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sim_device_ok(dev))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	n = snprintf(text, sizeof(text), "%04x:%02x:%02x.0", sim.gpu[dev].pci_domain,
		     sim.gpu[dev].pci_bus, sim.gpu[dev].pci_device);
	if (n >= len)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	memcpy(id, text, (size_t)n + 1);
	return sim_leave(CUDA_SUCCESS);
}

static CUresult attribute_value(CUdevice_attribute attribute, CUdevice dev, int *value)
{
	const struct sim_gpu *gpu = &sim.gpu[dev];

	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_INTEGRATED:
		*value = sim_integrated();
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = gpu->pci_bus;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
		*value = gpu->pci_device;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		*value = gpu->pci_domain;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*value = 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		*value = 1;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
		*value = sim_env("GDRSIM_HOST_POINTER", 1) != 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
		*value = !sim_integrated();
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
		*value = sim_env("GDRSIM_COHERENT", 0) != 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
		*value = !sim_integrated() && sim_env("GDRSIM_DMABUF", 1) != 0;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!value)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sim_device_ok(dev))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	return sim_leave(attribute_value(attribute, dev, value));
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!bytes)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sim_device_ok(dev))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	*bytes = sim.gpu[dev].mem_bytes;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	CUdevice dev;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!free_bytes || !total_bytes)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	sim_dmabuf_sweep();
	dev = sim_ctx()->dev;
	*total_bytes = sim.gpu[dev].mem_bytes;
	*free_bytes = sim.gpu[dev].mem_bytes - sim.used_bytes[dev];
	return sim_leave(CUDA_SUCCESS);
}
