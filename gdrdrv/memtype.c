// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Memory types of CPU mappings, and the reservations that x86 needs for them.
 *
 * On x86 vmf_insert_pfn_prot() looks the memory type up by physical address: without a reservation
 * the entry silently becomes UC-, whatever vm_page_prot says. So the pages of each pin are reserved
 * as write-combining while they are pinned, and no others: a reservation would change the type that
 * another driver asks for. The MTRRs make BAR1 uncached, so x86 offers no cached type for it;
 * write-combining is the fastest.
 *
 * Pins may share pages. The kernel would keep a reservation for each pin, all in one list under one
 * spinlock that every mapping of the machine takes. Therefore a page is reserved once, however many
 * pins have it: see struct memtype_piece.
 *
 * On arm64 the entry alone decides: Normal non-cacheable, Normal cacheable or Device.
 *
 * Knows neither where pages come from, nor VMAs.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "gdrdrv.h"

#ifdef CONFIG_X86

/*
 * Contiguous page frames that the same pins have, with one reservation. A pin of a part cuts the
 * piece in two. Pieces are not joined again; a piece ends with its last pin, so there are never
 * more than pinned pages.
 */
struct memtype_piece {
	unsigned long start; /* the first page frame */
	unsigned long end; /* the one after the last */
	unsigned long pins;
};

/*
 * memtype_pieces and the wc_pages of every region. What is allocated under it is charged to no
 * cgroup, and reclaims nothing: see gdrdrv_alloc_prepare().
 */
static DEFINE_MUTEX(memtype_lock);
/* By the last page frame: xa_find() from a frame on returns the piece that has it, or the next. */
static DEFINE_XARRAY(memtype_pieces);

void gdrdrv_memtype_init(void)
{
}

static int memtype_piece_reserve(unsigned long start, unsigned long end)
{
	return arch_io_reserve_memtype_wc(PFN_PHYS(start), PFN_PHYS(end - start));
}

static void memtype_piece_release(unsigned long start, unsigned long end)
{
	arch_io_free_memtype_wc(PFN_PHYS(start), PFN_PHYS(end - start));
}

static int memtype_piece_add(unsigned long start, unsigned long end, unsigned long pins)
{
	struct memtype_piece *piece = kmalloc(sizeof(*piece), GFP_KERNEL);
	int ret;

	if (!piece)
		return -ENOMEM;
	*piece = (struct memtype_piece){ .start = start, .end = end, .pins = pins };
	ret = memtype_piece_reserve(start, end);
	if (ret)
		goto err_free;
	ret = xa_insert(&memtype_pieces, end - 1, piece, GFP_KERNEL);
	if (ret)
		goto err_release;
	atomic64_inc(&gdrdrv_stats.memtypes);
	return 0;

err_release:
	memtype_piece_release(start, end);
err_free:
	kfree(piece);
	return ret;
}

/* The kernel can free a reservation only whole. Both parts are reserved before that. */
static int memtype_piece_cut(struct memtype_piece *piece, unsigned long at)
{
	int ret = memtype_piece_reserve(at, piece->end);

	if (ret)
		return ret;
	ret = memtype_piece_add(piece->start, at, piece->pins);
	if (ret) {
		memtype_piece_release(at, piece->end);
		return ret;
	}
	memtype_piece_release(piece->start, piece->end);
	piece->start = at;
	return 0;
}

/* Adds a pin to the piece that starts at @at and ends at @end or before. Returns its pages. */
static long memtype_piece_get_locked(unsigned long at, unsigned long end)
{
	struct memtype_piece *piece;
	unsigned long index;
	int ret = 0;

	lockdep_assert_held(&memtype_lock);
	while (!ret) {
		index = at;
		piece = xa_find(&memtype_pieces, &index, ULONG_MAX, XA_PRESENT);
		if (!piece || piece->start > at)
			ret = memtype_piece_add(at, piece ? min(end, piece->start) : end, 0);
		else if (piece->start < at)
			ret = memtype_piece_cut(piece, at);
		else if (piece->end > end)
			ret = memtype_piece_cut(piece, end);
		else
			break;
	}
	if (ret)
		return ret;
	piece->pins++;
	return piece->end - at;
}

