// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Mappings of a region: flags of the VMA, entries on fault.
 *
 * Entries are made in the fault handler only, under mr->lock and after a look at what that lock
 * guards: an entry made in ->mmap would exist before the VMA can be found for zapping, and a free
 * callback in that window would leave a live mapping of freed memory. A fault fills the 2 MiB
 * around it, so that a mapping costs one fault per 2 MiB and a callback never waits for more.
 *
 * All entries are small. A huge one is taken for a page's by mbind(MPOL_MF_STRICT) (the kernel's
 * queue_folios_pmd(), 6.12 to 7.3.3), which any user may call and which reads a struct page that a
 * BAR does not have.
 *
 * Must not know where pages come from, nor the table of regions beyond looking one up.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched/signal.h>

#include "gdrdrv.h"

/* Filled around a fault; a page where that is larger. */
#define GDRDRV_WINDOW max(2UL << 20, PAGE_SIZE)

static void gdrdrv_vma_open(struct vm_area_struct *vma)
{
	struct gdrdrv_mr *mr = vma->vm_private_data;

	/* Only mremap() comes here, for the copy that gdrdrv_vma_mremap() then refuses. */
	kref_get(&mr->ref);
	mutex_lock(&mr->lock);
	mr->nr_vmas++;
	mutex_unlock(&mr->lock);
}

static void gdrdrv_vma_close(struct vm_area_struct *vma)
{
	struct gdrdrv_mr *mr = vma->vm_private_data;

	mutex_lock(&mr->lock);
	if (!--mr->nr_vmas) {
		WRITE_ONCE(mr->map_type, GDRDRV_MAPPING_TYPE_NONE);
		mr->req_type = GDRDRV_MAPPING_TYPE_NONE;
	}
	mutex_unlock(&mr->lock);
	gdrdrv_mr_put(mr);
}

static int gdrdrv_vma_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	return -EINVAL;
}

static int gdrdrv_vma_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

/* Offset of @addr in the region. */
static u64 gdrdrv_vma_offset(const struct gdrdrv_mr *mr, const struct vm_area_struct *vma,
			     unsigned long addr)
{
	return ((u64)(vma->vm_pgoff - mr->handle) << PAGE_SHIFT) + (addr - vma->vm_start);
}

/* Entries for [start, end) as far as they can be made; an existing entry is left alone. */
static vm_fault_t gdrdrv_insert(struct gdrdrv_mr *mr, struct vm_area_struct *vma,
				unsigned long start, unsigned long end)
{
	const struct gdrdrv_range *range = NULL;
	u64 off = gdrdrv_vma_offset(mr, vma, start);
	pgprot_t prot = gdrdrv_pgprot_dirty(vma->vm_page_prot);
	vm_fault_t ret = VM_FAULT_NOPAGE;
	unsigned long addr;
	u64 n = 0;

	lockdep_assert_held(&mr->lock);
	for (addr = start; addr < end; addr += PAGE_SIZE, off += PAGE_SIZE) {
		if (!range || off - range->off >= range->len)
			range = gdrdrv_mr_range(mr, off);
		ret = vmf_insert_pfn_prot(vma, addr, PHYS_PFN(range->start + (off - range->off)),
					  prot);
		if (ret != VM_FAULT_NOPAGE)
			break;
		n++;
	}
	atomic64_add(n, &gdrdrv_stats.ptes);
	return ret;
}

/*
 * The entry at @addr, an empty one where there is none. The caller has just made it, and holds what
 * keeps the tables.
 */
static pte_t gdrdrv_entry(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;
	pud_t *pud;
	pmd_t *pmd;

	if (pgd_none(*pgd))
		return __pte(0);
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d))
		return __pte(0);
	pud = pud_offset(p4d, addr);
	if (pud_none(*pud))
		return __pte(0);
	pmd = pmd_offset(pud, addr);
	if (pmd_none(*pmd))
		return __pte(0);
	return READ_ONCE(*pte_offset_kernel(pmd, addr));
}

/*
 * Whether the access at @addr can go on. vmf_insert_pfn_prot() leaves alone what is no entry but a
 * marker of the kernel (userfaultfd's write protection puts some, from 6.7 to a fix of 2026 in any
 * mapping and for any user), and says that all is done: the fault would come again for ever, and in
 * the kernel's own copies no signal would end it. Empty is no marker: the entry is being changed by
 * another thread.
 *
 * What GET_INFO says is what the entries are.
 */
static bool gdrdrv_check_entry_locked(struct gdrdrv_mr *mr, struct vm_area_struct *vma,
				      unsigned long addr)
{
	pte_t entry = gdrdrv_entry(vma->vm_mm, addr);

	lockdep_assert_held(&mr->lock);
	if (pte_none(entry))
		return true;
	if (!pte_present(entry))
		return false;
	if (mr->map_type != GDRDRV_MAPPING_TYPE_WC || gdrdrv_memtype_is_wc(entry))
		return true;
	WRITE_ONCE(mr->map_type, GDRDRV_MAPPING_TYPE_DEVICE);
	atomic64_inc(&gdrdrv_stats.memtype_failures);
	pr_warn_ratelimited("mapping is uncached: another one of the same memory is\n");
	return true;
}

