/* SPDX-License-Identifier: MIT */
/*
 * The gdrdrv backend: the kernel driver's node pins any device memory and maps it. One descriptor
 * per context. The calls, and what they are at which level of the driver, are gdrdrv_node.c's.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/gdrdrv.h"
#include "backend/backend.h"
#include "backend/gdrdrv_node.h"
#include "backend/probe.h"
#include "base/error.h"

struct gdrdrv_pin {
	const struct gdri_node *node;
	uint64_t handle;
};

static int open_node(void **state, bool dmabuf)
{
	struct gdri_node *node;
	int rc;

	node = malloc(sizeof(*node));
	if (!node)
		return gdri_fail(ENOMEM, "no memory for a context");
	rc = gdri_node_open(node, dmabuf);
	if (rc) {
		free(node);
		return rc;
	}
	*state = node;
	return 0;
}

static int gdrdrv_open(bool decides, void **state)
{
	(void)decides;
	return open_node(state, false);
}

static int gdrdrv_dmabuf_open(bool decides, void **state)
{
	(void)decides;
	return open_node(state, true);
}

static void gdrdrv_close(void *state)
{
	gdri_node_close(state);
	free(state);
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

	switch (attr) {
	case GDR_ATTR_USE_PERSISTENT_MAPPING:
		return node->persistent;
	case GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE:
		return node->force_pcie;
	default:
		return 0;
	}
}

/* The region must hold what was asked for, and begin where a mapping of it can begin. */
static int check_region(const struct gdri_node_info *info, const struct gdri_pin_request *request)
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

/* Unpins without a word: the failure that led here is the one to be told. */
static void undo_pin(const struct gdrdrv_pin *gp)
{
	char text[256];

	snprintf(text, sizeof(text), "%s", gdri_error_text());
	if (gdri_node_unpin(gp->node, gp->handle))
		gdri_error_set(EIO, "%s", text);
}

static int gdrdrv_pin(void *state, const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct gdri_node *node = state;
	bool handed_over = request->imported && request->imported->dmabuf;
	struct gdri_node_info info;
	struct gdrdrv_pin *gp;
	int rc;

	if (handed_over && !node->takes_dmabuf)
		return gdri_fail(ENOTSUP, "this gdrdrv driver takes no dma-buf");
	gp = malloc(sizeof(*gp));
	if (!gp)
		return gdri_fail(ENOMEM, "no memory for a pin");
	gp->node = node;
	rc = handed_over || node->by_dmabuf ? gdri_node_pin_dmabuf(node, request, &gp->handle)
					    : gdri_node_pin(node, request, &gp->handle);
	if (rc)
		goto err_free;
	rc = gdri_node_get_info(node, gp->handle, &info);
	if (!rc)
		rc = check_region(&info, request);
	if (rc)
		goto err_unpin;
	pin->va = info.va;
	pin->mapped_size = info.mapped_size;
	pin->page_size = info.page_size;
	pin->tm_cycles = info.tm_cycles;
	pin->cycles_per_ms = info.tsc_khz;
	pin->persistent = handed_over || node->persistent;
	pin->type = GDR_MAPPING_TYPE_WC; /* of BAR1; the first map tells if it is another one */
	pin->priv = gp;
	return 0;

err_unpin:
	undo_pin(gp);
err_free:
	free(gp);
	return rc;
}

static int gdrdrv_unpin(struct gdri_pin *pin)
{
	struct gdrdrv_pin *gp = pin->priv;
	int rc = gdri_node_unpin(gp->node, gp->handle);

	free(gp);
	return rc;
}

static int refuse_wish(gdr_mapping_type_t wish)
{
	const char *name = "";

	name = gdri_mapping_type_name(wish);
	return gdri_fail(ENOTSUP, "this memory cannot be mapped as \"%s\"", name);
}

static int fail_map(int err, size_t length)
{
	switch (err) {
	case ENOMEM:
		return gdri_fail(ENOMEM, "no address space for %zu bytes", length);
	case EINVAL:
		return gdri_fail(EINVAL,
				 "the driver refuses to map the region (has its memory been "
				 "freed?)");
	default:
		return gdri_node_fail("mmap of " GDRDRV_NODE, err);
	}
}

