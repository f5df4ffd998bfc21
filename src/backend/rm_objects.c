/* SPDX-License-Identifier: MIT */
/*
 * Which memory objects are behind a range of device addresses, and duplicates of them in our client.
 * See rm.h.
 *
 * libcuda says it when it is asked for a dma-buf of the range: it passes client, object, offset and
 * size of each to the kernel, and those words are read as they pass (cuda/watch.h). The dma-buf is
 * closed once the duplicates are there; RM's default share policy lets a process duplicate its own
 * objects and nobody else's (RS_SHARE_TYPE_PID, src/nvidia/src/kernel/rmapi/sharing.c). Nothing is
 * shared further than it was; cuIpcGetMemHandle(), which would tell too, opens the object to every
 * process and is not used.
 *
 * Where no dma-buf is to be had, VMM memory that was made exportable comes by its descriptor.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cuda/cuda.h"
#include "base/error.h"
#include "base/fork.h"
#include "cuda/watch.h"
#include "backend/rm.h"

enum { HOST_PAGE = 4096 }; /* RM maps multiples of it (mapping_cpu.c), whatever the CPU's pages */

static bool add_object(struct gdri_rm_range *range, rm_handle object, uint64_t offset,
		       uint64_t size)
{
	if (range->count == range->room) {
		size_t room = range->room ? 2 * range->room : 1;
		struct gdri_rm_object *more = realloc(range->objects, room * sizeof(*more));

		if (!more)
			return false;
		range->objects = more;
		range->room = room;
	}
	range->objects[range->count++] = (struct gdri_rm_object){ object, offset, size, 0 };
	return true;
}

/* A duplicate that was made becomes part of the range. */
static int keep_object(struct gdri_rm_range *range, rm_handle object, uint64_t offset,
		       uint64_t size)
{
	if (add_object(range, object, offset, size))
		return 0;
	gdri_rm_free_object(range->gpu, object);
	return gdri_fail(ENOMEM, "no memory for the objects of a pin");
}

/* ---- by a look at libcuda's export ------------------------------------------------------------- */

/* What was seen of one export, which may take several calls. */
struct seen {
	const struct gdri_rm_gpu *gpu; /* that the range is on */
	struct gdri_rm_range sources; /* objects as libcuda names them */
	rm_handle client; /* libcuda's, theirs */
	uint32_t total; /* objects, as each call says */
	rm_handle object; /* the first, and... */
	uint64_t first; /* ...the offset in it */
	bool refused; /* the kernel found an argument wrong */
	bool strange; /* a layout that is not known */
	bool elsewhere; /* on a node that is not the GPU's: `minor` */
	unsigned int minor;
	bool no_memory;
};

/*
 * The kernel compares the objects' GPU with the node's (RmDmabufVerifyMemHandle(), osapi.c); a duplicate
 * below another GPU's device, and a map of it, it lets pass, and that shows other memory.
 */
static void look_at_node(struct seen *seen, int fd)
{
	struct stat st;

	if (fstat(fd, &st) || !S_ISCHR(st.st_mode))
		seen->strange = true;
	else if (minor(st.st_rdev) != seen->gpu->minor) {
		seen->elsewhere = true;
		seen->minor = minor(st.st_rdev);
	}
}

/* Called with each ioctl of libcuda's that passed. The size of the structure tells its layout. */
static void see(void *arg, int fd, unsigned long request, const void *data)
{
	const struct rm_export_515 *old = data; /* its head is that of both */
	const struct rm_export_570 *now = data;
	bool is_old = _IOC_SIZE(request) == sizeof(*old);
	const rm_handle *objects = is_old ? old->objects : now->objects;
	const uint64_t *offsets = is_old ? old->offsets : now->offsets;
	const uint64_t *sizes = is_old ? old->sizes : now->sizes;
	struct seen *seen = arg;
	uint32_t status;

	if (_IOC_TYPE(request) != RM_IOC_TYPE || _IOC_NR(request) != RM_EXPORT_NUMBER)
		return;
	if ((!is_old && _IOC_SIZE(request) != sizeof(*now)) || old->count > RM_EXPORT_MAX) {
		seen->strange = true;
		return;
	}
	look_at_node(seen, fd);
	status = is_old ? old->status : now->status;
	seen->total = old->total;
	if (!old->index) {
		seen->object = objects[0];
		seen->first = offsets[0];
	}
	seen->refused |= status == RM_INVALID_ARGUMENT;
	if (status != RM_OK)
		return;
	seen->strange |= seen->sources.count && seen->client != old->client;
	seen->client = old->client;
	for (uint32_t i = 0; i < old->count; i++)
		seen->no_memory |= !add_object(&seen->sources, objects[i], offsets[i], sizes[i]);
}

