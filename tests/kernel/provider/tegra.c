// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The stand-in provider of Tegra: host memory, and nvidia_p2p_* of it as GPUDirect RDMA guide,
 * section 13.4, describes them, and as the open GPU driver does them (drivers/nv-p2p/nvidia-p2p.c
 * of L4T 5.10 and of nvidia-oot, whose functions are named below):
 *
 * - addresses are the process's own; any memory that get_user_pages() takes, without a limit;
 * - a pin is watched by an MMU notifier, which keeps the mm (nvidia_p2p_get_pages);
 * - it is hit by the invalidation of a range that holds the buffer's first byte, or that ends just
 *   before it: the end is taken as part of the range, the rest of the buffer is not seen. A hit
 *   gives the notifier back, and the mm with it, then runs the callback
 *   (nvidia_p2p_mn_invl_range_start);
 * - the callback also runs when the process ends, which does not give the mm back
 *   (nvidia_p2p_mn_release);
 * - a put takes the notifier away, which runs that release if no hit has come before, and gives
 *   the mm back in any case (nvidia_p2p_put_pages): after a hit that is once too often, and beside
 *   one it takes a reference of the client's;
 * - free_page_table gives the pages back; the table itself lives for ever there, here until its
 *   notifier is gone too.
 *
 * mmap of the node is cudaHostAlloc: pages of this driver, cached, or write-combined with the
 * offset PROVIDER_TEGRA_WC. Of INFO, pins counts the mms held, and late_puts the puts after the
 * callback of a hit has returned: without another thread there is none. A table freed twice or kept
 * for ever is an error of the client.
 */
#define pr_fmt(fmt) "provider: " fmt

#include <linux/delay.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nv-p2p.h"
#include "provider.h"

#define KNOB(name, text)               \
	static int name;               \
	module_param(name, int, 0644); \
	MODULE_PARM_DESC(name, text)

KNOB(fail_get, "errno of every get");
KNOB(fail_put, "errno of every put, which then does nothing");
KNOB(put_ms, "delay at the start of each put");
KNOB(callback_ms, "delay before each callback");
KNOB(get_ms, "delay between a get and its return");
KNOB(table_version, "version of the page table, 0 for the header's");
KNOB(page_size_type, "page size of the table as it is sent");
KNOB(short_table, "entries left out");

struct pin {
	struct nvidia_p2p_page_table table; /* first: the client knows the pin by it */
	struct list_head node;
	bool called; /* pins_lock */
	bool returned; /* pins_lock: from the callback */
	bool freed; /* pins_lock */
	bool hit; /* pins_lock */
	bool dropped; /* pins_lock: the mm is given back, or about to be */
	bool watched; /* pins_lock: the notifier may still be looked at */
	void (*callback)(void *data);
	void *data;
};

static LIST_HEAD(pins); /* pins_lock: tables not freed, and notifiers not gone */
static DEFINE_SPINLOCK(pins_lock);
static struct provider_info counts; /* pins_lock */

static void client_error(const char *what)
{
	spin_lock(&pins_lock);
	counts.errors++;
	spin_unlock(&pins_lock);
	pr_err("ERROR: %s\n", what);
}

/* The pin ends when both its table and its notifier are gone. */
static void pin_end(struct pin *pin, bool *what, bool value)
{
	bool last;

	spin_lock(&pins_lock);
	*what = value;
	last = pin->freed && !pin->watched;
	if (last)
		list_del(&pin->node);
	spin_unlock(&pins_lock);
	if (last)
		kfree(pin);
}

/* Counted once, also where hit and put both give the mm back. */
static void pin_drop(struct pin *pin)
{
	spin_lock(&pins_lock);
	if (!pin->dropped)
		counts.pins--;
	pin->dropped = true;
	spin_unlock(&pins_lock);
}

static struct pin *pin_of_notifier(struct mmu_notifier *mn)
{
	return container_of(mn, struct pin, table.mn);
}

