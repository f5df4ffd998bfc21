// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Pages from the GPU driver of Tegra (Jetson, Drive), GPUDirect RDMA guide, section 13.4.
 *
 * An integrated GPU has no BAR: its memory for sharing is the CPU's own, of cudaHostAlloc, and is
 * named by the address that the process has it at. What differs from the desktop:
 *
 * - the calls take no tokens and no address for the put (13.4.2);
 * - whole pages of 4 KB are pinned, so the neighbours of a small allocation are not (13.4.3, 1);
 * - the free callback always runs, within the put too, and the table is ours to free (13.4.3, 2);
 * - the mapping's type is the allocation's, write-combined or cached: any other combination is
 *   undefined behaviour (13.4.3, 3). The interface does not tell it. The process's own mapping does.
 *
 * The table's entries are struct page pointers, as in the public nv-p2p.h of the Tegra kernels, so
 * each stands for a page of the kernel's size whatever page_size says.
 *
 * The callback comes from an MMU notifier of the process, so also when the memory is unmapped, with
 * the process's mmap_lock held, which our lock order allows. It must not come from memory reclaim
 * inside a fault of ours, which holds mr->lock: the pages are the GPU driver's and on no LRU list.
 *
 * Must not know mappings, handles or files.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "gdrdrv.h"
#include "nv-p2p.h"

#ifndef CONFIG_ARM64
#error "this nv-p2p.h is Tegra's, and Tegra is arm64"
#endif

struct tegra_pin {
	struct gdrdrv_mr *mr; /* a reference, given back by the callback */
	struct nvidia_p2p_page_table *table;
	u32 type; /* of the process's own mapping; constant once pinned */
	bool putting; /* mr->lock: the put is ours to follow with the free */
	bool called; /* mr->lock: the callback has begun; the table may be gone */
};

/*
 * Runs once per pin: when the memory goes, when its process ends, and within our put. Whoever is
 * last frees the table: after a put that is tegra_release(), since the put still looks at it.
 */
static void tegra_callback(void *data)
{
	struct tegra_pin *pin = data;
	struct gdrdrv_mr *mr = pin->mr;
	bool putting, orphaned = false;

	atomic_inc(&gdrdrv_callbacks);
	mutex_lock(&mr->lock);
	pin->called = true;
	putting = pin->putting;
	mutex_unlock(&mr->lock);
	if (!putting) {
		orphaned = gdrdrv_mr_revoke(mr);
		nvidia_p2p_free_page_table(pin->table);
	}
	atomic_dec(&gdrdrv_source_pins);
	gdrdrv_mr_put(mr);
	if (orphaned)
		module_put(THIS_MODULE);
	atomic_dec(&gdrdrv_callbacks);
}

/* How the process has the memory mapped; it is one mapping, as cudaHostAlloc makes it. */
static int tegra_find_type(u64 va, u64 size, u32 *type)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	int ret = -EINVAL;

	mmap_read_lock(mm);
	vma = find_vma(mm, va);
	if (vma && vma->vm_start <= va && vma->vm_end - va >= size) {
		*type = gdrdrv_memtype_of(vma->vm_page_prot);
		ret = *type == GDRDRV_MAPPING_TYPE_DEVICE ? -EOPNOTSUPP : 0;
	}
	mmap_read_unlock(mm);
	return ret;
}

/* Gives a pin back. The callback runs within it, unless it has run before. */
static void tegra_put(struct gdrdrv_mr *mr)
{
	struct tegra_pin *pin = mr->src_data;
	bool called;
	int ret;

	mutex_lock(&mr->lock);
	called = pin->called;
	pin->putting = !called;
	mutex_unlock(&mr->lock);
	if (called)
		return;

	ret = nvidia_p2p_put_pages(pin->table);
	mutex_lock(&mr->lock);
	called = pin->called;
	pin->putting = false;
	if (!called)
		gdrdrv_mr_orphan_locked(mr); /* a put that failed: the callback may still come */
	mutex_unlock(&mr->lock);
	if (called)
		nvidia_p2p_free_page_table(pin->table);
	if (ret)
		pr_err_ratelimited("GPU driver did not take the pages back: %d\n", ret);
}

