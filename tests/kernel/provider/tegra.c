// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The stand-in provider of Tegra: host memory, and nvidia_p2p_* of it as GPUDirect RDMA guide,
 * section 13.4, and the public header of the Tegra kernels describe them:
 *
 * - addresses and lengths are multiples of 4 KB, else -EINVAL; addresses are the process's own;
 * - the callback always runs, once: when the memory is unmapped, when the process ends, in the put;
 * - the table lives until the client frees it, whoever ran the callback.
 *
 * mmap of the node is cudaHostAlloc: pages of this driver, cached, or write-combined with the offset
 * PROVIDER_TEGRA_WC. A put after the callback, a table freed twice or kept for ever are errors of the
 * client.
 */
#define pr_fmt(fmt) "provider: " fmt

#include <linux/delay.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "nv-p2p.h"
#include "provider.h"

#define KNOB(name, text)               \
	static int name;               \
	module_param(name, int, 0644); \
	MODULE_PARM_DESC(name, text)

KNOB(fail_get, "errno of every get");
KNOB(fail_put, "errno of every put, which then does nothing");
KNOB(callback_ms, "delay before each callback");
KNOB(get_ms, "delay between a get and its return");
KNOB(table_version, "version of the page table, 0 for the header's");
KNOB(page_size_type, "page size of the table as it is sent");
KNOB(short_table, "entries left out");

struct pin {
	struct nvidia_p2p_page_table table; /* first: the client knows the pin by it */
	struct list_head node;
	struct mmu_interval_notifier mni;
	struct work_struct work; /* takes the notifier away, which the callback cannot */
	struct mutex lock; /* called */
	bool called;
	bool freed; /* pins_lock */
	bool watched; /* pins_lock: mni is in place */
	void (*callback)(void *data);
	void *data;
};

static LIST_HEAD(pins); /* pins_lock: tables not freed, and notifiers not taken away */
static DEFINE_SPINLOCK(pins_lock);
static struct provider_info counts; /* pins_lock */
static struct workqueue_struct *wq;

static void client_error(const char *what)
{
	spin_lock(&pins_lock);
	counts.errors++;
	spin_unlock(&pins_lock);
	pr_err("ERROR: %s\n", what);
}

/* The pin ends when both its table and its notifier are gone. */
static void pin_drop(struct pin *pin, bool *what, bool value)
{
	bool last;

	spin_lock(&pins_lock);
	*what = value;
	last = pin->freed && !pin->watched;
	if (last)
		list_del(&pin->node);
	spin_unlock(&pins_lock);
	if (!last)
		return;
	kvfree(pin->table.pages);
	kfree(pin);
}

static void pin_unwatch(struct work_struct *work)
{
	struct pin *pin = container_of(work, struct pin, work);

	mmu_interval_notifier_remove(&pin->mni);
	pin_drop(pin, &pin->watched, false);
}

/* Runs the callback, the first time. */
static bool pin_call(struct pin *pin)
{
	bool first;

	mutex_lock(&pin->lock);
	first = !pin->called;
	pin->called = true;
	mutex_unlock(&pin->lock);
	if (!first)
		return false;
	if (callback_ms)
		msleep(callback_ms);
	spin_lock(&pins_lock);
	counts.callbacks++;
	spin_unlock(&pins_lock);
	pin->callback(pin->data);
	return true;
}

static bool pin_invalidate(struct mmu_interval_notifier *mni,
			   const struct mmu_notifier_range *range, unsigned long seq)
{
	struct pin *pin = container_of(mni, struct pin, mni);

	if (!mmu_notifier_range_blockable(range))
		return false;
	mmu_interval_set_seq(mni, seq);
	if (pin_call(pin))
		queue_work(wq, &pin->work);
	return true;
}

static const struct mmu_interval_notifier_ops pin_mni_ops = { .invalidate = pin_invalidate };

