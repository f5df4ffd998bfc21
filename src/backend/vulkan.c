/* SPDX-License-Identifier: MIT */
/*
 * The vulkan backend: exportable VMM memory (cuMemCreate with a POSIX file descriptor handle) is
 * imported into Vulkan as host-visible device memory and mapped: a write-combined BAR1 mapping
 * with the stock driver and no kernel module (measured on an H200 with driver 580, 2026-11-20).
 *
 * A range may cover several VMM chunks; they become one contiguous CPU range by placed maps into
 * reserved address space. The device side (driver, VkDevice) is vulkan_device.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/vulkan_device.h"
#include "cuda.h"
#include "error.h"

/* The part of one VMM chunk that belongs to a pin. */
struct piece {
	VkDeviceMemory memory;
	uint64_t chunk_size;
	uint64_t offset; /* of the part in the chunk */
	uint64_t size;
	void *mapped; /* while mapped */
};

struct vulkan_pin {
	const struct gdri_vulkan_device *device;
	size_t count, room;
	struct piece *pieces;
	char *area; /* while mapped by placed maps: where the pieces lie; else NULL */
	size_t area_size;
};

static int vulkan_open(struct gdri_ctx *ctx, bool decides, void **state)
{
	(void)ctx;
	(void)decides;
	*state = NULL;
	return gdri_cuda_load();
}

static int vulkan_attribute(void *state, gdr_attr_t attr)
{
	(void)state;
	/* The mapping outlives cuMemUnmap and cuMemRelease (H200, driver 580, 2026-11-20). */
	return attr == GDR_ATTR_USE_PERSISTENT_MAPPING;
}

static void free_pieces(struct vulkan_pin *vp)
{
	for (size_t i = 0; i < vp->count; i++)
		vp->device->free(vp->device->device, vp->pieces[i].memory, NULL);
	free(vp->pieces);
	free(vp);
}

/* Imports a chunk; fd is Vulkan's afterwards, or closed. */
static int import_chunk(const struct gdri_vulkan_device *d, int fd, size_t size,
			VkDeviceMemory *memory)
{
	VkImportMemoryFdInfoKHR import = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
		.fd = fd,
	};
	VkMemoryAllocateInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
		.pNext = &import,
		.allocationSize = size,
		.memoryTypeIndex = d->memory_type,
	};
	VkResult r = d->allocate(d->device, &info, NULL, memory);

	if (!r)
		return 0;
	close(fd);
	return gdri_vulkan_fail(r, "vkAllocateMemory (import)");
}

/* Adds the part of an exported chunk that lies in [*at, end); *at moves behind it. Takes fd. */
static int add_piece(struct vulkan_pin *vp, int fd, uint64_t base, size_t size, uint64_t *at,
		     uint64_t end)
{
	struct piece *piece;
	uint64_t stop;
	int rc;

	if (vp->count == vp->room) {
		size_t room = vp->room ? 2 * vp->room : 1;
		struct piece *more = realloc(vp->pieces, room * sizeof(*more));

		if (!more) {
			close(fd);
			return gdri_fail(ENOMEM, "no memory for the chunks of a pin");
		}
		vp->pieces = more;
		vp->room = room;
	}
	piece = &vp->pieces[vp->count];
	rc = import_chunk(vp->device, fd, size, &piece->memory);
	if (rc)
		return rc;
	stop = base + size < end ? base + size : end;
	piece->chunk_size = size;
	piece->offset = *at - base;
	piece->size = stop - *at;
	piece->mapped = NULL;
	vp->count++;
	*at = stop;
	return 0;
}

static int find_device(int ordinal, const struct gdri_vulkan_device **device)
{
	struct gdri_device_id id;
	int rc = gdri_cuda_device_id(ordinal, &id);

	return rc ? rc : gdri_vulkan_device_get(&id, device);
}

/* Placed maps go to GPU pages. */
static bool can_place(const struct gdri_vulkan_device *d)
{
	return d->placed_align && d->placed_align <= GPU_PAGE_SIZE;
}

/* The chunk around `at`; its descriptor is the caller's. */
static int export_chunk(const struct gdri_pin_request *request, uint64_t at, uint64_t *base,
			size_t *size, int *fd)
{
	const struct gdri_memory *m = &request->memory;

	if (!request->imported)
		return gdri_cuda_export_chunk(at, base, size, fd);
	if (at < m->base || at - m->base >= m->size)
		return gdri_fail(EINVAL, "the range reaches beyond what was imported");
	*fd = fcntl(request->imported->fd, F_DUPFD_CLOEXEC, 0);
	if (*fd < 0)
		return gdri_fail(errno, "dup of an imported descriptor: %s", strerror(errno));
	*base = m->base;
	*size = m->size;
	return 0;
}

