// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The device numbers and /dev/gdrdrv.
 *
 * The driver has a major number, listed under its name in /proc/devices for scripts that run mknod
 * (minor 0). The kernel makes /dev/gdrdrv.
 *
 * Device classes are GPL-only. In the build for the proprietary flavour /dev/gdrdrv is therefore a
 * misc device, with another number than the one in /proc/devices; both have the same operations.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/miscdevice.h>

#include "gdrdrv.h"

/*
 * For all users, since a process can pin only its own memory (SECURITY.md). A udev rule can change
 * it.
 */
#define GDRDRV_NODE_MODE 0666

static int gdrdrv_major;

#ifdef GDRDRV_GPL

static char *gdrdrv_devnode(GDRDRV_DEVNODE_CONST struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = GDRDRV_NODE_MODE;
	return NULL;
}

static struct class gdrdrv_class = {
	.name = GDRDRV_DEVICE_NAME,
	.devnode = gdrdrv_devnode,
};

static int gdrdrv_node_make(const struct file_operations *fops)
{
	int ret = class_register(&gdrdrv_class);
	struct device *dev;

	if (ret)
		return ret;
	dev = device_create(&gdrdrv_class, NULL, MKDEV(gdrdrv_major, 0), NULL, GDRDRV_DEVICE_NAME);
	if (IS_ERR(dev))
		class_unregister(&gdrdrv_class);
	return PTR_ERR_OR_ZERO(dev);
}

static void gdrdrv_node_remove(void)
{
	device_destroy(&gdrdrv_class, MKDEV(gdrdrv_major, 0));
	class_unregister(&gdrdrv_class);
}

#else

static struct miscdevice gdrdrv_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = GDRDRV_DEVICE_NAME,
	.mode = GDRDRV_NODE_MODE,
};

static int gdrdrv_node_make(const struct file_operations *fops)
{
	gdrdrv_misc.fops = fops;
	return misc_register(&gdrdrv_misc);
}

static void gdrdrv_node_remove(void)
{
	misc_deregister(&gdrdrv_misc);
}

#endif

int gdrdrv_node_init(const struct file_operations *fops)
{
	int ret = __register_chrdev(0, 0, 1, GDRDRV_DEVICE_NAME, fops);

	if (ret >= 0) {
		gdrdrv_major = ret;
		ret = gdrdrv_node_make(fops);
		if (ret)
			__unregister_chrdev(gdrdrv_major, 0, 1, GDRDRV_DEVICE_NAME);
	}
	if (ret)
		pr_err("cannot make /dev/%s: %d\n", GDRDRV_DEVICE_NAME, ret);
	return ret;
}

void gdrdrv_node_exit(void)
{
	gdrdrv_node_remove();
	__unregister_chrdev(gdrdrv_major, 0, 1, GDRDRV_DEVICE_NAME);
}
