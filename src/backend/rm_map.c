/* SPDX-License-Identifier: MIT */
/*
 * CPU mappings of duplicated memory objects. See rm.h.
 *
 * Each object takes a descriptor of the GPU's node that RM_MAP_MEMORY gives one mapping to
 * (nv_add_mapping_context_to_file(), kernel-open/nvidia/nv-usermap.c: a second on the same descriptor
 * is refused) and one mmap of it, at offset 0 and of exactly that length (nvidia_mmap_helper(),
 * nv-mmap.c); the mapping then holds the file, the descriptor is closed. The memory type is RM's
 * choice: write-combined in BAR1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/process.h"
#include "backend/rm.h"

static int rm_map(const struct gdri_rm_range *range, struct gdri_rm_object *o, size_t size,
		  unsigned int flags, int fd)
{
	struct rm_map arg = { .client = gdri_rm_client(),
			      .device = range->gpu->device,
			      .object = o->object,
			      .offset = o->offset,
			      .length = size,
			      .flags = (flags & GDRI_RM_READ_ONLY ? RM_MAP_READ_ONLY : 0) |
				       (flags & GDRI_RM_PCIE ? RM_MAP_BUS_PCIE : 0),
			      .fd = fd };
	int rc = gdri_rm_call(RM_IOC_MAP, &arg, &arg.status, "RM_MAP_MEMORY");

	if (rc == -ENOMEM)
		return gdri_fail(ENOMEM, "%s: BAR1 has no room for 0x%zx bytes", gdri_error_text(),
				 size);
	o->address = arg.address;
	return rc;
}

static int rm_unmap(const struct gdri_rm_range *range, const struct gdri_rm_object *o)
{
	struct rm_unmap arg = { .client = gdri_rm_client(),
				.device = range->gpu->device,
				.object = o->object,
				.address = o->address };

	return gdri_rm_call(RM_IOC_UNMAP, &arg, &arg.status, "RM_UNMAP_MEMORY");
}

/*
 * Maps the next object's part at `at`, or where the kernel likes (NULL); a child does not inherit it.
 * Counted in range->mapped from the moment on that its pages may be there.
 */
static int map_next(struct gdri_rm_range *range, size_t size, unsigned int flags, void *at,
		    void **map)
{
	struct gdri_rm_object *o = &range->objects[range->mapped];
	int prot = flags & GDRI_RM_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
	char path[32];
	int fd, rc, err = 0;

	snprintf(path, sizeof(path), RM_GPU_NODE, range->gpu->minor);
	fd = gdri_fork_open(path, O_RDWR);
	if (fd < 0)
		return gdri_fail(errno == EMFILE || errno == ENFILE || errno == ENOMEM ? ENOMEM
										       : EIO,
				 "%s: %s", path, strerror(errno));
	rc = rm_map(range, o, size, flags, fd);
	if (rc)
		goto out_close;
	gdri_fork_hold();
	*map = mmap(at, size, prot, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
	if (*map == MAP_FAILED)
		err = errno;
	else if (madvise(*map, size, MADV_DONTFORK))
		err = -errno;
	gdri_fork_release();
	if (err > 0)
		rm_unmap(range, o);
	else
		range->mapped++;
	if (err)
		rc = gdri_fail(abs(err) == ENOMEM || err == EAGAIN ? ENOMEM : ENOTSUP,
			       "%s of 0x%zx bytes of %s: %s", err > 0 ? "mmap" : "madvise", size,
			       path, strerror(abs(err)));
out_close:
	gdri_fork_close(fd);
	return rc;
}

/* Address space for several objects side by side. */
static int reserve(size_t length, char **area)
{
	void *p = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return gdri_fail(ENOMEM, "no address space for 0x%zx bytes", length);
	*area = p;
	return 0;
}

int gdri_rm_map(struct gdri_rm_range *range, size_t length, unsigned int flags, void **map)
{
	struct gdri_text why = { .len = 0 };
	void *at_all = MAP_FAILED, *piece;
	char *area;
	int rc;

	if (range->mapped) /* pages that could not be removed must not be lost sight of */
		return gdri_fail(EIO, "an earlier map of this range is still there");
	if (length <= range->objects[0].size) {
		rc = map_next(range, length, flags, NULL, &at_all);
	} else {
		rc = reserve(length, &area);
		if (rc)
			return rc;
		at_all = area;
		for (size_t at = 0; !rc && at < length;) {
			size_t rest = length - at, size = range->objects[range->mapped].size;

			size = size < rest ? size : rest;
			rc = map_next(range, size, flags, area + at, &piece);
			at += size;
		}
	}
	if (!rc) {
		*map = at_all;
		return 0;
	}
	gdri_text_add(&why, "%s", gdri_error_text());
	if (at_all != MAP_FAILED)
		gdri_rm_unmap(range, at_all, length);
	return gdri_fail(-rc, "%s", why.s);
}

/*
 * The pages first: RM gives their BAR1 to the next who asks. Where they cannot be removed nothing is
 * given back, by gdri_rm_range_close() neither.
 */
int gdri_rm_unmap(struct gdri_rm_range *range, void *map, size_t length)
{
	int first = 0;

	if (munmap(map, length))
		return gdri_fail(errno, "munmap: %s", strerror(errno));
	while (range->mapped) {
		int rc = rm_unmap(range, &range->objects[--range->mapped]);

		first = first ? first : rc;
	}
	return first;
}
