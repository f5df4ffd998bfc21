// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * How the CPU's page-table entries cache a region, and the reservation that makes it so.
 *
 * On x86 the memory type of an entry that vmf_insert_pfn() makes is looked up by physical address:
 * with nothing reserved there it silently becomes UC-, whatever vm_page_prot says. So each run is
 * reserved as write-combining when it is pinned. BAR1 is uncached by the MTRRs, so write-combining
 * is also the best that x86 can have of it: no cached and no plain device type there.
 *
 * On arm64 the entry says it all: Normal non-cacheable, Normal cacheable or Device.
 *
 * Must not know sources, VMAs or locks.
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
	 * Another type is reserved there, or none can be: entries are uncached. pat_enabled() is
	 * GPL-only; without PAT the kernel gives both types the same bits.
	 */
	if (!mr->wc_reserved ||
	    cachemode2protval(_PAGE_CACHE_MODE_WC) == cachemode2protval(_PAGE_CACHE_MODE_UC_MINUS))
		return GDRDRV_MAPPING_TYPE_DEVICE;
	return GDRDRV_MAPPING_TYPE_WC;
}

/* Beside the default. */
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
 * A reservation succeeds beside an uncached mapping that another driver holds, with that type: only
 * the entry shows which.
 */
bool gdrdrv_memtype_is_wc(pte_t entry)
{
	return (pte_val(entry) & _PAGE_CACHE_MASK) == cachemode2protval(_PAGE_CACHE_MODE_WC);
}

#else /* arm64 */

/*
 * A host that is a BlueField-3, by its root ports. NVIDIA's driver maps a GPU there as device
 * memory and refuses write-combining, without saying why; so does this one.
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

/* Coherent memory keeps its one type; of a BAR one can have both uncached types. */
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

/* -EINVAL: no such type. -EOPNOTSUPP: not of this region, or on this machine. */
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
 * Never fails the pin: a region that cannot have the type in all of its runs has it in none, and is
 * mapped and reported so.
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
