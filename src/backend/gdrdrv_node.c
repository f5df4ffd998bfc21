/* SPDX-License-Identifier: MIT */
/* See gdrdrv_node.h. It must not know how any of the drivers is made inside. */
#include "backend/gdrdrv_node.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "abi/gdrdrv.h"
#include "base/error.h"
#include "base/process.h"

int gdri_node_call(const struct gdri_node *node, unsigned long request, void *arg)
{
	while (ioctl(node->fd, request, arg))
		if (errno != EINTR)
			return errno;
	return 0;
}

/* The errno of the interface for one of the node's. */
static int public_errno(int err)
{
	switch (err) {
	case EINVAL:
	case EACCES:
	case ENOMEM:
	case ENODEV:
	case EOVERFLOW:
		return err;
	case EPERM:
		return EACCES;
	case ENOSPC:
		return ENOMEM;
	case ENOTTY:
	case EOPNOTSUPP:
	case GDRDRV_ENOTSUPP:
		return ENOTSUP;
	default:
		return EIO;
	}
}

static const char *errno_name(int err)
{
	return err == GDRDRV_ENOTSUPP ? "Operation not supported" : strerror(err);
}

int gdri_node_fail(const char *what, int err)
{
	return gdri_fail(public_errno(err), "%s: %s", what, errno_name(err));
}

static int fail_open(int err)
{
	switch (err) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
		return gdri_fail(ENODEV, "no " GDRDRV_NODE ": the gdrdrv driver is not loaded");
	case EACCES:
	case EPERM:
		return gdri_fail(EACCES,
				 GDRDRV_NODE " may not be opened: %s (permissions of the "
					     "node, or the container's device list)",
				 strerror(err));
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return gdri_fail(err, GDRDRV_NODE ": %s", strerror(err));
	default:
		return gdri_fail(ENODEV, GDRDRV_NODE ": %s", strerror(err));
	}
}

/* What a driver says of an attribute; `absent` where it does not know it, or cannot be asked. */
static uint32_t ask_attribute(const struct gdri_node *node, uint32_t attr, uint32_t absent)
{
	struct gdrdrv_get_attr a = { .attr = attr };

	if (node->version < GDRDRV_HAS_ATTR || gdri_node_call(node, GDRDRV_IOC_GET_ATTR, &a))
		return absent;
	return a.val;
}

/* By what memory can be named, as GDRDRV_SOURCES_*. */
static uint32_t ask_sources(const struct gdri_node *node)
{
	return ask_attribute(node, GDRDRV_ATTR_SOURCES, GDRDRV_SOURCES_ADDRESS);
}

static int check_version(struct gdri_node *node)
{
	struct gdrdrv_get_version v = { 0 };
	int err = gdri_node_call(node, GDRDRV_IOC_GET_VERSION, &v);

	if (err == ENOTTY || err == EINVAL)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver is older than 2.0: it reports no version");
	if (err)
		return gdri_node_fail("GET_VERSION", err);
	node->version = v.gdrdrv_version;
	if (v.gdrdrv_version < MINIMUM_GDRDRV_VERSION)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver is %u.%u; %d.%d is the oldest that works",
				 v.gdrdrv_version >> MAJOR_VERSION_SHIFT,
				 v.gdrdrv_version & MINOR_VERSION_MASK,
				 MINIMUM_GDRDRV_MAJOR_VERSION, MINIMUM_GDRDRV_MINOR_VERSION);
	/* A driver without pins by address says so by a level that is for older libraries. */
	if (v.minimum_gdr_api_version > GDR_API_VERSION &&
	    ask_sources(node) != GDRDRV_SOURCES_DMABUF)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver (%u.%u) wants a libgdrapi of %u.%u or newer; "
				 "this one is %d.%d",
				 v.gdrdrv_version >> MAJOR_VERSION_SHIFT,
				 v.gdrdrv_version & MINOR_VERSION_MASK,
				 v.minimum_gdr_api_version >> MAJOR_VERSION_SHIFT,
				 v.minimum_gdr_api_version & MINOR_VERSION_MASK,
				 GDR_API_MAJOR_VERSION, GDR_API_MINOR_VERSION);
	return 0;
}

static int choose_source(struct gdri_node *node, bool dmabuf)
{
	uint32_t sources = ask_sources(node);

	if (dmabuf && !(sources & GDRDRV_SOURCES_DMABUF))
		return gdri_fail(ENODEV, "this gdrdrv driver (%u.%u) cannot pin by dma-buf",
				 node->version >> MAJOR_VERSION_SHIFT,
				 node->version & MINOR_VERSION_MASK);
	node->takes_dmabuf = sources & GDRDRV_SOURCES_DMABUF;
	node->by_dmabuf = dmabuf || sources == GDRDRV_SOURCES_DMABUF;
	node->persistent =
		node->by_dmabuf || ask_attribute(node, GDRDRV_ATTR_USE_PERSISTENT_MAPPING, 0);
	node->force_pcie = !node->by_dmabuf && node->version >= GDRDRV_HAS_PIN_V2 &&
			   ask_attribute(node, GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, 0);
	return 0;
}

