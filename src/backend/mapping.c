/* SPDX-License-Identifier: MIT */
/* What backends share: a request's range, nodes of devices, and maps that no child inherits. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/process.h"

enum { PROBE_STEP = 2 << 20 };

int gdri_check_range(uint64_t addr, size_t size)
{
	uint64_t end;

	if (!size)
		return gdri_fail(EINVAL, "size is 0");
	if (!addr)
		return gdri_fail(EINVAL, "the address is 0");
	if (__builtin_add_overflow(addr, size, &end) || end > UINT64_MAX - GPU_PAGE_OFFSET)
		return gdri_fail(EOVERFLOW, "address 0x%llx + size 0x%zx wraps",
				 (unsigned long long)addr, size);
	return 0;
}

int gdri_pin_describe(struct gdri_pin_request *request)
{
	bool integrated;
	int rc;

	if (gdri_is_dmabuf(request)) { /* only the descriptor is known */
		request->va = 0;
		request->mapped_size = request->size;
		request->memory = (struct gdri_memory){ .kind = GDRI_MEMORY_DEVICE,
							.device = request->imported->device };
		return 0;
	}
	rc = gdri_check_range(request->addr, request->size);
	if (rc)
		return rc;
	request->va = request->addr & GPU_PAGE_MASK;
	request->mapped_size =
		((request->addr + request->size + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - request->va;
	if (!request->memory.known)
		gdri_cuda_describe(request->addr, request->size, &request->memory);
	if (!request->memory.managed)
		return 0;
	if (gdri_cuda_is_integrated(request->memory.device, &integrated))
		integrated = false;
	return gdri_fail(EINVAL,
			 "0x%llx is managed (unified) memory, which migrates and cannot be pinned: "
			 "allocate with %scudaHostAlloc",
			 (unsigned long long)request->addr,
			 integrated ? "" : "cudaMalloc, cuMemCreate or ");
}

int gdri_open_node(const char *path, const char *absent, int *fd)
{
	*fd = gdri_fork_open(path, O_RDWR);
	if (*fd >= 0)
		return 0;
	switch (errno) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
		return gdri_fail(ENODEV, "no %s: %s", path, absent);
	case EACCES:
	case EPERM:
		return gdri_fail(EACCES, "%s may not be opened by this user (or container)", path);
	default:
		return gdri_fail(gdri_is_short(-errno) ? errno : EIO, "%s: %m", path);
	}
}

const char *gdri_mapping_type_name(gdr_mapping_type_t type)
{
	static const char *const names[] = {
		[GDR_MAPPING_TYPE_NONE] = "None",
		[GDR_MAPPING_TYPE_WC] = "Write Combining",
		[GDR_MAPPING_TYPE_CACHING] = "Caching",
		[GDR_MAPPING_TYPE_DEVICE] = "Device",
	};

	return (unsigned int)type < GDR_MAPPING_TYPE_MAX ? names[type] : NULL;
}

int gdri_check_wish(const struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	if (wish == GDR_MAPPING_TYPE_NONE || wish == pin->type)
		return 0;
	return gdri_fail(ENOTSUP,
			 "a mapping of type \"%s\" was requested, but the %s backend maps this "
			 "memory as \"%s\"",
			 gdri_mapping_type_name(wish), pin->backend->name,
			 gdri_mapping_type_name(pin->type));
}

int gdri_pages_map(int fd, off_t offset, void *at, size_t length, int prot, void **map)
{
	int err = gdri_fork_map(at, length, prot, MAP_SHARED, fd, offset, map);

	if (err < 0)
		return gdri_fail(err == -ENOMEM ? ENOMEM : ENOTSUP, "madvise(MADV_DONTFORK): %s",
				 strerror(-err));
	return err == ENOMEM ? gdri_fail(ENOMEM, "no address space for %zu bytes", length) : err;
}

int gdri_pages_unmap(struct gdri_pin *pin)
{
	if (munmap(pin->map, pin->map_length))
		return gdri_fail(errno == ENOMEM ? ENOMEM : EIO, "munmap: %s", strerror(errno));
	return 0;
}

/* rt_sigprocmask() copies the bytes, then refuses its invalid `how` with EINVAL. */
int gdri_load_errno(const void *p)
{
	return syscall(SYS_rt_sigprocmask, -1, p, NULL, 8) == -1 ? errno : 0;
}

static bool can_load(const char *p)
{
	return gdri_load_errno((const void *)((uintptr_t)p & ~(uintptr_t)7)) == EINVAL;
}

bool gdri_pages_readable(const void *map, size_t length)
{
	const char *p = map;

	for (size_t at = 0; at < length; at += PROBE_STEP)
		if (!can_load(p + at))
			return false;
	return can_load(p + length - 1);
}
