// SPDX-License-Identifier: MIT
/*
 * The load, and the node, made by the kernel, and made by existing scripts: NVIDIA's insmod.sh, and init scripts
 * and containers derived from it. They use the major number in /proc/devices and minor 0.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "rig.h"

#define NODE "/dev/gdrdrv"

/* major=`fgrep gdrdrv /proc/devices | cut -b 1-4`; one line, or mknod would get more. */
static unsigned int listed_major(void)
{
	char *text = read_text("/proc/devices"), word[5] = "", *end;
	unsigned int n = 0;
	unsigned long major;

	for_each_line(line, text) {
		if (!strstr(line, "gdrdrv"))
			continue;
		snprintf(word, sizeof(word), "%s", line);
		n++;
	}
	free(text);
	CHECK_EQ(n, 1);
	major = strtoul(word, &end, 10);
	CHECK(major > 0 && (*end == ' ' || !*end));
	return (unsigned int)major;
}

static struct stat status_of(const char *node)
{
	struct stat st;

	CHECK(!lstat(node, &st));
	CHECK(S_ISCHR(st.st_mode));
	return st;
}

/* Pins and maps through @node, and checks a byte in the GPU's memory. */
static void works(const char *node, uint8_t byte)
{
	struct region r;

	drv = drv_open_at(node);
	r = region(2 * GPU_PAGE, 0);
	r.p[GPU_PAGE + 7] = byte;
	CHECK_EQ(gpu_byte(r.va + GPU_PAGE + 7), byte);
	unmap(r.p, 2 * GPU_PAGE);
	OK(unpin(drv, r.h));
	OK(gpu_free(prov, r.va));
	close(drv);
}

/* Checks the kernel's node, a misc device. */
static void is_the_kernels(void)
{
	struct stat st = status_of(NODE);
	char want[32], *dev;

	CHECK_EQ(st.st_mode & 07777, 0666);
	CHECK_EQ(st.st_uid, 0);
	dev = read_text("/sys/class/misc/gdrdrv/dev");
	CHECK(dev);
	snprintf(want, sizeof(want), "%u:%u\n", major(st.st_rdev), minor(st.st_rdev));
	CHECK(!strcmp(dev, want));
	free(dev);
	CHECK_EQ(major(st.st_rdev), 10);
	works(NODE, 1);
}

/* rm /dev/gdrdrv; mknod /dev/gdrdrv c $major 0; chmod a+w+r /dev/gdrdrv */
static void make_node(const char *node)
{
	dev_t dev = makedev(listed_major(), 0);
	struct stat st;

	if (!access(node, F_OK))
		CHECK(!unlink(node));
	CHECK(!mknod(node, S_IFCHR | 0644, dev));
	st = status_of(node);
	CHECK(!chmod(node, (st.st_mode & 07777) | 0666));
}

static void t_node(void)
{
	char path[] = "/tmp/other";

	is_the_kernels();
	/* The driver has one minor number. */
	CHECK(!mknod(path, S_IFCHR | 0666, makedev(listed_major(), 1)));
	CHECK(open(path, O_RDWR) == -1 && errno == ENXIO);
	CHECK(!unlink(path));
}

static void t_node_script(void)
{
	int i;

	close(drv); /* works() opens the node anew */
	is_the_kernels();
	/* A container's node, in addition to the kernel's */
	make_node("/tmp/gdrdrv");
	works("/tmp/gdrdrv", 2);
	works(NODE, 3);
	CHECK(!unlink("/tmp/gdrdrv"));

	/* An init script's node, in place of the kernel's */
	make_node(NODE);
	works(NODE, 4);

	if (by_callback()) /* The module has pinned by callback and stays loaded. */
		return;
	/* insmod.sh, twice: the second run finds its own node, which the unload does not remove. */
	for (i = 0; i < 2; i++) {
		(void)listed_major(); /* grep gdrdrv /proc/devices && rmmod gdrdrv */
		OK(delete_module_named("gdrdrv"));
		OK(load_driver());
		make_node(NODE);
		works(NODE, (uint8_t)(5 + i));
	}

	/* Without the script the next load makes the kernel's node again, */
	OK(delete_module_named("gdrdrv"));
	CHECK(!unlink(NODE));
	OK(load_driver());
	is_the_kernels();
	/* and the unload removes it. */
	OK(delete_module_named("gdrdrv"));
	CHECK(access(NODE, F_OK) == -1 && errno == ENOENT);
	OK(load_driver());
	is_the_kernels();
}

static bool in_devices(void)
{
	char *text = read_text("/proc/devices");
	bool found = text && strstr(text, "gdrdrv");

	free(text);
	return found;
}

/*
 * Without the kernel's node the load fails and leaves nothing. A failure after that node exists,
 * which may be open already, fails nothing: the driver has no major number then.
 */
static void t_node_refused(void)
{
#ifndef __x86_64__
	SKIP("the provider's refusals are for x86");
#endif
	if (by_callback())
		SKIP("a module that has pinned by callback stays loaded");
	close(drv);
	OK(delete_module_named("gdrdrv"));
	knob("refuse_misc", 1);
	FAILS(EBUSY, load_driver());
	knob("refuse_misc", 0);
	CHECK(!in_devices());
	CHECK(access(NODE, F_OK) && access("/proc/driver/gdrdrv", F_OK));
	knob("refuse_chrdev", 1);
	OK(load_driver());
	knob("refuse_chrdev", 0);
	CHECK(!in_devices());
	works(NODE, 8);
	OK(delete_module_named("gdrdrv"));
	OK(load_driver());
	CHECK(in_devices());
	works(NODE, 9);
}

/*
 * The module that was built from nv-p2p.h alone. A kernel of Debian refuses it unless the build has
 * computed the versions of the provider's symbols; mainline only warns.
 */
static void t_header_alone(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/mod/header-%d%s.ko", rig.gen, rig.gpl ? "" : "-prop");
	if (access(path, R_OK))
		SKIP("no such module was built for this kernel");
	if (by_callback())
		SKIP("a module that has pinned by callback stays loaded");
	close(drv);
	OK(delete_module_named("gdrdrv"));
	OK(load_module(path, ""));
	works(NODE, 10);
	OK(delete_module_named("gdrdrv"));
	OK(load_driver());
	works(NODE, 11);
}

const struct test tests_node[] = {
	{ "node", t_node, ANY_MODE, 0, 0 },
	{ "node-script", t_node_script, ANY_MODE, 0, 0 },
	{ "node-refused", t_node_refused, ANY_MODE, 0, 0 },
	{ "header-alone", t_header_alone, ANY_MODE, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
