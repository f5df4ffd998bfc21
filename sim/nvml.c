/* SPDX-License-Identifier: MIT */
/* The stand-in libnvidia-ml.so.1: GPUs by PCI address, and how much of their BAR1 is mapped. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "machine.h"

#pragma GCC visibility push(default)
#include "abi/nvml.h"
#pragma GCC visibility pop

struct nvmlDevice_st {
	int ordinal;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int init_count;
static struct nvmlDevice_st devices[SIM_MAX_GPUS];

#define ENTER(initialised)                               \
	do {                                             \
		int injected_;                           \
		if (sim_fault(__func__, &injected_))     \
			return (nvmlReturn_t)injected_;  \
		if ((initialised) && !is_initialised())  \
			return NVML_ERROR_UNINITIALIZED; \
	} while (0)

static bool is_initialised(void)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = init_count > 0;
	pthread_mutex_unlock(&lock);
	return is;
}

nvmlReturn_t nvmlInit_v2(void)
{
	ENTER(false);
	if (sim_gpu_count() == 0)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < SIM_MAX_GPUS && !init_count; i++)
		devices[i].ordinal = i;
	init_count++;
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

/* Domain with 4 or 8 digits, function optional. */
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
	unsigned int domain, bus, slot;
	struct sim_gpu gpu;

	ENTER(true);
	if (!id || !device || sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < sim_gpu_count(); i++) {
		sim_gpu(i, &gpu);
		if ((unsigned int)gpu.pci_domain != domain || (unsigned int)gpu.pci_bus != bus ||
		    (unsigned int)gpu.pci_device != slot)
			continue;
		*device = &devices[i];
		return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}

static unsigned long long ask(void *library, const char *name, int ordinal)
{
	void *symbol = dlsym(library, name);
	unsigned long long (*used)(int);

	if (!symbol)
		return 0;
	memcpy(&used, &symbol, sizeof(symbol));
	return used(ordinal);
}

/*
 * Maps of the stand-in nvidia.ko, if it is preloaded, and of libcuda's dma-bufs; of a static BAR1, the
 * GPU memory in use (kbusUpdateRusdStatistics()).
 */
static unsigned long long bar1_used(int ordinal, bool is_static)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	unsigned long long used = ask(RTLD_DEFAULT, "gdrsim_rm_bar1_used", ordinal);

	if (cuda) {
		used += ask(cuda, is_static ? "gdrsim_device_bytes" : "gdrsim_dmabuf_bar1",
			    ordinal);
		dlclose(cuda);
	}
	return used;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *info)
{
	struct sim_gpu gpu;

	ENTER(true);
	if (!info || device < devices || device >= devices + sim_gpu_count())
		return NVML_ERROR_INVALID_ARGUMENT;
	sim_gpu(device->ordinal, &gpu);
	info->bar1Total = gpu.bar1_bytes;
	info->bar1Used = bar1_used(device->ordinal, gpu.bar1_static);
	info->bar1Free = info->bar1Total - info->bar1Used;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	static const char *const text[] = {
		[NVML_SUCCESS] = "Success",
		[NVML_ERROR_UNINITIALIZED] = "Uninitialized",
		[NVML_ERROR_INVALID_ARGUMENT] = "Invalid argument",
		[NVML_ERROR_NOT_SUPPORTED] = "Not supported",
		[NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
		[NVML_ERROR_NOT_FOUND] = "Not found",
		[NVML_ERROR_DRIVER_NOT_LOADED] = "Driver not loaded",
	};

	return (size_t)result < sizeof(text) / sizeof(*text) && text[result] ? text[result]
									     : "Unknown error";
}
