/* SPDX-License-Identifier: MIT */
/* libcuda, a device, memory; see cuda.h. */
#include "cuda.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "exit.h"

#define ADVICE "install the NVIDIA driver, in a container give it the GPU"

struct cuda_dl cu = { .path = "libcuda.so.1" };

/* ", or run on the stand-in ..." if the program is in a build directory that has one; else "". */
static const char *stand_in_advice(void)
{
	static char advice[PATH_MAX + 64];
	char dir[PATH_MAX], file[PATH_MAX + 32];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	if (n <= 0)
		return "";
	dir[n] = '\0';
	*strrchr(dir, '/') = '\0';
	snprintf(file, sizeof(file), "%s/sim/libcuda.so.1", dir);
	if (access(file, R_OK))
		return "";
	snprintf(advice, sizeof(advice), ", or run on the stand-in with --sim %s/sim", dir);
	return advice;
}

void cuda_dl_load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	Dl_info where;
	void *init;

	if (!lib) {
		const char *why = dlerror();

		/* where the file is simply not there, the loader's sentence adds nothing */
		if (!why || strstr(why, "libcuda.so.1: cannot open shared object file: No such"))
			tool_cannot("libcuda.so.1 not found; " ADVICE "%s", stand_in_advice());
		tool_cannot("libcuda.so.1 cannot be loaded (%s); " ADVICE "%s", why,
			    stand_in_advice());
	}

	/* ISO C has no conversion from an object pointer to a function's: copy the bytes */
#define CUDA_DL_LOOK_UP(field, symbol)            \
	{                                         \
		void *p = dlsym(lib, #symbol);    \
		memcpy(&cu.field, &p, sizeof(p)); \
	}
#define CUDA_DL_DEMAND(field, symbol)  \
	CUDA_DL_LOOK_UP(field, symbol) \
	if (!cu.field)                 \
		tool_cannot("%s has no %s; a newer NVIDIA driver is needed", cu.path, #symbol);

	init = dlsym(lib, "cuInit");
	if (init && dladdr(init, &where) && where.dli_fname)
		snprintf(cu.path, sizeof(cu.path), "%s", where.dli_fname);
	cu.is_stand_in = dlsym(lib, "gdrsim_calls") != NULL;
	CUDA_DL_REQUIRED(CUDA_DL_DEMAND)
	CUDA_DL_OPTIONAL(CUDA_DL_LOOK_UP)
#undef CUDA_DL_DEMAND
#undef CUDA_DL_LOOK_UP
}

const char *cuda_error_text(CUresult error)
{
	static char text[256];
	const char *name = NULL, *words = NULL;

	if (cu.GetErrorName(error, &name) != CUDA_SUCCESS || !name)
		name = "CUDA error";
	if (cu.GetErrorString(error, &words) != CUDA_SUCCESS || !words)
		words = "no text";
	snprintf(text, sizeof(text), "%s (%d: %s)", name, (int)error, words);
	return text;
}

int cuda_errno(CUresult error)
{
	switch (error) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_NOT_SUPPORTED:
		return ENOTSUP;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return ENOMEM;
	case CUDA_ERROR_NOT_PERMITTED:
		return EPERM;
	case CUDA_ERROR_INVALID_VALUE:
		return EINVAL;
	default:
		return EIO;
	}
}

void cuda_must(CUresult error, const char *call)
{
	if (error != CUDA_SUCCESS)
		tool_fail("%s: %s", call, cuda_error_text(error));
}

