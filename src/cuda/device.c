/* SPDX-License-Identifier: MIT */
/* Properties of devices by CUDA, its version, and BAR1 as NVML reports it. See cuda.h. */
#include "cuda/private.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>

#include "abi/nvml.h"
#include "base/process.h"

/* The CPU reaches the GPU's memory over a coherent link, and caches it. */
#define COHERENT CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES

int gdri_cuda_driver_version(int *version)
{
	int rc = gdri_cuda_load();

	return rc ? rc : GDRI_CU(cuDriverGetVersion, version);
}

int gdri_cuda_init(void)
{
	int rc = gdri_cuda_load();

	return rc ? rc : GDRI_CU(cuInit, 0);
}

int gdri_cuda_find_device(int ordinal, CUdevice *dev)
{
	int rc = gdri_cuda_init(), count;

	if (!rc)
		rc = GDRI_CU(cuDeviceGetCount, &count);
	if (!rc && (ordinal < 0 || ordinal >= count))
		rc = gdri_fail(EINVAL, "no CUDA device %d: there are %d", ordinal, count);
	return rc ? rc : GDRI_CU(cuDeviceGet, dev, ordinal);
}

int gdri_cuda_device_has(CUdevice dev, CUdevice_attribute attribute, bool *has)
{
	int value = 0;
	CUresult r = gdri_cu.cuDeviceGetAttribute(&value, attribute, dev);

	*has = value;
	/* This driver does not know the attribute. */
	return r == CUDA_ERROR_INVALID_VALUE ? 0 : gdri_cuda_result(r, "cuDeviceGetAttribute");
}

static int ask_device(int ordinal, CUdevice_attribute attribute, bool *has)
{
	CUdevice dev;
	int rc = gdri_cuda_find_device(ordinal, &dev);

	return rc ? rc : gdri_cuda_device_has(dev, attribute, has);
}

int gdri_cuda_is_integrated(int device, bool *integrated)
{
	return ask_device(device, CU_DEVICE_ATTRIBUTE_INTEGRATED, integrated);
}

int gdri_cuda_is_coherent(int device, bool *coherent)
{
	return ask_device(device, COHERENT, coherent);
}

int gdri_cuda_can_share(int device, bool *can)
{
	return ask_device(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
			  can);
}

bool gdri_cuda_any_coherent(void)
{
	bool has = false;
	CUdevice dev;
	int count;

	if (gdri_cuda_init() || gdri_cu.cuDeviceGetCount(&count))
		return false;
	for (int i = 0; i < count && !has; i++)
		if (gdri_cu.cuDeviceGet(&dev, i) || gdri_cuda_device_has(dev, COHERENT, &has))
			has = false;
	return has;
}

int gdri_cuda_can_export(void)
{
	if (gdri_cu.cuMemGetHandleForAddressRange)
		return 0;
	return gdri_fail(ENODEV, "this CUDA driver has no cuMemGetHandleForAddressRange");
}

int gdri_cuda_total_memory(int device, uint64_t *bytes)
{
	size_t total;
	CUdevice dev;
	int rc = gdri_cuda_find_device(device, &dev) ?: GDRI_CU(cuDeviceTotalMem_v2, &total, dev);

	if (!rc)
		*bytes = total;
	return rc;
}

int gdri_cuda_pci_address(int device, struct gdri_pci_address *pci)
{
	unsigned int domain, bus, slot, function;
	char text[32] = "";
	CUdevice dev;
	int rc = GDRI_CU(cuDeviceGet, &dev, device);

	if (!rc)
		rc = GDRI_CU(cuDeviceGetPCIBusId, text, sizeof(text), dev);
	if (rc)
		return rc;
	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4 || bus > 0xff ||
	    slot > 31 || function > 7)
		return gdri_fail(EIO, "cuDeviceGetPCIBusId returned \"%s\"", text);
	*pci = (struct gdri_pci_address){
		.domain = domain,
		.bus = (uint8_t)bus,
		.device = (uint8_t)slot,
		.function = (uint8_t)function,
	};
	return 0;
}

