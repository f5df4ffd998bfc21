/* SPDX-License-Identifier: MIT */
/* Mappings of descriptors, which no child inherits, and whether they can be read. It knows no backend. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/fork.h"

enum { PROBE_STEP = 2 << 20 };

int gdri_pages_map(int fd, off_t offset, void *at, size_t length, int prot, void **map)
{
	int err = 0;

	gdri_fork_hold();
	*map = mmap(at, length, prot, MAP_SHARED | (at ? MAP_FIXED : 0), fd, offset);
	if (*map == MAP_FAILED)
		err = errno;
	else if (madvise(*map, length, MADV_DONTFORK))
		err = -errno;
	gdri_fork_release();
	if (err < 0) {
		if (!at && !munmap(*map, length))
			*map = MAP_FAILED;
		return gdri_fail(err == -ENOMEM ? ENOMEM : ENOTSUP, "madvise(MADV_DONTFORK): %s",
				 strerror(-err));
	}
	return err == ENOMEM ? gdri_fail(ENOMEM, "no address space for %zu bytes", length) : err;
}

int gdri_pages_unmap(struct gdri_pin *pin)
{
	if (munmap(pin->map, pin->map_length))
		return gdri_fail(errno, "munmap: %s", strerror(errno));
	return 0;
}

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

bool gdri_pages_readable(const void *map, size_t length)
{
	const char *p = map;

	for (size_t at = 0; at < length; at += PROBE_STEP)
		if (!can_load(p + at))
			return false;
	return can_load(p + length - 1);
}
