/* SPDX-License-Identifier: MIT */
/* The library's own memory: allocated, imported, registered, freed. See cuda.h. */
#include "cuda/private.h"

/* Exportable, and reachable by peers, if the device can do that. */
static CUmemAllocationProp vmm_properties(CUdevice dev)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, dev },
	};

	if (gdri_cuda_device_has(dev,
				 CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	if (gdri_cuda_device_has(dev, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
		prop.allocFlags.gpuDirectRDMACapable = 1;
	return prop;
}

static int place_vmm(struct gdri_allocation *a, CUmemGenericAllocationHandle handle, CUdevice dev,
		     size_t grain)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, dev },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr ptr;
	int rc = GDRI_CU(cuMemAddressReserve, &ptr, a->size, grain, 0, 0);

	if (rc)
		return rc;
	rc = GDRI_CU(cuMemMap, ptr, a->size, 0, handle, 0);
	if (rc)
		goto err_reserved;
	rc = GDRI_CU(cuMemSetAccess, ptr, a->size, &access, 1);
	if (rc)
		goto err_unmap;
	a->addr = ptr;
	return 0;

err_unmap:
	gdri_cu.cuMemUnmap(ptr, a->size);
err_reserved:
	gdri_cu.cuMemAddressFree(ptr, a->size);
	return rc;
}

/* fd: of memory to import, or -1. */
static int alloc_vmm(struct gdri_allocation *a, size_t size, CUdevice dev, int fd)
{
	CUmemAllocationProp prop = vmm_properties(dev);
	CUmemGenericAllocationHandle handle;
	size_t grain;
	int rc = gdri_cuda_need(GDRI_CUDA_VMM);

	if (!rc)
		rc = GDRI_CU(cuMemGetAllocationGranularity, &grain, &prop,
			     CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (rc)
		return rc;
	if (__builtin_add_overflow(size, grain - 1, &a->size))
		return gdri_fail(ENOMEM, "size 0x%zx cannot be rounded up to %zu", size, grain);
	a->size -= a->size % grain;
	if (fd < 0)
		rc = GDRI_CU(cuMemCreate, &handle, a->size, &prop, 0);
	else if (a->size != size)
		rc = gdri_fail(EINVAL, "size %zu of an import is not a multiple of %zu", size,
			       grain);
	else
		rc = GDRI_CU(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
			     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (rc)
		return rc;
	rc = place_vmm(a, handle, dev, grain);
	gdri_cu.cuMemRelease(handle); /* the map keeps the memory */
	return rc;
}

static int alloc_plain(struct gdri_allocation *a, size_t size)
{
	CUdeviceptr ptr;
	int rc = GDRI_CU(cuMemAlloc_v2, &ptr, size);

	if (rc)
		return rc;
	a->addr = ptr;
	a->size = size;
	return 0;
}

static int alloc_host(struct gdri_allocation *a, size_t size, bool cached)
{
	unsigned int flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
			     (cached ? 0 : CU_MEMHOSTALLOC_WRITECOMBINED);
	CUdeviceptr ptr;
	int rc = GDRI_CU(cuMemHostAlloc, &a->host, size, flags);

	if (rc)
		return rc;
	rc = GDRI_CU(cuMemHostGetDevicePointer_v2, &ptr, a->host, 0);
	if (rc) {
		gdri_cu.cuMemFreeHost(a->host);
		return rc;
	}
	a->addr = ptr;
	a->size = size;
	return 0;
}

/* fd: of VMM memory to import, or -1. */
static int allocate(struct gdri_allocation *a, int device, size_t size, bool cached, int fd)
{
	struct gdri_cuda_scope s;
	CUcontext primary;
	CUdevice dev;
	int rc = gdri_cuda_find_device(device, &dev);

	if (rc)
		return rc;
	rc = a->context ? gdri_cuda_enter(&s, a->context, -1)
			: gdri_cuda_enter_primary(&s, dev, &primary);
	if (rc)
		return rc;
	if (!a->context)
		a->context = primary;
	switch (a->kind) {
	case GDRI_ALLOCATION_VMM:
		rc = alloc_vmm(a, size, dev, fd);
		break;
	case GDRI_ALLOCATION_PLAIN:
		rc = alloc_plain(a, size);
		break;
	case GDRI_ALLOCATION_HOST:
		rc = alloc_host(a, size, cached);
		break;
	}
	gdri_cuda_leave(&s);
	return rc;
}

int gdri_cuda_alloc(struct gdri_allocation *a, enum gdri_allocation_kind kind, int device,
		    void *context, size_t size, bool cached)
{
	*a = (struct gdri_allocation){ .kind = kind, .context = context };
	return allocate(a, device, size, cached, -1);
}

int gdri_cuda_import(struct gdri_allocation *a, int device, int fd, size_t size)
{
	*a = (struct gdri_allocation){ .kind = GDRI_ALLOCATION_VMM };
	return allocate(a, device, size, false, fd);
}

/*
 * cuMemFree() waits for all work on the device, so it never returns beside a kernel that waits for
 * the CPU (H100, driver 580, 2026-11-22: 1 s beside a kernel that spun for 1 s). The stream-ordered
 * call also takes memory of cuMemAlloc() and waits for its own stream only (0.15 ms there, the
 * memory free at once).
 */
static CUresult free_plain(CUdeviceptr addr)
{
	CUstream stream;
	CUresult r;

	if (!gdri_cu.cuMemFreeAsync || gdri_cuda_need(GDRI_CUDA_STREAMS) ||
	    gdri_cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		return gdri_cu.cuMemFree_v2(addr);
	r = gdri_cu.cuMemFreeAsync(addr, stream);
	if (r)
		r = gdri_cu.cuMemFree_v2(addr);
	else
		r = gdri_cu.cuStreamSynchronize(stream);
	gdri_cu.cuStreamDestroy_v2(stream);
	return r;
}

int gdri_cuda_free(struct gdri_allocation *a)
{
	struct gdri_cuda_scope s;
	CUresult r = CUDA_SUCCESS;
	int rc = gdri_cuda_enter(&s, a->context, -1);

	if (rc)
		return rc;
	switch (a->kind) {
	case GDRI_ALLOCATION_VMM:
		r = gdri_cu.cuMemUnmap(a->addr, a->size);
		if (!r)
			r = gdri_cu.cuMemAddressFree(a->addr, a->size);
		break;
	case GDRI_ALLOCATION_PLAIN:
		r = free_plain(a->addr);
		break;
	case GDRI_ALLOCATION_HOST:
		r = gdri_cu.cuMemFreeHost(a->host);
		break;
	}
	rc = gdri_cuda_result(r, "freeing device memory");
	gdri_cuda_leave(&s);
	return rc;
}
