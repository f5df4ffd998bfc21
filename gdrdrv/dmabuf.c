// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Pages from a dma-buf that the GPU driver exported. Needs kernel headers only and no symbol of
 * nvidia.ko.
 *
 * The GPU's own device is attached to the buffer, so the exporter returns addresses in the
 * frame-buffer BAR, as it does for any peer. Exporters up to today never move a buffer, and keep
 * its memory allocated until the last importer detaches: pins are persistent, and any process may
 * release them. If an exporter does move a buffer, dmabuf_notify() acts as a free callback.
 *
 * The caller passes a descriptor and a PCI function. Three checks make the result safe to map:
 *
 *	the function is a GPU, bound to the GPU driver		gdrdrv_gpu_get()
 *	the same module exported the buffer			dmabuf_check_exporter()
 *	every entry lies in that GPU's frame-buffer BAR		dmabuf_walk(), gdrdrv_gpu_to_cpu()
 *
 * The third check is the one that protects memory. The first two avoid calls into unknown
 * exporters, and refuse a buffer of the same BAR from another exporter (vfio-pci can be one).
 *
 * Locks: pin, map, walk and unmap run under the buffer's dma_resv, and the exporter holds it around
 * dmabuf_notify(), which takes mr->lock. dma_resv is never taken with mr->lock or mmap_lock held,
 * and never held across attach, detach, get or put.
 *
 * Knows neither mappings, handles nor the driver's own files.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "gdrdrv.h"
#include "gpu.h"

struct dmabuf_pin {
	struct gdrdrv_mr *mr; /* no reference: the region outlives ->release */
	struct dma_buf *buf; /* a reference: keeps the memory allocated and the exporter loaded */
	struct dma_buf_attachment *attach;
	struct gdrdrv_gpu gpu;
	u64 offset; /* of the region in the buffer */
	struct sg_table *sgt; /* dma_resv; NULL: not mapped, or revoked */
	int nr_runs; /* number of runs of the region; 0 until counted */
};

static int dmabuf_check_exporter(const struct dma_buf *buf, const struct gdrdrv_gpu *gpu)
{
	if (!buf->owner || buf->owner != gpu->driver)
		return -EINVAL;
	/* Exporter names of the GPU driver: 535 to 570, and 580 or later. */
	if (strcmp(buf->exp_name, "nvidia") && strcmp(buf->exp_name, "nv_dmabuf"))
		return -EINVAL;
	return 0;
}

/* Adds to the runs the part of [off, off + len) of the buffer, at @phys, that the region covers. */
static void dmabuf_add_run(const struct dmabuf_pin *pin, u64 off, phys_addr_t phys, u64 len,
			   struct gdrdrv_range *run, u32 *n)
{
	u64 first = max(off, pin->offset), last = min(off + len, pin->offset + pin->mr->size);

	if (first >= last)
		return;
	phys += first - off;
	if (run->len && phys == run->start + run->len) {
		run->len += last - first;
		return;
	}
	*run = (struct gdrdrv_range){
		.off = first - pin->offset,
		.len = last - first,
		.start = phys,
	};
	++*n;
}

/*
 * Checks every entry of the buffer and merges the entries inside the region into runs. The entries
 * are 64 KiB long, the default segment size of PCI devices.
 */
static int dmabuf_walk(struct dmabuf_pin *pin, struct gdrdrv_range *out, u32 max)
{
	struct gdrdrv_range run = {};
	struct scatterlist *sg;
	u64 off = 0;
	u32 n = 0;
	int i, ret;

	dma_resv_assert_held(pin->buf->resv);
	for_each_sgtable_dma_sg(pin->sgt, sg, i) {
		u64 len = sg_dma_len(sg);
		phys_addr_t phys;

		ret = gdrdrv_gpu_to_cpu(&pin->gpu, sg_dma_address(sg), len, &phys);
		if (ret)
			return ret;
		if (len > pin->buf->size - off)
			return -EINVAL;
		dmabuf_add_run(pin, off, phys, len, &run, &n);
		if (n && n <= max)
			out[n - 1] = run;
		if (n > INT_MAX - 1)
			return -EOVERFLOW;
		off += len;
		cond_resched();
	}
	return off == pin->buf->size ? n : -EINVAL;
}

/* The exporter is about to move the buffer or to withdraw it. Called with dma_resv held. */
static void dmabuf_notify(struct dma_buf_attachment *attach)
{
	struct dmabuf_pin *pin = attach->importer_priv;

	dma_resv_assert_held(pin->buf->resv);
	if (!pin->sgt)
		return;
	gdrdrv_mr_revoke(pin->mr);
	/* Detaching is not possible here: the attachment stays until the unpin. */
	dma_buf_unmap_attachment(attach, pin->sgt, DMA_BIDIRECTIONAL);
	pin->sgt = NULL;
}

static const struct dma_buf_attach_ops dmabuf_attach_ops = {
	.allow_peer2peer = true,
	.GDRDRV_DMABUF_NOTIFY = dmabuf_notify,
};