static void pin_call(struct pin *pin)
{
	if (callback_ms)
		msleep(callback_ms);
	spin_lock(&pins_lock);
	counts.callbacks++;
	pin->called = true;
	spin_unlock(&pins_lock);
	pin->callback(pin->data);
	spin_lock(&pins_lock);
	pin->returned = true;
	spin_unlock(&pins_lock);
}

static void pin_mm_ends(struct mmu_notifier *mn, struct mm_struct *mm)
{
	pin_call(pin_of_notifier(mn));
}

static int pin_invalidate(struct mmu_notifier *mn, const struct mmu_notifier_range *range)
{
	struct pin *pin = pin_of_notifier(mn);
	u64 va = pin->table.vaddr;
	bool first;

	if (va < range->start || va > range->end) /* the end is no part of it, but is taken so */
		return 0;
	spin_lock(&pins_lock);
	first = !pin->hit;
	pin->hit = true;
	spin_unlock(&pins_lock);
	if (first) { /* a second one at the same time is a warning of the kernel there */
		pin_drop(pin);
		mmu_notifier_put(mn);
	}
	pin_call(pin);
	return 0;
}

static void pin_notifier_gone(struct mmu_notifier *mn)
{
	struct pin *pin = pin_of_notifier(mn);

	pin_end(pin, &pin->watched, false);
}

static const struct mmu_notifier_ops pin_ops = {
	.release = pin_mm_ends,
	.invalidate_range_start = pin_invalidate,
	.free_notifier = pin_notifier_gone,
};

int nvidia_p2p_get_pages(u64 virtual_address, u64 length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	int n = length >> PAGE_SHIFT, got, ret;
	struct pin *pin;

	if (READ_ONCE(fail_get))
		return -fail_get;
	if ((virtual_address | length) & 4095 || n <= 0 || !free_callback)
		return -EINVAL;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;
	/* One piece: a size that no allocation can have is a warning of the kernel. */
	pin->table.pages = kcalloc(n, sizeof(*pin->table.pages), GFP_KERNEL);
	if (!pin->table.pages) {
		kfree(pin);
		return -ENOMEM;
	}
	pin->callback = free_callback;
	pin->data = data;
	pin->table.version = table_version ? table_version : NVIDIA_P2P_PAGE_TABLE_VERSION;
	pin->table.page_size = page_size_type;
	pin->table.size = length;
	pin->table.vaddr = virtual_address;
	pin->table.mm = current->mm;
	pin->table.mn.ops = &pin_ops;
	got = get_user_pages_unlocked(virtual_address, n, pin->table.pages,
				      FOLL_WRITE | FOLL_FORCE);
	pin->table.entries = got > short_table ? got - short_table : 0;
	if (got != n) {
		ret = got < 0 ? got : -ENOMEM;
		goto err_put;
	}
	spin_lock(&pins_lock);
	counts.pins++;
	counts.tables++;
	pin->watched = true;
	list_add(&pin->node, &pins);
	spin_unlock(&pins_lock);
	/* The notifier comes last, and with it the callback: what is unmapped before is missed. */
	*page_table = &pin->table;
	ret = mmu_notifier_register(&pin->table.mn, current->mm);
	if (ret)
		goto err_unlist;
	if (get_ms)
		msleep(get_ms);
	return 0;

err_unlist:
	spin_lock(&pins_lock);
	counts.pins--;
	counts.tables--;
	list_del(&pin->node);
	spin_unlock(&pins_lock);
err_put:
	while (got > 0)
		put_page(pin->table.pages[--got]);
	kfree(pin->table.pages);
	kfree(pin);
	return ret;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

static struct pin *pin_of(struct nvidia_p2p_page_table *table)
{
	struct pin *pin, *found = NULL;

	spin_lock(&pins_lock);
	list_for_each_entry(pin, &pins, node)
		if (&pin->table == table && !pin->freed)
			found = pin;
	spin_unlock(&pins_lock);
	return found;
}

int nvidia_p2p_put_pages(struct nvidia_p2p_page_table *page_table)
{
	struct pin *pin;

	if (READ_ONCE(fail_put))
		return -fail_put;
	pin = pin_of(page_table);
	if (!pin) {
		client_error("put of a table that has been freed");
		return 0;
	}
	spin_lock(&pins_lock);
	counts.late_puts += pin->hit && pin->returned;
	spin_unlock(&pins_lock);
	if (put_ms)
		msleep(put_ms);
	pin_drop(pin);
	mmu_notifier_unregister(&pin->table.mn, pin->table.mm);
	if (!READ_ONCE(pin->hit)) /* else its own end comes, after the same grace period */
		pin_end(pin, &pin->watched, false);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	struct pin *pin = pin_of(page_table);
	u64 i;

	if (!pin) {
		client_error("page table freed twice");
		return 0;
	}
	if (!pin->called)
		client_error("page table freed without its callback");
	for (i = 0; i < page_table->size >> PAGE_SHIFT; i++)
		put_page(page_table->pages[i]);
	kfree(page_table->pages);
	spin_lock(&pins_lock);
	counts.tables--;
	spin_unlock(&pins_lock);
	pin_end(pin, &pin->freed, true);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_free_page_table);

/* ---- the node ----------------------------------------------------------------------------- */

/* Pages are the VMA's: they go with it, but for those that a pin holds. */
static int tegra_mmap(struct file *filp, struct vm_area_struct *vma)
{
	unsigned long addr;
	struct page *page;
	int ret;

	if (vma->vm_pgoff << PAGE_SHIFT == PROVIDER_TEGRA_WC)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	else if (vma->vm_pgoff << PAGE_SHIFT == PROVIDER_TEGRA_DEVICE)
		vma->vm_page_prot = pgprot_device(vma->vm_page_prot);
	for (addr = vma->vm_start; addr < vma->vm_end; addr += PAGE_SIZE) {
		page = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!page)
			return -ENOMEM;
		ret = vm_insert_page(vma, addr, page);
		put_page(page);
		if (ret)
			return ret;
	}
	return 0;
}

