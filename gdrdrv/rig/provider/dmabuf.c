// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * dma-bufs of the stand-in GPU's memory, by the rules of the real exporter (kernel-open/nvidia/
 * nv-dmabuf.c of open-gpu-kernel-modules 535 to 580, and its nv_dma_map_peer()):
 *
 * - static: no pin, and it never notifies importers; the memory stays allocated from the export to
 *   the last reference, also after the end of its context;
 * - dynamic importers must allow peer to peer: refused at the attach (580), at the map (before);
 * - each contiguous range is cut into pieces of the importer's segment size, 64 KiB by default;
 * - a piece is an IOVA of the importer where the kernel's IOMMU code has DMA operations (before
 *   6.12) and translates, else an address on the bus, without any mapping;
 * - before 580 the piece that follows an IOVA was looked for behind that IOVA, outside the BAR: the
 *   map of a range of more than one piece failed there.
 *
 * PROVIDER_BUF_* make buffers that a real exporter never makes, for the importer to refuse.
 *
 * Lock order: the core's dma_resv, buf->lock, provider_bar.lock; in the real exporter dma_resv, the
 * buffer's lock, RM's lock.
 */
#define pr_fmt(fmt) "provider: " fmt

#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/fcntl.h>
#include <linux/pci.h>
#include <linux/sched.h>

#include "compat.h"
#include "nv-p2p.h"
#include "provider.h"

KNOB(seg_kib, 0, "KiB of a piece at most, 0: what the importer says");
KNOB(fail_map, 0, "every map of a dma-buf fails");
KNOB(any_importer, 0, "not only the GPU's own device, as under a common bridge");

/* Changes of 580. */
#ifdef P2P_TEST_TABLE_FLAGS
#define BUF_580	     1
#define BUF_EXP_NAME "nv_dmabuf"
#else
#define BUF_580	     0
#define BUF_EXP_NAME "nvidia"
#endif

struct buf {
	struct mutex lock; /* serializes map and unmap */
	struct provider_block *block; /* a reference */
	u64 first; /* page of the block */
	u64 size;
	u32 kind;
	struct page *ram; /* of PROVIDER_BUF_RAM and _IOVA_RAM */
};

/* One piece, which becomes one sg entry. */
struct piece {
	dma_addr_t addr;
	u32 len;
	enum { ON_BUS, IOVA, IOVA_OF_RAM } how;
};

/* One mapping; kept in the attachment, because the unmap must undo pieces that were made wrong. */
struct pieces {
	int n; /* mapped */
	struct piece at[];
};

/* One piece of BAR memory at @phys for a peer. */
static int map_piece(struct device *dev, u64 phys, u32 len, struct piece *out)
{
	if (phys < provider_bar.phys || phys + len > provider_bar.phys + provider_bar.size)
		return -EINVAL;
	out->len = len;
	out->how = provider_dev_translates(dev) ? IOVA : ON_BUS;
	if (out->how == ON_BUS) {
		out->addr = pci_bus_address(provider_bar.pdev, provider_bar.index) +
			    (phys - provider_bar.phys);
		return 0;
	}
	out->addr = dma_map_resource(dev, phys, len, DMA_BIDIRECTIONAL, 0);
	if (dma_mapping_error(dev, out->addr))
		return -ENOMEM;
	provider_counts.iovas++;
	return 0;
}

static void unmap_piece(struct device *dev, const struct piece *piece)
{
	if (piece->how == IOVA)
		dma_unmap_resource(dev, piece->addr, piece->len, DMA_BIDIRECTIONAL, 0);
	if (piece->how == IOVA_OF_RAM)
		dma_unmap_page(dev, piece->addr, piece->len, DMA_BIDIRECTIONAL);
}

static u64 buf_page_phys(const struct buf *buf, u64 page)
{
	return provider_bar.phys + (u64)buf->block->pages[buf->first + page] * PROVIDER_PAGE_SIZE;
}

/*
 * Maps the pieces of the whole buffer into @out. Returns their number, or -errno with none mapped.
 */
static int make_pieces(const struct buf *buf, struct device *dev, struct piece *out, u32 seg)
{
	u64 npages = buf->size / PROVIDER_PAGE_SIZE, i, run;
	int n = 0, ret;

	for (i = 0; i < npages; i += run) {
		u64 phys = buf_page_phys(buf, i), left;

		for (run = 1; i + run < npages; run++)
			if (buf_page_phys(buf, i + run) != phys + run * PROVIDER_PAGE_SIZE)
				break;
		for (left = run * PROVIDER_PAGE_SIZE; left; left -= out[n++].len) {
			ret = map_piece(dev, phys, min_t(u64, left, seg), &out[n]);
			if (ret)
				goto err_undo;
			phys += out[n].len;
			if (!BUF_580 && out[n].how == IOVA)
				phys = out[n].addr + out[n].len;
		}
	}
	return n;

err_undo:
	while (n--)
		unmap_piece(dev, &out[n]);
	return ret;
}

