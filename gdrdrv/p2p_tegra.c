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
 *   undefined behaviour (13.4.3, 3). The interface does not tell; the process's own mapping does.
 *
 * The table's entries are struct page pointers, as in the public nv-p2p.h of the Tegra kernels, so
 * each stands for a page of the kernel's size whatever page_size says.
 *
 * What follows is of the open GPU driver: drivers/nv-p2p/nvidia-p2p.c of L4T 5.10, of nvidia-oot;
 * its functions are named in brackets.
 *
 * - A pin is watched by an MMU notifier in the table, which holds the mm [nvidia_p2p_get_pages].
 * - The invalidation of a range that holds the buffer's first byte, or that ends where the buffer
 *   starts, is a hit: the notifier is given back, and the mm with it, then the callback runs
 *   [nvidia_p2p_mn_invl_range_start]. So what unmaps, remaps or forks a neighbour just below takes
 *   the pages back too, and unmapping our own mapping can, within the callback as well.
 * - What becomes of the rest of the buffer alone is not noticed; its pages stay pinned.
 * - The callback also comes when the process ends [nvidia_p2p_mn_release]; the mm stays held.
 * - The put unregisters the notifier, which runs that release if it has not run, and gives the mm
 *   back [nvidia_p2p_put_pages]. It has to come after a process's end, and must not after a hit:
 *   the mm would lose a reference that it has not got.
 *
 * The callback runs under the notifier's SRCU, under whatever locks the kernel has when it changes
 * a process's mappings, and possibly within our own zap or fault. So it takes none of ours: it
 * notes what has come and leaves the rest to a work. Until that has removed every entry the pages
 * are held: the GPU driver gives them back with the table [nvidia_p2p_free_page_table].
 *
 * Must not know mappings, handles or files.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "gdrdrv.h"
#include "nv-p2p.h"

#ifndef CONFIG_ARM64
#error "this nv-p2p.h is Tegra's, and Tegra is arm64"
#endif

#ifndef GDRDRV_GPL
#error "Tegra's GPU driver is open, and this file uses GPL-only symbols: build with FLAVOR=open"
#endif

struct tegra_pin {
	struct gdrdrv_mr *mr; /* a reference, given back by whoever serves the callback */
	struct nvidia_p2p_page_table *table;
	struct mm_struct *mm; /* a reference, of the process that pinned; until the release */
	u32 type; /* of the process's own mapping; constant once pinned */
	struct work_struct work; /* tegra_taken_back() */
	spinlock_t lock; /* the flags below; a leaf */
	bool putting; /* lock: the callback comes from our put, and nothing is to be revoked */
	bool called; /* lock: the callback has come */
	bool hit; /* lock: by an invalidation, so that the GPU driver has given the mm back */
	bool freed; /* of the work, then of the release: the table is gone */
};

static bool tegra_is_hit(struct tegra_pin *pin)
{
	bool hit;

	spin_lock(&pin->lock);
	hit = pin->hit;
	spin_unlock(&pin->lock);
	return hit;
}

/* The callback has been served: nothing of ours uses the pin from here on. */
static void tegra_served(struct gdrdrv_mr *mr)
{
	atomic_dec(&gdrdrv_source_pins);
	gdrdrv_mr_put(mr);
}

/* The rest of a callback that did not come from our put. */
static void tegra_taken_back(struct work_struct *work)
{
	struct tegra_pin *pin = container_of(work, struct tegra_pin, work);
	struct gdrdrv_mr *mr = pin->mr;
	bool orphaned = gdrdrv_mr_revoke(mr);

	/* Otherwise the table is still to be put; the put of an orphan has been and failed. */
	if (tegra_is_hit(pin) || orphaned) {
		pin->freed = true;
		nvidia_p2p_free_page_table(pin->table);
	}
	tegra_served(mr);
	if (orphaned)
		module_put(THIS_MODULE);
	atomic_dec(&gdrdrv_callbacks);
}

/*
 * Once per pin in earnest: when the memory goes, when its process ends, within our put. It can
 * come again: from zapping our own mapping, which hits if it ends where the buffer starts, and from
 * a hit or a put at the process's end. What comes later only notes whether it was a hit.
 *
 * What a later one looks at is alive: the notifier, since the callback runs under its SRCU; the
 * region, since whoever retires it has a reference until tegra_put() has waited for that SRCU. It
 * waits for nothing if the put fails, which the real one does not.
 *
 * A hit has given up the notifier's one user before it calls; the process's end and a put do not.
 */
