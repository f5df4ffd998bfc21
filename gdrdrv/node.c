// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The device numbers and /dev/gdrdrv.
 *
 * The kernel makes /dev/gdrdrv, a misc device: device classes are GPL-only. The driver also has a
 * major number, listed under its name in /proc/devices for programs that make the node (minor 0):
 * insmod.sh of GDRCopy, scripts derived from it, and nvidia-gdrdrv-device of siderolabs/extensions,
 * which waits for that line for ever. Both nodes have the same operations.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/miscdevice.h>

#include "gdrdrv.h"

/*
 * For all users, since a process can pin only its own memory (SECURITY.md). A udev rule can change
 * it.
 */
#define GDRDRV_NODE_MODE 0666

static int gdrdrv_major; /* negative: none */

static struct miscdevice gdrdrv_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = GDRDRV_DEVICE_NAME,
	.mode = GDRDRV_NODE_MODE,
};

/*
 * The node is open to users once it is registered, so a failure of the second registration does not
 * fail the load, which would free the module under them.
 */
int gdrdrv_node_init(const struct file_operations *fops)
{
	int ret;

	gdrdrv_misc.fops = fops;
	ret = misc_register(&gdrdrv_misc);
	if (ret) {
		pr_err("cannot make /dev/%s: %d\n", GDRDRV_DEVICE_NAME, ret);
		return ret;
	}
	gdrdrv_major = __register_chrdev(0, 0, 1, GDRDRV_DEVICE_NAME, fops);
	if (gdrdrv_major < 0)
		pr_warn("no major number for scripts that run mknod: %d\n", gdrdrv_major);
	return 0;
}

void gdrdrv_node_exit(void)
{
	if (gdrdrv_major > 0)
		__unregister_chrdev(gdrdrv_major, 0, 1, GDRDRV_DEVICE_NAME);
	misc_deregister(&gdrdrv_misc);
}