int nvidia_p2p_get_pages(u64 virtual_address, u64 length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	int n = length >> PAGE_SHIFT, got, ret;
	struct pin *pin;

	if (READ_ONCE(fail_get))
		return -fail_get;
	if (!length || (virtual_address | length) & 4095 || !n || !free_callback)
		return -EINVAL;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;
	pin->table.pages = kvcalloc(n, sizeof(*pin->table.pages), GFP_KERNEL);
	if (!pin->table.pages) {
		kfree(pin);
		return -ENOMEM;
	}
	mutex_init(&pin->lock);
	INIT_WORK(&pin->work, pin_unwatch);
	pin->callback = free_callback;
	pin->data = data;
	pin->table.version = table_version ? table_version : NVIDIA_P2P_PAGE_TABLE_VERSION;
	pin->table.page_size = page_size_type;
	pin->table.size = length;
	got = get_user_pages_fast(virtual_address, n, FOLL_WRITE, pin->table.pages);
	pin->table.entries = got > short_table ? got - short_table : 0;
	if (got != n) {
		ret = got < 0 ? got : -ENOMEM;
		goto err_put;
	}
	spin_lock(&pins_lock);
	counts.pins++;
	counts.tables++;
	list_add(&pin->node, &pins);
	spin_unlock(&pins_lock);
	/* The notifier comes last, and with it possibly the callback: what is unmapped before is missed. */
	pin->watched = true;
	*page_table = &pin->table;
	ret = mmu_interval_notifier_insert(&pin->mni, current->mm, virtual_address, length,
					   &pin_mni_ops);
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
	kvfree(pin->table.pages);
	kfree(pin);
	return ret;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

static struct pin *pin_of(struct nvidia_p2p_page_table *table)
{
	struct pin *pin;

	list_for_each_entry(pin, &pins, node)
		if (&pin->table == table && !pin->freed)
			return pin;
	return NULL;
}

int nvidia_p2p_put_pages(struct nvidia_p2p_page_table *page_table)
{
	struct pin *pin;

	if (READ_ONCE(fail_put))
		return -fail_put;
	spin_lock(&pins_lock);
	pin = pin_of(page_table);
	spin_unlock(&pins_lock);
	if (!pin) {
		client_error("put of a table that has been freed");
		return -EINVAL;
	}
	if (!pin_call(pin)) {
		/* The other way into the callback is at work, or was: it takes the notifier away. */
		spin_lock(&pins_lock);
		counts.late_puts++;
		spin_unlock(&pins_lock);
		flush_workqueue(wq);
		return 0;
	}
	mmu_interval_notifier_remove(&pin->mni);
	pin_drop(pin, &pin->watched, false);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	struct pin *pin;
	u64 i;

	spin_lock(&pins_lock);
	pin = pin_of(page_table);
	spin_unlock(&pins_lock);
	if (!pin) {
		client_error("page table freed twice");
		return 0;
	}
	if (!pin->called)
		client_error("page table freed without its callback");
	for (i = 0; i < page_table->size >> PAGE_SHIFT; i++)
		put_page(page_table->pages[i]);
	spin_lock(&pins_lock);
	counts.pins--;
	counts.tables--;
	spin_unlock(&pins_lock);
	pin_drop(pin, &pin->freed, true);
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
		flush_workqueue(wq);
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
	int ret;

	wq = alloc_workqueue("p2p-provider", 0, 0);
	if (!wq)
		return -ENOMEM;
	ret = misc_register(&tegra_misc);
	if (ret)
		destroy_workqueue(wq);
	return ret;
}

/* No client is left, nor what it may have left behind: init looks at INFO. */
static void __exit tegra_exit(void)
{
	misc_deregister(&tegra_misc);
	destroy_workqueue(wq);
}

module_init(tegra_init);
module_exit(tegra_exit);
MODULE_DESCRIPTION("stand-in for Tegra's p2p interface, for tests");
MODULE_LICENSE("Dual MIT/GPL");
