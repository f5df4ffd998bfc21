/* SPDX-License-Identifier: MIT */
/* See probe.h. */
#include "backend/probe.h"

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROBE_STEP = 2 << 20 };

/*
 * Can this byte be loaded? A kernel copy from the address answers without a signal: the call fails
 * with EFAULT if not, and with EINVAL for its nonsense `how` if it can.
 * Under valgrind, which answers in the kernel's place without a look, every byte can.
 */
static bool can_load(const char *p)
{
	return syscall(SYS_rt_sigprocmask, -1, (uintptr_t)p & ~(uintptr_t)7, NULL, 8) == -1 &&
	       errno == EINVAL;
}

bool gdri_probe_range(const void *map, size_t length)
{
	const char *p = map;

	for (size_t at = 0; at < length; at += PROBE_STEP)
		if (!can_load(p + at))
			return false;
	return can_load(p + length - 1);
}
