/* SPDX-License-Identifier: MIT */
/* Memory as a file descriptor: a dma-buf of a range, or an exported VMM chunk. See cuda.h. */
#include "cuda/private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* An fd of the driver's that a program started later must not inherit. */
static void set_cloexec(int fd)
{
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* CUDA does not tell a lack of descriptors from other failures of the system. */
static int fail_export(CUresult r, const char *what)
{
	int fd = open("/", O_PATH | O_CLOEXEC), err = errno;

	if (fd < 0 && (err == EMFILE || err == ENFILE))
		return gdri_fail(err, "%s: %s", what, strerror(err));
	if (fd >= 0)
		close(fd);
	return gdri_cuda_fail(r, what);
}

int gdri_cuda_dmabuf(const struct gdri_memory *m, uint64_t addr, size_t size, bool pcie, int *fd)
{
	struct gdri_cuda_scope s;
	int new_fd = -1;
	CUresult r;
	int rc;

	if (!gdri_cu.cuMemGetHandleForAddressRange)
		return gdri_cuda_missing("cuMemGetHandleForAddressRange");
	rc = gdri_cuda_enter(&s, m->context, m->device);
	if (rc)
		return rc;
	r = gdri_cu.cuMemGetHandleForAddressRange(
		&new_fd, addr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
		pcie ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0);
	gdri_cuda_leave(&s);
	if (r)
		return gdri_cuda_fail(r, "cuMemGetHandleForAddressRange");
	set_cloexec(new_fd);
	*fd = new_fd;
	return 0;
}

int gdri_cuda_export_chunk(uint64_t addr, uint64_t *base, size_t *size, int *fd)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	CUdeviceptr chunk;
	size_t chunk_size;
	int new_fd = -1;
	CUresult r;
	int rc = 0;

	if (!gdri_cu.cuMemRetainAllocationHandle ||
	    !gdri_cu.cuMemGetAllocationPropertiesFromHandle ||
	    !gdri_cu.cuMemExportToShareableHandle || !gdri_cu.cuMemRelease)
		return gdri_cuda_missing("virtual memory management");
	r = gdri_cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)addr);
	if (r == CUDA_ERROR_INVALID_VALUE)
		return gdri_fail(
			ENOTSUP,
			"not memory of cuMemCreate (cudaMalloc memory cannot be imported)");
	if (r)
		return gdri_cuda_fail(r, "cuMemRetainAllocationHandle");
	r = gdri_cu.cuMemGetAllocationPropertiesFromHandle(&prop, handle);
	if (r) {
		rc = gdri_cuda_fail(r, "cuMemGetAllocationPropertiesFromHandle");
		goto out_release;
	}
	if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
		rc = gdri_fail(ENOTSUP, "memory of cuMemCreate that is not on a device");
		goto out_release;
	}
	if (!(prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
		rc = gdri_fail(ENOTSUP,
			       "cuMemCreate was not asked for an exportable allocation "
			       "(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), or it is imported "
			       "(barcopy_mem_import serves that)");
		goto out_release;
	}
	r = gdri_cuda_address_range(&chunk, &chunk_size, addr, NULL, prop.location.id);
	if (r) {
		rc = gdri_cuda_fail(r, "cuMemGetAddressRange");
		goto out_release;
	}
	if (addr < chunk || addr - chunk >= chunk_size) {
		rc = gdri_fail(EINVAL, "cuMemGetAddressRange answered another range");
		goto out_release;
	}
	r = gdri_cu.cuMemExportToShareableHandle(&new_fd, handle,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (r) {
		rc = fail_export(r, "cuMemExportToShareableHandle");
		goto out_release;
	}
	set_cloexec(new_fd);
	*base = chunk;
	*size = chunk_size;
	*fd = new_fd;
out_release:
	gdri_cu.cuMemRelease(handle);
	return rc;
}