/* ---- NVML ------------------------------------------------------------------------------------ */

#define NVML_CALLS(X)                       \
	X(nvmlInit_v2)                      \
	X(nvmlDeviceGetHandleByPciBusId_v2) \
	X(nvmlDeviceGetBAR1MemoryInfo)      \
	X(nvmlErrorString)

struct nvml_calls {
#define X(name) __typeof__(&(name)) name;
	NVML_CALLS(X)
#undef X
};

/* Written once. NVML stays loaded: it may have threads of its own. */
GDRI_MUTEX(nvml_lock);
static struct nvml_calls nvml;
static atomic_bool nvml_ready;

static int fail_nvml(const struct nvml_calls *calls, nvmlReturn_t r, const char *call)
{
	const char *text = calls->nvmlErrorString(r);

	return gdri_fail(r == NVML_ERROR_UNKNOWN ? EIO : ENOTSUP, "%s: %s (%d)", call,
			 text ? text : "unknown error", (int)r);
}

static int start_nvml(void *lib, struct nvml_calls *calls)
{
	nvmlReturn_t r;

#define X(name)                                                   \
	calls->name = (__typeof__(calls->name))dlsym(lib, #name); \
	if (!calls->name)                                         \
		return gdri_fail(ENOTSUP, "libnvidia-ml.so.1 has no " #name);
	NVML_CALLS(X)
#undef X
	r = calls->nvmlInit_v2();
	return r ? fail_nvml(calls, r, "nvmlInit") : 0;
}

/* Calls the loader without a lock, as gdri_cuda_load() does. */
static int load_nvml(void)
{
	struct nvml_calls calls;
	void *lib;
	int rc;

	if (atomic_load_explicit(&nvml_ready, memory_order_acquire))
		return 0;
	lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return gdri_fail(ENOTSUP, "the size of BAR1 is not known without NVML: %s",
				 dlerror());
	rc = start_nvml(lib, &calls);
	if (rc) {
		dlclose(lib);
		return rc;
	}
	pthread_mutex_lock(&nvml_lock);
	if (!atomic_load_explicit(&nvml_ready, memory_order_relaxed)) {
		nvml = calls;
		atomic_store_explicit(&nvml_ready, true, memory_order_release);
	}
	pthread_mutex_unlock(&nvml_lock);
	return 0;
}

int gdri_nvml_bar(const struct gdri_pci_address *pci, struct gdri_bar *bar)
{
	nvmlDevice_t device = NULL;
	nvmlBAR1Memory_t memory;
	nvmlReturn_t r;
	char id[32];
	int rc = load_nvml();

	if (rc)
		return rc;
	snprintf(id, sizeof(id), "%08x:%02x:%02x.%u", pci->domain, pci->bus, pci->device,
		 pci->function);
	r = nvml.nvmlDeviceGetHandleByPciBusId_v2(id, &device);
	if (r)
		return fail_nvml(&nvml, r, "nvmlDeviceGetHandleByPciBusId");
	r = nvml.nvmlDeviceGetBAR1MemoryInfo(device, &memory);
	if (r)
		return fail_nvml(&nvml, r, "nvmlDeviceGetBAR1MemoryInfo");
	bar->total = memory.bar1Total;
	bar->used = memory.bar1Used;
	bar->free = memory.bar1Free;
	return 0;
}

int gdri_cuda_bar(int device, struct gdri_bar *bar)
{
	struct gdri_pci_address pci;

	if (device < 0)
		return gdri_fail(ENODEV, "the device is not known");
	return gdri_cuda_pci_address(device, &pci) ?: gdri_nvml_bar(&pci, bar);
}

bool gdri_may_fit(int device, uint64_t bytes)
{
	struct gdri_text why = { .len = 0 }; /* of the failure for which the caller asks */
	struct gdri_bar bar;
	bool fits;

	gdri_text_add(&why, "%s", gdri_error_text());
	fits = gdri_cuda_bar(device, &bar) || bytes <= bar.total;
	gdri_error_say(why.s);
	return fits;
}
