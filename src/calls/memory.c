/* SPDX-License-Identifier: MIT */
/*
 * The entry points for memory: check the arguments, hold the context, call, and turn -errno into
 * the positive errno of the interface.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "backend/backend.h"
#include "core/ctx.h"
#include "cuda/cuda.h"
#include "base/error.h"
#include "base/sized.h"
#include "barcopy.h"
#include "core/mem.h"
#include "cache/cache.h"
#include "cache/range.h"

static int fail_null(const char *what)
{
	return -gdri_fail(EINVAL, "%s is NULL", what);
}

int barcopy_mem_alloc(gdr_t g, int device, size_t size, uint32_t flags, barcopy_mem_t *mem)
{
	struct gdri_ctx *ctx;
	int rc;

	if (!mem)
		return fail_null("mem");
	if (!size)
		return -gdri_fail(EINVAL, "size is 0");
	if (flags & ~(uint32_t)(BARCOPY_MEM_CACHED | BARCOPY_MEM_SHAREABLE))
		return -gdri_fail(EINVAL, "unknown bits in flags 0x%x of barcopy_mem_alloc", flags);
	rc = gdri_ctx_get(g, &ctx);
	if (rc)
		return -rc;
	rc = gdri_mem_alloc(ctx, device, size, flags, mem);
	/* What caches keep idle may be the memory that is missing. */
	if (rc == -ENOMEM && gdri_caches_sweep(ctx))
		rc = gdri_mem_alloc(ctx, device, size, flags, mem);
	gdri_ctx_put(ctx);
	return -rc;
}

int barcopy_mem_free(gdr_t g, barcopy_mem_t *mem)
{
	struct gdri_ctx *ctx;
	int rc;

	if (!mem)
		return fail_null("mem");
	rc = gdri_ctx_get(g, &ctx);
	if (rc)
		return -rc;
	rc = gdri_mem_free(ctx, mem->handle);
	gdri_ctx_put(ctx);
	if (!rc)
		memset(mem, 0, sizeof(*mem));
	return -rc;
}

int barcopy_mem_export(gdr_t g, const barcopy_mem_t *mem, int *fd)
{
	struct gdri_ctx *ctx;
	int rc;

	if (!mem || !fd)
		return fail_null("mem or fd");
	rc = gdri_ctx_get(g, &ctx);
	if (rc)
		return -rc;
	rc = gdri_mem_export(ctx, mem->handle, fd);
	gdri_ctx_put(ctx);
	return -rc;
}

/* -1: the caller does not know, or has no CUDA. */
static int check_dmabuf(const struct gdri_imported *imported, size_t size)
{
	struct gdri_pci_address pci;
	int rc;

	if (size % GPU_PAGE_SIZE)
		return gdri_fail(EINVAL, "size 0x%zx of a dma-buf is not a multiple of 64 KiB", size);
	/* Before any backend is asked: one that takes no dma-buf would say ENOTSUP. */
	if (fcntl(imported->fd, F_GETFD) < 0)
		return gdri_fail(EINVAL, "%d is not an open file descriptor", imported->fd);
	if (imported->device == -1)
		return 0;
	rc = gdri_cuda_init();
	return rc ? rc : gdri_cuda_pci_address(imported->device, &pci);
}

int barcopy_mem_import(gdr_t g, int device, int fd, size_t size, uint32_t flags, barcopy_mem_t *mem)
{
	const struct gdri_imported imported = { .fd = fd,
						.dmabuf = flags & BARCOPY_MEM_DMABUF,
						.device = device };
	struct gdri_ctx *ctx;
	int rc;

	if (!mem)
		return fail_null("mem");
	if (!size)
		return -gdri_fail(EINVAL, "size is 0");
	if (flags & ~(uint32_t)BARCOPY_MEM_DMABUF)
		return -gdri_fail(EINVAL, "unknown bits in flags 0x%x of barcopy_mem_import",
				  flags);
	if (imported.dmabuf) {
		rc = check_dmabuf(&imported, size);
		if (rc)
			return -rc;
	}
	rc = gdri_ctx_get(g, &ctx);
	if (rc)
		return -rc;
	rc = gdri_mem_import(ctx, &imported, size, mem);
	gdri_ctx_put(ctx);
	return -rc;
}

int barcopy_map_range(gdr_t g, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		      gdr_mh_t *handle)
{
	struct gdri_ctx *ctx;
	int rc;

	if (!cpu_ptr || !handle)
		return fail_null("cpu_ptr or handle");
	if (flags & ~(uint32_t)BARCOPY_MAP_RANGE_READ_ONLY)
		return -gdri_fail(EINVAL, "unknown bits in flags 0x%x of barcopy_map_range", flags);
	rc = gdri_range_check(addr, size);
	if (rc)
		return -rc;
	rc = gdri_ctx_get(g, &ctx);
	if (rc)
		return -rc;
	rc = gdri_range_map(ctx, g, addr, size, flags, cpu_ptr, handle);
	gdri_ctx_put(ctx);
	return -rc;
}

int barcopy_unmap_range(gdr_t g, gdr_mh_t handle)
{
	struct gdri_ctx *ctx;
	int rc = gdri_ctx_get(g, &ctx);

	if (rc)
		return -rc;
	rc = gdri_range_unmap(ctx, handle);
	gdri_ctx_put(ctx);
	return -rc;
}

/* How much of the caller's struct we may write: what both sides know. */
enum { FIRST_BAR_INFO = 32 }; /* size of the first barcopy_bar_info_t */

_Static_assert(sizeof(barcopy_bar_info_t) >= FIRST_BAR_INFO, "barcopy_bar_info_t only grows");

int barcopy_get_bar_info(gdr_t g, int device, barcopy_bar_info_t *info)
{
	struct gdri_pci_address pci;
	struct gdri_ctx *ctx;
	struct gdri_bar bar;
	barcopy_bar_info_t now;
	int rc;

	if (!info)
		return fail_null("info");
	rc = gdri_sized_check(info, FIRST_BAR_INFO);
	if (!rc)
		rc = gdri_ctx_get(g, &ctx);
	if (rc)
		return -rc;
	rc = gdri_cuda_init();
	if (!rc)
		rc = gdri_cuda_pci_address(device, &pci);
	if (!rc)
		rc = gdri_nvml_bar(&pci, &bar);
	gdri_ctx_put(ctx);
	if (rc)
		return -rc;
	now.total = bar.total;
	now.used = bar.used;
	now.free = bar.free;
	return -gdri_sized_out(&now, sizeof(now), FIRST_BAR_INFO, info);
}