void cuda_load_kernels(const char *ptx, CUmodule *module, CUstream *stream, const char *more)
{
	CUresult rc;

	if (!cu.ModuleLoadData || !cu.ModuleUnload || !cu.ModuleGetFunction || !cu.LaunchKernel ||
	    !cu.StreamCreate || !cu.StreamDestroy || !cu.StreamSynchronize)
		tool_cannot("%s cannot run kernels; a newer NVIDIA driver is needed", cu.path);
	rc = cu.ModuleLoadData(module, ptx);
	if (rc != CUDA_SUCCESS)
		tool_cannot("the driver refuses the kernels: cuModuleLoadData: %s; they need a GPU of "
			    "compute capability 5.0 or newer%s",
			    cuda_error_text(rc), more);
	cuda_must(cu.StreamCreate(stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

/* ---- a device ------------------------------------------------------------------------- */

static void read_versions(struct gpu *gpu)
{
	FILE *f = cu.is_stand_in ? NULL : fopen("/sys/module/nvidia/version", "re");
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

static void need(CUresult rc, const char *call)
{
	if (rc != CUDA_SUCCESS)
		tool_cannot("%s: %s; check that nvidia-smi works and that this user may open "
			    "/dev/nvidia*%s",
			    call, cuda_error_text(rc), stand_in_advice());
}

void gpu_find(struct gpu *gpu, int ordinal)
{
	int count = 0;

	*gpu = (struct gpu){ .ordinal = ordinal };
	need(cu.Init(0), "cuInit");
	need(cu.DeviceGetCount(&count), "cuDeviceGetCount");
	if (!count)
		tool_cannot("CUDA sees no device; check nvidia-smi and CUDA_VISIBLE_DEVICES%s",
			    stand_in_advice());
	if (ordinal >= count)
		tool_cannot("there is no device %d; CUDA sees %d, numbered from 0: choose with -d",
			    ordinal, count);
	need(cu.DeviceGet(&gpu->dev, ordinal), "cuDeviceGet");
	if (cu.DeviceGetName(gpu->name, sizeof(gpu->name), gpu->dev) != CUDA_SUCCESS)
		snprintf(gpu->name, sizeof(gpu->name), "unnamed GPU");
	if (cu.DeviceGetPCIBusId(gpu->pci, sizeof(gpu->pci), gpu->dev) != CUDA_SUCCESS)
		gpu->pci[0] = '\0';
	for (char *c = gpu->pci; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	read_versions(gpu);
	tool_plain(gpu->name);
	tool_plain(gpu->pci);
	tool_plain(gpu->kernel_driver);
}

void gpu_start(struct gpu *gpu)
{
	CUresult rc = cu.DevicePrimaryCtxRetain(&gpu->ctx, gpu->dev);

	if (rc != CUDA_SUCCESS)
		tool_cannot("no context on device %d: cuDevicePrimaryCtxRetain: %s; check the free "
			    "memory and the compute mode of the device (nvidia-smi -q)",
			    gpu->ordinal, cuda_error_text(rc));
	need(cu.CtxSetCurrent(gpu->ctx), "cuCtxSetCurrent");
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

void gpu_print(const struct gpu *gpu)
{
	const char *driver = gpu->kernel_driver;

	printf("GPU:      %d: %s%s%s, CUDA driver %s%s%s%s\n", gpu->ordinal, gpu->name,
	       gpu->pci[0] ? ", PCI " : "", gpu->pci, gpu->cuda_version, driver[0] ? " (" : "",
	       driver, driver[0] ? ")" : "");
}

/* ---- memory --------------------------------------------------------------------------- */

const char *const mem_kind_name[MEM_KINDS + 1] = { "cuMemAlloc", "cuMemCreate", "cuMemHostAlloc",
						   NULL };

static int failed(CUresult rc, const char *call, char *why, size_t why_size)
{
	snprintf(why, why_size, "%s: %s", call, cuda_error_text(rc));
	return -cuda_errno(rc);
}

bool mem_vmm_properties(CUmemAllocationProp *prop, const struct gpu *gpu)
{
	*prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, gpu->dev },
	};
	/* cuMemCreate fails if this is set and the device has no GPUDirect RDMA on such memory */
	prop->allocFlags.gpuDirectRDMACapable =
		gpu_has(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	return cu.MemGetAllocationGranularity && cu.MemCreate && cu.MemRelease &&
	       cu.MemAddressReserve && cu.MemAddressFree && cu.MemMap && cu.MemUnmap &&
	       cu.MemSetAccess;
}

static int alloc_vmm(struct gpu_mem *mem, const struct gpu *gpu, char *why, size_t why_size)
{
	CUmemAllocationProp prop;
	CUmemAccessDesc access;
	const char *call;
	size_t grain = 0;
	CUresult rc;

	if (!mem_vmm_properties(&prop, gpu)) {
		snprintf(why, why_size, "this driver has no virtual memory management calls");
		return -ENOTSUP;
	}
	access = (CUmemAccessDesc){ prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	call = "cuMemGetAllocationGranularity";
	rc = cu.MemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (rc != CUDA_SUCCESS)
		return failed(rc, call, why, why_size);
	if (!grain || mem->size > SIZE_MAX - grain) {
		snprintf(why, why_size, "%zu bytes is too large", mem->size);
		return -EOVERFLOW;
	}
	mem->whole = (mem->size + grain - 1) / grain * grain;

	call = "cuMemCreate";
	rc = cu.MemCreate(&mem->handle, mem->whole, &prop, 0);
	if (rc != CUDA_SUCCESS)
		return failed(rc, call, why, why_size);
	call = "cuMemAddressReserve";
	rc = cu.MemAddressReserve(&mem->dptr, mem->whole, 0, 0, 0);
	if (rc != CUDA_SUCCESS)
		goto err_release;
	call = "cuMemMap";
	rc = cu.MemMap(mem->dptr, mem->whole, 0, mem->handle, 0);
	if (rc != CUDA_SUCCESS)
		goto err_address_free;
	call = "cuMemSetAccess";
	rc = cu.MemSetAccess(mem->dptr, mem->whole, &access, 1);
	if (rc != CUDA_SUCCESS)
		goto err_unmap;
	return 0;

err_unmap:
	cu.MemUnmap(mem->dptr, mem->whole);
err_address_free:
	cu.MemAddressFree(mem->dptr, mem->whole);
err_release:
	cu.MemRelease(mem->handle);
	return failed(rc, call, why, why_size);
}

static int alloc_host(struct gpu_mem *mem, bool write_combined, char *why, size_t why_size)
{
	unsigned int flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
			     (write_combined ? CU_MEMHOSTALLOC_WRITECOMBINED : 0);
	CUresult rc = cu.MemHostAlloc(&mem->host, mem->size, flags);

	if (rc != CUDA_SUCCESS)
		return failed(rc, "cuMemHostAlloc", why, why_size);
	rc = cu.MemHostGetDevicePointer(&mem->dptr, mem->host, 0);
	if (rc != CUDA_SUCCESS) {
		cu.MemFreeHost(mem->host);
		return failed(rc, "cuMemHostGetDevicePointer", why, why_size);
	}
	return 0;
}

int mem_alloc(struct gpu_mem *mem, const struct gpu *gpu, enum mem_kind kind, size_t size,
	      bool write_combined, char *why, size_t why_size)
{
	struct gpu_mem m = { .kind = kind, .size = size };
	CUresult res;
	int rc = 0;

	switch (kind) {
	case MEM_CREATE:
		rc = alloc_vmm(&m, gpu, why, why_size);
		break;
	case MEM_HOST_ALLOC:
		rc = alloc_host(&m, write_combined, why, why_size);
		break;
	default:
		res = cu.MemAlloc(&m.dptr, size);
		if (res != CUDA_SUCCESS)
			rc = failed(res, "cuMemAlloc", why, why_size);
		break;
	}
	if (!rc)
		*mem = m;
	return rc;
}

void mem_free(struct gpu_mem *mem)
{
	switch (mem->kind) {
	case MEM_CREATE:
		cu.MemUnmap(mem->dptr, mem->whole);
		cu.MemAddressFree(mem->dptr, mem->whole);
		cu.MemRelease(mem->handle);
		break;
	case MEM_HOST_ALLOC:
		cu.MemFreeHost(mem->host);
		break;
	default:
		cu.MemFree(mem->dptr);
		break;
	}
	mem->dptr = 0;
}
