/* SPDX-License-Identifier: MIT */
/*
 * What libcuda and NVML report about themselves and each GPU. Runs in a child process: a driver that is
 * broken may do anything. It must not know libgdrapi.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "abi/nvml.h"
#include "doctor/probe.h"

static const char *const library_names[] = { "libcuda.so.1", "libnvidia-ml.so.1" };

_Static_assert(sizeof(library_names) / sizeof(library_names[0]) ==
		       sizeof(((struct probes *)0)->library) / sizeof(struct probe_library),
	       "room for every library");

void probe_library(struct probes *p, int index)
{
	struct probe_library *l = &p->library[index];
	struct link_map *map = NULL;
	char real[PATH_MAX];
	void *lib;

	snprintf(l->name, sizeof(l->name), "%s", library_names[index]);
	snprintf(l->error, sizeof(l->error), "%s: loading it ended the process",
		 library_names[index]);
	p->libraries = index + 1;
	lib = dlopen(library_names[index], RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *why = dlerror();

		snprintf(l->error, sizeof(l->error), "%s", why ? why : "unknown error");
		return;
	}
	l->found = true;
	l->error[0] = '\0';
	if (!dlinfo(lib, RTLD_DI_LINKMAP, &map) && map && realpath(map->l_name, real))
		snprintf(l->path, sizeof(l->path), "%.255s", real);
}

static void describe(struct probe_gpu *g, int ordinal)
{
	struct gpu gpu = { .ordinal = ordinal };

	g->ordinal = ordinal;
	if (cu.DeviceGet(&gpu.dev, ordinal) != CUDA_SUCCESS)
		return;
	if (cu.DeviceGetName(g->name, sizeof(g->name), gpu.dev) != CUDA_SUCCESS)
		g->name[0] = '\0';
	if (cu.DeviceGetPCIBusId(g->pci, sizeof(g->pci), gpu.dev) != CUDA_SUCCESS)
		g->pci[0] = '\0';
	for (char *c = g->pci; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	g->integrated = gpu_has(&gpu, CU_DEVICE_ATTRIBUTE_INTEGRATED);
	g->dmabuf = gpu_has(&gpu, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
	snprintf(g->nvml_error, sizeof(g->nvml_error), "NVML was not asked");
}

void probe_cuda(struct probes *p)
{
	CUresult rc;
	int count = 0;

	cuda_dl_load();
	p->stand_in = cuda_dl_is_stand_in();
	if (cu.DriverGetVersion(&p->cuda_version) != CUDA_SUCCESS)
		p->cuda_version = 0;
	rc = cu.Init(0);
	p->init_code = (int)rc;
	snprintf(p->init_text, sizeof(p->init_text), "%s",
		 rc == CUDA_SUCCESS ? "" : cuda_error_text(rc));
	if (rc != CUDA_SUCCESS || cu.DeviceGetCount(&count) != CUDA_SUCCESS)
		return;
	for (int i = 0; i < count && i < PROBE_GPUS; i++) {
		describe(&p->gpu[i], i);
		p->gpus = i + 1;
	}
}

/*
 * What no other part of barcopy asks NVML for; name, values and layout are those of libnvidia-ml.so.1,
 * as for abi/nvml.h.
 */
typedef struct nvmlConfComputeSystemState_st {
	unsigned int environment, ccFeature /* 1: on */, devToolsMode;
} nvmlConfComputeSystemState_t;
nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state);

#define NVML_CALLS(X) /* the last two may be missing, in the stand-in or an old driver */ \
	X(nvmlInit_v2)                                                                    \
	X(nvmlDeviceGetHandleByPciBusId_v2)                                               \
	X(nvmlDeviceGetBAR1MemoryInfo)                                                    \
	X(nvmlErrorString)                                                                \
	X(nvmlDeviceGetMemoryInfo)                                                        \
	X(nvmlSystemGetConfComputeState)

static struct {
#define X(name) __typeof__(&(name)) name;
	NVML_CALLS(X)
#undef X
} nvml;

static const char *error_text(nvmlReturn_t r)
{
	const char *words = nvml.nvmlErrorString(r);

	return words ? words : "unknown error";
}

static void ask_gpu(struct probe_gpu *g)
{
	nvmlDevice_t device = NULL;
	nvmlBAR1Memory_t bar;
	nvmlMemory_t memory;
	nvmlReturn_t r = nvml.nvmlDeviceGetHandleByPciBusId_v2(g->pci, &device);

	if (!r)
		r = nvml.nvmlDeviceGetBAR1MemoryInfo(device, &bar);
	if (r) {
		snprintf(g->nvml_error, sizeof(g->nvml_error), "%s", error_text(r));
		return;
	}
	g->nvml_error[0] = '\0';
	g->bar1_total = (int64_t)bar.bar1Total;
	g->bar1_used = (int64_t)bar.bar1Used;
	g->bar1_free = (int64_t)bar.bar1Free;
	if (nvml.nvmlDeviceGetMemoryInfo && !nvml.nvmlDeviceGetMemoryInfo(device, &memory))
		g->memory = (int64_t)memory.total;
}

void probe_nvml(struct probes *p)
{
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	nvmlConfComputeSystemState_t cc;
	nvmlReturn_t r;

	snprintf(p->nvml_error, sizeof(p->nvml_error), "libnvidia-ml.so.1 lacks what is needed");
#define LOOK_UP(name)                                        \
	{                                                    \
		void *symbol = dlsym(lib, #name);            \
		memcpy(&nvml.name, &symbol, sizeof(symbol)); \
	}
	NVML_CALLS(LOOK_UP)
	if (!nvml.nvmlInit_v2 || !nvml.nvmlDeviceGetHandleByPciBusId_v2 ||
	    !nvml.nvmlDeviceGetBAR1MemoryInfo || !nvml.nvmlErrorString)
		return;
	r = nvml.nvmlInit_v2();
	if (r) {
		snprintf(p->nvml_error, sizeof(p->nvml_error), "nvmlInit: %s", error_text(r));
		return;
	}
	p->nvml_error[0] = '\0';
	p->confidential = nvml.nvmlSystemGetConfComputeState &&
			  !nvml.nvmlSystemGetConfComputeState(&cc) && cc.ccFeature == 1;
	for (int i = 0; i < p->gpus; i++)
		if (p->gpu[i].pci[0])
			ask_gpu(&p->gpu[i]);
}
