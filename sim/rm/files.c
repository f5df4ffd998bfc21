/* SPDX-License-Identifier: MIT */
/*
 * Open file descriptions of the nodes. Each is an open of the file that holds the state, and its
 * file offset identifies it, which dup, fork and SCM_RIGHTS share. It has a lock on the byte of
 * that number, which the kernel releases with its last descriptor and last map, in whatever
 * process.
 *
 * kernel-open/nvidia/nv.c: nvidia_open(), nvidia_close(), nv_get_file_private(),
 * nv_is_gpu_accessible(); src/nvidia/arch/nvalloc/unix/src/escape.c: NV_ESC_REGISTER_FD.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "node/node.h"
#include "rm/rm.h"

static _Thread_local int driver_depth;

void gdrsim_rm_driver(bool on)
{
	driver_depth += on ? 1 : -1;
}

bool rm_is_driver(void)
{
	return driver_depth > 0;
}

int rm_file_of(int fd)
{
	int err = errno, file = 0;
	struct stat st;

	if (rm && fd >= 0 && fd != rm_state_fd() && !libc_calls()->fstat(fd, &st) &&
	    rm_is_state(&st)) {
		file = (int)lseek(fd, 0, SEEK_CUR);
		if (file < 0 || file >= RM_FILES)
			file = 0;
	}
	errno = err;
	return file;
}

static bool is_free(int i)
{
	return rm->files[i].kind == RM_NONE;
}

static bool lock_byte(int fd, int file)
{
	struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = file, .l_len = 1 };

	return !fcntl(fd, F_OFD_SETLK, &l);
}

static bool is_open(int file)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = file, .l_len = 1 };

	return fcntl(rm_state_fd(), F_OFD_GETLK, &l) || l.l_type != F_UNLCK;
}

/* A write-only description could not be locked; nothing reads from it. */
static int open_description(int file, int flags)
{
	int mode = (flags & O_ACCMODE) == O_RDONLY ? O_RDONLY : O_RDWR;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", rm_state_fd());
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, mode | (flags & (O_CLOEXEC | O_NONBLOCK)), 0);
	if (fd < 0)
		return -1;
	if (lseek(fd, file, SEEK_SET) != file || !lock_byte(fd, file)) {
		libc_calls()->close(fd);
		errno = ENOMEM;
		return -1;
	}
	return fd;
}

int rm_file_new(enum rm_kind kind, int gpu, int flags, int *fd)
{
	int file = rm_slot(&rm->n_files, RM_FILES, is_free);

	if (!file)
		return ENFILE;
	*fd = open_description(file, flags);
	if (*fd < 0) {
		rm_slot_free(&rm->n_files, file);
		return errno;
	}
	rm->files[file] = (struct rm_file){ .kind = kind, .gpu = gpu, .driver = rm_is_driver() };
	return 0;
}

void rm_file_check(int file)
{
	struct rm_file *f = &rm->files[file];
	int ctl = f->ctl;

	if (f->kind == RM_NONE || f->registered || is_open(file))
		return;
	switch (f->kind) {
	case RM_CTL:
		rm_free_of_file(file);
		break;
	case RM_DMABUF:
		rm_export_drop(file);
		break;
	default:
		break;
	}
	f->kind = RM_NONE;
	rm_slot_free(&rm->n_files, file);
	if (ctl) {
		rm->files[ctl].registered--;
		rm_file_check(ctl);
	}
}

void rm_closed(int file)
{
	int err = errno;

	rm_lock();
	rm_file_check(file);
	rm_unlock();
	if (!rm_is_driver())
		rm_memory_reap();
	errno = err;
}

int rm_close(int file, int fd)
{
	int rc = libc_calls()->close(fd);

	rm_closed(file);
	return rc;
}

void gdrsim_rm_sweep(void)
{
	if (!rm)
		return;
	rm_lock();
	for (int i = 1; i < rm->n_files.top; i++)
		rm_file_check(i);
	rm_unlock();
	if (!rm_is_driver())
		rm_memory_reap();
}

bool rm_gpu_is_open(int gpu)
{
	int fd = sim_open_anyway("/proc/self/fd", O_RDONLY | O_DIRECTORY);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	bool found = false;

	while (dir && !found && (e = readdir(dir))) {
		int file = rm_file_of(atoi(e->d_name));

		found = file && rm->files[file].kind == RM_DEVICE && rm->files[file].gpu == gpu;
	}
	if (dir)
		closedir(dir);
	return found;
}

/*
 * For nodes of both kinds. Refuses a file that is registered already, and a control file that is
 * itself registered; the control file stays open as long as this one.
 */
int rm_register_fd(int file, int ctl_fd)
{
	struct rm_file *f = &rm->files[file];
	int ctl = rm_file_of(ctl_fd);

	if (f->ctl)
		return EINVAL; /* NV_ERR_INVALID_STATE */
	if (!ctl || rm->files[ctl].kind != RM_CTL || ctl == file || rm->files[ctl].ctl)
		return EINVAL;
	f->ctl = ctl;
	rm->files[ctl].registered++;
	return 0;
}
