/* SPDX-License-Identifier: MIT */
/* The entry points for memory. */
#include <fcntl.h>
#include <string.h>

#include "base/sized.h"
#include "cache/cache.h"
#include "calls/calls.h"
#include "core/handle.h"

static int alloc(struct gdri_ctx *ctx, int device, size_t size, uint32_t flags, barcopy_mem_t *mem)
{
	int rc = gdri_mem_alloc(ctx, device, size, flags, mem);

	/* What caches keep idle may be the memory that is missing. */
	if (rc == -ENOMEM && gdri_caches_sweep(ctx))
		rc = gdri_mem_alloc(ctx, device, size, flags, mem);
	return rc;
}

int barcopy_mem_alloc(gdr_t g, int device, size_t size, uint32_t flags, barcopy_mem_t *mem)
{
	if (!mem)
		return gdri_null("mem");
	if (!size)
		return -gdri_fail(EINVAL, "size is 0");
	if (flags & ~(uint32_t)(BARCOPY_MEM_CACHED | BARCOPY_MEM_SHAREABLE))
		return -gdri_fail(EINVAL, "unknown bits in flags 0x%x of barcopy_mem_alloc", flags);
	return GDRI_WITH_ROOM(g, ctx, device, size, alloc(ctx, device, size, flags, mem));
}

int barcopy_mem_free(gdr_t g, barcopy_mem_t *mem)
{
	int rc;

	if (!mem)
		return gdri_null("mem");
	rc = gdri_handle_end(g, mem->handle, &gdri_kind_mem);
	if (!rc)
		memset(mem, 0, sizeof(*mem));
	return -rc;
}

int barcopy_mem_export(gdr_t g, const barcopy_mem_t *mem, int *fd)
{
	if (!mem || !fd)
		return gdri_null("mem or fd");
	return -gdri_mem_export(g, mem->handle, fd);
}

static int check_dmabuf(const struct gdri_imported *imported, size_t size)
{
	struct gdri_pci_address pci;
	int rc;

	if (size % GPU_PAGE_SIZE)
		return gdri_fail(EINVAL, "size 0x%zx of a dma-buf is not a multiple of 64 KiB",
				 size);
	if (imported->device == -1) /* the caller does not know, or has no CUDA */
		return 0;
	rc = gdri_cuda_init();
	return rc ? rc : gdri_cuda_pci_address(imported->device, &pci);
}

int barcopy_mem_import(gdr_t g, int device, int fd, size_t size, uint32_t flags, barcopy_mem_t *mem)
{
	const struct gdri_imported imported = { .fd = fd,
						.dmabuf = flags & BARCOPY_MEM_DMABUF,
						.device = device };
	int rc;

	if (!mem)
		return gdri_null("mem");
	if (!size)
		return -gdri_fail(EINVAL, "size is 0");
	if (flags & ~(uint32_t)BARCOPY_MEM_DMABUF)
		return -gdri_fail(EINVAL, "unknown bits in flags 0x%x of barcopy_mem_import",
				  flags);
	/* Before CUDA or any backend is asked: one that takes no dma-buf would say ENOTSUP. */
	if (fcntl(fd, F_GETFD) < 0)
		return -gdri_fail(EINVAL, "%d is not an open file descriptor", fd);
	if (imported.dmabuf) {
		rc = check_dmabuf(&imported, size);
		if (rc)
			return -rc;
	}
	return GDRI_WITH_ROOM(g, ctx, device, size, gdri_mem_import(ctx, &imported, size, mem));
}

int barcopy_map_range(gdr_t g, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		      gdr_mh_t *handle)
{
	if (!cpu_ptr || !handle)
		return gdri_null("cpu_ptr or handle");
	if (flags & ~(uint32_t)(BARCOPY_MAP_RANGE_READ_ONLY | BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS))
		return -gdri_fail(EINVAL, "unknown bits in flags 0x%x of barcopy_map_range", flags);
	return GDRI_WITH_ROOM(g, ctx, gdri_cuda_device_of(addr, size), size,
			      gdri_range_map(ctx, addr, size, flags, cpu_ptr, handle));
}

int barcopy_unmap_range(gdr_t g, gdr_mh_t handle)
{
	return -gdri_handle_end(g, handle, &gdri_kind_range);
}

static int bar_of(int device, struct gdri_bar *bar)
{
	struct gdri_pci_address pci;
	int rc = gdri_cuda_init();

	if (!rc)
		rc = gdri_cuda_pci_address(device, &pci);
	return rc ? rc : gdri_nvml_bar(&pci, bar);
}

int barcopy_get_bar_info(int device, barcopy_bar_info_t *info)
{
	barcopy_bar_info_t now;
	struct gdri_bar bar;
	int rc;

	if (!info)
		return gdri_null("info");
	rc = -gdri_sized_check(info, FIRST_BAR_INFO);
	if (!rc)
		rc = -bar_of(device, &bar);
	if (rc)
		return rc;
	now.total = bar.total;
	now.used = bar.used;
	now.free = bar.free;
	return -gdri_sized_out(&now, sizeof(now), FIRST_BAR_INFO, info);
}
