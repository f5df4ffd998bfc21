/* SPDX-License-Identifier: MIT */
/*
 * The one place where libcuda calls ioctl, like the real one through an import slot that the loader
 * fills in. It is built once more without a procedure linkage table, and once without any such slot
 * (sim.mk).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/ioctl.h>

#include "sim.h"

#ifdef SIM_ESCAPE_DIRECT
int sim_escape(int fd, unsigned long request, void *arg)
{
	__typeof__(&ioctl) call;

	*(void **)&call = dlsym(RTLD_DEFAULT, "ioctl");
	return call(fd, request, arg);
}
#else
int sim_escape(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg);
}
#endif
