/* SPDX-License-Identifier: MIT */
/*
 * The one place where libcuda calls ioctl, like the real one through an import slot that the loader
 * fills in. It is built once more without a procedure linkage table, and once without any such slot
 * (sim.mk). With GDRSIM_EXPORT_UNSEEN=1 exports of dma-bufs alone pass by the slot, with
 * GDRSIM_EXPORT_MORE=1 each follows other ioctls, two of which have its number or its type.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/ioctl.h>

#include "sim.h"

enum { EXPORT_TO_DMABUF_FD = 217 };

int sim_escape(int fd, unsigned long request, void *arg)
{
	__typeof__(&ioctl) call;

#ifndef SIM_ESCAPE_DIRECT
	if (_IOC_NR(request) == EXPORT_TO_DMABUF_FD && sim_env("GDRSIM_EXPORT_MORE", 0)) {
		(void)ioctl(2, FIONCLEX, NULL);
		(void)ioctl(2, _IO('T', EXPORT_TO_DMABUF_FD), NULL);
		(void)ioctl(2, _IO(_IOC_TYPE(request), 1), NULL);
	}
	if (_IOC_NR(request) != EXPORT_TO_DMABUF_FD || !sim_env("GDRSIM_EXPORT_UNSEEN", 0))
		return ioctl(fd, request, arg);
#endif
	*(void **)&call = dlsym(RTLD_DEFAULT, "ioctl");
	return call(fd, request, arg);
}
