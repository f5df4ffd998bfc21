// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Pages by importing a dma-buf of the GPU driver: kernel headers alone, no symbol of nvidia.ko.
 *
 * The buffer is attached with the GPU's own device, so that its driver gives out the pages of the
 * frame-buffer BAR as it would to any peer. Today's exporter never takes them back, and keeps the
 * memory allocated until the last importer lets go: pins are persistent, and released in any
 * process. Should an exporter ever move a buffer, dmabuf_notify() treats it like a free callback.
 *
 * The caller names a descriptor and a PCI function; what makes it safe to map what comes back is,
 * in this order:
 *
 *	the function is a GPU, bound to the GPU driver		gdrdrv_gpu_get()
 *	the buffer was exported by that very module		dmabuf_check_exporter()
 *	every entry of it lies in that GPU's frame-buffer BAR	dmabuf_walk(), gdrdrv_gpu_to_cpu()
 *
 * The third alone decides; the others keep us from calling into an exporter we do not know, and
 * from a buffer of the same BAR that somebody else exports (vfio-pci can).
 *
 * Locks: dma_resv of the buffer is taken around pin, map, walk, unmap, and is held by the exporter
 * around dmabuf_notify(), which takes mr->lock inside it. Never with mr->lock or mmap_lock held;
 * never across attach, detach, get or put.
 *
 * Must not know mappings, handles or files of ours.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "gdrdrv.h"
#include "gpu.h"

struct dmabuf_pin {
	struct gdrdrv_mr *mr; /* lives longer: it is put after ->release */
	struct dma_buf *buf; /* a reference; so it stays allocated, its exporter loaded */
	struct dma_buf_attachment *attach;
	struct gdrdrv_gpu gpu;
	u64 offset; /* of the region in the buffer */
	struct sg_table *sgt; /* dma_resv; NULL: not mapped, or taken back */
	int nr_runs; /* of the region; 0 until they have been counted */
};

static int dmabuf_check_exporter(const struct dma_buf *buf, const struct gdrdrv_gpu *gpu)
{
	if (!buf->owner || buf->owner != gpu->driver)
		return -EINVAL;
	/* Names that the GPU driver's branches export under: 535 to 570, 580 and later. */
	if (strcmp(buf->exp_name, "nvidia") && strcmp(buf->exp_name, "nv_dmabuf"))
		return -EINVAL;
	return 0;
}

/* Adds @len bytes at @phys, which are at @off in the buffer, as far as the region reaches there. */
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
 * Checks every entry, also those outside the region, and merges those inside into runs. PCI's
 * default segment size cuts a buffer into pieces of 64 KiB.
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

/* The exporter moves the buffer or takes it away. Called with dma_resv held. */
static void dmabuf_notify(struct dma_buf_attachment *attach)
{
	struct dmabuf_pin *pin = attach->importer_priv;

	dma_resv_assert_held(pin->buf->resv);
	if (!pin->sgt)
		return;
	gdrdrv_mr_revoke(pin->mr);
	/* The attachment stays until the unpin: it cannot be given up from in here. */
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

/* Maps for as long as the pin lives: with a dynamic BAR1 the unmapping gives the window back. */
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

	/* Looking at every entry of a large buffer takes long. */
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
	/* The whole buffer is looked at here: what follows may count on it. */
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