static int map_region(const struct gdrdrv_pin *gp, size_t length, void **out)
{
	int shift = __builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
	void *map;

	if (gp->handle >> (63 - shift))
		return gdri_fail(EOVERFLOW, "handle 0x%llx has no mmap offset",
				 (unsigned long long)gp->handle);
	map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, gp->node->fd,
		   (off_t)(gp->handle << shift));
	if (map == MAP_FAILED)
		return fail_map(errno, length);
	/* The driver refuses a child's faults too; this keeps the mapping out of it at all. */
	if (madvise(map, length, MADV_DONTFORK)) {
		int err = errno;

		munmap(map, length);
		return gdri_fail(err == ENOMEM ? ENOMEM : ENOTSUP, "madvise(MADV_DONTFORK): %s",
				 strerror(err));
	}
	/* Page-table entries are made on fault: now, not in the first copy. */
	if (!gdri_node_populate(gp->node, gp->handle) && !gdri_probe_range(map, length)) {
		munmap(map, length);
		return gdri_fail(EINVAL,
				 "the mapping cannot be read: the GPU driver has revoked it");
	}
	*out = map;
	return 0;
}

static int gdrdrv_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	const struct gdrdrv_pin *gp = pin->priv;
	struct gdri_node_info info;
	int rc;

	/* Always told, NONE too: an earlier wish would still be in force. */
	rc = gdri_node_request_type(gp->node, gp->handle, wish);
	if (rc == -ENOTSUP && wish != GDR_MAPPING_TYPE_NONE)
		return refuse_wish(wish);
	if (rc)
		return rc;
	rc = map_region(gp, pin->map_length, &pin->map);
	if (rc)
		return rc;
	rc = gdri_node_get_info(gp->node, gp->handle, &info);
	if (rc)
		goto err_unmap;
	if (wish != GDR_MAPPING_TYPE_NONE && info.type != wish) {
		rc = refuse_wish(wish);
		goto err_unmap;
	}
	/* NONE: revoked in this very moment; the plan of the pin's type does no harm then. */
	if (info.type != GDR_MAPPING_TYPE_NONE)
		pin->map_type = info.type;
	if (wish == GDR_MAPPING_TYPE_NONE)
		pin->type = pin->map_type;
	pin->copy_start = (uintptr_t)pin->map;
	pin->copy_end = pin->copy_start + pin->map_length;
	return 0;

err_unmap:
	munmap(pin->map, pin->map_length);
	return rc;
}

static int gdrdrv_unmap(struct gdri_pin *pin)
{
	if (munmap(pin->map, pin->map_length))
		return gdri_fail(errno, "munmap: %s", strerror(errno));
	return 0;
}

static int gdrdrv_callback_flag(struct gdri_pin *pin, int *flag)
{
	const struct gdrdrv_pin *gp = pin->priv;

	return gdri_node_get_flag(gp->node, gp->handle, flag);
}

/*
 * The node itself. A driver without poll of its own leaves the answer to the kernel, which then
 * says that writing would not block; ours never says that. In persistent mode too: a pin for which
 * the GPU driver has no persistent pages can be revoked.
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
				 node->version >> MAJOR_VERSION_SHIFT,
				 node->version & MINOR_VERSION_MASK);
	*fd = node->fd;
	return 0;
}

#define GDRDRV_OPS                                                                        \
	.id = BARCOPY_BACKEND_GDRDRV,                                                     \
	.caps = GDRI_CAP_DEVICE_MEMORY | GDRI_CAP_UNKNOWN_MEMORY | GDRI_CAP_TAKES_DMABUF, \
	.close = gdrdrv_close, .driver_version = gdrdrv_driver_version,                   \
	.attribute = gdrdrv_attribute, .pin = gdrdrv_pin, .unpin = gdrdrv_unpin,          \
	.map = gdrdrv_map, .unmap = gdrdrv_unmap, .callback_flag = gdrdrv_callback_flag,  \
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