/* Makes one piece in the middle wrong, so that the importer must refuse it. */
static int spoil(struct buf *buf, struct device *dev, struct piece *p, int *n)
{
	struct piece *bad = &p[*n / 2];
	u64 bar = pci_bus_address(provider_bar.pdev, provider_bar.index);

	if (buf->kind == PROVIDER_BUF_GOOD || buf->kind >= PROVIDER_BUF_EXPORTER)
		return 0;
	if (buf->kind == PROVIDER_BUF_SHORT) {
		unmap_piece(dev, &p[--*n]);
		return 0;
	}
	if (buf->kind == PROVIDER_BUF_LONG) {
		p[*n] = p[0];
		p[(*n)++].how = ON_BUS;
		return 0;
	}
	unmap_piece(dev, bad);
	bad->how = ON_BUS;
	bad->addr = bar;
	switch (buf->kind) {
	case PROVIDER_BUF_BEFORE:
		bad->addr -= bad->len;
		break;
	case PROVIDER_BUF_BEHIND:
		bad->addr += provider_bar.size;
		break;
	case PROVIDER_BUF_ACROSS:
		bad->addr += provider_bar.size - bad->len / 2;
		break;
	case PROVIDER_BUF_WRAP:
		bad->addr = -(u64)bad->len / 2;
		break;
	case PROVIDER_BUF_UNALIGNED:
		bad->addr += 512;
		break;
	case PROVIDER_BUF_ODD_LEN:
	case PROVIDER_BUF_EMPTY:
		/* A piece behind all others has the bytes that this one lacks. */
		p[*n] = (struct piece){ .addr = bar, .len = bad->len };
		if (buf->kind == PROVIDER_BUF_ODD_LEN)
			p[*n].len = 512;
		bad->len -= p[(*n)++].len;
		break;
	case PROVIDER_BUF_RAM:
		bad->addr = page_to_phys(buf->ram);
		break;
	case PROVIDER_BUF_IOVA_RAM:
		bad->addr = dma_map_page(dev, buf->ram, 0, bad->len, DMA_BIDIRECTIONAL);
		if (dma_mapping_error(dev, bad->addr))
			return -ENOMEM;
		bad->how = IOVA_OF_RAM;
		break;
	case PROVIDER_BUF_BAR0:
		bad->addr = pci_resource_start(provider_bar.pdev, 0) & PAGE_MASK;
		break;
	case PROVIDER_BUF_CPU:
		bad->addr = provider_bar.phys;
		break;
	case PROVIDER_BUF_OTHER_BAR:
		bad->addr = provider_bar.other_phys;
		break;
	}
	return 0;
}

static int buf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	if (!any_importer &&
	    (!dev_is_pci(attach->dev) || to_pci_dev(attach->dev) != provider_bar.pdev)) {
		provider_counts.errors++;
		pr_err("ERROR: importer is not the GPU's own device\n");
		return -ENXIO;
	}
	if (BUF_580 && attach->importer_ops && !attach->peer2peer)
		return -ENOTSUPP;
	return 0;
}

static struct sg_table *to_table(const struct piece *p, int n)
{
	struct sg_table *sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	struct scatterlist *sg;
	int i;

	if (!sgt || sg_alloc_table(sgt, n, GFP_KERNEL)) {
		kfree(sgt);
		return NULL;
	}
	for_each_sg(sgt->sgl, sg, n, i) {
		sg_set_page(sg, NULL, p[i].len, 0);
		sg_dma_address(sg) = p[i].addr;
		sg_dma_len(sg) = p[i].len;
	}
	sgt->nents = n;
	return sgt;
}

static void pieces_undo(struct device *dev, struct pieces *p)
{
	int i;

	for (i = 0; i < p->n; i++)
		unmap_piece(dev, &p->at[i]);
	kvfree(p);
}

