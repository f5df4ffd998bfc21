/* SPDX-License-Identifier: MIT */
/*
 * The one place where libcuda calls ioctl, as the real one imports it: through a slot of this
 * library's own that the loader fills in. Built once more without a procedure linkage table
 * (sim.mk). It knows nothing of what is asked for.
 */
#include <sys/ioctl.h>

#include "sim.h"

int sim_escape(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg);
}
