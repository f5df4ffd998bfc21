/* SPDX-License-Identifier: MIT */
/*
 * The dmabuf backend: maps a dma-buf, which CUDA exports or another process has passed on. CUDA
 * 13.3 and newer allow that mmap, as does a GPU without a frame buffer; driver 580 (CUDA 13.0) on
 * an H200 refuses it with errno 524 (2026-11-20). Where 580.65.06 to 595.45.04 allow it, they map
 * the buffer's first memory object alone (nv_dma_buf_mmap() of open-gpu-kernel-modules), and mmap
 * succeeds. Each pin maps the buffer, and before the first one of this process's memory is served,
 * on each GPU and for each kind of mapping, a trial compares bytes (trial.c).
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process.h"
#include "backend/rm_client.h"
#include "backend/trial.h"

enum { CUDA_WITH_DMABUF_MMAP = 13030, KERNEL_ENOTSUPP = 524, DEVICES = 64 };

static struct gdri_trial trials[DEVICES][2]; /* by ordinal; with GDR_PIN_FLAG_FORCE_PCIE */

/* A GPU that exports none may still map a dma-buf of another process. */
static int dmabuf_open(void **state)
{
	int version, rc = gdri_cuda_driver_version(&version);

	(void)state;
	if (!rc && version < CUDA_WITH_DMABUF_MMAP)
		rc = gdri_fail(ENODEV, "CUDA driver %d.%d cannot map a dma-buf (13.3 can)",
			       version / 1000, version % 1000 / 10);
	return rc;
}

static int dmabuf_attribute(void *state, gdr_attr_t attr)
{
	(void)state;
	/* The dma-buf holds the memory until the unpin; each pin tries the PCIe flag. */
	return attr == GDR_ATTR_USE_PERSISTENT_MAPPING ||
	       attr == GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE || attr == GDR_ATTR_USING_DMA_BUF_MMAP;
}

/* Maps the buffer and verifies that the map has the whole range: see the head of this file. */
static int map_checked(int fd, size_t length, void **map)
{
	off_t size = lseek(fd, 0, SEEK_END);

	if (size < 0 || (uint64_t)size >= length) {
		int rc = gdri_pages_map(fd, 0, NULL, length, PROT_READ | PROT_WRITE, map);

		if (rc > 0)
			return gdri_fail(ENOTSUP, "this driver refuses mmap of its dma-buf (%s)",
					 rc == KERNEL_ENOTSUPP ? "ENOTSUPP" : strerror(rc));
		if (rc || gdri_pages_readable(*map, length))
			return rc;
		munmap(*map, length);
	}
	return gdri_fail(ENOTSUP, "the dma-buf does not cover the whole range");
}

/*
 * libcuda refuses a range that begins where nothing is allocated, unless a whole allocation lies in
 * it, and one in a pool, unless it ends with its object (own_pages() and mend() of rm_range.c). Then
 * the dma-buf reaches beyond the range, to the allocation's end. If that is refused too, the errno
 * is ENOTSUP. It stays EINVAL where the memory was freed since, and with the flag, without which the
 * caller tries again.
 */