static void tegra_callback(void *data)
{
	struct tegra_pin *pin = data;
	bool again, putting;

	spin_lock(&pin->lock);
	again = pin->called;
	pin->called = true;
	putting = pin->putting;
	if (!READ_ONCE(pin->table->mn.users))
		pin->hit = true;
	spin_unlock(&pin->lock);
	if (again)
		return;
	if (putting) {
		tegra_served(pin->mr);
		return;
	}
	/* At once, so that GET_CB_FLAG waits for the work; it is under mr->lock there as ever. */
	WRITE_ONCE(pin->mr->revoked, true);
	atomic_inc(&gdrdrv_callbacks);
	schedule_work(&pin->work);
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

/*
 * Gives a pin back. The callback runs within the put, unless it has run before.
 *
 * A hit may come at any time before the put has taken the notifier away, and it has given the mm
 * back before it tells us. Then the put drops a reference that is not its own: ours is that one. A
 * hit is known by the end of the put, which waits for the notifier's SRCU.
 */
static void tegra_put(struct gdrdrv_mr *mr)
{
	struct tegra_pin *pin = mr->src_data;
	bool called, hit;
	int ret = 0;

	mmgrab(pin->mm); /* for use in here, whatever is dropped meanwhile */
	spin_lock(&pin->lock);
	called = pin->called;
	pin->putting = !called;
	spin_unlock(&pin->lock);
	if (called) {
		/* It may be at work still, and what it unmaps may make a hit of it. */
		mmu_notifier_synchronize();
		flush_work(&pin->work);
		mmu_notifier_synchronize();
	}
	hit = tegra_is_hit(pin);
	if (!hit)
		ret = nvidia_p2p_put_pages(pin->table);

	/* A callback of now finds an orphan or none: its work waits for mr->lock. */
	mutex_lock(&mr->lock);
	spin_lock(&pin->lock);
	called = pin->called;
	pin->putting = false;
	spin_unlock(&pin->lock);
	if (!called) /* a put that failed: the callback may still come */
		gdrdrv_mr_orphan_locked(mr);
	mutex_unlock(&mr->lock);
	if (called && !pin->freed)
		nvidia_p2p_free_page_table(pin->table);
	if (ret)
		pr_err_ratelimited("GPU driver did not take the pages back: %d\n", ret);
	account_locked_vm(pin->mm, mr->size >> PAGE_SHIFT, false);
	if (hit || ret || !tegra_is_hit(pin))
		mmdrop(pin->mm);
	mmdrop(pin->mm);
}

/*
 * The GPU driver pins any memory of the process [nvidia_p2p_get_pages], so it is counted as the
 * kernel counts what a process locks: against RLIMIT_MEMLOCK. Its list of pages is one kcalloc(),
 * and one of a size that cannot be is a warning of the kernel.
 */
static int tegra_charge(const struct gdrdrv_pin_req *req)
{
	u64 pages = req->size >> PAGE_SHIFT;

	if (pages > KMALLOC_MAX_SIZE / sizeof(struct page *))
		return -ENOMEM;
	return account_locked_vm(current->mm, pages, true);
}

static int tegra_pin(struct gdrdrv_mr *mr, const struct gdrdrv_pin_req *req)
{
	struct tegra_pin *pin;
	int ret;

	ret = tegra_charge(req);
	if (ret)
		return ret;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);
	if (!pin) {
		account_locked_vm(current->mm, req->size >> PAGE_SHIFT, false);
		return -ENOMEM;
	}
	pin->mr = mr;
	INIT_WORK(&pin->work, tegra_taken_back);
	spin_lock_init(&pin->lock);
	pin->mm = current->mm;
	mmgrab(pin->mm);
	mr->src_data = pin;

	/* Counted before the get: the callback may come before the get has returned. */
	atomic_inc(&gdrdrv_source_pins);
	kref_get(&mr->ref);
	ret = nvidia_p2p_get_pages(req->va, req->size, &pin->table, tegra_callback, pin);
	if (ret) {
		atomic_dec(&gdrdrv_source_pins);
		account_locked_vm(pin->mm, req->size >> PAGE_SHIFT, false);
		mmdrop(pin->mm);
		mr->src_data = NULL;
		kfree(pin);
		gdrdrv_mr_put(mr);
		return ret;
	}
	mr->any_context = true; /* the GPU driver keeps the process's mm itself */

	/* After the get: from here on a change of the mapping's start revokes. */
	ret = tegra_find_type(req->va, req->size, &pin->type);
	if (ret)
		tegra_put(mr);
	return ret;
}

/* Read under mr->lock, and only while the region is not revoked: see p2p_desktop.c. */
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
	if (mr->revoked)
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
