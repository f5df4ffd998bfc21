/* SPDX-License-Identifier: MIT */
/* The gdrdrv backend: the kernel driver pins and maps any device memory. One node per context. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/gdrdrv.h"
#include "backend/backend.h"
#include "backend/gdrdrv_node.h"
#include "base/error.h"

static int gdrdrv_open(bool decides, void **state)
{
	(void)decides;
	return gdri_node_open(state, false);
}

static int gdrdrv_dmabuf_open(bool decides, void **state)
{
	(void)decides;
	return gdri_node_open(state, true);
}

static int gdrdrv_driver_version(void *state, int *major, int *minor)
{
	const struct gdri_node *node = state;

	*major = (int)(node->version >> MAJOR_VERSION_SHIFT);
	*minor = (int)(node->version & MINOR_VERSION_MASK);
	return 0;
}

static int gdrdrv_attribute(void *state, gdr_attr_t attr)
{
	const struct gdri_node *node = state;

	return (attr == GDR_ATTR_USE_PERSISTENT_MAPPING && node->persistent) ||
	       (attr == GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE && node->force_pcie);
}

/* The type of a mapping by GET_INFO, which only knows whether it is write-combined. */
static uint32_t old_type(const struct gdrdrv_get_info *info)
{
	if (!info->mapped)
		return GDR_MAPPING_TYPE_NONE;
	if (info->wc_mapping)
		return GDR_MAPPING_TYPE_WC;
#ifdef __aarch64__
	/* Cached or Device memory: copies for Device memory are right for both. */
	return GDR_MAPPING_TYPE_DEVICE;
#else
	return GDR_MAPPING_TYPE_CACHING;
#endif
}

/* By the call that the driver has; the two structures differ in the last two words only. */
static int get_info(const struct gdri_node *node, uint64_t handle, struct gdrdrv_get_info_v2 *out)
{
	struct gdrdrv_get_info old = { .handle = handle };
	int err;

	*out = (struct gdrdrv_get_info_v2){ .handle = handle };
	if (node->version >= GDRDRV_HAS_INFO_V2) {
		err = gdri_node_call(node, GDRDRV_IOC_GET_INFO_V2, out);
	} else {
		err = gdri_node_call(node, GDRDRV_IOC_GET_INFO, &old);
		memcpy(out, &old, offsetof(struct gdrdrv_get_info, mapped));
		out->mapping_type = old_type(&old);
	}
	return gdri_node_result("GET_INFO", err);
}

/* Fails unless the region holds the request's range and can be mapped from its start. */
static int check_region(const struct gdrdrv_get_info_v2 *info,
			const struct gdri_pin_request *request)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (info->va > request->addr || info->va % page || info->mapped_size % page ||
	    request->addr - info->va > info->mapped_size ||
	    request->size > info->mapped_size - (request->addr - info->va))
		return gdri_fail(EIO, "the driver pinned 0x%llx + 0x%llx instead of 0x%llx + 0x%zx",
				 (unsigned long long)info->va,
				 (unsigned long long)info->mapped_size,
				 (unsigned long long)request->addr, request->size);
	return 0;
}

/*
 * Pins whole GPU pages by address: some driver levels pin only those. P2P tokens are not passed on:
 * memory of the process itself needs none, memory of another process is not served, and drivers
 * from level 2.5 on refuse them.
 */
static int pin_address(const struct gdri_node *node, const struct gdri_pin_request *request,
		       uint64_t *handle)
{
	struct gdrdrv_pin_buffer_v2 p = { .addr = request->va, .size = request->mapped_size };
	struct gdrdrv_pin_buffer old = { .addr = request->va, .size = request->mapped_size };
	bool v2 = node->version >= GDRDRV_HAS_PIN_V2;
	int err;

	if (request->flags & GDR_PIN_FLAG_FORCE_PCIE)
		p.flags = GDRDRV_PIN_FLAG_FORCE_PCIE;
	err = v2 ? gdri_node_call(node, GDRDRV_IOC_PIN_BUFFER_V2, &p)
		 : gdri_node_call(node, GDRDRV_IOC_PIN_BUFFER, &old);
	if (err == ENOMEM || err == ENOSPC)
		return gdri_fail(ENOMEM, "PIN_BUFFER: no memory, or BAR1 is full");
	*handle = v2 ? p.handle : old.handle;
	return gdri_node_result("PIN_BUFFER", err);
}

static int unpin(const struct gdri_node *node, uint64_t handle)
{
	struct gdrdrv_unpin_buffer u = { .handle = handle };

	return gdri_node_call(node, GDRDRV_IOC_UNPIN_BUFFER, &u);
}

static int gdrdrv_pin(void *state, const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct gdri_node *node = state;
	bool imported = gdri_is_dmabuf(request);
	struct gdrdrv_get_info_v2 info;
	int rc;

	if (imported && !node->takes_dmabuf)
		return gdri_fail(ENOTSUP, "this gdrdrv driver takes no dma-buf");
	rc = imported || node->by_dmabuf ? gdri_node_pin_dmabuf(node, request, &pin->handle)
					 : pin_address(node, request, &pin->handle);
	if (rc)
		return rc;
	rc = get_info(node, pin->handle, &info);
	if (!rc)
		rc = check_region(&info, request);
	if (rc) {
		unpin(node, pin->handle);
		return rc;
	}
	pin->va = info.va;
	pin->mapped_size = info.mapped_size;
	pin->page_size = info.page_size;
	pin->tm_cycles = info.tm_cycles;
	pin->cycles_per_ms = info.tsc_khz;
	pin->persistent = imported || node->persistent;
	pin->type = GDR_MAPPING_TYPE_WC; /* BAR1's; the first map corrects it */
	return 0;
}