/* Returns NULL on any error, like the original. */
static struct sg_table *buf_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct buf *buf = attach->dmabuf->priv;
	u32 seg = seg_kib ? seg_kib << 10 : dma_get_max_seg_size(attach->dev) & PAGE_MASK;
	u64 max = DIV_ROUND_UP_ULL(PROVIDER_PAGE_SIZE, seg) * (buf->size / PROVIDER_PAGE_SIZE) + 1;
	struct sg_table *sgt = NULL;
	struct pieces *p;

	if (READ_ONCE(fail_map) || (attach->importer_ops && !attach->peer2peer))
		return NULL;
	p = kvzalloc(struct_size(p, at, max), GFP_KERNEL);
	if (!p)
		return NULL;
	mutex_lock(&buf->lock);
	mutex_lock(&provider_bar.lock);
	p->n = make_pieces(buf, attach->dev, p->at, seg);
	if (p->n > 0 && !spoil(buf, attach->dev, p->at, &p->n))
		sgt = to_table(p->at, p->n);
	if (sgt) {
		attach->priv = p;
		provider_counts.maps++;
		provider_hold_uncached(buf_page_phys(buf, 0));
	} else {
		pieces_undo(attach->dev, p);
	}
	mutex_unlock(&provider_bar.lock);
	mutex_unlock(&buf->lock);
	return sgt;
}

static void buf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
		      enum dma_data_direction dir)
{
	struct buf *buf = attach->dmabuf->priv;

	mutex_lock(&buf->lock);
	mutex_lock(&provider_bar.lock);
	pieces_undo(attach->dev, attach->priv);
	attach->priv = NULL;
	provider_counts.maps--;
	mutex_unlock(&provider_bar.lock);
	mutex_unlock(&buf->lock);
	sg_free_table(sgt);
	kfree(sgt);
}

static void buf_free(struct buf *buf)
{
	if (buf->block) {
		mutex_lock(&provider_bar.lock);
		provider_block_put_locked(buf->block);
		provider_counts.bufs--;
		mutex_unlock(&provider_bar.lock);
	}
	if (buf->ram)
		__free_pages(buf->ram, get_order(PROVIDER_PAGE_SIZE));
	mutex_destroy(&buf->lock);
	kfree(buf);
}

static void buf_release(struct dma_buf *dmabuf)
{
	buf_free(dmabuf->priv);
}

static const struct dma_buf_ops buf_ops = {
	.attach = buf_attach,
	.map_dma_buf = buf_map,
	.unmap_dma_buf = buf_unmap,
	.release = buf_release,
};

static struct buf *buf_make(const struct provider_export *arg)
{
	struct buf *buf = kzalloc(sizeof(*buf), GFP_KERNEL);
	struct provider_block *block;

	if (!buf)
		return ERR_PTR(-ENOMEM);
	mutex_init(&buf->lock);
	buf->size = arg->size;
	buf->kind = arg->kind;
	if (buf->kind == PROVIDER_BUF_RAM || buf->kind == PROVIDER_BUF_IOVA_RAM) {
		buf->ram = alloc_pages(GFP_KERNEL, get_order(PROVIDER_PAGE_SIZE));
		if (!buf->ram) {
			buf_free(buf);
			return ERR_PTR(-ENOMEM);
		}
	}
	mutex_lock(&provider_bar.lock);
	block = provider_block_find_locked(arg->va, arg->size);
	if (block && block->owner->tgid == current->tgid) {
		buf->block = block;
		buf->first = (arg->va - block->va) / PROVIDER_PAGE_SIZE;
		block->refs++;
		provider_counts.bufs++;
	}
	mutex_unlock(&provider_bar.lock);
	if (buf->block)
		return buf;
	buf_free(buf);
	return ERR_PTR(-EINVAL);
}

/* EINVAL: not memory of this process, or not whole pages of 64 KiB. */
int provider_export(struct provider_export *arg)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	struct buf *buf;

	if (!arg->size || (arg->va | arg->size) & (PROVIDER_PAGE_SIZE - 1))
		return -EINVAL;
	buf = buf_make(arg);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	info.exp_name = arg->kind == PROVIDER_BUF_EXPORTER ? "stranger" : BUF_EXP_NAME;
	if (arg->kind == PROVIDER_BUF_OWNER)
		info.owner = NULL;
	info.ops = &buf_ops;
	info.size = arg->size;
	info.flags = O_CLOEXEC | (arg->kind == PROVIDER_BUF_READ_ONLY ? O_RDONLY : O_RDWR);
	info.priv = buf;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		buf_free(buf);
		return PTR_ERR(dmabuf);
	}
	arg->fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (arg->fd < 0) {
		dma_buf_put(dmabuf);
		return arg->fd;
	}
	return 0;
}

/* Notifies the importers that the buffer moves, which no exporter of the GPU driver does today. */
int provider_move(const struct provider_move *arg)
{
	struct dma_buf *dmabuf = dma_buf_get(arg->fd);

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	dma_resv_lock(dmabuf->resv, NULL);
	provider_notify(dmabuf);
	dma_resv_unlock(dmabuf->resv);
	dma_buf_put(dmabuf);
	return 0;
}

/* The expansion of MODULE_IMPORT_NS() in every kernel. */
MODULE_INFO(import_ns, "DMA_BUF");
