// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Module init and exit; open and release of the node.
 *
 * Knows neither regions, beyond closing them all, nor where pages come from.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sched.h>

#include "gdrdrv.h"

static int gdrdrv_open(struct inode *inode, struct file *filp)
{
	struct gdrdrv_file *file = gdrdrv_file_new(inode, filp);

	if (!file)
		return -ENOMEM;
	filp->f_mapping = &file->mapping;
	filp->private_data = file;
	return stream_open(inode, filp);
}

/* Runs in whichever process or kernel thread drops the last reference. No VMA is left by then. */
static int gdrdrv_release(struct inode *inode, struct file *filp)
{
	struct gdrdrv_file *file = filp->private_data;

	gdrdrv_file_unlist(file);
	gdrdrv_mr_close_all(file);
	gdrdrv_file_put(file);
	return 0;
}

static const struct file_operations gdrdrv_fops = {
	.owner = THIS_MODULE,
	.open = gdrdrv_open,
	.release = gdrdrv_release,
	.unlocked_ioctl = gdrdrv_ioctl,
	.mmap = gdrdrv_mmap,
};

static int __init gdrdrv_init(void)
{
	int ret;

	gdrdrv_memtype_init();
	gdrdrv_p2p_init();
	ret = gdrdrv_proc_init();
	if (ret)
		return ret;
	ret = gdrdrv_node_init(&gdrdrv_fops);
	if (ret) {
		gdrdrv_proc_exit();
		return ret;
	}
	pr_info("version %d.%d for the %s GPU driver, persistent mapping %s\n",
		GDRDRV_VERSION_MAJOR, GDRDRV_VERSION_MINOR, GDRDRV_FLAVOR,
		gdrdrv_p2p_is_persistent() ? "on" : "off");
	return 0;
}

/* No descriptor is open and no callback pin was ever made: either would hold the module. */
static void __exit gdrdrv_exit(void)
{
	gdrdrv_node_exit();
	gdrdrv_proc_exit();
	WARN_ON(atomic_read(&gdrdrv_p2p_pins));
}

module_init(gdrdrv_init);
module_exit(gdrdrv_exit);

MODULE_DESCRIPTION("CPU mappings of GPU memory through the GPU's BAR");
MODULE_VERSION("2.6");
MODULE_LICENSE(GDRDRV_LICENSE);