/* Removes a pin from the piece that ends with the page frame @last. Returns its pages. */
static unsigned long memtype_piece_put_locked(unsigned long last)
{
	struct memtype_piece *piece = xa_load(&memtype_pieces, last);
	unsigned long pages = piece->end - piece->start;

	lockdep_assert_held(&memtype_lock);
	if (--piece->pins)
		return pages;
	xa_erase(&memtype_pieces, last);
	memtype_piece_release(piece->start, piece->end);
	kfree(piece);
	atomic64_dec(&gdrdrv_stats.memtypes);
	return pages;
}

/* Returns the page frame of page number @page of the region; @end: where its run ends. */
static unsigned long gdrdrv_memtype_frame(const struct gdrdrv_mr *mr, u64 page, unsigned long *end)
{
	const struct gdrdrv_range *run = gdrdrv_mr_range(mr, page << PAGE_SHIFT);

	*end = PHYS_PFN(run->start + run->len);
	return PHYS_PFN(run->start) + page - (run->off >> PAGE_SHIFT);
}

/**
 * gdrdrv_memtype_free() - end the reservation of a region's pages
 * @mr: the region
 *
 * On return none of them is reserved for this region, also where another thread does the same.
 *
 * Context: may sleep; also in the free callback. Holds memtype_lock for one piece at a time, so
 * that a callback does not wait for another region's unpin.
 */
void gdrdrv_memtype_free(struct gdrdrv_mr *mr)
{
	unsigned long end;
	u64 pages = 1;

	while (pages) {
		mutex_lock(&memtype_lock);
		pages = mr->wc_pages;
		if (pages)
			mr->wc_pages -=
				memtype_piece_put_locked(gdrdrv_memtype_frame(mr, pages - 1, &end));
		mutex_unlock(&memtype_lock);
		cond_resched();
	}
}

/*
 * Reserves write-combining for all pages or for none. A failure does not fail the pin: the region
 * is then mapped, and reported, as uncached.
 */
void gdrdrv_memtype_reserve(struct gdrdrv_mr *mr)
{
	unsigned long at, end;
	unsigned int flags;
	long n = 0;

	while (n >= 0 && mr->wc_pages < mr->size >> PAGE_SHIFT) {
		/* A few pieces, nodes of the xarray, and the kernel's own list of reservations. */
		if (!gdrdrv_alloc_prepare(GFP_KERNEL)) {
			n = -ENOMEM;
			break;
		}
		mutex_lock(&memtype_lock);
		flags = memalloc_noreclaim_save();
		at = gdrdrv_memtype_frame(mr, mr->wc_pages, &end);
		n = memtype_piece_get_locked(at, end);
		mr->wc_pages += max(n, 0L);
		memalloc_noreclaim_restore(flags);
		mutex_unlock(&memtype_lock);
		cond_resched();
	}
	mr->wc_reserved = n >= 0;
	if (mr->wc_reserved)
		return;
	atomic64_inc(&gdrdrv_stats.memtype_failures);
	pr_warn_ratelimited("no write-combining for a pinned range: %ld\n", n);
	gdrdrv_memtype_free(mr);
}

u32 gdrdrv_memtype_default(const struct gdrdrv_mr *mr)
{
	/*
	 * Entries are uncached if write-combining could not be reserved or the CPU runs without
	 * PAT. pat_enabled() is GPL-only; without PAT both types have the same bits in an entry.
	 */
	if (!mr->wc_reserved ||
	    cachemode2protval(_PAGE_CACHE_MODE_WC) == cachemode2protval(_PAGE_CACHE_MODE_UC_MINUS))
		return GDRDRV_MAPPING_TYPE_DEVICE;
	return GDRDRV_MAPPING_TYPE_WC;
}

