/* SPDX-License-Identifier: MIT */
/*
 * The one place where libcuda calls ioctl, as the real one imports it: through a slot of this
 * library's own that the loader fills in. Built once more without a procedure linkage table, and
 * once without any such slot (sim.mk). It knows nothing of what is asked for.
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
