/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Differences between kernels, and between the two flavours of the GPU driver.
 *
 * The only file with a test for a kernel's version or feature (HAVE_* comes from conftest.sh).
 * Must not know the driver's objects.
 */
#ifndef GDRDRV_COMPAT_H
#define GDRDRV_COMPAT_H

#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/timex.h>
#ifdef CONFIG_X86
#include <linux/mem_encrypt.h>
#include <asm/pgtable.h>
#include <asm/tsc.h>
#endif

#include "gdrdrv_conftest.h"

/*
 * GDRDRV_GPL: built for the open flavour of the GPU driver. The other build uses no symbol that is
 * exported to GPL modules only.
 */
#ifdef GDRDRV_GPL
#define GDRDRV_LICENSE "Dual MIT/GPL"
#define GDRDRV_FLAVOR  "opensource"
#else
#define GDRDRV_LICENSE "MIT"
#define GDRDRV_FLAVOR  "proprietary"
#endif

/* Coherent GPU memory (Grace) is a part of the host's. Such systems have the open flavour alone. */
static inline bool gdrdrv_is_coherent(phys_addr_t phys)
{
#if defined(CONFIG_ARM64) && defined(GDRDRV_GPL)
	return page_is_ram(PHYS_PFN(phys));
#else
	return false;
#endif
}

/* A BAR is not encrypted memory, also where all of the host's is. The kernel's own is GPL-only. */
static inline pgprot_t gdrdrv_pgprot_io(pgprot_t prot)
{
#if defined(GDRDRV_GPL)
	return pgprot_decrypted(prot);
#elif defined(CONFIG_X86)
	return __pgprot(__sme_clr(pgprot_val(prot)));
#else
	return prot;
#endif
}

/*
 * An entry that is writable is made as if it had been written to. Otherwise the first write to each page
 * costs more than the write: x86 marks the entry, arm64 does too or takes a fault. An entry that is not
 * writable must not be marked: on x86 it would be a shadow stack's.
 */
static inline pgprot_t gdrdrv_pgprot_dirty(pgprot_t prot)
{
#if defined(CONFIG_X86)
	if (pgprot_val(prot) & _PAGE_RW)
		return __pgprot(pgprot_val(prot) | _PAGE_DIRTY);
#elif defined(CONFIG_ARM64)
	if (pgprot_val(prot) & PTE_WRITE)
		return __pgprot((pgprot_val(prot) & ~PTE_RDONLY) | PTE_DIRTY);
#endif
	return prot;
}

/* Before 5.13. */
#ifndef lockdep_assert_not_held
#define lockdep_assert_not_held(lock) ((void)(lock))
#endif

/* Adding flags to a VMA inside ->mmap, where nobody else can see it yet. */
static inline void gdrdrv_vma_flags_mod(struct vm_area_struct *vma, unsigned long set,
					unsigned long clear)
{
#ifdef HAVE_VM_FLAGS_INIT
	/* Not vm_flags_set(): that needs a GPL-only symbol from 7.x on, and locks for nobody. */
	vm_flags_init(vma, (vma->vm_flags | set) & ~clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

/* What a class's devnode() gets became constant in 6.2. */
#ifdef HAVE_CLASS_DEVNODE_CONST
#define GDRDRV_DEVNODE_CONST const
#else
#define GDRDRV_DEVNODE_CONST
#endif

/* The name of the hook that may refuse to split a VMA. */
#ifdef HAVE_VM_OPS_MAY_SPLIT
#define GDRDRV_VM_OPS_MAY_SPLIT may_split
#else
#define GDRDRV_VM_OPS_MAY_SPLIT split
#endif

#ifdef GDRDRV_SOURCE_DMABUF
#include <linux/iommu.h>

#ifndef CONFIG_DMA_SHARED_BUFFER
#error "this kernel is built without CONFIG_DMA_SHARED_BUFFER: SOURCE=dmabuf and both need it"
#endif

/* The notice that a buffer moves: renamed, and from then on also "it is gone". */
#ifdef HAVE_DMABUF_INVALIDATE_MAPPINGS
#define GDRDRV_DMABUF_NOTIFY invalidate_mappings
#else
#define GDRDRV_DMABUF_NOTIFY move_notify
#endif

/*
 * What MODULE_IMPORT_NS() comes to in every kernel; its argument got quotes in 6.13. Where the
 * symbols are in no namespace yet it does no harm.
 */
#define GDRDRV_IMPORT_NS(name) MODULE_INFO(import_ns, name)

/* 0: not an IOVA of the device's domain, or there is no translation. */
static inline phys_addr_t gdrdrv_iova_to_phys(struct device *dev, dma_addr_t iova)
{
#ifdef CONFIG_IOMMU_API
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	if (domain && domain->type != IOMMU_DOMAIN_IDENTITY)
		return iommu_iova_to_phys(domain, iova);
#endif
	return 0;
}
#endif

/* Cycles per millisecond of get_cycles(), 0 where not known. */
static inline u32 gdrdrv_cycles_khz(void)
{
#if defined(CONFIG_X86)
	return tsc_khz;
#elif defined(CONFIG_ARM64)
	return (u32)(read_sysreg(cntfrq_el0) / 1000);
#else
	return 0;
#endif
}

#endif
