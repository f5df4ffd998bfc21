// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The stand-in GPU: a shared-memory PCI device whose BAR2 stands for BAR1, and the node by which
 * programs allocate from it.
 */
#define pr_fmt(fmt) "provider: " fmt

#include <linux/bitmap.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include "provider.h"

struct provider_bar provider_bar;

struct provider_info provider_counts;

static int provider_open(struct inode *inode, struct file *filp)
{
	struct provider_file *file = kzalloc(sizeof(*file), GFP_KERNEL);

	if (!file)
		return -ENOMEM;
	file->tgid = current->tgid;
	file->va_space = PROVIDER_VA_SPACE;
	mutex_lock(&provider_bar.lock);
	file->p2p_token = ++provider_bar.last_token;
	file->clients[0].tgid = file->tgid;
	file->clients[0].client = file->p2p_token;
	list_add(&file->node, &provider_bar.files);
	mutex_unlock(&provider_bar.lock);
	filp->private_data = file;
	return 0;
}

static int provider_release(struct inode *inode, struct file *filp)
{
	struct provider_file *file = filp->private_data;

	provider_window_close(file);
	provider_notify_end(file);
	provider_block_free_all(file);
	mutex_lock(&provider_bar.lock);
	provider_client_ends_locked(file);
	list_del(&file->node);
	mutex_unlock(&provider_bar.lock);
	kfree(file);
	return 0;
}

static void fill_info(struct provider_info *info)
{
	mutex_lock(&provider_bar.lock);
	*info = provider_counts;
	info->bar_phys = provider_bar.phys;
	info->bar_size = provider_bar.size;
	info->pages_total = provider_bar.npages;
	info->pages_free = provider_bar.nfree;
	provider_p2p_count_locked(info);
	mutex_unlock(&provider_bar.lock);
}

static long provider_ioctl(struct file *filp, unsigned int cmd, unsigned long uarg)
{
	struct provider_file *file = filp->private_data;
	void __user *user = (void __user *)uarg;
	union {
		struct provider_alloc alloc;
		struct provider_free free;
		struct provider_copy copy;
		struct provider_pte pte;
		struct provider_info info;
		struct provider_tokens tokens;
		struct provider_lend lend;
		struct provider_notify notify;
		struct provider_notify_free notify_free;
		struct provider_window window;
		struct provider_window_arm window_arm;
		struct provider_window_free window_free;
		struct provider_window_go window_go;
	} arg = {};
	long ret = 0;

	if (_IOC_SIZE(cmd) > sizeof(arg))
		return -ENOTTY;
	if ((_IOC_DIR(cmd) & _IOC_WRITE) && copy_from_user(&arg, user, _IOC_SIZE(cmd)))
		return -EFAULT;
	switch (cmd) {
	case PROVIDER_IOC_ALLOC:
		ret = provider_block_alloc(file, &arg.alloc);
		break;
	case PROVIDER_IOC_FREE:
		return provider_block_free(file, arg.free.va);
	case PROVIDER_IOC_PEEK:
		return provider_copy(&arg.copy, false);
	case PROVIDER_IOC_POKE:
		return provider_copy(&arg.copy, true);
	case PROVIDER_IOC_PTE:
		ret = provider_read_pte(&arg.pte);
		break;
	case PROVIDER_IOC_INFO:
		fill_info(&arg.info);
		break;
	case PROVIDER_IOC_TOKENS:
		arg.tokens.p2p_token = file->p2p_token;
		arg.tokens.va_space = file->va_space;
		break;
	case PROVIDER_IOC_LEND:
		return provider_lend(file, arg.lend.client);
	case PROVIDER_IOC_NOTIFY:
		return provider_notify(file, &arg.notify);
	case PROVIDER_IOC_NOTIFY_FREE:
		return provider_notify_free(file, &arg.notify_free);
	case PROVIDER_IOC_WINDOW:
		return provider_window_open(file, &arg.window);
	case PROVIDER_IOC_WINDOW_ARM:
		return provider_window_arm(file, &arg.window_arm);
	case PROVIDER_IOC_WINDOW_FREE:
		ret = provider_window_free(file, &arg.window_free);
		break;
	case PROVIDER_IOC_WINDOW_GO:
		ret = provider_window_go(file, &arg.window_go);
		break;
	default:
		return -ENOTTY;
	}
	if (!ret && copy_to_user(user, &arg, _IOC_SIZE(cmd)))
		return -EFAULT;
	return ret;
}

static const struct file_operations provider_fops = {
	.owner = THIS_MODULE,
	.open = provider_open,
	.release = provider_release,
	.unlocked_ioctl = provider_ioctl,
};

static struct miscdevice provider_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "p2p-provider",
	.fops = &provider_fops,
	.mode = 0666,
};

/* The client looks for GPUs by their vendor. The former one returns before the driver unbinds. */
static unsigned short was_vendor;

static int probe_gpu(struct pci_dev *pdev)
{
	int ret;

	provider_bar.phys = pci_resource_start(pdev, 2);
	provider_bar.size = pci_resource_len(pdev, 2);
	provider_bar.npages = provider_bar.size / PROVIDER_PAGE_SIZE - PROVIDER_KEEP_PAGES;
	provider_bar.nfree = provider_bar.npages;
	provider_bar.next_va = PROVIDER_VA_BASE;
	INIT_LIST_HEAD(&provider_bar.blocks);
	INIT_LIST_HEAD(&provider_bar.files);
	mutex_init(&provider_bar.lock);
	provider_bar.used = bitmap_zalloc(provider_bar.npages + PROVIDER_KEEP_PAGES, GFP_KERNEL);
	if (!provider_bar.used)
		return -ENOMEM;
	ret = misc_register(&provider_misc);
	if (ret) {
		bitmap_free(provider_bar.used);
		return ret;
	}
	provider_counts.pci_domain = pci_domain_nr(pdev->bus);
	provider_counts.pci_bus = pdev->bus->number;
	provider_counts.pci_devfn = pdev->devfn;
	was_vendor = pdev->vendor;
	pdev->vendor = PCI_VENDOR_ID_NVIDIA;
	return 0;
}

static int provider_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int ret = pci_enable_device(pdev);

	if (ret)
		return ret;
	ret = probe_gpu(pdev);
	if (ret)
		pci_disable_device(pdev);
	return ret;
}

static void provider_remove(struct pci_dev *pdev)
{
	misc_deregister(&provider_misc);
	provider_p2p_exit();
	bitmap_free(provider_bar.used);
	pdev->vendor = was_vendor;
	pci_disable_device(pdev);
}

static const struct pci_device_id provider_ids[] = { { PCI_DEVICE(0x1af4, 0x1110) }, {} };

static struct pci_driver provider_driver = {
	.name = "nvidia",
	.id_table = provider_ids,
	.probe = provider_probe,
	.remove = provider_remove,
};

static int __init provider_init(void)
{
	return pci_register_driver(&provider_driver);
}

static void __exit provider_exit(void)
{
	provider_refuse_exit();
	pci_unregister_driver(&provider_driver);
}

module_init(provider_init);
module_exit(provider_exit);

MODULE_DESCRIPTION("stand-in for a GPU driver's p2p interface, for tests");
MODULE_LICENSE("Dual MIT/GPL");
