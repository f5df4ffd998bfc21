/* SPDX-License-Identifier: MIT */
/* Memory as a file descriptor: a dma-buf of a range, or an exported VMM chunk. See cuda.h. */
#include "cuda/private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* CUDA has one result for a lack of descriptors and other failures of the system. */
static int fail_export(CUresult r, const char *what)
{
	int fd = open("/", O_PATH | O_CLOEXEC), err = errno;

	if (fd < 0 && (err == EMFILE || err == ENFILE))
		return gdri_fail(err, "%s: %s", what, strerror(err));
	if (fd >= 0)
		close(fd);
	return gdri_cuda_result(r, what);
}

int gdri_cuda_dmabuf(const struct gdri_memory *m, uint64_t addr, size_t size, bool pcie, int *fd)
{
	struct gdri_cuda_scope s;
	int rc, new_fd = -1;
	CUresult r;

	/* Checked first: to enter a context may create one. */
	if (!gdri_cu.cuMemGetHandleForAddressRange)
		return gdri_fail(ENOTSUP, "this CUDA driver has no cuMemGetHandleForAddressRange");
	rc = gdri_cuda_enter(&s, m->context, m->device);
	if (rc)
		return rc;
	r = gdri_cu.cuMemGetHandleForAddressRange(
		&new_fd, addr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
		pcie ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0);
	gdri_cuda_leave(&s);
	if (r)
		return fail_export(r, "cuMemGetHandleForAddressRange");
	(void)fcntl(new_fd, F_SETFD, FD_CLOEXEC);
	*fd = new_fd;
	return 0;
}

/* Fails if the chunk is on another device or cannot be exported; finds its bounds. */
static int check_chunk(CUmemGenericAllocationHandle handle, uint64_t addr, int device,
		       CUdeviceptr *base, size_t *size)
{
	CUmemAllocationProp prop;
	int rc = GDRI_CU(cuMemGetAllocationPropertiesFromHandle, &prop, handle);

	if (rc)
		return rc;
	if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return gdri_fail(ENOTSUP, "memory of cuMemCreate that is not on a device");
	if (device >= 0 && prop.location.id != device)
		return gdri_fail(EINVAL, "a chunk of GPU %d in a range of GPU %d", prop.location.id,
				 device);
	if (!(prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return gdri_fail(ENOTSUP,
				 "cuMemCreate was not asked for an exportable allocation "
				 "(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), or it is imported "
				 "(barcopy_mem_import serves that)");
	rc = gdri_cuda_result(gdri_cuda_address_range(base, size, addr, NULL, prop.location.id),
			      "cuMemGetAddressRange");
	if (!rc && addr - *base >= *size)
		rc = gdri_fail(EINVAL, "cuMemGetAddressRange answered another range");
	return rc;
}

int gdri_cuda_export_chunk(uint64_t addr, int device, uint64_t *base, size_t *size, int *fd)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr chunk;
	size_t chunk_size;
	int new_fd = -1;
	CUresult r;
	int rc = gdri_cuda_need(GDRI_CUDA_VMM);

	if (rc)
		return rc;
	r = gdri_cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)addr);
	if (r == CUDA_ERROR_INVALID_VALUE)
		return gdri_fail(ENOTSUP, "not memory of cuMemCreate (cudaMalloc memory cannot be "
					  "imported)");
	if (r)
		return gdri_cuda_result(r, "cuMemRetainAllocationHandle");
	rc = check_chunk(handle, addr, device, &chunk, &chunk_size);
	if (!rc) {
		r = gdri_cu.cuMemExportToShareableHandle(
			&new_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		rc = r ? fail_export(r, "cuMemExportToShareableHandle") : 0;
	}
	gdri_cu.cuMemRelease(handle);
	if (rc)
		return rc;
	(void)fcntl(new_fd, F_SETFD, FD_CLOEXEC);
	*base = chunk;
	*size = chunk_size;
	*fd = new_fd;
	return 0;
}
