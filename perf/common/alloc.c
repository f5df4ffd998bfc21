/* SPDX-License-Identifier: MIT */
/* Three kinds of CUDA memory; see alloc.h. It must not know libgdrapi. */
#include "alloc.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>

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