int gdri_node_open(struct gdri_node *node, bool dmabuf)
{
	int rc;

	do
		node->fd = gdri_fork_open(GDRDRV_NODE, O_RDWR);
	while (node->fd < 0 && errno == EINTR);
	if (node->fd < 0)
		return fail_open(errno);
	rc = check_version(node);
	if (!rc)
		rc = choose_source(node, dmabuf);
	if (rc)
		gdri_fork_close(node->fd);
	return rc;
}

void gdri_node_close(struct gdri_node *node)
{
	gdri_fork_close(node->fd);
}

static int fail_pin(int err)
{
	if (err == ENOMEM || err == ENOSPC)
		return gdri_fail(ENOMEM, "PIN_BUFFER: no memory, or BAR1 is full");
	return gdri_node_fail("PIN_BUFFER", err);
}

/*
 * P2P tokens are dropped: memory of the caller's own process needs none, and that of another's is
 * none of his. Drivers of level 2.5 and later refuse them.
 */
int gdri_node_pin(const struct gdri_node *node, const struct gdri_pin_request *request,
		  uint64_t *handle)
{
	int err;

	/* Whole GPU pages: what every level pins, and some tell only if it was asked for. */
	if (node->version >= GDRDRV_HAS_PIN_V2) {
		struct gdrdrv_pin_buffer_v2 p = {
			.addr = request->va,
			.size = request->mapped_size,
			.flags = request->flags & GDR_PIN_FLAG_FORCE_PCIE
					 ? GDRDRV_PIN_FLAG_FORCE_PCIE
					 : 0,
		};

		err = gdri_node_call(node, GDRDRV_IOC_PIN_BUFFER_V2, &p);
		*handle = p.handle;
	} else {
		struct gdrdrv_pin_buffer p = {
			.addr = request->va,
			.size = request->mapped_size,
		};

		err = gdri_node_call(node, GDRDRV_IOC_PIN_BUFFER, &p);
		*handle = p.handle;
	}
	return err ? fail_pin(err) : 0;
}

int gdri_node_unpin(const struct gdri_node *node, uint64_t handle)
{
	struct gdrdrv_unpin_buffer u = { .handle = handle };
	int err = gdri_node_call(node, GDRDRV_IOC_UNPIN_BUFFER, &u);

	return err ? gdri_node_fail("UNPIN_BUFFER", err) : 0;
}

/* What GET_INFO, which knows write-combining alone, says of a mapping. */
static gdr_mapping_type_t old_type(const struct gdrdrv_get_info *info)
{
	if (!info->mapped)
		return GDR_MAPPING_TYPE_NONE;
	if (info->wc_mapping)
		return GDR_MAPPING_TYPE_WC;
#ifdef __aarch64__
	/* Cached or device memory: what is right for device memory is right for both. */
	return GDR_MAPPING_TYPE_DEVICE;
#else
	return GDR_MAPPING_TYPE_CACHING;
#endif
}

int gdri_node_get_info(const struct gdri_node *node, uint64_t handle, struct gdri_node_info *out)
{
	int err;

	if (node->version >= GDRDRV_HAS_INFO_V2) {
		struct gdrdrv_get_info_v2 info = { .handle = handle };

		err = gdri_node_call(node, GDRDRV_IOC_GET_INFO_V2, &info);
		if (!err)
			*out = (struct gdri_node_info){
				.va = info.va,
				.mapped_size = info.mapped_size,
				.tm_cycles = info.tm_cycles,
				.page_size = info.page_size,
				.tsc_khz = info.tsc_khz,
				.type = (gdr_mapping_type_t)info.mapping_type,
			};
	} else {
		struct gdrdrv_get_info info = { .handle = handle };

		err = gdri_node_call(node, GDRDRV_IOC_GET_INFO, &info);
		if (!err)
			*out = (struct gdri_node_info){
				.va = info.va,
				.mapped_size = info.mapped_size,
				.tm_cycles = info.tm_cycles,
				.page_size = info.page_size,
				.tsc_khz = info.tsc_khz,
				.type = old_type(&info),
			};
	}
	return err ? gdri_node_fail("GET_INFO", err) : 0;
}

int gdri_node_get_flag(const struct gdri_node *node, uint64_t handle, int *flag)
{
	struct gdrdrv_get_cb_flag f = { .handle = handle };
	int err = gdri_node_call(node, GDRDRV_IOC_GET_CB_FLAG, &f);

	if (err)
		return gdri_node_fail("GET_CB_FLAG", err);
	*flag = f.flag != 0;
	return 0;
}

int gdri_node_request_type(const struct gdri_node *node, uint64_t handle, gdr_mapping_type_t type)
{
	struct gdrdrv_req_mapping_type r = { .handle = handle, .mapping_type = type };
	int err;

	if (node->version < GDRDRV_HAS_MAPPING_TYPE)
		return 0;
	err = gdri_node_call(node, GDRDRV_IOC_REQ_MAPPING_TYPE, &r);
	return err && err != ENOTTY ? gdri_node_fail("REQ_MAPPING_TYPE", err) : 0;
}

bool gdri_node_populate(const struct gdri_node *node, uint64_t handle)
{
	struct gdrdrv_populate p = { .handle = handle };

	return !gdri_node_call(node, GDRDRV_IOC_POPULATE, &p);
}