static int gdrdrv_unpin(struct gdri_pin *pin)
{
	return gdri_node_result("UNPIN_BUFFER", unpin(pin->state, pin->handle));
}

static int refuse_wish(gdr_mapping_type_t wish)
{
	return gdri_fail(ENOTSUP, "this memory cannot be mapped as \"%s\"",
			 gdri_mapping_type_name(wish));
}

/*
 * Requests the type of the next mapping; NONE, the default, as well, since an earlier request would
 * still be in force. A driver without this call is no failure: the type of the mapping itself
 * decides.
 */
static int request_type(const struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	struct gdrdrv_req_mapping_type r = { .handle = pin->handle, .mapping_type = wish };
	const struct gdri_node *node = pin->state;
	int rc, err;

	if (node->version < GDRDRV_HAS_MAPPING_TYPE)
		return 0;
	err = gdri_node_call(node, GDRDRV_IOC_REQ_MAPPING_TYPE, &r);
	if (err == ENOTTY)
		return 0;
	rc = gdri_node_result("REQ_MAPPING_TYPE", err);
	return rc == -ENOTSUP && wish != GDR_MAPPING_TYPE_NONE ? refuse_wish(wish) : rc;
}

static int map_region(const struct gdri_pin *pin, void **map)
{
	int shift = __builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
	struct gdrdrv_populate populate = { .handle = pin->handle };
	const struct gdri_node *node = pin->state;
	int rc;

	if (pin->handle >> (63 - shift))
		return gdri_fail(EOVERFLOW, "handle 0x%llx has no mmap offset",
				 (unsigned long long)pin->handle);
	rc = gdri_pages_map(node->fd, (off_t)(pin->handle << shift), NULL, pin->map_length,
			    PROT_READ | PROT_WRITE, map);
	if (rc == EINVAL)
		return gdri_fail(EINVAL, "the driver refuses to map the region (has its memory "
					 "been freed?)");
	if (rc)
		return rc < 0 ? rc : gdri_node_result("mmap of " GDRDRV_NODE, rc);
	/* Makes the page-table entries now, not in the first copy; without POPULATE by loads. */
	if (gdri_node_call(node, GDRDRV_IOC_POPULATE, &populate) &&
	    !gdri_pages_readable(*map, pin->map_length)) {
		munmap(*map, pin->map_length);
		return gdri_fail(EINVAL,
				 "the mapping cannot be read: the GPU driver has revoked it");
	}
	return 0;
}

static int gdrdrv_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	struct gdrdrv_get_info_v2 info;
	void *map;
	int rc = request_type(pin, wish);

	if (!rc)
		rc = map_region(pin, &map);
	if (rc)
		return rc;
	rc = get_info(pin->state, pin->handle, &info);
	if (!rc && wish != GDR_MAPPING_TYPE_NONE && info.mapping_type != wish)
		rc = refuse_wish(wish);
	if (rc) {
		munmap(map, pin->map_length);
		return rc;
	}
	/* NONE: revoked just now; copies as for the pin's type do no harm then. */
	if (info.mapping_type != GDR_MAPPING_TYPE_NONE)
		pin->map_type = (gdr_mapping_type_t)info.mapping_type;
	if (wish == GDR_MAPPING_TYPE_NONE)
		pin->type = pin->map_type;
	gdri_pin_mapped(pin, map);
	return 0;
}

static int gdrdrv_callback_flag(struct gdri_pin *pin, int *flag)
{
	struct gdrdrv_get_cb_flag f = { .handle = pin->handle };
	int err = gdri_node_call(pin->state, GDRDRV_IOC_GET_CB_FLAG, &f);

	if (!err)
		*flag = f.flag != 0;
	return gdri_node_result("GET_CB_FLAG", err);
}

/*
 * The node itself. For a driver without poll the kernel answers that a write would not block, which
 * barcopy's driver never answers. In persistent mode too: a pin whose pages the GPU driver does not
 * keep can be revoked.
 */
static int gdrdrv_event_fd(void *state, int *fd)
{
	const struct gdri_node *node = state;
	struct pollfd p = { .fd = node->fd, .events = POLLPRI | POLLIN | POLLOUT };
	int n;

	do
		n = poll(&p, 1, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return gdri_fail(ENOTSUP, "poll of " GDRDRV_NODE ": %s", strerror(errno));
	if (p.revents & ~POLLPRI)
		return gdri_fail(ENOTSUP, "this gdrdrv driver (%u.%u) gives no notice",
				 GDRI_VERSION(node->version));
	*fd = node->fd;
	return 0;
}

#define GDRDRV_OPS                                                                           \
	.id = BARCOPY_BACKEND_GDRDRV,                                                        \
	.caps = GDRI_CAP_DEVICE_MEMORY | GDRI_CAP_UNKNOWN_MEMORY | GDRI_CAP_TAKES_DMABUF,    \
	.close = gdri_node_close, .driver_version = gdrdrv_driver_version,                   \
	.attribute = gdrdrv_attribute, .pin = gdrdrv_pin, .unpin = gdrdrv_unpin,             \
	.map = gdrdrv_map, .unmap = gdri_pages_unmap, .callback_flag = gdrdrv_callback_flag, \
	.event_fd = gdrdrv_event_fd

const struct gdri_backend gdri_backend_gdrdrv = {
	.name = "gdrdrv",
	.open = gdrdrv_open,
	GDRDRV_OPS,
};

const struct gdri_backend gdri_backend_gdrdrv_dmabuf = {
	.name = "gdrdrv-dmabuf",
	.open = gdrdrv_dmabuf_open,
	GDRDRV_OPS,
};
