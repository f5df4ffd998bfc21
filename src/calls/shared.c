/* SPDX-License-Identifier: MIT */
/* The entry points for memory and ranges. */
#include <fcntl.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/inside.h"
#include "base/struct_size.h"
#include "calls/calls.h"
#include "core/mem.h"

static int check(const barcopy_mem_t *mem, size_t size, uint32_t flags, int known, const char *call)
{
	if (!mem)
		return gdri_null("mem");
	return size ? gdri_check_flags(flags, known, call) : gdri_fail(EINVAL, "size is 0");
}

int barcopy_mem_alloc(gdr_t g, int device, size_t size, uint32_t flags, barcopy_mem_t *mem)
{
	const int known = BARCOPY_MEM_CACHED | BARCOPY_MEM_SHAREABLE;
	struct gdri_ctx *ctx;
	int rc = check(mem, size, flags, known, "barcopy_mem_alloc") ?: gdri_ctx_get(g, &ctx);

	if (!rc)
		rc = gdri_ctx_put(ctx, gdri_caches_alloc(ctx, device, size, flags, mem));
	return gdri_out(rc);
}

int barcopy_mem_free(gdr_t g, barcopy_mem_t *mem)
{
	bool ended = false;
	int rc = mem ? gdri_handle_end(g, mem->handle, &gdri_kind_mem, &ended) : gdri_null("mem");

	if (ended)
		memset(mem, 0, sizeof(*mem));
	return gdri_out(rc);
}

int barcopy_mem_export(gdr_t g, const barcopy_mem_t *mem, int *fd)
{
	return gdri_out(mem && fd ? gdri_mem_export(g, mem->handle, fd) : gdri_null("mem or fd"));
}

static int init_and_find(int device, struct gdri_pci_address *pci)
{
	int rc;

	gdri_inside_enter();
	rc = gdri_cuda_init() ?: gdri_cuda_pci_address(device, pci);
	gdri_inside_leave();
	return rc;
}

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142 /* include/uapi/linux/magic.h */
#endif

/*
 * The descriptor comes from another program, perhaps one that is not to be trusted: of a memfd or a
 * file it could cut off the end, and the next copy would be a SIGBUS. Since Linux 5.3 a dma-buf is
 * of a file system of its own.
 */
static int check_dmabuf(const struct gdri_imported *imported, size_t size)
{
	struct gdri_pci_address pci;
	struct statfs fs;

	if (fstatfs(imported->fd, &fs) || fs.f_type != DMA_BUF_MAGIC)
		return gdri_fail(EINVAL, "descriptor %d is not a dma-buf", imported->fd);
	if (size % GPU_PAGE_SIZE)
		return gdri_fail(EINVAL, "size 0x%zx of a dma-buf is not a multiple of 64 KiB",
				 size);
	/* -1: the caller does not know the device, or has no CUDA. */
	return imported->device == -1 ? 0 : init_and_find(imported->device, &pci);
}

int barcopy_mem_import(gdr_t g, int device, int fd, size_t size, uint32_t flags, barcopy_mem_t *mem)
{
	const struct gdri_imported imported = { .fd = fd,
						.dmabuf = flags & BARCOPY_MEM_DMABUF,
						.device = device };
	struct gdri_attempts attempts;
	struct gdri_ctx *ctx;
	int rc = check(mem, size, flags, BARCOPY_MEM_DMABUF, "barcopy_mem_import");

	/* Before CUDA or any backend is asked: one that takes no dma-buf would say ENOTSUP. */
	if (!rc && fcntl(fd, F_GETFD) < 0)
		rc = gdri_fail(EINVAL, "%d is not an open file descriptor", fd);
	if (!rc && imported.dmabuf)
		rc = check_dmabuf(&imported, size);
	rc = rc ?: gdri_ctx_get(g, &ctx);
	if (rc)
		return gdri_out(rc);
	attempts = gdri_attempts_begin(ctx);
	do
		rc = gdri_mem_import(ctx, &imported, size, mem);
	while (gdri_caches_give_way(ctx, rc, device, size, &attempts));
	return gdri_out(gdri_ctx_put(ctx, rc));
}

_Static_assert((BARCOPY_MAP_RANGE_READ_ONLY | BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS) < 4,
	       "ctx->ranges has room for every combination of flags");

/* any: only shares a region that covers the range, however long. -ENOENT, without a text: none. */
static int map_range(struct gdri_ctx *ctx, uint64_t addr, size_t size, uint32_t flags, bool any,
		     void **cpu_ptr, gdr_mh_t *handle)
{
	static const barcopy_cache_options_t no_limits = { .max_bytes = UINT64_MAX,
							   .max_regions = UINT64_MAX };
	struct gdri_cache **ranges = &ctx->ranges[flags];
	struct gdri_entry *e;
	void *cpu;
	int rc;

	pthread_mutex_lock(&ctx->ranges_lock);
	rc = *ranges ? 0 : gdri_cache_create(ctx, false, &no_limits, flags, ranges);
	pthread_mutex_unlock(&ctx->ranges_lock);
	if (rc)
		return rc;
	e = any ? gdri_cache_cover(*ranges, addr, size) : gdri_cache_hit(*ranges, addr, size);
	if (!e)
		rc = any ? -ENOENT : gdri_cache_miss(*ranges, addr, size, false, &e);
	if (rc)
		return rc;
	cpu = gdri_region_pointer(&e->region, addr);
	rc = gdri_handle_new(ctx, &e->region, addr, addr + size, handle);
	if (rc)
		(void)gdri_cache_unuse(*ranges, e);
	else
		*cpu_ptr = cpu;
	return rc;
}

int barcopy_map_range(gdr_t g, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		      gdr_mh_t *handle)
{
	const int known = BARCOPY_MAP_RANGE_READ_ONLY | BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS;
	struct gdri_attempts attempts;
	struct gdri_ctx *ctx;
	int rc = cpu_ptr && handle ? 0 : gdri_null("cpu_ptr or handle");

	rc = rc ?: gdri_check_flags(flags, known, "barcopy_map_range") ?: gdri_ctx_get(g, &ctx);
	if (rc)
		return gdri_out(rc);
	attempts = gdri_attempts_begin(ctx);
	do
		rc = map_range(ctx, addr, size, flags, false, cpu_ptr, handle);
	while (gdri_is_short(rc) &&
	       gdri_caches_give_way(ctx, rc, gdri_cuda_device_of(addr, size), size, &attempts));
	if (gdri_is_short(rc) && !map_range(ctx, addr, size, flags, true, cpu_ptr, handle))
		rc = 0;
	return gdri_out(gdri_ctx_put(ctx, rc));
}

int barcopy_unmap_range(gdr_t g, gdr_mh_t handle)
{
	return gdri_out(gdri_handle_end(g, handle, &gdri_kind_range, NULL));
}

int barcopy_get_bar_info(int device, barcopy_bar_info_t *info)
{
	struct gdri_pci_address pci;
	barcopy_bar_info_t now;
	struct gdri_bar bar;
	int rc = info ? gdri_struct_check(info, FIRST_BAR_INFO) : gdri_null("info");

	gdri_inside_enter();
	rc = rc ?: init_and_find(device, &pci) ?: gdri_nvml_bar(&pci, &bar);
	gdri_inside_leave();
	if (!rc) {
		now.total = bar.total;
		now.used = bar.used;
		now.free = bar.free;
		rc = gdri_struct_out(&now, sizeof(now), FIRST_BAR_INFO, info);
	}
	return gdri_out(rc);
}
