/* SPDX-License-Identifier: MIT */
/*
 * Ranges: finds the memory objects behind a range of device addresses, duplicates them into our
 * client, and maps the duplicates for the CPU. See rm_client.h.
 *
 * Asked for a dma-buf of the range, libcuda passes client, object, offset and size of each object
 * to the kernel, and this file reads them from that ioctl (cuda/watch.h). The dma-buf holds the
 * objects until the duplicates exist. RM's default share policy lets a process duplicate its own
 * objects only (RS_SHARE_TYPE_PID, src/nvidia/src/kernel/rmapi/sharing.c), so nothing is shared
 * further than it was. cuIpcGetMemHandle() would name the object too, but opens it to every
 * process. Without a dma-buf, VMM memory that was made exportable comes by its descriptor.
 *
 * RM_MAP_MEMORY gives one mapping to a descriptor of the GPU's node: a second one is refused
 * (nv_add_mapping_context_to_file(), kernel-open/nvidia/nv-usermap.c). One mmap of the descriptor,
 * at offset 0 and of exactly that length (nvidia_mmap_helper(), nv-mmap.c), maps it. The descriptor
 * can then be closed: the mapping holds the file, and by it the client (rm_client.h). RM chooses
 * the memory type, which the trial determines.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/process.h"
#include "cuda/watch.h"
#include "backend/rm_client.h"

/* RM maps multiples of it (mapping_cpu.c), whatever the CPU's page size. */
enum { HOST_PAGE = 4096 };

/* Objects begin at multiples of it in the address space: of 2 MiB and 32 MiB, as far as seen. */
enum { OBJECT_UNIT = 1 << 20 };

/* What fails at an end is for no caller to mend: EIO, whatever RM answers. */
static int free_object(const struct gdri_rm_range *range, rm_handle object)
{
	struct rm_free arg = { .client = range->gpu->own.client,
			       .parent = range->gpu->device,
			       .object = object };

	return gdri_rm_call(range->gpu->own.ctl, RM_IOC_FREE, &arg, &arg.status, "RM_FREE") ? -EIO
											    : 0;
}

static bool add_object(struct gdri_rm_range *r, rm_handle object, uint64_t offset, uint64_t size)
{
	struct gdri_rm_object *more = realloc(r->objects, (r->count + 1) * sizeof(*more));

	if (!more)
		return false;
	r->objects = more;
	r->objects[r->count++] = (struct gdri_rm_object){ object, offset, size, 0 };
	return true;
}

/* Adds a duplicate, which the range owns from now on. */
static int add_duplicate(struct gdri_rm_range *range, rm_handle object, uint64_t offset,
			 uint64_t size)
{
	if (add_object(range, object, offset, size))
		return 0;
	free_object(range, object);
	return gdri_fail(ENOMEM, "no memory for the objects of a pin");
}

/* ---- by observing libcuda's export ----------------------------------------------------------- */

/* One export of libcuda's, which may take several ioctls. */
struct export
{
	const struct gdri_rm_gpu *gpu; /* of the range */
	uint64_t size; /* in bytes */
	struct gdri_rm_range sources; /* objects in libcuda's client */
	rm_handle client; /* libcuda's */
	uint32_t total; /* objects, by each ioctl */
	unsigned long refused; /* an ioctl, with INVALID_ARGUMENT, and its structure */
	union {
		struct rm_export_515 old;
		struct rm_export_570 now;
	} asked;
	bool lasting; /* the layout is unknown, or libcuda's calls cannot be watched */
	bool no_memory;
	unsigned int minor; /* of the node; the first one that is not the GPU's stays */
};

/*
 * For an export the kernel compares the GPUs of objects and node (RmDmabufVerifyMemHandle()). It
 * does not for a duplicate below another GPU's device, whose map shows other memory.
 */
static void check_node(struct export *export, int fd)
{
	struct stat st;

	if (fstat(fd, &st) || !S_ISCHR(st.st_mode))
		export->lasting = true;
	else if (export->minor == export->gpu->minor)
		export->minor = minor(st.st_rdev);
}

