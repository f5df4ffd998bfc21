/* SPDX-License-Identifier: MIT */
/* The simulated GPUs, by the environment, and the memfd that stands for GPU memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine.h"

const char *sim_text(const char *name, const char *absent)
{
	const char *text = getenv(name);

	return text && *text ? text : absent;
}

long sim_env(const char *name, long absent)
{
	const char *text = sim_text(name, NULL);

	return text ? strtol(text, NULL, 0) : absent;
}

int sim_presence(const char *name, const char *absent)
{
	const char *v = sim_text(name, absent);

	if (!strcmp(v, "absent"))
		return ENOENT;
	return strcmp(v, "denied") ? 0 : EACCES;
}

int sim_gpu_count(void)
{
	long n = sim_env("GDRSIM_DEVICES", 1);

	if (n < 0)
		return 0;
	return n > SIM_MAX_GPUS ? SIM_MAX_GPUS : (int)n;
}

void sim_gpu(int ordinal, struct sim_gpu *gpu)
{
	memset(gpu, 0, sizeof(*gpu));
	snprintf(gpu->name, sizeof(gpu->name), "%s",
		 sim_text("GDRSIM_GPU_NAME", "Simulated GPU"));
	gpu->pci_domain = (int)sim_env("GDRSIM_PCI_DOMAIN", 0);
	gpu->pci_bus = 0x21 + ordinal;
	gpu->pci_device = (int)sim_env("GDRSIM_PCI_DEVICE", 0);
	gpu->mem_bytes = (uint64_t)sim_env("GDRSIM_MEM_MIB", 8192) << 20;
	gpu->bar1_bytes = (uint64_t)sim_env("GDRSIM_BAR1_MIB", 16384) << 20;
	gpu->bar1_static = sim_env("GDRSIM_BAR1_STATIC", 0) && gpu->bar1_bytes >= gpu->mem_bytes;
}

int sim_open_anyway(const char *path, int flags, ...)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0);
	struct rlimit usual, more;

	if (fd >= 0 || errno != EMFILE || getrlimit(RLIMIT_NOFILE, &usual))
		return fd;
	more = usual;
	more.rlim_cur = more.rlim_max;
	setrlimit(RLIMIT_NOFILE, &more);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0);
	setrlimit(RLIMIT_NOFILE, &usual);
	return fd;
}

int sim_memfd_create(const struct sim_memfd *info)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "gdrsim-vmm:%d:%u:%u", info->device, info->handle_types,
		 info->rdma);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)info->size)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int reopen(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

int sim_memfd_handout(int memfd)
{
	return reopen(memfd, O_PATH);
}

/* Parses the memfd's name. */
static bool read_name(int fd, struct sim_memfd *info)
{
	char path[64], name[128];
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = readlink(path, name, sizeof(name) - 1);
	if (len < 0)
		return false;
	name[len] = '\0';
	return sscanf(name, "/memfd:gdrsim-vmm:%d:%u:%u", &info->device, &info->handle_types,
		      &info->rdma) == 3;
}

bool sim_is_memfd(int fd)
{
	struct sim_memfd info;

	return read_name(fd, &info);
}

int sim_memfd_open(int fd, struct sim_memfd *info)
{
	struct stat st;
	int opened;

	if (!read_name(fd, info) || !info->handle_types)
		return -1;
	opened = reopen(fd, O_RDWR);
	if (opened >= 0 && fstat(opened, &st)) {
		close(opened);
		return -1;
	}
	info->size = opened >= 0 ? (size_t)st.st_size : 0;
	return opened;
}
