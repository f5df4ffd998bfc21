/* SPDX-License-Identifier: MIT */
/*
 * CPU mappings of duplicated memory objects. See rm.h.
 *
 * RM_MAP_MEMORY gives one mapping to a descriptor of the GPU's node: a second one is refused
 * (nv_add_mapping_context_to_file(), kernel-open/nvidia/nv-usermap.c). One mmap of the descriptor,
 * at offset 0 and of exactly that length (nvidia_mmap_helper(), nv-mmap.c), maps it. The descriptor
 * can then be closed: the mapping holds the file, and by it the client (rm.h). RM chooses the
 * memory type, which the trial determines.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/fork.h"
#include "backend/rm.h"

static int rm_map(const struct gdri_rm_range *range, struct gdri_rm_object *o, size_t size,
		  bool read_only, int fd)
{
	struct rm_map arg = { .client = gdri_rm_client(),
			      .device = range->gpu->device,
			      .object = o->object,
			      .offset = o->offset,
			      .length = size,
			      .flags = read_only ? RM_MAP_READ_ONLY : 0,
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
 * Maps the part of the next object at `at`, or anywhere (NULL); no child inherits it. range->mapped
 * counts it as soon as pages may exist.
 */
static int map_next(struct gdri_rm_range *range, size_t size, bool read_only, void *at, void **map)
{
	struct gdri_rm_object *o = &range->objects[range->mapped];
	int fd, rc = gdri_rm_open_node(range->gpu, &fd);

	if (rc)
		return rc;
	rc = rm_map(range, o, size, read_only, fd);
	if (!rc) {
		rc = gdri_pages_map(fd, 0, at, size, read_only ? PROT_READ : PROT_READ | PROT_WRITE,
				    map);
		if (*map == MAP_FAILED)
			rm_unmap(range, o);
		else
			range->mapped++;
		if (rc > 0)
			rc = gdri_fail(rc == EAGAIN ? ENOMEM : ENOTSUP, "mmap of 0x%zx bytes: %s",
				       size, strerror(rc));
	}
	gdri_fork_close(fd);
	return rc;
}

/* Maps several objects side by side. */
static int map_all(struct gdri_rm_range *range, size_t length, bool read_only, void **whole)
{
	void *piece;
	int rc = 0;

	*whole = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (*whole == MAP_FAILED)
		return gdri_fail(ENOMEM, "no address space for 0x%zx bytes", length);
	for (size_t at = 0; !rc && at < length;) {
		size_t rest = length - at, size = range->objects[range->mapped].size;

		size = size < rest ? size : rest;
		rc = map_next(range, size, read_only, (char *)*whole + at, &piece);
		at += size;
	}
	return rc;
}

int gdri_rm_map(struct gdri_rm_range *range, size_t length, bool read_only, void **map)
{
	struct gdri_text why = { .len = 0 };
	void *whole = MAP_FAILED;
	int rc;

	if (range->mapped) /* pages that could not be removed */
		return gdri_fail(EIO, "an earlier map of this range is still there");
	if (length <= range->objects[0].size)
		rc = map_next(range, length, read_only, NULL, &whole);
	else
		rc = map_all(range, length, read_only, &whole);
	if (!rc) {
		*map = whole;
		return 0;
	}
	gdri_text_add(&why, "%s", gdri_error_text());
	if (whole != MAP_FAILED)
		gdri_rm_unmap(range, whole, length);
	return gdri_fail(-rc, "%s", why.s);
}

/*
 * Removes the pages first, since RM gives their BAR1 to the next caller. If they cannot be removed,
 * nothing is given back, not by gdri_rm_range_close() either.
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
