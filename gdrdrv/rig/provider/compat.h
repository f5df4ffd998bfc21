/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Differences between kernels; the only file of the provider that tests a kernel's version. */
#ifndef PROVIDER_COMPAT_H
#define PROVIDER_COMPAT_H

#include <linux/dma-buf.h>
#include <linux/dma-map-ops.h>
#include <linux/version.h>

/* Whether this kernel gives the real exporter IOVAs for a peer, instead of bus addresses. */
static inline bool provider_dev_translates(struct device *dev)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
	const struct dma_map_ops *ops = get_dma_ops(dev);

	return ops && ops->map_resource;
#else
	return false;
#endif
}

/* Notifies the importers. Called with dma_resv held. */
static inline void provider_notify(struct dma_buf *dmabuf)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)
	dma_buf_move_notify(dmabuf);
#else
	dma_buf_invalidate_mappings(dmabuf);
#endif
}

#endif