/* Receives each ioctl of libcuda's that succeeded. The structure's size identifies its layout. */
static void observe(void *arg, int fd, unsigned long request, const void *data)
{
	const struct rm_export_515 *old = data; /* both begin alike */
	const struct rm_export_570 *now = data;
	bool is_old = _IOC_SIZE(request) == sizeof(*old);
	struct export *export = arg;
	const rm_handle *objects;
	const uint64_t *offsets, *sizes;
	uint32_t status;

	if (_IOC_TYPE(request) != RM_IOC_TYPE || _IOC_NR(request) != RM_EXPORT_NUMBER)
		return;
	if ((!is_old && _IOC_SIZE(request) != sizeof(*now)) || old->count > RM_EXPORT_MAX) {
		export->lasting = true;
		return;
	}
	check_node(export, fd);
	status = is_old ? old->status : now->status;
	export->total = old->total;
	if (status == RM_INVALID_ARGUMENT) {
		export->refused = request;
		memmove(&export->asked, data, _IOC_SIZE(request));
	}
	if (status != RM_OK)
		return;
	export->lasting |= export->sources.count && export->client != old->client;
	export->client = old->client;
	objects = is_old ? old->objects : now->objects;
	offsets = is_old ? old->offsets : now->offsets;
	sizes = is_old ? old->sizes : now->sizes;
	for (uint32_t i = 0; i < old->count; i++)
		export->no_memory |=
			!add_object(&export->sources, objects[i], offsets[i], sizes[i]);
}

/* Fails unless the export covers its size in pieces that RM can map. */
static int check_export(const struct export *export)
{
	const struct gdri_rm_range *sources = &export->sources;
	uint64_t sum = 0;

	if (export->no_memory)
		return gdri_fail(ENOMEM, "no memory for the objects of a pin");
	if (export->lasting)
		return gdri_fail(ENOTSUP,
				 "this library does not know the layout of this driver's export of "
				 "a dma-buf: use a newer library, or load gdrdrv");
	if (export->minor != export->gpu->minor)
		return gdri_fail(EINVAL,
				 "libcuda exported the memory on " RM_GPU_NODE
				 ", which is not GPU %d's",
				 export->minor, export->gpu->ordinal);
	if (!sources->count)
		return gdri_fail(
			ENOTSUP,
			"libcuda's export of a dma-buf was not seen: libcuda does not call its "
			"import of ioctl(), or another hook hides the call; gdrdrv works without "
			"it");
	for (size_t i = 0; i < sources->count; i++) {
		const struct gdri_rm_object *s = &sources->objects[i];

		if (!s->size || s->offset % HOST_PAGE || s->size % HOST_PAGE)
			return gdri_fail(ENOTSUP, "a memory object begins or ends within a page");
		if (__builtin_add_overflow(sum, s->size, &sum))
			sum = UINT64_MAX;
	}
	if (sources->count != export->total || sum != export->size)
		return gdri_fail(ENOTSUP,
				 "libcuda exported %zu of %u objects, 0x%llx of 0x%llx bytes",
				 sources->count, export->total, (unsigned long long)sum,
				 (unsigned long long)export->size);
	return 0;
}

/*
 * In a memory pool, libcuda subtracts a range's offset in its first object from the range's length,
 * unless the range reaches to the end of its last object, and the kernel refuses the result (driver
 * 580, H100, 2026-11-22: 64 KiB at offset 0x900000 were passed as -0x8f0000 bytes). Exports the part
 * in the first object; of several, the second one's offset is the length less the first one's size.
 */
