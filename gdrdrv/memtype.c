// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Memory types of CPU mappings, and the reservations that x86 needs for them.
 *
 * On x86 vmf_insert_pfn_prot() looks the memory type up by physical address: without a reservation
 * the entry silently becomes UC-, whatever vm_page_prot says. So each run is reserved as
 * write-combining when it is pinned. The MTRRs make BAR1 uncached, so x86 offers no cached type for
 * it; write-combining is the fastest.
 *
 * On arm64 the entry alone decides: Normal non-cacheable, Normal cacheable or Device.
 *
 * Knows neither sources, VMAs nor locks.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/pci.h>

#include "gdrdrv.h"

#ifdef CONFIG_X86

void gdrdrv_memtype_init(void)
{
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

void gdrdrv_memtype_free(struct gdrdrv_mr *mr)
{
	while (mr->nr_memtypes) {
		struct gdrdrv_range *range = &mr->ranges[--mr->nr_memtypes];

		arch_io_free_memtype_wc(range->start, range->len);
		atomic64_dec(&gdrdrv_stats.memtypes);
	}
}

/*
 * Reserves write-combining for all runs or for none. A failure does not fail the pin: the region is
 * then mapped, and reported, as uncached.
 */
void gdrdrv_memtype_reserve(struct gdrdrv_mr *mr)
{
	u32 i;
	int ret;

	for (i = 0; i < mr->nr_ranges; i++) {
		ret = arch_io_reserve_memtype_wc(mr->ranges[i].start, mr->ranges[i].len);
		if (ret) {
			atomic64_inc(&gdrdrv_stats.memtype_failures);
			pr_warn_ratelimited("no write-combining for a pinned range: %d\n", ret);
			gdrdrv_memtype_free(mr);
			break;
		}
		mr->nr_memtypes++;
		atomic64_inc(&gdrdrv_stats.memtypes);
	}
	mr->wc_reserved = mr->nr_memtypes == mr->nr_ranges;
}