/* Whether the region can have a type other than its default. */
static bool gdrdrv_memtype_can(const struct gdrdrv_mr *mr, u32 type)
{
	return false;
}

pgprot_t gdrdrv_memtype_prot(u32 type, pgprot_t prot)
{
	enum page_cache_mode mode =
		type == GDRDRV_MAPPING_TYPE_WC ? _PAGE_CACHE_MODE_WC : _PAGE_CACHE_MODE_UC_MINUS;

	/* pgprot_writecombine() is GPL-only. */
	prot = gdrdrv_pgprot_io(prot);
	return __pgprot((pgprot_val(prot) & ~_PAGE_CACHE_MASK) | cachemode2protval(mode));
}

/*
 * If another driver holds an uncached mapping, a reservation of write-combining succeeds but yields
 * the uncached type. Only the entry shows it.
 */
bool gdrdrv_memtype_is_wc(pte_t entry)
{
	return (pte_val(entry) & _PAGE_CACHE_MASK) == cachemode2protval(_PAGE_CACHE_MODE_WC);
}

#else /* arm64 */

void gdrdrv_memtype_reserve(struct gdrdrv_mr *mr)
{
}

void gdrdrv_memtype_free(struct gdrdrv_mr *mr)
{
}

/*
 * Whether the host is a BlueField-3, recognized by its root ports. NVIDIA's driver maps a GPU there
 * as Device memory and refuses write-combining, without giving a reason; this driver does the same.
 */
static bool gdrdrv_memtype_is_bluefield3;

void gdrdrv_memtype_init(void)
{
	static const struct pci_device_id roots[] = {
		{ PCI_DEVICE(PCI_VENDOR_ID_MELLANOX, 0xa2da) },
		{ PCI_DEVICE(PCI_VENDOR_ID_MELLANOX, 0xa2db) },
		{},
	};

	gdrdrv_memtype_is_bluefield3 = pci_dev_present(roots);
}

bool gdrdrv_memtype_is_wc(pte_t entry)
{
	return true;
}

u32 gdrdrv_memtype_default(const struct gdrdrv_mr *mr)
{
	if (mr->cpu_cacheable)
		return GDRDRV_MAPPING_TYPE_CACHING;
	return gdrdrv_memtype_is_bluefield3 ? GDRDRV_MAPPING_TYPE_DEVICE : GDRDRV_MAPPING_TYPE_WC;
}

/* Coherent memory has one type only; a BAR can be write-combining or Device. */
static bool gdrdrv_memtype_can(const struct gdrdrv_mr *mr, u32 type)
{
	return !mr->cpu_cacheable && !gdrdrv_memtype_is_bluefield3 &&
	       type != GDRDRV_MAPPING_TYPE_CACHING;
}

pgprot_t gdrdrv_memtype_prot(u32 type, pgprot_t prot)
{
	switch (type) {
	case GDRDRV_MAPPING_TYPE_CACHING:
		return prot;
	case GDRDRV_MAPPING_TYPE_DEVICE:
		return pgprot_device(gdrdrv_pgprot_io(prot));
	default:
		return pgprot_writecombine(gdrdrv_pgprot_io(prot));
	}
}

#endif

/* -EINVAL: unknown type. -EOPNOTSUPP: this region or this machine does not support it. */
int gdrdrv_memtype_check(const struct gdrdrv_mr *mr, u32 type)
{
	if (type > GDRDRV_MAPPING_TYPE_DEVICE)
		return -EINVAL;
	if (type == GDRDRV_MAPPING_TYPE_NONE || type == gdrdrv_memtype_default(mr) ||
	    gdrdrv_memtype_can(mr, type))
		return 0;
	return -EOPNOTSUPP;
}