static int mend(struct export *export, int *fd)
{
	bool is_old = _IOC_SIZE(export->refused) == sizeof(export->asked.old);
	struct rm_export_515 *head = &export->asked.old;
	uint64_t *offsets = is_old ? head->offsets : export->asked.now.offsets;
	uint64_t *sizes = is_old ? head->sizes : export->asked.now.sizes;
	uint32_t *status = is_old ? &head->status : &export->asked.now.status;
	int rc;

	if (!export->refused || !offsets[0] || offsets[0] + sizes[0] != export->size)
		return -EINVAL;
	if (head->total > 1)
		export->size -= offsets[0] + offsets[1];
	head->fd = -1;
	head->total = head->count = 1;
	head->size = sizes[0] = export->size;
	*status = RM_OK;
	rc = gdri_rm_call(export->gpu->node, export->refused, &export->asked, status,
			  "the library's EXPORT_TO_DMABUF_FD");
	if (rc)
		return rc;
	observe(export, export->gpu->node, export->refused, &export->asked);
	*fd = head->fd;
	return *fd < 0 ? -EINVAL : 0;
}

/*
 * The errno where libcuda has refused an export: ENOTSUP if the range lies in one allocation, which
 * is still there, as of memory that another process passes on by CUDA IPC. Else EINVAL, and with a
 * pin flag, without which the caller tries again.
 */
static int refused(const struct gdri_pin_request *request)
{
	const struct gdri_memory *m = &request->memory;

	if (request->flags || request->addr < m->base || request->size > m->size ||
	    request->addr - m->base > m->size - request->size ||
	    !gdri_cuda_has_buffer_id(m->known, m->buffer_id))
		return -EINVAL;
	return gdri_fail(ENOTSUP,
			 "CUDA exports no dma-buf of this memory (%s): what came by CUDA IPC "
			 "(cudaIpcOpenMemHandle(), torch.multiprocessing) only the process that "
			 "allocated it can map; memory of cuMemCreate that came as a descriptor "
			 "(PyTorch's expandable_segments) can be mapped here",
			 gdri_error_text());
}

/* Has libcuda export [va, va + size); *fd is closed by gdri_fork_close(). */
static int observe_export(const struct gdri_pin_request *request, uint64_t va,
			  struct export *export, int *fd)
{
	int rc = gdri_cuda_watch_begin(observe, export);

	export->lasting = rc == -ENOTSUP;
	if (rc)
		return rc;
	rc = gdri_cuda_dmabuf(&request->memory, va, export->size, false, fd);
	gdri_cuda_watch_end();
	if (rc == -EINVAL)
		rc = export->refused ? mend(export, fd) : refused(request);
	if (!rc)
		rc = gdri_fork_own(*fd);
	if (rc)
		return rc;
	rc = check_export(export);
	if (rc)
		gdri_fork_close(*fd);
	return rc;
}

static int duplicate(struct gdri_rm_range *range, const struct export *export)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < export->sources.count; i++) {
		const struct gdri_rm_object *s = &export->sources.objects[i];
		struct rm_dup arg = { .client = range->gpu->own.client,
				      .parent = range->gpu->device,
				      .source_client = export->client,
				      .source_object = s->object };

		rc = gdri_rm_call(range->gpu->own.ctl, RM_IOC_DUP, &arg, &arg.status,
				  "RM_DUP_OBJECT");
		if (!rc)
			rc = add_duplicate(range, arg.object, s->offset, s->size);
	}
	return rc;
}

/* Adds what is behind [*va, end), or the first part of it, and moves *va behind that. */
static int find_part(struct gdri_rm_range *range, const struct gdri_pin_request *request,
		     uint64_t *va, uint64_t end, bool *lasting)
{
	struct export export = { .gpu = range->gpu, .size = end - *va, .minor = range->gpu->minor };
	int fd, rc = observe_export(request, *va, &export, &fd);

	if (!rc) {
		rc = duplicate(range, &export);
		gdri_fork_close(fd);
	}
	free(export.sources.objects);
	*lasting = export.lasting;
	*va += export.size;
	return rc;
}

