/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Differences between kernels, and between the two flavours of the GPU driver.
 *
 * Only this file tests for features of the kernel (HAVE_* comes from conftest.sh).
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
 * GDRDRV_GPL: built for the open flavour of the GPU driver. A build for the proprietary flavour
 * uses no GPL-only symbol.
 */
#ifdef GDRDRV_GPL
#define GDRDRV_LICENSE "Dual MIT/GPL"
#define GDRDRV_FLAVOR  "opensource"
#else
#define GDRDRV_LICENSE "MIT"
#define GDRDRV_FLAVOR  "proprietary"
#endif

/*
 * Coherent GPU memory (Grace) is part of the host's memory. Such systems run the open flavour only.
 */
static inline bool gdrdrv_is_coherent(phys_addr_t phys)
{
#if defined(CONFIG_ARM64) && defined(GDRDRV_GPL)
	return page_is_ram(PHYS_PFN(phys));
#else
	return false;
#endif
}

/* Clears the encryption bit, which a BAR must not have. pgprot_decrypted() is GPL-only on x86. */
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
 * Marks writable entries dirty from the start. Otherwise the first write to each page is slow: x86
 * updates the entry, and arm64 updates it too or takes a fault. A read-only entry must not be
 * dirty: on x86 that means a shadow stack.
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

/* Changes the flags of a VMA inside ->mmap, where no other thread can see the VMA yet. */
static inline void gdrdrv_vma_flags_mod(struct vm_area_struct *vma, unsigned long set,
					unsigned long clear)
{
#ifdef HAVE_VM_FLAGS_INIT
	/* Not vm_flags_set(): it needs a GPL-only symbol from 7.x on, and takes a lock in vain. */
	vm_flags_init(vma, (vma->vm_flags | set) & ~clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

/* invalidate_lock is initialised with an inode, and not by address_space_init_once(). */
static inline void gdrdrv_mapping_init(struct address_space *mapping)
{
	address_space_init_once(mapping);
#ifdef HAVE_INVALIDATE_LOCK
	init_rwsem(&mapping->invalidate_lock);
#endif
}

/* The name of the hook that may refuse to split a VMA. */
#ifdef HAVE_VM_OPS_MAY_SPLIT
#define GDRDRV_VM_OPS_MAY_SPLIT may_split
#else
#define GDRDRV_VM_OPS_MAY_SPLIT split
#endif

/* Cycles of get_cycles() per millisecond; 0 if unknown. */
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
