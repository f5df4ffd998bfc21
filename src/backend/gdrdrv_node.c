/* SPDX-License-Identifier: MIT */
/* See gdrdrv_node.h. */
#include "backend/gdrdrv_node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "abi/gdrdrv.h"
#include "base/error.h"
#include "base/fork.h"

int gdri_node_call(const struct gdri_node *node, unsigned long request, void *arg)
{
	while (ioctl(node->fd, request, arg))
		if (errno != EINTR)
			return errno;
	return 0;
}

/* The interface's errno for the node's. */
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

int gdri_node_result(const char *what, int err)
{
	if (!err)
		return 0;
	return gdri_fail(public_errno(err), "%s: %s", what,
			 err == GDRDRV_ENOTSUPP ? "Operation not supported" : strerror(err));
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
	default:
		return gdri_fail(gdri_is_short(-err) ? err : ENODEV, GDRDRV_NODE ": %s",
				 strerror(err));
	}
}

/* An attribute's value; `absent` if the driver does not know it, or cannot be asked. */
static uint32_t ask_attribute(const struct gdri_node *node, uint32_t attr, uint32_t absent)
{
	struct gdrdrv_get_attr a = { .attr = attr };

	if (node->version < GDRDRV_HAS_ATTR || gdri_node_call(node, GDRDRV_IOC_GET_ATTR, &a))
		return absent;
	return a.val;
}

/* Fills in what the driver of an open node is and can do. */
static int ask(struct gdri_node *node, bool dmabuf)
{
	struct gdrdrv_get_version v = { 0 };
	int err = gdri_node_call(node, GDRDRV_IOC_GET_VERSION, &v);
	uint32_t sources;

	if (err == ENOTTY || err == EINVAL)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver is older than 2.0: it reports no version");
	if (err)
		return gdri_node_result("GET_VERSION", err);
	node->version = v.gdrdrv_version;
	if (node->version < MINIMUM_GDRDRV_VERSION)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver is %u.%u; %d.%d is the oldest that works",
				 GDRI_VERSION(node->version), MINIMUM_GDRDRV_MAJOR_VERSION,
				 MINIMUM_GDRDRV_MINOR_VERSION);
	sources = ask_attribute(node, GDRDRV_ATTR_SOURCES, GDRDRV_SOURCES_ADDRESS);
	/* A driver without pins by address has a minimum level that keeps GDRCopy's library out. */
	if (v.minimum_gdr_api_version > GDR_API_VERSION && sources != GDRDRV_SOURCES_DMABUF)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver (%u.%u) wants a libgdrapi of %u.%u or newer; "
				 "this one is %d.%d",
				 GDRI_VERSION(node->version),
				 GDRI_VERSION(v.minimum_gdr_api_version), GDR_API_MAJOR_VERSION,
				 GDR_API_MINOR_VERSION);
	if (dmabuf && !(sources & GDRDRV_SOURCES_DMABUF))
		return gdri_fail(ENODEV, "this gdrdrv driver (%u.%u) cannot pin by dma-buf",
				 GDRI_VERSION(node->version));
	node->takes_dmabuf = sources & GDRDRV_SOURCES_DMABUF;
	node->by_dmabuf = dmabuf || sources == GDRDRV_SOURCES_DMABUF;
	node->persistent =
		node->by_dmabuf || ask_attribute(node, GDRDRV_ATTR_USE_PERSISTENT_MAPPING, 0);
	node->force_pcie = !node->by_dmabuf && node->version >= GDRDRV_HAS_PIN_V2 &&
			   ask_attribute(node, GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, 0);
	return 0;
}

int gdri_node_open(void **out, bool dmabuf)
{
	struct gdri_node *node = malloc(sizeof(*node));
	int rc;

	if (!node)
		return gdri_fail(ENOMEM, "no memory for a context");
	node->fd = gdri_fork_open(GDRDRV_NODE, O_RDWR);
	rc = node->fd < 0 ? fail_open(errno) : ask(node, dmabuf);
	if (rc)
		gdri_node_close(node);
	else
		*out = node;
	return rc;
}

void gdri_node_close(void *state)
{
	struct gdri_node *node = state;

	if (node->fd >= 0)
		gdri_fork_close(node->fd);
	free(node);
}
