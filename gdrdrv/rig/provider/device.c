// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The stand-in GPU: a shared-memory PCI device whose BAR2 stands for BAR1, and the node by which
 * programs allocate from it. If the machine has a second such device, it stands for another GPU, or
 * for one that is passed through to a virtual machine.
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

static int bridge_shift_mib;
KNOB(other_is_gpu, 0, "the second function, when bound next, is a GPU; 0: passed through");
KNOB(other_vendor, PCI_VENDOR_ID_NVIDIA, "its vendor, when bound next");
KNOB(other_class, PCI_CLASS_DISPLAY_3D, "its class, when bound next");
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
	provider_block_free_all(file);
	mutex_lock(&provider_bar.lock);
	provider_client_ends_locked(file);
	list_del(&file->node);
	mutex_unlock(&provider_bar.lock);
	kfree(file);
	return 0;
}

static void fill_pci(struct provider_info *info)
{
	struct pci_dev *other = provider_bar.other ?: provider_bar.pdev;

	info->pci_domain = pci_domain_nr(provider_bar.pdev->bus);
	info->pci_bus = provider_bar.pdev->bus->number;
	info->pci_devfn = provider_bar.pdev->devfn;
	info->other_bus = other->bus->number;
	info->other_devfn = other->devfn;
}

static void fill_info(struct provider_info *info)
{
	mutex_lock(&provider_bar.lock);
	*info = provider_counts;
	info->bar_phys = provider_bar.phys;
	info->bar_size = provider_bar.size;
	info->pages_total = provider_bar.npages;
	info->pages_free = provider_bar.nfree;
	fill_pci(info);
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
		struct provider_window window;
		struct provider_window_arm window_arm;
		struct provider_window_free window_free;
		struct provider_window_go window_go;
		struct provider_export export;
		struct provider_move move;
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
	case PROVIDER_IOC_EXPORT:
		ret = provider_export(&arg.export);
		break;
	case PROVIDER_IOC_MOVE:
		return provider_move(&arg.move);
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

static int bridge_shift_set(const char *val, const struct kernel_param *kp)
{
	int ret = param_set_int(val, kp);

	if (!ret && provider_bar.pdev)
		provider_shift_bridge(provider_bar.pdev, (resource_size_t)bridge_shift_mib << 20);
	return ret;
}

static const struct kernel_param_ops bridge_shift_ops = { .set = bridge_shift_set,
							  .get = param_get_int };
module_param_cb(bridge_shift_mib, &bridge_shift_ops, &bridge_shift_mib, 0644);
MODULE_PARM_DESC(bridge_shift_mib, "MiB by which bus addresses are below the CPU's");

static int probe_gpu(struct pci_dev *pdev)
{
	int ret;

	provider_bar.phys = pci_resource_start(pdev, 2);
	provider_bar.size = pci_resource_len(pdev, 2);
	provider_bar.index = 2;
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
	provider_bar.pdev = pdev;
	provider_forge(pdev, PCI_VENDOR_ID_NVIDIA, PCI_CLASS_DISPLAY_3D);
	return 0;
}

static int probe_other(struct pci_dev *pdev)
{
	provider_bar.other = pdev;
	provider_bar.other_phys = pci_resource_start(pdev, 2);
	provider_forge(pdev, other_vendor, other_class);
	provider_forge_other_bar(provider_bar.pdev, pci_resource_start(pdev, 2),
				 pci_resource_len(pdev, 2));
	return 0;
}

static int probe_enabled(struct pci_dev *pdev, int (*probe)(struct pci_dev *pdev))
{
	int ret = pci_enable_device(pdev);

	if (ret)
		return ret;
	ret = probe(pdev);
	if (ret)
		pci_disable_device(pdev);
	return ret;
}

/* The first function is the GPU; the second one another GPU if other_is_gpu is set. */
static int provider_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	if (!provider_bar.pdev)
		return probe_enabled(pdev, probe_gpu);
	return other_is_gpu ? probe_enabled(pdev, probe_other) : -ENODEV;
}

/* The driver that binds functions for a virtual machine. */
static int passthrough_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return provider_bar.pdev && !other_is_gpu ? probe_enabled(pdev, probe_other) : -ENODEV;
}

static void provider_remove(struct pci_dev *pdev)
{
	if (pdev == provider_bar.pdev) {
		provider_shift_bridge(pdev, 0);
		misc_deregister(&provider_misc);
		provider_p2p_exit();
		bitmap_free(provider_bar.used);
		provider_bar.pdev = NULL;
	} else {
		provider_bar.other = NULL;
	}
	provider_unforge(pdev);
	pci_disable_device(pdev);
}

static const struct pci_device_id provider_ids[] = { { PCI_DEVICE(0x1af4, 0x1110) }, {} };

static struct pci_driver provider_driver = {
	.name = "nvidia",
	.id_table = provider_ids,
	.probe = provider_probe,
	.remove = provider_remove,
};

static struct pci_driver passthrough_driver = {
	.name = "vfio-pci",
	.id_table = provider_ids,
	.probe = passthrough_probe,
	.remove = provider_remove,
};

static int __init provider_init(void)
{
	int ret = pci_register_driver(&provider_driver);

	if (ret)
		return ret;
	ret = pci_register_driver(&passthrough_driver);
	if (ret)
		pci_unregister_driver(&provider_driver);
	return ret;
}

static void __exit provider_exit(void)
{
	provider_refuse_exit();
	pci_unregister_driver(&passthrough_driver);
	pci_unregister_driver(&provider_driver);
}

module_init(provider_init);
module_exit(provider_exit);

MODULE_DESCRIPTION("stand-in for a GPU driver's p2p interface, for tests");
MODULE_LICENSE("Dual MIT/GPL");
