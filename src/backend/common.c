/* SPDX-License-Identifier: MIT */
/*
 * What backends share: what a request is for, mappings of descriptors, whether they can be read,
 * and the names of their types. It knows none of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/process.h"

enum { PROBE_STEP = 2 << 20 };

/* Rounds the range to GPU pages: 0 or -errno. */
static int round_range(struct gdri_pin_request *request)
{
	uint64_t end;

	if (!request->size)
		return gdri_fail(EINVAL, "size is 0");
	if (!request->addr)
		return gdri_fail(EINVAL, "the address is 0");
	if (__builtin_add_overflow(request->addr, request->size, &end) ||
	    end > UINT64_MAX - GPU_PAGE_OFFSET)
		return gdri_fail(EOVERFLOW, "address 0x%llx + size 0x%zx wraps",
				 (unsigned long long)request->addr, request->size);
	request->va = request->addr & GPU_PAGE_MASK;
	request->mapped_size = ((end + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - request->va;
	return 0;
}

int gdri_pin_describe(struct gdri_pin_request *request)
{
	const struct gdri_memory *m = &request->memory;
	int rc = round_range(request);

	if (!rc)
		rc = gdri_cuda_describe(request->addr, request->size, &request->memory);
	if (rc)
		return rc;
	if (m->managed)
		return gdri_fail(EINVAL,
				 "0x%llx is managed (unified) memory, which migrates and cannot be "
				 "pinned: allocate with cudaMalloc, cuMemCreate or cudaHostAlloc",
				 (unsigned long long)request->addr);
	return 0;
}

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

void gdri_read_line(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[n < 0 ? 0 : n] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

const char *gdri_mapping_type_name(gdr_mapping_type_t type)
{
	static const char *const names[] = {
		[GDR_MAPPING_TYPE_NONE] = "None",
		[GDR_MAPPING_TYPE_WC] = "Write Combining",
		[GDR_MAPPING_TYPE_CACHING] = "Caching",
		[GDR_MAPPING_TYPE_DEVICE] = "Device",
	};

	return (int)type < GDR_MAPPING_TYPE_NONE || type >= GDR_MAPPING_TYPE_MAX ? NULL
										 : names[type];
}

int gdri_check_wish(const struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	if (wish == GDR_MAPPING_TYPE_NONE || wish == pin->type)
		return 0;
	return gdri_fail(ENOTSUP,
			 "a mapping of type \"%s\" was asked for, the %s backend has \"%s\"",
			 gdri_mapping_type_name(wish), pin->backend->name,
			 gdri_mapping_type_name(pin->type));
}
