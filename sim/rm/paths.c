/* SPDX-License-Identifier: MIT */
/*
 * The paths of the driver: its nodes, the files of /proc/driver/nvidia, and its module's taint.
 *
 * kernel-open/nvidia/nv-procfs.c: nv_procfs_read_gpu_info(), nv_procfs_read_version();
 * kernel/module/sysfs.c and main.c of Linux: show_taint(), module_flags_taint().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "node/node.h"
#include "rm/rm.h"

#define PROC  "/proc/driver/nvidia/"
#define TAINT "/sys/module/nvidia/taint"
enum { NV_MAJOR = 195, NV_MINOR_CTL = 255 };

/* The minor of a node's path, NV_MINOR_CTL, or -1. */
static int minor_of(const char *path)
{
	const char *rest = path + 11;
	char *end;
	long n;

	if (strncmp(path, "/dev/nvidia", 11) != 0)
		return -1;
	if (!strcmp(rest, "ctl"))
		return NV_MINOR_CTL;
	if (*rest < '0' || *rest > '9' || strlen(rest) > 3)
		return -1;
	n = strtol(rest, &end, 10);
	return *end || n >= NV_MINOR_CTL ? -1 : (int)n;
}

bool rm_is_path(const char *path)
{
	if (!path || path[0] != '/' || !path[1] || !strchr("dps", path[1]))
		return false;
	return (minor_of(path) >= 0 || !strncmp(path, PROC, strlen(PROC)) ||
		!strcmp(path, TAINT)) &&
	       rm_present();
}

/* 0, ENOENT or EACCES. */
static int node_presence_of(int minor)
{
	int err = rm_node_presence();

	if (err || minor == NV_MINOR_CTL)
		return err;
	return rm_gpu_by_minor((unsigned int)minor) < 0 ? ENOENT
							: rm_minor_presence((unsigned int)minor);
}

static int open_node(int minor, int flags)
{
	enum rm_kind kind = minor == NV_MINOR_CTL ? RM_CTL : RM_DEVICE;
	int gpu = kind == RM_CTL ? -1 : rm_gpu_by_minor((unsigned int)minor), fd = -1, err = 0;

	if (rm_is_driver()) {
		/* libcuda opens its nodes before the program loses its rights, or the nodes. */
		err = rm_node_presence() == ENOENT || (kind == RM_DEVICE && gpu < 0) ? ENOENT : 0;
	} else {
		err = rm_fault(kind == RM_CTL ? "OPEN_CTL" : "OPEN_DEVICE", 0);
		if (err < 0)
			err = EIO;
		if (!err)
			err = node_presence_of(minor);
	}
	if (!err) {
		rm_lock();
		err = rm_file_new(kind, gpu, flags, &fd);
		rm_unlock();
	}
	errno = err;
	return err ? -1 : fd;
}

/* The text of the version file or the taint; its length, 0: no such file. */
static int file_text(const char *path, char *text, size_t size)
{
	char version[64];

	if (rm_node_presence() == ENOENT)
		return 0;
	if (!strcmp(path, TAINT) && rm_flag("GDRSIM_RM_TAINT", true)) /* out of tree, unsigned */
		return snprintf(text, size, rm_flag("GDRSIM_RM_OPEN", true) ? "OE\n" : "POE\n");
	if (strcmp(path, PROC "version") != 0 || !rm_flag("GDRSIM_RM_VERSION", true))
		return 0;
	rm_version_text(version, sizeof(version));
	return snprintf(text, size,
			"NVRM version: NVIDIA UNIX %s  %s  Release Build\n"
			"GCC version:  gcc version 12.2.0\n",
			rm_flag("GDRSIM_RM_OPEN", true) ? "Open Kernel Module for x86_64"
							: "x86_64 Kernel Module",
			version);
}

static int open_file(const char *path, int flags)
{
	char text[1024];
	int len = file_text(path, text, sizeof(text)), fd;

	if (!len) {
		errno = ENOENT;
		return -1;
	}
	if ((flags & O_ACCMODE) != O_RDONLY) {
		errno = EACCES;
		return -1;
	}
	fd = (int)syscall(SYS_memfd_create, "proc-nvidia", flags & O_CLOEXEC ? 1u : 0u);
	if (fd >= 0 && (write(fd, text, (size_t)len) != len || lseek(fd, 0, SEEK_SET)))
		abort();
	return fd;
}

int rm_open(const char *path, int flags)
{
	int minor = minor_of(path);

	return minor >= 0 ? open_node(minor, flags) : open_file(path, flags);
}

static int presence(const char *path)
{
	int minor = minor_of(path);
	char text[1024];

	if (minor >= 0)
		return node_presence_of(minor);
	return file_text(path, text, sizeof(text)) ? 0 : ENOENT;
}

static void fill_stat(struct stat *st, int minor)
{
	memset(st, 0, sizeof(*st));
	st->st_nlink = 1;
	st->st_blksize = RM_PAGE;
	st->st_mode = S_IFREG | 0444;
	if (minor < 0)
		return;
	st->st_mode = S_IFCHR | (rm_minor_presence((unsigned int)minor) ? 0600 : 0666);
	st->st_rdev = makedev(NV_MAJOR, (unsigned int)minor);
	st->st_ino = (ino_t)(1000 + minor);
}

int rm_stat(const char *path, struct stat *st)
{
	int err = presence(path);

	if (err == ENOENT) {
		errno = err;
		return -1;
	}
	fill_stat(st, minor_of(path));
	return 0;
}

void rm_fstat(int file, struct stat *st)
{
	const struct rm_file *f = &rm->files[file];
	struct rm_gpu gpu;

	if (f->kind == RM_CTL)
		fill_stat(st, NV_MINOR_CTL);
	if (f->kind != RM_DEVICE)
		return;
	rm_gpu(f->gpu, &gpu);
	fill_stat(st, (int)gpu.minor);
}