/* Is what was seen all of the range, in pieces that RM can map? */
static int check_seen(const struct seen *seen, size_t size)
{
	uint64_t sum = 0;

	if (seen->no_memory)
		return gdri_fail(ENOMEM, "no memory for the objects of a pin");
	if (seen->strange)
		return gdri_fail(ENOTSUP, "this driver's export of a dma-buf has another layout");
	if (seen->elsewhere)
		return gdri_fail(EINVAL,
				 "libcuda exported it on " RM_GPU_NODE ", which is not GPU %d's",
				 seen->minor, seen->gpu->ordinal);
	if (!seen->sources.count)
		return gdri_fail(ENOTSUP, "libcuda's export of a dma-buf was not seen");
	for (size_t i = 0; i < seen->sources.count; i++) {
		const struct gdri_rm_object *s = &seen->sources.objects[i];

		if (!s->size || s->offset % HOST_PAGE || s->size % HOST_PAGE)
			return gdri_fail(ENOTSUP, "a memory object ends within a page");
		if (__builtin_add_overflow(sum, s->size, &sum))
			sum = UINT64_MAX;
	}
	if (seen->sources.count != seen->total || sum != size)
		return gdri_fail(ENOTSUP,
				 "libcuda exported %zu of %u objects, 0x%llx of 0x%zx bytes",
				 seen->sources.count, seen->total, (unsigned long long)sum, size);
	return 0;
}

/* One export of [va, va + size), looked at; fd is the caller's, to be closed by gdri_fork_close(). */
static int look(const struct gdri_pin_request *request, uint64_t va, size_t size, struct seen *seen,
		int *fd)
{
	int rc = gdri_cuda_watch_begin(see, seen);

	if (rc)
		return rc;
	rc = gdri_cuda_dmabuf(&request->memory, va, size, false, fd);
	gdri_cuda_watch_end();
	if (!rc)
		rc = gdri_fork_own(*fd);
	if (rc)
		return rc;
	rc = check_seen(seen, size);
	if (rc)
		gdri_fork_close(*fd);
	return rc;
}

/*
 * In a memory pool, libcuda takes a range's offset in its first object off the range's length, unless
 * the range reaches to that object's end; the kernel refuses what comes of it (driver 580, H100,
 * 2026-11-22: 64 KiB at offset 0x900000 were passed as -0x8f0000 bytes). From the object's start on
 * it is right: so that is asked for then, and the front is left out.
 */
static int look_from_the_start(const struct gdri_pin_request *request, struct seen *seen,
			       uint64_t *lead, int *fd)
{
	uint64_t front = seen->first;
	rm_handle object = seen->object;
	size_t size;
	int rc;

	if (front >= request->va || front & GPU_PAGE_OFFSET ||
	    __builtin_add_overflow(request->mapped_size, front, &size))
		return gdri_fail(EINVAL, "libcuda's export began at no page of its object");
	*lead = front;
	seen->sources.count = 0;
	rc = look(request, request->va - front, size, seen, fd);
	if (rc || (seen->object == object && !seen->first))
		return rc;
	gdri_fork_close(*fd);
	return gdri_fail(EINVAL, "in front of the range is another memory object than behind it");
}

/* Duplicates what was seen, without the first `lead` bytes. */
static int duplicate(struct gdri_rm_range *range, const struct seen *seen, uint64_t lead)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < seen->sources.count; i++) {
		const struct gdri_rm_object *s = &seen->sources.objects[i];
		uint64_t skip = lead < s->size ? lead : s->size;
		struct rm_dup arg = { .client = gdri_rm_client(),
				      .parent = range->gpu->device,
				      .source_client = seen->client,
				      .source_object = s->object };

		lead -= skip;
		if (skip == s->size)
			continue;
		rc = gdri_rm_call(RM_IOC_DUP, &arg, &arg.status, "RM_DUP_OBJECT");
		if (!rc)
			rc = keep_object(range, arg.object, s->offset + skip, s->size - skip);
	}
	return rc;
}

static int find_by_look(struct gdri_rm_range *range, const struct gdri_pin_request *request)
{
	struct seen seen = { .gpu = range->gpu };
	uint64_t lead = 0;
	int fd, rc;

	rc = look(request, request->va, request->mapped_size, &seen, &fd);
	if (rc == -EINVAL && seen.refused && seen.first)
		rc = look_from_the_start(request, &seen, &lead, &fd);
	if (!rc) {
		rc = duplicate(range, &seen, lead);
		gdri_fork_close(fd); /* held the objects until here */
	}
	free(seen.sources.objects);
	return rc;
}

