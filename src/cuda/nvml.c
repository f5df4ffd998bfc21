/* SPDX-License-Identifier: MIT */
/* BAR1 as NVML reports it. See cuda.h. */
#include "cuda/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#include "abi/nvml.h"
#include "base/process.h"
#include "base/error.h"

#define NVML_CALLS(X)                       \
	X(nvmlInit_v2)                      \
	X(nvmlDeviceGetHandleByPciBusId_v2) \
	X(nvmlDeviceGetBAR1MemoryInfo)      \
	X(nvmlErrorString)

/* Filled and initialised once, under lock. NVML stays loaded: it may have threads of its own. */
GDRI_MUTEX(lock);
static bool ready;
static struct {
#define X(name) __typeof__(&(name)) name;
	NVML_CALLS(X)
#undef X
} nvml;

static int fail_call(nvmlReturn_t r, const char *call)
{
	const char *text = nvml.nvmlErrorString(r);

	return gdri_fail(r == NVML_ERROR_UNKNOWN ? EIO : ENOTSUP, "%s: %s (%d)", call,
			 text ? text : "unknown error", (int)r);
}

static int load_locked(void)
{
	nvmlReturn_t r;
	void *lib;

	if (ready)
		return 0;
	lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return gdri_fail(ENOTSUP, "BAR1 cannot be asked about without NVML: %s", dlerror());
#define X(name)                                                               \
	nvml.name = (__typeof__(nvml.name))dlsym(lib, #name);                 \
	if (!nvml.name) {                                                     \
		dlclose(lib);                                                 \
		return gdri_fail(ENOTSUP, "libnvidia-ml.so.1 has no " #name); \
	}
	NVML_CALLS(X)
#undef X
	r = nvml.nvmlInit_v2();
	if (r) {
		int rc = fail_call(r, "nvmlInit");

		dlclose(lib);
		return rc;
	}
	ready = true;
	return 0;
}

int gdri_nvml_bar(const struct gdri_pci_address *pci, struct gdri_bar *bar)
{
	nvmlDevice_t device = NULL;
	nvmlBAR1Memory_t memory;
	nvmlReturn_t r;
	char id[32];
	int rc;

	pthread_mutex_lock(&lock);
	rc = load_locked();
	pthread_mutex_unlock(&lock);
	if (rc)
		return rc;
	snprintf(id, sizeof(id), "%08x:%02x:%02x.%u", pci->domain, pci->bus, pci->device,
		 pci->function);
	r = nvml.nvmlDeviceGetHandleByPciBusId_v2(id, &device);
	if (r)
		return fail_call(r, "nvmlDeviceGetHandleByPciBusId");
	r = nvml.nvmlDeviceGetBAR1MemoryInfo(device, &memory);
	if (r)
		return fail_call(r, "nvmlDeviceGetBAR1MemoryInfo");
	bar->total = memory.bar1Total;
	bar->used = memory.bar1Used;
	bar->free = memory.bar1Free;
	return 0;
}