static int vulkan_pin(void *state, const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	uint64_t at = pin->va, end = pin->va + pin->mapped_size, base;
	struct vulkan_pin *vp;
	size_t size;
	int fd, rc;

	(void)state;
	if (request->memory.kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "not device memory");
	vp = calloc(1, sizeof(*vp));
	if (!vp)
		return gdri_fail(ENOMEM, "no memory for a pin");
	while (at < end) {
		/* Memory that cannot be exported is told before Vulkan is loaded for it. */
		rc = export_chunk(request, at, &base, &size, &fd);
		if (rc)
			goto err_free;
		if (!vp->device)
			rc = find_device(request->memory.device, &vp->device);
		if (rc) {
			close(fd);
			goto err_free;
		}
		rc = add_piece(vp, fd, base, size, &at, end);
		if (rc)
			goto err_free;
	}
	if (vp->count > 1 && !can_place(vp->device)) {
		rc = gdri_fail(ENOTSUP,
			       "the range covers %zu chunks, and this Vulkan driver has no "
			       "VK_EXT_map_memory_placed to join them",
			       vp->count);
		goto err_free;
	}
	pin->priv = vp;
	pin->persistent = true;
	pin->type = vp->device->cached ? GDR_MAPPING_TYPE_CACHING : GDR_MAPPING_TYPE_WC;
	return 0;

err_free:
	free_pieces(vp);
	return rc;
}

static int vulkan_unpin(struct gdri_pin *pin)
{
	free_pieces(pin->priv);
	return 0;
}

static int fail_map(VkResult r, const struct gdri_vulkan_device *d)
{
	int rc = gdri_vulkan_fail(r, "vkMapMemory");

	if (rc == -ENOMEM)
		return gdri_fail(ENOMEM,
				 "%s: BAR1 is full, or smaller than needed (host-visible "
				 "heap: %llu MiB)",
				 gdri_error_text(), (unsigned long long)d->heap_size >> 20);
	return rc;
}

/* A child must not write through its parent's mapping (and could not be revoked there). */
static int fail_dontfork(int err)
{
	return gdri_fail(err == ENOMEM ? ENOMEM : ENOTSUP, "madvise(MADV_DONTFORK): %s",
			 strerror(err));
}

static VkResult map_placed(const struct gdri_vulkan_device *d, struct piece *piece, uint64_t offset,
			   uint64_t size, void *address)
{
	VkMemoryMapPlacedInfoEXT place = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_MAP_PLACED_INFO_EXT,
		.pPlacedAddress = address,
	};
	VkMemoryMapInfo info = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_MAP_INFO,
		.pNext = &place,
		.flags = VK_MEMORY_MAP_PLACED_BIT_EXT,
		.memory = piece->memory,
		.offset = offset,
		.size = size,
	};

	return d->map2(d->device, &info, &piece->mapped);
}

/* Frees [from, to) of an area; 0 or -errno. */
static int free_range(char *from, char *to)
{
	if (from < to && munmap(from, (size_t)(to - from)))
		return gdri_fail(errno, "munmap: %s", strerror(errno));
	return 0;
}

/*
 * Unmaps `count` pieces that fill the area from its start, and frees the area. Where the driver can
 * leave the range of an unmapped piece reserved it does, and we free it; otherwise the range is
 * gone with the unmap, may be another thread's already, and must not be touched.
 */
static int unmap_area(struct vulkan_pin *vp, size_t count)
{
	const struct gdri_vulkan_device *d = vp->device;
	char *at = vp->area, *ours = at;
	int rc = 0, rc2;

	for (size_t i = 0; i < count; i++) {
		struct piece *piece = &vp->pieces[i];
		VkMemoryUnmapInfo info = {
			.sType = VK_STRUCTURE_TYPE_MEMORY_UNMAP_INFO,
			.flags = d->unmap_reserve ? VK_MEMORY_UNMAP_RESERVE_BIT_EXT : 0,
			.memory = piece->memory,
		};
		bool unmapped = !d->unmap2(d->device, &info);
		char *end = at + (d->range_placed ? piece->size : piece->chunk_size);

		if (!unmapped)
			d->unmap(d->device, piece->memory);
		if (!unmapped || !d->unmap_reserve) {
			rc2 = free_range(ours, at);
			rc = rc ? rc : rc2;
			ours = end;
		}
		at = end;
		piece->mapped = NULL;
	}
	rc2 = free_range(ours, vp->area + vp->area_size);
	vp->area = NULL;
	return rc ? rc : rc2;
}

