// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Mappings of a region: VMA flags, and page-table entries on fault.
 *
 * Only faults (and gdrdrv_populate(), which acts as one) make entries, under mr->lock and after a
 * check of mr->revoked and mr->retired. An entry made in ->mmap would exist before a zap can find
 * the VMA: a free callback in that window would leave a mapping of freed memory. A fault fills the
 * 2 MiB around its address, so that a mapping costs one fault per 2 MiB and a callback waits for at
 * most that much.
 *
 * All entries are of page size. mbind(MPOL_MF_STRICT), which any user may call, takes a huge entry
 * for that of a normal page (queue_folios_pmd() of 6.12 to 7.3.3) and reads its struct page; a BAR
 * has none.
 *
 * Knows neither where pages come from, nor the table of regions beyond looking one up.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "gdrdrv.h"

/*
 * A fault fills the aligned window around its address: 2 MiB, or one page where pages are larger.
 */
#define GDRDRV_WINDOW max(2UL << 20, PAGE_SIZE)

static void gdrdrv_vma_open(struct vm_area_struct *vma)
{
	struct gdrdrv_mr *mr = vma->vm_private_data;

	/* Only mremap() calls this, for the new place. */
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

/*
 * @vma: the new place. Accepts a move of the whole mapping. When this hook refuses, the entries
 * have been moved, and the kernel moves them back; where userfaultfd is registered that makes it
 * WARN (move_normal_pmd() meets the page table that move_ptes() left). A part gets here only in
 * 5.10: newer kernels ask gdrdrv_vma_may_split() before they move any.
 */
static int gdrdrv_vma_mremap(struct vm_area_struct *vma)
{
	struct gdrdrv_mr *mr = vma->vm_private_data;

	if (vma->vm_end - vma->vm_start != mr->map_len)
		return -EINVAL;
	WRITE_ONCE(mr->map_addr, vma->vm_start);
	return 0;
}

/* Returns the offset of @addr in the region. */
static u64 gdrdrv_vma_offset(const struct gdrdrv_mr *mr, const struct vm_area_struct *vma,
			     unsigned long addr)
{
	return ((u64)(vma->vm_pgoff - mr->handle) << PAGE_SHIFT) + (addr - vma->vm_start);
}

/* Makes entries for [start, end) until one fails; existing entries stay as they are. */
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
 * Returns the entry at @addr, or NULL without a page table. The caller has just made the entry, and
 * the mmap_lock or VMA lock that it holds keeps the page tables.
 */
static pte_t *gdrdrv_entry(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;
	pud_t *pud;
	pmd_t *pmd;

	if (pgd_none(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d))
		return NULL;
	pud = pud_offset(p4d, addr);
	if (pud_none(*pud))
		return NULL;
	pmd = pmd_offset(pud, addr);
	if (pmd_none(*pmd))
		return NULL;
	return pte_offset_kernel(pmd, addr);
}

/*
 * Returns whether accesses to [start, end) can be retried, after vmf_insert_pfn_prot() returned
 * VM_FAULT_NOPAGE for each page. That function leaves a PTE marker in place and reports success:
 * the fault would repeat for ever, and in a copy to user space no signal would end it. From 6.7 to
 * a fix of 2026 any user can have userfaultfd put markers into any mapping (UFFDIO_WRITEPROTECT).
 * An empty entry is no marker: another thread has lifted it, and the retry makes the entry. With
 * @all nothing is retried.
 *
 * Also corrects mr->map_type if an entry is not write-combining, so that GET_INFO reports the type
 * that the entries have. [start, end) lies in one window, and so in one page table.
 */
static bool gdrdrv_check_locked(struct gdrdrv_mr *mr, struct vm_area_struct *vma,
				unsigned long start, unsigned long end, bool all)
{
	pte_t *at = gdrdrv_entry(vma->vm_mm, start), entry;

	lockdep_assert_held(&mr->lock);
	for (; at && start < end; start += PAGE_SIZE, at++) {
		entry = READ_ONCE(*at);
		if (pte_none(entry) && !all)
			continue;
		if (!pte_present(entry))
			return false;
		if (mr->map_type != GDRDRV_MAPPING_TYPE_WC || gdrdrv_memtype_is_wc(entry))
			continue;
		WRITE_ONCE(mr->map_type, GDRDRV_MAPPING_TYPE_DEVICE);
		atomic64_inc(&gdrdrv_stats.memtype_failures);
		pr_warn_ratelimited("mapping is uncached: another one of the same memory is\n");
	}
	return true;
}

/*
 * Fills the window around @addr, within the mapping. @all: from @addr on, and every page must get
 * its entry. Otherwise that of @addr must, and it comes first; the others only save later faults.
 */
static vm_fault_t gdrdrv_fill(struct gdrdrv_mr *mr, struct vm_area_struct *vma, unsigned long addr,
			      bool all)
{
	unsigned long start = max(vma->vm_start, round_down(addr, GDRDRV_WINDOW));
	unsigned long end = min(vma->vm_end, round_down(addr, GDRDRV_WINDOW) + GDRDRV_WINDOW);
	unsigned long first = all ? end : addr + PAGE_SIZE;
	vm_fault_t ret = VM_FAULT_SIGBUS;
	unsigned int flags;

	/* One page table, for POPULATE one of each level below the top; charged to the cgroup. */
	if (!gdrdrv_alloc_prepare(GFP_KERNEL_ACCOUNT))
		return VM_FAULT_OOM;
	mutex_lock(&mr->lock);
	flags = memalloc_noreclaim_save();
	if (!mr->revoked && !mr->retired)
		ret = gdrdrv_insert(mr, vma, addr, first);
	if (ret == VM_FAULT_NOPAGE) {
		if (!gdrdrv_check_locked(mr, vma, addr, first, all))
			ret = VM_FAULT_SIGBUS;
		if (!all)
			gdrdrv_insert(mr, vma, start, addr);
		gdrdrv_insert(mr, vma, first, end);
	}
	memalloc_noreclaim_restore(flags);
	mutex_unlock(&mr->lock);
	return ret;
}

static vm_fault_t gdrdrv_vma_fault(struct vm_fault *vmf)
{
	atomic64_inc(&gdrdrv_stats.faults);
	return gdrdrv_fill(vmf->vma->vm_private_data, vmf->vma, vmf->address & PAGE_MASK, false);
}

static const struct vm_operations_struct gdrdrv_vm_ops = {
	.open = gdrdrv_vma_open,
	.close = gdrdrv_vma_close,
	.GDRDRV_VM_OPS_MAY_SPLIT = gdrdrv_vma_may_split,
	.mremap = gdrdrv_vma_mremap,
	.fault = gdrdrv_vma_fault,
};

/**
 * gdrdrv_populate() - make all entries of the current mapping, as first accesses would
 * @mr: the region, mapped by this process
 *
 * Takes mmap_lock and mr->lock for one window at a time: a free callback waits for at most one, and
 * so does another thread that maps. mmap_lock keeps the VMA; one that is being set up or torn down
 * is not found. Between two windows the mapping may move. If the process replaces it, the call goes
 * on at the same offset of the other one, and ends if that is shorter.
 *
 * Return: 0: every page has its entry; -EINVAL (not mapped, revoked, or userfaultfd protects, or
 * protected during the call, a page that has no entry), -ENOMEM, -EINTR (killed).
 */
int gdrdrv_populate(struct gdrdrv_mr *mr)
{
	struct mm_struct *mm = current->mm;
	unsigned long at, off = 0, len = 0;
	struct vm_area_struct *vma;
	vm_fault_t fault;

	do {
		if (fatal_signal_pending(current) || mmap_read_lock_killable(mm))
			return -EINTR;
		fault = VM_FAULT_SIGBUS;
		vma = find_vma(mm, READ_ONCE(mr->map_addr));
		if (vma && vma->vm_ops == &gdrdrv_vm_ops && vma->vm_private_data == mr &&
		    off < vma->vm_end - vma->vm_start) {
			at = vma->vm_start + off;
			len = vma->vm_end - vma->vm_start;
			fault = gdrdrv_fill(mr, vma, at, true);
			off = round_down(at, GDRDRV_WINDOW) + GDRDRV_WINDOW - vma->vm_start;
		}
		mmap_read_unlock(mm);
		cond_resched();
	} while (fault == VM_FAULT_NOPAGE && off < len);
	if (fault == VM_FAULT_NOPAGE)
		return 0;
	return fault & VM_FAULT_OOM ? -ENOMEM : -EINVAL;
}

/* Ties the region to the VMA. A region has one mapping at a time, and none once revoked. */
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
		mr->map_len = vma->vm_end - vma->vm_start;
		WRITE_ONCE(mr->map_type, mr->req_type ?: gdrdrv_memtype_default(mr));
		vma->vm_page_prot = gdrdrv_memtype_prot(mr->map_type, vma->vm_page_prot);
	}
	mutex_unlock(&mr->lock);
	return ret;
}

/* Returns the region that @vma names, with a reference and tied to @vma; or an error pointer. */
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
 * Return: 0; -EACCES (not the process that opened the node), -EPERM (executable), -EINVAL (private,
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
	vma->vm_private_data = mr; /* the look-up's reference is now the VMA's */
	return 0;
}