static void dmabuf_unmap(struct dmabuf_pin *pin)
{
	dma_resv_lock(pin->buf->resv, NULL);
	if (pin->sgt)
		dma_buf_unmap_attachment(pin->attach, pin->sgt, DMA_BIDIRECTIONAL);
	pin->sgt = NULL;
	dma_buf_unpin(pin->attach);
	dma_resv_unlock(pin->buf->resv);
}

/* The attachment stays mapped while the pin lives: unmapping gives up a dynamic BAR1 window. */
static int dmabuf_map(struct dmabuf_pin *pin)
{
	struct sg_table *sgt;
	int ret;

	dma_resv_lock(pin->buf->resv, NULL);
	ret = dma_buf_pin(pin->attach);
	if (ret)
		goto unlock;
	sgt = dma_buf_map_attachment(pin->attach, DMA_BIDIRECTIONAL);
	if (IS_ERR(sgt)) {
		ret = PTR_ERR(sgt);
		dma_buf_unpin(pin->attach);
		goto unlock;
	}
	pin->sgt = sgt;
unlock:
	dma_resv_unlock(pin->buf->resv);
	return ret;
}

static int dmabuf_ranges(struct gdrdrv_mr *mr, struct gdrdrv_range *out, u32 max)
{
	struct dmabuf_pin *pin = mr->src_data;
	int ret = -EINVAL;

	/* Do not walk a large buffer again just to count. */
	if (!max && pin->nr_runs)
		return pin->nr_runs;
	dma_resv_lock(pin->buf->resv, NULL);
	if (pin->sgt)
		ret = dmabuf_walk(pin, out, max);
	dma_resv_unlock(pin->buf->resv);
	mr->page_size = GDRDRV_PIN_SIZE;
	return ret;
}

static int dmabuf_import(struct dmabuf_pin *pin, const struct gdrdrv_pin_req *req)
{
	int ret;

	ret = gdrdrv_gpu_get(&pin->gpu, req->pci_domain, req->pci_bus, req->pci_devfn);
	if (ret)
		return ret;
	pin->buf = dma_buf_get(req->fd);
	if (IS_ERR(pin->buf)) {
		ret = PTR_ERR(pin->buf);
		goto err_put_gpu;
	}
	ret = dmabuf_check_exporter(pin->buf, &pin->gpu);
	if (ret)
		goto err_put_buf;
	ret = -EINVAL;
	if (req->offset > pin->buf->size || req->size > pin->buf->size - req->offset)
		goto err_put_buf;
	pin->offset = req->offset;
	pin->mr->read_only = !(pin->buf->file->f_mode & FMODE_WRITE);

	pin->attach =
		dma_buf_dynamic_attach(pin->buf, &pin->gpu.pdev->dev, &dmabuf_attach_ops, pin);
	if (IS_ERR(pin->attach)) {
		ret = PTR_ERR(pin->attach);
		goto err_put_buf;
	}
	ret = dmabuf_map(pin);
	if (ret)
		goto err_detach;
	/* Checks the whole buffer before the pin counts as made. */
	ret = dmabuf_ranges(pin->mr, NULL, 0);
	if (ret < 0)
		goto err_unmap;
	pin->nr_runs = ret;
	return 0;

err_unmap:
	dmabuf_unmap(pin);
err_detach:
	dma_buf_detach(pin->buf, pin->attach);
err_put_buf:
	dma_buf_put(pin->buf);
err_put_gpu:
	gdrdrv_gpu_put(&pin->gpu);
	return ret;
}

static int dmabuf_pin(struct gdrdrv_mr *mr, const struct gdrdrv_pin_req *req)
{
	struct dmabuf_pin *pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!pin)
		return -ENOMEM;
	pin->mr = mr;
	mr->src_data = pin;
	atomic_inc(&gdrdrv_source_pins);
	ret = dmabuf_import(pin, req);
	if (ret) {
		atomic_dec(&gdrdrv_source_pins);
		return ret;
	}
	mr->any_context = true;
	atomic64_inc(&gdrdrv_stats.pins_persistent);
	atomic64_inc(&gdrdrv_stats.pins_dmabuf);
	return 0;
}

static void dmabuf_release(struct gdrdrv_mr *mr)
{
	struct dmabuf_pin *pin = mr->src_data;

	dmabuf_unmap(pin);
	dma_buf_detach(pin->buf, pin->attach);
	dma_buf_put(pin->buf);
	gdrdrv_gpu_put(&pin->gpu);
	atomic_dec(&gdrdrv_source_pins);
}

const struct gdrdrv_source_ops gdrdrv_dmabuf = {
	.name = "dma-buf",
	.by = GDRDRV_BY_DMABUF,
	.unit = PAGE_SIZE,
	.has_persistent = true,
	.pin = dmabuf_pin,
	.ranges = dmabuf_ranges,
	.release = dmabuf_release,
};

GDRDRV_IMPORT_NS("DMA_BUF");