/* ---- by a descriptor ------------------------------------------------------------------------------ */

/* RM imports any GPU's memory below any device, and maps other memory then: see look_at_node(). */
static int check_import(const struct gdri_rm_gpu *gpu, int fd)
{
	unsigned int major = gdri_rm_driver_major();
	struct rm_export_info info = { .fd = fd };
	bool old = major && major < RM_FIRST_WITH_GPU_INSTANCE;
	int rc = gdri_rm_control(RM_CONTROL_EXPORT_INFO, &info,
				 old ? sizeof(struct rm_export_info_515) : sizeof(info),
				 "GET_EXPORT_OBJECT_INFO");

	if (!rc && info.device_instance != gpu->instance)
		rc = gdri_fail(EINVAL,
			       "the descriptor's memory is on device instance %u, GPU %d is %u",
			       info.device_instance, gpu->ordinal, gpu->instance);
	return rc;
}

/* Adds the part of an exported chunk [base, base + size) from `at` to `end`; fd stays the caller's. */
static int import(struct gdri_rm_range *range, int fd, uint64_t base, uint64_t size, uint64_t at,
		  uint64_t end)
{
	struct rm_import_fd params = { .fd = fd,
				       .type = RM_EXPORT_TYPE_RM,
				       .parent = range->gpu->device };
	int rc = check_import(range->gpu, fd);

	if (!rc)
		rc = gdri_rm_control(RM_CONTROL_IMPORT_FD, &params, sizeof(params),
				     "IMPORT_OBJECT_FROM_FD");
	if (rc)
		return rc;
	if (base + size < end)
		end = base + size;
	return keep_object(range, params.object, at - base, end - at);
}

static int find_by_export(struct gdri_rm_range *range, const struct gdri_pin_request *request)
{
	uint64_t at = request->va, end = request->va + request->mapped_size, base;
	size_t size;
	int fd, rc;

	while (at < end) {
		rc = gdri_cuda_export_chunk(at, range->gpu->ordinal, &base, &size, &fd);
		if (!rc)
			rc = gdri_fork_own(fd);
		if (rc)
			return rc;
		rc = import(range, fd, base, size, at, end);
		gdri_fork_close(fd);
		if (rc)
			return rc;
		at = base + size;
	}
	return 0;
}

static int find_imported(struct gdri_rm_range *range, const struct gdri_pin_request *request)
{
	const struct gdri_memory *m = &request->memory;

	if (request->va < m->base || request->va - m->base >= m->size ||
	    m->size - (request->va - m->base) < request->mapped_size)
		return gdri_fail(EINVAL, "the range reaches beyond what was imported");
	return import(range, request->imported->fd, m->base, m->size, request->va,
		      request->va + request->mapped_size);
}

/* ---- both ----------------------------------------------------------------------------------------- */

static int find(struct gdri_rm_range *range, const struct gdri_pin_request *request,
		const char *no_look)
{
	int rc;

	if (request->imported)
		return find_imported(range, request);
	if (!no_look)
		return find_by_look(range, request);
	rc = find_by_export(range, request);
	if (rc == -ENOTSUP)
		return gdri_fail(ENOTSUP, "%s; and %s", no_look, gdri_error_text());
	return rc;
}

int gdri_rm_range_open(struct gdri_rm_range *range, const struct gdri_rm_gpu *gpu,
		       const struct gdri_pin_request *request, const char *no_look)
{
	struct gdri_text why = { .len = 0 };
	int rc;

	*range = (struct gdri_rm_range){ .gpu = gpu };
	rc = find(range, request, no_look);
	if (rc) {
		gdri_text_add(&why, "%s", gdri_error_text());
		gdri_rm_range_close(range);
		return gdri_fail(-rc, "%s", why.s);
	}
	return 0;
}

/* Pages that could not be removed keep their objects, and the BAR1 of these, to the process's end. */
int gdri_rm_range_close(struct gdri_rm_range *range)
{
	int first = range->mapped ? gdri_fail(EIO, "the range is still mapped") : 0;

	for (size_t i = 0; !range->mapped && i < range->count; i++) {
		int rc = gdri_rm_free_object(range->gpu, range->objects[i].object);

		first = first ? first : rc;
	}
	free(range->objects);
	range->objects = NULL;
	range->count = range->room = range->mapped = 0;
	return first;
}