/*
 * libcuda 580 looks up the allocation at the first byte of an export. If another thread frees that
 * allocation during the call, libcuda refuses the export or follows a null pointer. If nothing is
 * allocated there, it refuses a range that holds no whole allocation. (cuMemAlloc and pools,
 * 580.159.04, 2026-11-23, with frees at the same time: of 630,000 exports of whole 64 KiB pages 626
 * were refused, and 11 of 31 processes ended by SIGSEGV; of 2,380,000 in pages of the allocation
 * none was refused, and 63 of 63 processes ended well.) So the export begins and ends with the
 * allocation's own pages, and the GPU pages around are in the same objects. Where an object may
 * begin between the two, or no own page exists, the export has the page that is shared; a shared
 * first page needs the whole allocation.
 */
static void own_pages(const struct gdri_pin_request *request, uint64_t *start, uint64_t *end)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), base = request->memory.base;
	uint64_t behind = base + request->memory.size, last = (behind + page - 1) & -page;
	uint64_t low = (base + page - 1) & -page, high = behind & -page;

	*start = request->va;
	*end = *start + request->mapped_size;
	/* In the first page a gap before the allocation is like another allocation. */
	if (request->addr < (base & GPU_PAGE_MASK) || request->addr + request->size > behind)
		return; /* several allocations */
	if (low > base && base > *start && (low >= behind || low % OBJECT_UNIT == 0)) {
		*start = base & -page;
		*end = last;
		return;
	}
	high = high % OBJECT_UNIT ? high : last;
	*start = *start > low ? *start : low;
	*end = *end < high ? *end : high;
	if (*end <= *start)
		*end = *start + page;
}

static int find_by_dmabuf(struct gdri_rm_range *range, const struct gdri_pin_request *request,
			  bool *lasting)
{
	uint64_t start, end, behind = request->va + request->mapped_size;
	int rc = 0;

	own_pages(request, &start, &end);
	for (uint64_t va = start; !rc && va < end;)
		rc = find_part(range, request, &va, end, lasting);
	if (rc)
		return rc;
	/* The whole GPU pages: RM checks a map's limits (memMap_IMPL()). More is not mapped. */
	range->objects[0].offset -= start - request->va;
	range->objects[0].size += start - request->va;
	if (end < behind)
		range->objects[range->count - 1].size += behind - end;
	return 0;
}

/* ---- by a descriptor ------------------------------------------------------------------------- */

/* Gets the GPU of the memory that info->fd names; old: the structure of a driver before 545. */
static int get_export_info(const struct gdri_rm_gpu *gpu, struct rm_export_info *info, bool old)
{
	return gdri_rm_control(&gpu->own, gpu->own.client, RM_CONTROL_EXPORT_INFO, info,
			       old ? sizeof(struct rm_export_info_515) : sizeof(*info),
			       "GET_EXPORT_OBJECT_INFO");
}

/* The same where the driver's version is unknown: both structures. */
static int get_either_info(const struct gdri_rm_gpu *gpu, struct rm_export_info *info)
{
	struct gdri_text now = { .len = 0 };
	int old, rc = get_export_info(gpu, info, false);

	if (!gdri_rm_may_be_size(rc))
		return rc;
	gdri_text_add(&now, "%s", gdri_error_text());
	old = get_export_info(gpu, info, true);
	if (!gdri_rm_may_be_size(old))
		return old;
	/* One of them is the answer to a wrong size, which is EINVAL but in gVisor. */
	return gdri_fail(rc == old ? -rc : ENOTSUP, "%s; by the structure before driver 545: %s",
			 now.s, gdri_error_text());
}

/*
 * Adds the part [at, end) of an exported chunk [base, base + size); fd stays the caller's. RM
 * imports memory of any GPU below any device, and then maps other memory: see check_node().
 */