static int tegra_pin(struct gdrdrv_mr *mr, const struct gdrdrv_pin_req *req)
{
	struct tegra_pin *pin;
	int ret;

	if (req->p2p_token || req->va_space)
		return -EINVAL;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);
	if (!pin)
		return -ENOMEM;
	pin->mr = mr;
	mr->src_data = pin;

	/* Counted before the get: the callback may come before the get has returned. */
	atomic_inc(&gdrdrv_source_pins);
	kref_get(&mr->ref);
	ret = nvidia_p2p_get_pages(req->va, req->size, &pin->table, tegra_callback, pin);
	if (ret) {
		atomic_dec(&gdrdrv_source_pins);
		mr->src_data = NULL;
		kfree(pin);
		gdrdrv_mr_put(mr);
		return ret;
	}
	mr->any_context = true; /* the GPU driver keeps the process's mm itself */

	/* After the get: from here on a change of the mapping revokes. */
	ret = tegra_find_type(req->va, req->size, &pin->type);
	if (ret)
		tegra_put(mr);
	return ret;
}

/* Read under mr->lock, and only while the callback has not begun: see p2p_desktop.c. */
static int tegra_runs(const struct gdrdrv_mr *mr, const struct nvidia_p2p_page_table *table,
		      struct gdrdrv_range *out, u32 max)
{
	struct gdrdrv_range run = {};
	u32 n = 0, i;

	for (i = 0; (u64)i << PAGE_SHIFT < mr->size; i++) {
		phys_addr_t phys = page_to_phys(table->pages[i]);

		if (run.len && phys == run.start + run.len) {
			run.len += PAGE_SIZE;
		} else {
			run = (struct gdrdrv_range){ .off = (u64)i << PAGE_SHIFT,
						     .len = PAGE_SIZE,
						     .start = phys };
			n++;
		}
		if (n <= max)
			out[n - 1] = run;
	}
	return n;
}

static int tegra_table_check(const struct gdrdrv_mr *mr, const struct nvidia_p2p_page_table *table)
{
#ifdef NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE /* not before JetPack 5 */
	if (!NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table)) {
		pr_err_ratelimited("GPU driver's page table version 0x%x is not 0x%x: rebuild\n",
				   table->version, NVIDIA_P2P_PAGE_TABLE_VERSION);
		return -EOPNOTSUPP;
	}
#endif
	if (table->page_size != NVIDIA_P2P_PAGE_SIZE_4KB) {
		pr_err_ratelimited("GPU page table with page size %u\n", table->page_size);
		return -EOPNOTSUPP;
	}
	if (table->entries < mr->size >> PAGE_SHIFT) {
		pr_err_ratelimited("GPU page table with %u entries for %llu bytes\n",
				   table->entries, mr->size);
		return -EINVAL;
	}
	return 0;
}

static int tegra_ranges(struct gdrdrv_mr *mr, struct gdrdrv_range *out, u32 max)
{
	struct tegra_pin *pin = mr->src_data;
	int ret = -EINVAL;

	mutex_lock(&mr->lock);
	if (pin->called)
		goto unlock;
	ret = tegra_table_check(mr, pin->table);
	if (ret)
		goto unlock;
	mr->page_size = PAGE_SIZE;
	mr->cpu_memory = true;
	mr->cpu_cacheable = pin->type == GDRDRV_MAPPING_TYPE_CACHING;
	ret = tegra_runs(mr, pin->table, out, max);
unlock:
	mutex_unlock(&mr->lock);
	return ret;
}

static void tegra_free(struct gdrdrv_mr *mr)
{
	kfree(mr->src_data);
}

const struct gdrdrv_source_ops gdrdrv_p2p = {
	.name = "nvidia-p2p (Tegra)",
	.by = GDRDRV_BY_ADDRESS,
	.unit = PAGE_SIZE,
	.has_callback = true,
	.pin = tegra_pin,
	.ranges = tegra_ranges,
	.release = tegra_put,
	.free = tegra_free,
};
