/* SPDX-License-Identifier: MIT */
/* One CUDA device; see gpu.h. It must not know libgdrapi. */
#include "gpu.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "exit.h"

static void read_versions(struct gpu *gpu)
{
	FILE *f = cuda_dl_is_stand_in() ? NULL : fopen("/sys/module/nvidia/version", "re");
	int version = 0;

	if (cu.DriverGetVersion(&version) != CUDA_SUCCESS)
		version = 0;
	snprintf(gpu->cuda_version, sizeof(gpu->cuda_version), "%d.%d", version / 1000,
		 version % 1000 / 10);
	if (!f)
		return;
	if (fgets(gpu->kernel_driver, sizeof(gpu->kernel_driver), f))
		gpu->kernel_driver[strcspn(gpu->kernel_driver, "\n")] = '\0';
	fclose(f);
}

void gpu_find(struct gpu *gpu, int ordinal)
{
	CUresult rc;
	int count = 0;

	*gpu = (struct gpu){ .ordinal = ordinal };
	rc = cu.Init(0);
	if (rc != CUDA_SUCCESS)
		tool_cannot("cuInit: %s; check that nvidia-smi works and that this user may open "
			    "/dev/nvidia*%s",
			    cuda_error_text(rc), cuda_dl_advice());
	rc = cu.DeviceGetCount(&count);
	if (rc != CUDA_SUCCESS)
		tool_cannot("cuDeviceGetCount: %s; check that nvidia-smi works",
			    cuda_error_text(rc));
	if (!count)
		tool_cannot("CUDA sees no device; check nvidia-smi and CUDA_VISIBLE_DEVICES%s",
			    cuda_dl_advice());
	if (ordinal >= count)
		tool_cannot("there is no device %d; CUDA sees %d, numbered from 0: choose with -d",
			    ordinal, count);
	rc = cu.DeviceGet(&gpu->dev, ordinal);
	if (rc != CUDA_SUCCESS)
		tool_cannot("cuDeviceGet(%d): %s; check that nvidia-smi works", ordinal,
			    cuda_error_text(rc));

	if (cu.DeviceGetName(gpu->name, sizeof(gpu->name), gpu->dev) != CUDA_SUCCESS)
		snprintf(gpu->name, sizeof(gpu->name), "unnamed GPU");
	if (cu.DeviceGetPCIBusId(gpu->pci, sizeof(gpu->pci), gpu->dev) != CUDA_SUCCESS)
		gpu->pci[0] = '\0';
	for (char *c = gpu->pci; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	read_versions(gpu);
}

void gpu_start(struct gpu *gpu)
{
	CUresult rc = cu.DevicePrimaryCtxRetain(&gpu->ctx, gpu->dev);

	if (rc != CUDA_SUCCESS)
		tool_cannot("no context on device %d: cuDevicePrimaryCtxRetain: %s; check the free "
			    "memory and the compute mode of the device (nvidia-smi -q)",
			    gpu->ordinal, cuda_error_text(rc));
	rc = cu.CtxSetCurrent(gpu->ctx);
	if (rc != CUDA_SUCCESS)
		tool_cannot("no context on device %d: cuCtxSetCurrent: %s; check that nvidia-smi "
			    "works",
			    gpu->ordinal, cuda_error_text(rc));
}

void gpu_stop(struct gpu *gpu)
{
	cu.CtxSetCurrent(NULL);
	cu.DevicePrimaryCtxRelease(gpu->dev);
	gpu->ctx = NULL;
}

bool gpu_has(const struct gpu *gpu, CUdevice_attribute attribute)
{
	int v = 0;

	return cu.DeviceGetAttribute(&v, attribute, gpu->dev) == CUDA_SUCCESS && v;
}