static int import(struct gdri_rm_range *range, int fd, uint64_t base, uint64_t size, uint64_t at,
		  uint64_t end)
{
	const struct gdri_rm_gpu *gpu = range->gpu;
	struct rm_import_fd params = { .fd = fd, .type = RM_EXPORT_TYPE_RM, .parent = gpu->device };
	struct rm_export_info info = { .fd = fd };
	unsigned int major = gdri_rm_driver_major();
	int rc = major ? get_export_info(gpu, &info, major < RM_FIRST_WITH_GPU_INSTANCE)
		       : get_either_info(gpu, &info);

	if (!rc && info.device_instance != gpu->instance)
		rc = gdri_fail(EINVAL,
			       "the descriptor's memory is on device instance %u, GPU %d is %u",
			       info.device_instance, gpu->ordinal, gpu->instance);
	if (!rc)
		rc = gdri_rm_control(&gpu->own, gpu->own.client, RM_CONTROL_IMPORT_FD, &params,
				     sizeof(params), "IMPORT_FD");
	if (rc)
		return rc;
	if (base + size < end)
		end = base + size;
	return add_duplicate(range, params.object, at - base, end - at);
}

static int find_by_chunks(struct gdri_rm_range *range, const struct gdri_pin_request *request)
{
	uint64_t at = request->va, end = request->va + request->mapped_size, base;
	size_t size;
	int fd, rc = 0;

	for (; !rc && at < end; at = base + size) {
		rc = gdri_cuda_export_chunk(at, range->gpu->ordinal, &base, &size, &fd);
		if (!rc)
			rc = gdri_fork_own(fd);
		if (rc)
			break;
		rc = import(range, fd, base, size, at, end);
		gdri_fork_close(fd);
	}
	return rc;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static int find_imported(struct gdri_rm_range *range, const struct gdri_pin_request *request)
{
	const struct gdri_memory *m = &request->memory;

	if (!m->size)
		return gdri_fail(ENOTSUP, "CUDA does not report where the imported memory lies");
	if (request->va < m->base || request->va - m->base >= m->size ||
	    m->size - (request->va - m->base) < request->mapped_size)
		return gdri_fail(EINVAL, "the range reaches beyond what was imported");
	return import(range, request->imported->fd, m->base, m->size, request->va,
		      request->va + request->mapped_size);
}

int gdri_rm_range_open(const struct gdri_rm_gpu *gpu, const struct gdri_pin_request *request,
		       bool exportable, struct gdri_rm_range **out, bool *lasting)
{
	struct gdri_rm_range *range = calloc(1, sizeof(*range));
	struct gdri_text why = { .len = 0 };
	int rc;

	if (!range)
		return gdri_fail(ENOMEM, "no memory for a pin");
	range->gpu = gpu;
	if (request->imported)
		rc = find_imported(range, request);
	else if (exportable)
		rc = find_by_chunks(range, request);
	else
		rc = find_by_dmabuf(range, request, lasting);
	if (!rc) {
		*out = range;
		return 0;
	}
	gdri_text_add(&why, "%s", gdri_error_text());
	gdri_rm_range_close(range);
	return gdri_fail(-rc, "%s", why.s);
}

/* Pages that could not be removed keep their objects, and BAR1, until the process ends. */
int gdri_rm_range_close(struct gdri_rm_range *range)
{
	struct gdri_first first = { 0 };

	if (range->mapped)
		gdri_first_note(&first, gdri_fail(EIO, "the range is still mapped"));
	for (size_t i = 0; !range->mapped && i < range->count; i++)
		gdri_first_note(&first, free_object(range, range->objects[i].object));
	free(range->objects);
	free(range);
	return gdri_first_failure(&first);
}

/* ---- CPU mappings ---------------------------------------------------------------------------- */

static int rm_unmap(const struct gdri_rm_range *range, const struct gdri_rm_object *o)
{
	struct rm_unmap arg = { .client = range->gpu->own.client,
				.device = range->gpu->device,
				.object = o->object,
				.address = o->address };

	return gdri_rm_call(range->gpu->own.ctl, RM_IOC_UNMAP, &arg, &arg.status, "RM_UNMAP_MEMORY")
		       ? -EIO
		       : 0;
}

/*
 * Maps the part of the next object at `at`, or anywhere (NULL); no child inherits it. range->mapped
 * counts it as soon as pages may exist.
 */
static int map_next(struct gdri_rm_range *range, size_t size, bool read_only, void *at, void **map)
{
	struct gdri_rm_object *o = &range->objects[range->mapped];
	struct rm_map arg = { .client = range->gpu->own.client,
			      .device = range->gpu->device,
			      .object = o->object,
			      .offset = o->offset,
			      .length = size,
			      .flags = read_only ? RM_MAP_READ_ONLY : 0 };
	int rc = gdri_rm_open_node(range->gpu, &arg.fd);

	if (rc)
		return rc;
	rc = gdri_rm_call(range->gpu->own.ctl, RM_IOC_MAP, &arg, &arg.status, "RM_MAP_MEMORY");
	if (rc == -ENOMEM)
		rc = gdri_fail(ENOMEM, "%s: BAR1 has no room for 0x%zx bytes", gdri_error_text(),
			       size);
	o->address = arg.address;
	if (!rc) {
		rc = gdri_pages_map(arg.fd, 0, at, size,
				    read_only ? PROT_READ : PROT_READ | PROT_WRITE, map);
		if (*map == MAP_FAILED)
			rm_unmap(range, o);
		else
			range->mapped++;
		if (rc > 0)
			rc = gdri_fail(rc == EAGAIN ? ENOMEM : ENOTSUP, "mmap of 0x%zx bytes: %s",
				       size, strerror(rc));
	}
	gdri_fork_close(arg.fd);
	return rc;
}

int gdri_rm_map(struct gdri_rm_range *range, size_t length, bool read_only, void **map)
{
	struct gdri_text why = { .len = 0 };
	bool several = length > range->objects[0].size; /* side by side */
	void *whole = MAP_FAILED, *piece = MAP_FAILED;
	size_t at = 0, size = 0;
	int rc = 0;

	if (range->mapped) /* pages that could not be removed */
		return gdri_fail(EIO, "an earlier map of this range is still there");
	if (several)
		whole = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			     -1, 0);
	if (several && whole == MAP_FAILED)
		return gdri_fail(ENOMEM, "no address space for 0x%zx bytes", length);
	for (; !rc && at < length; at += size) {
		size = range->objects[range->mapped].size;
		size = size < length - at ? size : length - at;
		piece = NULL;
		rc = map_next(range, size, read_only, several ? (char *)whole + at : NULL, &piece);
	}
	if (!several)
		whole = piece;
	if (!rc) {
		*map = whole;
		return 0;
	}
	gdri_text_add(&why, "%s", gdri_error_text());
	/*
	 * Leaves the addresses of an mmap() that failed as they are: the kernel may have unmapped
	 * them before it failed, and another thread may have mapped them since. If the kernel had
	 * not unmapped them (too many maps, mlockall() beyond RLIMIT_MEMLOCK), the reservation
	 * stays there for good.
	 */
	if (several && piece == MAP_FAILED) {
		if (at < length)
			munmap((char *)whole + at, length - at);
		length = at - size;
	}
	if (whole && whole != MAP_FAILED && length)
		gdri_rm_unmap(range, whole, length);
	return gdri_fail(-rc, "%s", why.s);
}

/*
 * Removes the pages first, since RM gives their BAR1 to the next caller. If they cannot be removed,
 * nothing is given back, not by gdri_rm_range_close() either.
 */
int gdri_rm_unmap(struct gdri_rm_range *range, void *map, size_t length)
{
	struct gdri_first first = { 0 };

	if (munmap(map, length))
		return gdri_fail(errno == ENOMEM ? ENOMEM : EIO, "munmap: %s", strerror(errno));
	while (range->mapped)
		gdri_first_note(&first, rm_unmap(range, &range->objects[--range->mapped]));
	return gdri_first_failure(&first);
}