/* Reserves vp->area_size bytes at a GPU page's alignment as vp->area. */
static int reserve_area(struct vulkan_pin *vp)
{
	size_t align = GPU_PAGE_SIZE, reserved = vp->area_size + align, head;
	char *p =
		mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return gdri_fail(ENOMEM, "no address space for %zu bytes", reserved);
	vp->area = (char *)(((uintptr_t)p + align - 1) & ~(align - 1));
	head = (size_t)(vp->area - p);
	if (head)
		munmap(p, head);
	if (align - head)
		munmap(vp->area + vp->area_size, align - head);
	return 0;
}

/*
 * Maps the pieces side by side, as many as `length` needs. Where a placed map must be a whole
 * memory object (range_placed is not there: driver 580) the chunks lie there whole, and the pointer
 * begins inside the first.
 */
static int map_area(struct vulkan_pin *vp, size_t length, void **out)
{
	bool whole = !vp->device->range_placed;
	size_t lead = whole ? vp->pieces[0].offset : 0, at = 0, count = 0;
	VkResult r;
	int rc;

	vp->area_size = 0;
	while (vp->area_size < lead + length) {
		vp->area_size += whole ? vp->pieces[count].chunk_size : vp->pieces[count].size;
		count++;
	}
	rc = reserve_area(vp);
	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++) {
		struct piece *piece = &vp->pieces[i];
		uint64_t size = whole ? piece->chunk_size : piece->size;

		r = map_placed(vp->device, piece, whole ? 0 : piece->offset, size, vp->area + at);
		if (r) {
			rc = fail_map(r, vp->device);
			piece->mapped = NULL;
			unmap_area(vp, i);
			return rc;
		}
		at += size;
	}
	if (madvise(vp->area, vp->area_size, MADV_DONTFORK)) {
		rc = fail_dontfork(errno);
		unmap_area(vp, count);
		return rc;
	}
	*out = vp->area + lead;
	return 0;
}

/*
 * Without placed maps: a single piece, where the driver likes. The whole chunk is asked for: driver
 * 580 maps it whole for any part of it, and only a range that we know can be kept out of a child.
 * It also keeps the range readable after the unmap, until the unpin, which placed maps do not (both
 * seen on an H200, 2026-11-20).
 */
static int map_single(struct vulkan_pin *vp, void **out)
{
	const struct gdri_vulkan_device *d = vp->device;
	struct piece *piece = &vp->pieces[0];
	VkResult r = d->map(d->device, piece->memory, 0, piece->chunk_size, 0, &piece->mapped);

	if (r)
		return fail_map(r, d);
	if (madvise(piece->mapped, piece->chunk_size, MADV_DONTFORK)) {
		int rc = fail_dontfork(errno);

		d->unmap(d->device, piece->memory);
		return rc;
	}
	*out = (char *)piece->mapped + piece->offset;
	return 0;
}

static int vulkan_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	struct vulkan_pin *vp = pin->priv;
	int rc = gdri_check_wish(pin, wish);

	if (rc)
		return rc;
	rc = can_place(vp->device) ? map_area(vp, pin->map_length, &pin->map)
				   : map_single(vp, &pin->map);
	if (rc)
		return rc;
	pin->copy_start = (uintptr_t)pin->map;
	pin->copy_end = pin->copy_start + pin->map_length;
	return 0;
}

static int vulkan_unmap(struct gdri_pin *pin)
{
	struct vulkan_pin *vp = pin->priv;
	size_t count = 0;

	if (!vp->area) {
		vp->device->unmap(vp->device->device, vp->pieces[0].memory);
		return 0;
	}
	/* A map of less than the pin may have needed fewer pieces. */
	while (count < vp->count && vp->pieces[count].mapped)
		count++;
	return unmap_area(vp, count);
}

const struct gdri_backend gdri_backend_vulkan = {
	.name = "vulkan",
	.id = GDR_BACKEND_VULKAN,
	.caps = 0,
	.open = vulkan_open,
	.close = gdri_default_close,
	.driver_version = gdri_default_driver_version,
	.attribute = vulkan_attribute,
	.pin = vulkan_pin,
	.unpin = vulkan_unpin,
	.map = vulkan_map,
	.unmap = vulkan_unmap,
	.callback_flag = gdri_default_callback_flag,
	.event_fd = gdri_default_event_fd,
	.after_fork = gdri_vulkan_after_fork,
};