static int export_range(const struct gdri_pin_request *request, bool pcie, int *fd)
{
	const struct gdri_memory *m = &request->memory;
	uint64_t behind = m->base + m->size;
	size_t whole = ((behind + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - request->va;
	int rc = gdri_cuda_dmabuf(m, request->va, request->mapped_size, pcie, fd);

	if (rc != -EINVAL || request->addr < (m->base & GPU_PAGE_MASK) ||
	    request->addr + request->size > behind)
		return rc;
	rc = gdri_cuda_dmabuf(m, request->va, whole, pcie, fd);
	if (rc == -EINVAL && !pcie && gdri_cuda_has_buffer_id(m->known, m->buffer_id))
		rc = gdri_fail(ENOTSUP, "CUDA exports no dma-buf of this part of the memory: %s",
			       gdri_error_text());
	return rc;
}

static int get_dmabuf(const struct gdri_pin_request *request, int *fd)
{
	bool pcie = request->flags & GDR_PIN_FLAG_FORCE_PCIE;
	int rc;

	if (gdri_is_dmabuf(request)) {
		*fd = fcntl(request->imported->fd, F_DUPFD_CLOEXEC, 0);
		if (*fd < 0)
			return gdri_fail(gdri_is_short(-errno) ? errno : EIO,
					 "dup of the dma-buf: %s", strerror(errno));
	} else {
		rc = export_range(request, pcie, fd);
		if (rc == -ENOTSUP && pcie)
			return gdri_fail(EINVAL,
					 "this backend does not support GDR_PIN_FLAG_FORCE_PCIE");
		if (rc)
			return rc;
	}
	return gdri_fork_own(*fd);
}

/* Over a coherent link mmap gives a cached mapping, unless forced onto PCIe (nv_dma_buf_mmap()). */
static int mapping_type(const struct gdri_pin_request *request, gdr_mapping_type_t *type)
{
	bool coherent = false;
	int rc = 0;

	if (request->memory.device >= 0 && !(request->flags & GDR_PIN_FLAG_FORCE_PCIE))
		rc = gdri_cuda_is_coherent(request->memory.device, &coherent);
	*type = coherent ? GDR_MAPPING_TYPE_CACHING : GDR_MAPPING_TYPE_WC;
	return rc;
}

static int pin_untried(const struct gdri_pin_request *request, struct gdri_pin *pin,
		       bool exportable, bool *lasting)
{
	void *map;
	int fd, rc;

	(void)exportable;
	(void)lasting;
	rc = mapping_type(request, &pin->type);
	if (!rc)
		rc = get_dmabuf(request, &fd);
	if (rc)
		return rc;
	rc = map_checked(fd, pin->mapped_size, &map);
	if (rc) {
		gdri_fork_close(fd);
		return rc;
	}
	pin->persistent = true;
	pin->fd = fd;
	if (!request->mapped) { /* mappings come and go */
		if (!munmap(map, pin->mapped_size))
			return 0;
		rc = gdri_fail(EIO, "munmap: %s", strerror(errno)); /* no shortage: no retry */
		gdri_fork_close(fd);
		return rc;
	}
	/* The mapping, which exists as long as the pin, holds the buffer. */
	gdri_fork_close(fd);
	pin->fd = -1;
	pin->copy_start = (uintptr_t)map; /* for dmabuf_map() */
	return 0;
}

static int dmabuf_unpin(struct gdri_pin *pin)
{
	if (pin->fd >= 0)
		gdri_fork_close(pin->fd);
	return 0;
}

static const struct gdri_trial_of trial_of = { &gdri_backend_dmabuf, pin_untried, NULL };

/* Memory of another process may have no address by which the copy engine could compare it. */
static int dmabuf_pin(const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct gdri_memory *m = &request->memory;
	bool pcie = request->flags & GDR_PIN_FLAG_FORCE_PCIE, unused;
	gdr_mapping_type_t type;
	int rc;

	if (m->kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "not device memory");
	if (!request->imported && (unsigned int)m->device >= DEVICES)
		return gdri_fail(ENOTSUP, "CUDA does not say on which GPU it is");
	rc = pin_untried(request, pin, false, &unused);
	if (rc || request->imported)
		return rc;
	rc = gdri_trial(&trials[m->device][pcie], &trial_of, false, m->device, m->context,
			request->flags, &type);
	if (rc && request->mapped)
		munmap((void *)pin->copy_start, pin->mapped_size);
	if (rc)
		dmabuf_unpin(pin);
	return rc;
}

static int dmabuf_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	int rc = gdri_check_wish(pin, wish);
	void *map = (void *)pin->copy_start;

	if (!rc && pin->fd >= 0)
		rc = map_checked(pin->fd, pin->map_length, &map);
	if (!rc)
		gdri_pin_mapped(pin, map);
	return rc;
}

const struct gdri_backend gdri_backend_dmabuf = {
	.name = "dmabuf",
	.id = BARCOPY_BACKEND_DMABUF,
	.caps = GDRI_CAP_DEVICE_MEMORY | GDRI_CAP_TAKES_DMABUF,
	.open = dmabuf_open,
	.decide = gdri_rm_exports_dmabuf,
	.attribute = dmabuf_attribute,
	.pin = dmabuf_pin,
	.unpin = dmabuf_unpin,
	.map = dmabuf_map,
	.unmap = gdri_pages_unmap,
};