static long tegra_ioctl(struct file *filp, unsigned int cmd, unsigned long uarg)
{
	void __user *user = (void __user *)uarg;
	struct provider_info info;
	struct provider_pte pte;

	switch (cmd) {
	case PROVIDER_IOC_INFO:
		spin_lock(&pins_lock);
		info = counts;
		spin_unlock(&pins_lock);
		return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
	case PROVIDER_IOC_PTE:
		if (copy_from_user(&pte, user, sizeof(pte)))
			return -EFAULT;
		if (provider_read_pte(&pte))
			return -EINVAL;
		return copy_to_user(user, &pte, sizeof(pte)) ? -EFAULT : 0;
	default:
		return -ENOTTY;
	}
}

static const struct file_operations tegra_fops = {
	.owner = THIS_MODULE,
	.mmap = tegra_mmap,
	.unlocked_ioctl = tegra_ioctl,
};

static struct miscdevice tegra_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "p2p-provider",
	.fops = &tegra_fops,
	.mode = 0666,
};

static int __init tegra_init(void)
{
	return misc_register(&tegra_misc);
}

/* No client is left, nor what it may have left behind: init looks at INFO. */
static void __exit tegra_exit(void)
{
	int i;

	misc_deregister(&tegra_misc);
	mmu_notifier_synchronize();
	for (i = 0; i < 100 && !list_empty_careful(&pins); i++) /* the last notifiers' ends */
		msleep(20);
}

module_init(tegra_init);
module_exit(tegra_exit);
MODULE_DESCRIPTION("stand-in for Tegra's p2p interface, for tests");
MODULE_LICENSE("Dual MIT/GPL");