/* The window around @addr, as far as the mapping reaches. */
static vm_fault_t gdrdrv_fill(struct gdrdrv_mr *mr, struct vm_area_struct *vma, unsigned long addr)
{
	unsigned long start = max(vma->vm_start, round_down(addr, GDRDRV_WINDOW));
	unsigned long end = min(vma->vm_end, round_down(addr, GDRDRV_WINDOW) + GDRDRV_WINDOW);
	vm_fault_t ret = VM_FAULT_SIGBUS;

	mutex_lock(&mr->lock);
	if (mr->revoked || mr->retired)
		goto unlock;
	/* The one that is needed first; the others are a favour and may fail. */
	ret = gdrdrv_insert(mr, vma, addr, addr + PAGE_SIZE);
	if (ret != VM_FAULT_NOPAGE)
		goto unlock;
	if (!gdrdrv_check_entry_locked(mr, vma, addr))
		ret = VM_FAULT_SIGBUS;
	gdrdrv_insert(mr, vma, start, addr);
	gdrdrv_insert(mr, vma, addr + PAGE_SIZE, end);
unlock:
	mutex_unlock(&mr->lock);
	return ret;
}

static vm_fault_t gdrdrv_vma_fault(struct vm_fault *vmf)
{
	atomic64_inc(&gdrdrv_stats.faults);
	return gdrdrv_fill(vmf->vma->vm_private_data, vmf->vma, vmf->address & PAGE_MASK);
}

static const struct vm_operations_struct gdrdrv_vm_ops = {
	.open = gdrdrv_vma_open,
	.close = gdrdrv_vma_close,
	.GDRDRV_VM_OPS_MAY_SPLIT = gdrdrv_vma_may_split,
	.mremap = gdrdrv_vma_mremap,
	.fault = gdrdrv_vma_fault,
};

/**
 * gdrdrv_populate() - make all entries of the present mapping, as its first touches would
 * @mr: the region, mapped by this process
 *
 * Window by window, so that a free callback waits for no more than one. A VMA that is being made or
 * torn down is not found, and the lock of the process keeps one that is.
 *
 * Return: 0; -EINVAL (not mapped, or revoked), -ENOMEM, -EINTR (killed).
 */
int gdrdrv_populate(struct gdrdrv_mr *mr)
{
	struct mm_struct *mm = current->mm;
	vm_fault_t fault = VM_FAULT_SIGBUS;
	struct vm_area_struct *vma;
	unsigned long addr;
	int ret = 0;

	mmap_read_lock(mm);
	vma = find_vma(mm, READ_ONCE(mr->map_addr));
	if (!vma || vma->vm_ops != &gdrdrv_vm_ops || vma->vm_private_data != mr)
		goto unlock;
	addr = vma->vm_start;
	do {
		fault = gdrdrv_fill(mr, vma, addr);
		addr = round_down(addr, GDRDRV_WINDOW) + GDRDRV_WINDOW;
		if (fatal_signal_pending(current))
			ret = -EINTR;
		cond_resched();
	} while (!ret && fault == VM_FAULT_NOPAGE && addr < vma->vm_end);
unlock:
	mmap_read_unlock(mm);
	if (ret || fault == VM_FAULT_NOPAGE)
		return ret;
	return fault & VM_FAULT_OOM ? -ENOMEM : -EINVAL;
}

/* Ties the region to the VMA: one mapping at a time, none of what is gone. */
static int gdrdrv_mmap_attach(struct gdrdrv_mr *mr, struct vm_area_struct *vma)
{
	int ret = 0;

	mutex_lock(&mr->lock);
	if (mr->revoked || mr->retired) {
		ret = -EINVAL;
	} else if (mr->nr_vmas) {
		ret = -EAGAIN;
	} else {
		mr->nr_vmas = 1;
		WRITE_ONCE(mr->map_addr, vma->vm_start);
		WRITE_ONCE(mr->map_type, mr->req_type ?: gdrdrv_memtype_default(mr));
		vma->vm_page_prot = gdrdrv_memtype_prot(mr->map_type, vma->vm_page_prot);
	}
	mutex_unlock(&mr->lock);
	return ret;
}

/* The region to map, with a reference and tied to @vma; or an error. */
static struct gdrdrv_mr *gdrdrv_mmap_find(struct gdrdrv_file *file, struct vm_area_struct *vma)
{
	struct gdrdrv_mr *mr;
	int ret;

	if (!gdrdrv_file_is_owner(file))
		return ERR_PTR(-EACCES);
	if (!(vma->vm_flags & VM_SHARED))
		return ERR_PTR(-EINVAL);
	if (vma->vm_flags & VM_EXEC)
		return ERR_PTR(-EPERM);
	mr = gdrdrv_mr_get(file, vma->vm_pgoff);
	if (!mr)
		return ERR_PTR(-EINVAL);
	if (vma->vm_end - vma->vm_start > mr->size)
		ret = -EINVAL;
	else if (mr->read_only && (vma->vm_flags & VM_WRITE))
		ret = -EACCES;
	else
		ret = gdrdrv_mmap_attach(mr, vma);
	if (!ret)
		return mr;
	gdrdrv_mr_put(mr);
	return ERR_PTR(ret);
}

/**
 * gdrdrv_mmap() - map a region
 * @filp: the node
 * @vma: its page offset is the region's handle
 *
 * Return: 0; -EACCES (not the process that opened the node; or writable, of a buffer that its
 * descriptor opens for reading only), -EPERM (executable), -EINVAL (private,
 * no such handle, longer than the region, or revoked), -EAGAIN (mapped already).
 */
int gdrdrv_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct gdrdrv_file *file = filp->private_data;
	unsigned long no_write = vma->vm_flags & VM_WRITE ? 0 : VM_MAYWRITE;
	struct gdrdrv_mr *mr = gdrdrv_mmap_find(file, vma);

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	gdrdrv_vma_flags_mod(vma, VM_PFNMAP | VM_IO | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY,
			     VM_MAYEXEC | no_write);
	vma->vm_ops = &gdrdrv_vm_ops;
	vma->vm_private_data = mr; /* with the reference of the look-up */
	return 0;
}
