/* SPDX-License-Identifier: MIT */
/* The library's own memory: allocated, imported, registered, freed. See cuda.h. */
#include "cuda/private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/process.h"

/* Exportable, and reachable by peers, if the device can do that. */
static int vmm_properties(CUdevice dev, CUmemAllocationProp *prop)
{
	bool exportable, capable;
	int rc = gdri_cuda_device_has(
		dev, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &exportable);

	if (!rc)
		rc = gdri_cuda_device_has(
			dev, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, &capable);
	if (rc)
		return rc;
	*prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, dev },
		.requestedHandleTypes = exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
		.allocFlags.gpuDirectRDMACapable = capable,
	};
	return 0;
}

static int place_vmm(CUmemGenericAllocationHandle handle, CUdevice dev, size_t size, size_t grain,
		     CUdeviceptr *ptr)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, dev },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	int rc = GDRI_CU(cuMemAddressReserve, ptr, size, grain, 0, 0);

	if (rc)
		return rc;
	rc = GDRI_CU(cuMemMap, *ptr, size, 0, handle, 0);
	if (!rc) {
		rc = GDRI_CU(cuMemSetAccess, *ptr, size, &access, 1);
		if (rc)
			gdri_cu.cuMemUnmap(*ptr, size);
	}
	if (rc)
		gdri_cu.cuMemAddressFree(*ptr, size);
	return rc;
}

static int alloc_vmm(struct gdri_allocation *a, CUdevice dev, int fd, CUdeviceptr *ptr)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	size_t grain, size = a->size;
	struct gdri_first first = { 0 };
	bool placed;
	int rc = vmm_properties(dev, &prop);

	if (!rc)
		rc = GDRI_CU(cuMemGetAllocationGranularity, &grain, &prop,
			     CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (rc)
		return rc;
	if (__builtin_add_overflow(size, grain - 1, &a->size))
		return gdri_fail(ENOMEM, "size 0x%zx cannot be rounded up to %zu", size, grain);
	a->size -= a->size % grain;
	if (fd < 0)
		rc = GDRI_CU(cuMemCreate, &handle, a->size, &prop, 0);
	else if (a->size != size)
		rc = gdri_fail(EINVAL, "size %zu of an import is not a multiple of %zu", size,
			       grain);
	else
		rc = GDRI_CU(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
			     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (rc)
		return rc;
	gdri_first_note(&first, place_vmm(handle, dev, a->size, grain, ptr));
	placed = !first.rc;
	gdri_first_note(&first, gdri_cuda_release(handle)); /* the map keeps the memory */
	if (placed && first.rc) {
		gdri_cu.cuMemUnmap(*ptr, a->size);
		gdri_cu.cuMemAddressFree(*ptr, a->size);
	}
	return gdri_first_failure(&first);
}

static int alloc_host(struct gdri_allocation *a, bool cached, CUdeviceptr *ptr)
{
	unsigned int flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
			     (cached ? 0 : CU_MEMHOSTALLOC_WRITECOMBINED);
	int rc = GDRI_CU(cuMemHostAlloc, &a->host, a->size, flags);

	if (rc)
		return rc;
	rc = GDRI_CU(cuMemHostGetDevicePointer_v2, ptr, a->host, 0);
	if (rc)
		gdri_cu.cuMemFreeHost(a->host);
	return rc;
}

int gdri_cuda_alloc(struct gdri_allocation *a, enum gdri_allocation_kind kind, int device,
		    void *context, size_t size, bool cached, int fd)
{
	struct gdri_cuda_scope s;
	CUcontext primary;
	CUdeviceptr ptr;
	CUdevice dev;
	int rc = gdri_cuda_find_device(device, &dev);

	*a = (struct gdri_allocation){
		.kind = kind, .size = size, .asked = size, .device = device
	};
	if (!rc)
		rc = context ? gdri_cuda_enter(&s, context, -1)
			     : gdri_cuda_enter_primary(&s, dev, &primary);
	if (rc)
		return rc;
	a->context = context ? context : primary;
	switch (kind) {
	case GDRI_ALLOCATION_VMM:
		rc = alloc_vmm(a, dev, fd, &ptr);
		break;
	case GDRI_ALLOCATION_PLAIN:
		rc = GDRI_CU(cuMemAlloc_v2, &ptr, size);
		break;
	case GDRI_ALLOCATION_HOST:
		rc = alloc_host(a, cached, &ptr);
		break;
	}
	if (!rc) {
		a->addr = ptr;
		a->buffer_id = gdri_cuda_buffer_id(ptr);
	}
	gdri_cuda_leave(&s);
	return rc;
}

/*
 * cuMemFree() waits for all work on the device, also for a kernel that waits for the CPU (H100,
 * driver 580, 2026-11-22: 1 s while a kernel spun for 1 s). The stream-ordered call also
 * takes memory of cuMemAlloc() and waits for its own stream only (0.15 ms there).
 */
static int free_by_stream(CUdeviceptr addr, bool *freed)
{
	struct gdri_first first = { 0 };
	CUstream stream;
	int rc;

	*freed = false;
	rc = GDRI_CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	if (rc)
		return rc;
	gdri_first_note(&first, GDRI_CU(cuMemFreeAsync, addr, stream));
	*freed = !first.rc;
	if (*freed)
		gdri_first_note(&first, GDRI_CU(cuStreamSynchronize, stream));
	gdri_first_note(&first, GDRI_CU(cuStreamDestroy_v2, stream));
	return gdri_first_failure(&first);
}

/* Addresses that are still mapped are not given back. */
static int free_vmm(const struct gdri_allocation *a)
{
	int rc = GDRI_CU(cuMemUnmap, a->addr, a->size);

	return rc ?: GDRI_CU(cuMemAddressFree, a->addr, a->size);
}

/* Has the end of its context, a reset or the end of CUDA freed it? False if CUDA does not say. */
static bool has_ended(const struct gdri_allocation *a)
{
	unsigned long long now = 0;
	CUresult r;

	if (!a->buffer_id)
		return false;
	r = gdri_cu.cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_BUFFER_ID, a->addr);
	return r ? r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_DEINITIALIZED
		 : now != a->buffer_id;
}

/*
 * Memory of cuMemCreate belongs to no context and outlives a reset: then it is freed without one
 * (CUDA driver API, 6.14: of these calls none returns CUDA_ERROR_INVALID_CONTEXT).
 */
static int enter_for(const struct gdri_allocation *a, struct gdri_cuda_scope *s)
{
	if (a->kind != GDRI_ALLOCATION_VMM || gdri_cuda_context_works(a->context))
		return gdri_cuda_enter(s, a->context, -1);
	gdri_cuda_relax(s);
	return 0;
}

int gdri_cuda_free(struct gdri_allocation *a)
{
	struct gdri_cuda_scope s;
	bool freed = false;
	int rc = 0;

	if (has_ended(a))
		return 0;
	/* What fails at an end is for no caller to mend: EIO, whatever CUDA answers. */
	if (enter_for(a, &s))
		return -EIO;
	switch (a->kind) {
	case GDRI_ALLOCATION_VMM:
		rc = free_vmm(a);
		break;
	case GDRI_ALLOCATION_PLAIN:
		if (!a->busy)
			rc = free_by_stream(a->addr, &freed);
		if (!freed)
			rc = GDRI_CU(cuMemFree_v2, a->addr);
		break;
	case GDRI_ALLOCATION_HOST:
		rc = GDRI_CU(cuMemFreeHost, a->host);
		break;
	}
	gdri_cuda_leave(&s);
	return rc ? -EIO : 0;
}

/* ---- memory that kernels may use after its user has ended -------------------------------------- */

struct kept {
	struct kept *next;
	struct gdri_allocation a;
};

GDRI_MUTEX(idle_lock); /* guards the next two */
/* Smallest first: the first one that is large enough is taken. */
static struct kept *kept;
static struct gdri_cuda_pages *idle; /* given back, still registered */

int gdri_cuda_keep(struct gdri_allocation *a)
{
	struct kept *k = a->buffer_id ? malloc(sizeof(*k)) : NULL, **link = &kept;

	if (!k)
		return gdri_cuda_free(a);
	k->a = *a;
	pthread_mutex_lock(&idle_lock);
	while (*link && (*link)->a.asked < a->asked)
		link = &(*link)->next;
	k->next = *link;
	*link = k;
	pthread_mutex_unlock(&idle_lock);
	return 0;
}

bool gdri_cuda_take_kept(struct gdri_allocation *a, enum gdri_allocation_kind kind, int device,
			 size_t size)
{
	struct kept **link = &kept, *k;
	bool found = false;

	pthread_mutex_lock(&idle_lock);
	while (!found && (k = *link)) {
		if (k->a.kind != kind || k->a.device != device || k->a.asked < size) {
			link = &k->next;
			continue;
		}
		/* Another ID: a reset or the context's end freed it. */
		found = gdri_cuda_has_buffer_id(k->a.addr, k->a.buffer_id);
		if (!found && !has_ended(&k->a)) { /* CUDA does not say */
			link = &k->next;
			continue;
		}
		*link = k->next;
		if (found)
			*a = k->a;
		free(k);
	}
	pthread_mutex_unlock(&idle_lock);
	return found;
}

/*
 * Frees what is kept, except what CUDA would free only after every kernel has ended. No context is
 * open, so no other thread is at the list.
 */
static void free_kept(void)
{
	struct kept **link = &kept, *k;
	struct gdri_cuda_scope s;

	while ((k = *link)) {
		bool stays = !has_ended(&k->a);

		/* cuMemFreeHost() waits for kernels. */
		if (stays && k->a.kind != GDRI_ALLOCATION_HOST && !enter_for(&k->a, &s)) {
			bool freed = false;

			if (k->a.kind == GDRI_ALLOCATION_PLAIN)
				(void)free_by_stream(k->a.addr, &freed);
			else
				freed = !free_vmm(&k->a);
			stays = !freed;
			gdri_cuda_leave(&s);
		}
		if (stays) {
			link = &k->next;
			continue;
		}
		*link = k->next;
		free(k);
	}
}

/*
 * Are they still registered with CUDA? No, once the context was destroyed or its device reset. A
 * failure that says neither must not unmap them: CUDA would have their addresses for good.
 */
static enum { NO, YES, UNKNOWN } is_registered(const struct gdri_cuda_pages *p)
{
	struct gdri_cuda_scope s;
	CUdeviceptr addr;
	CUresult r;

	if (!gdri_cuda_context_works(p->context))
		return NO;
	if (gdri_cuda_enter(&s, p->context, -1))
		return UNKNOWN;
	r = gdri_cu.cuMemHostGetDevicePointer_v2(&addr, p->host, 0);
	gdri_cuda_leave(&s);
	if (!r)
		return addr == p->addr ? YES : NO;
	return r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
		       ? NO
		       : UNKNOWN;
}

/* For a context that was reported dead and is not. Of a dead one CUDA refuses this. */
static void unregister(const struct gdri_cuda_pages *p)
{
	struct gdri_cuda_scope s;

	if (gdri_cuda_enter(&s, p->context, -1))
		return;
	gdri_cu.cuMemHostUnregister(p->host);
	gdri_cuda_leave(&s);
}

/* Takes pages that are not registered off the list, unless they cannot be unmapped now. */
static bool drop_pages(struct gdri_cuda_pages **link)
{
	struct gdri_cuda_pages *p = *link;

	unregister(p);
	if (munmap(p->host, p->size))
		return false;
	*link = p->next;
	free(p);
	return true;
}

void gdri_cuda_free_idle(void)
{
	struct gdri_cuda_pages **link = &idle, *p;

	while ((p = *link)) {
		if (is_registered(p) != NO || !drop_pages(link))
			link = &p->next;
	}
}

static struct gdri_cuda_pages *take_idle(int device, size_t size)
{
	struct gdri_cuda_pages **link = &idle, *p;
	int registered;

	pthread_mutex_lock(&idle_lock);
	while ((p = *link)) {
		registered = p->device == device && p->size >= size ? is_registered(p) : UNKNOWN;
		if (registered == YES) {
			*link = p->next;
			break;
		}
		if (registered == UNKNOWN || !drop_pages(link))
			link = &p->next;
	}
	pthread_mutex_unlock(&idle_lock);
	return p;
}

static int register_pages(struct gdri_cuda_pages *p)
{
	const unsigned int flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	struct gdri_cuda_scope s;
	CUdeviceptr addr = 0;
	CUcontext context;
	CUdevice dev;
	int rc = gdri_cuda_find_device(p->device, &dev);

	if (!rc)
		rc = gdri_cuda_enter_primary(&s, dev, &context);
	if (rc)
		return rc;
	rc = GDRI_CU(cuMemHostRegister_v2, p->host, p->size, flags);
	if (!rc) {
		rc = GDRI_CU(cuMemHostGetDevicePointer_v2, &addr, p->host, 0);
		if (rc)
			gdri_cu.cuMemHostUnregister(p->host);
	}
	gdri_cuda_leave(&s);
	p->context = context;
	p->addr = addr;
	return rc;
}

int gdri_cuda_take_pages(int device, size_t size, struct gdri_cuda_pages **out)
{
	struct gdri_cuda_pages *p;
	void *pages;
	int rc;

	size = (size + 4095) & ~(size_t)4095;
	p = take_idle(device, size);
	if (p) {
		memset(p->host, 0, size);
		*out = p;
		return 0;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return gdri_fail(ENOMEM, "no memory for pages of the host");
	p->device = device;
	p->size = size;
	/* MAP_SHARED: copy-on-write after a fork must never move pages that the GPU writes. */
	rc = gdri_fork_pages(size, MAP_SHARED, &pages);
	p->host = pages;
	if (rc) {
		free(p);
		return rc;
	}
	rc = register_pages(p);
	if (!rc) {
		*out = p;
		return 0;
	}
	munmap(p->host, p->size);
	free(p);
	return rc;
}

void gdri_cuda_give_pages(struct gdri_cuda_pages *p)
{
	struct gdri_cuda_pages **link = &idle;

	pthread_mutex_lock(&idle_lock);
	while (*link && (*link)->size < p->size)
		link = &(*link)->next;
	p->next = *link;
	*link = p;
	pthread_mutex_unlock(&idle_lock);
}

/* ---- contexts of the library that use all this ------------------------------------------------ */

GDRI_MUTEX(holds_lock); /* taken before all others of this folder */
static unsigned int holds;

void gdri_cuda_hold(void)
{
	pthread_mutex_lock(&holds_lock);
	holds++;
	pthread_mutex_unlock(&holds_lock);
}

int gdri_cuda_drop(void)
{
	int rc = 0;

	pthread_mutex_lock(&holds_lock);
	if (!--holds) {
		free_kept();
		rc = gdri_cuda_release_primary();
		gdri_cuda_free_idle();
	}
	pthread_mutex_unlock(&holds_lock);
	return rc;
}

static void after_fork(void)
{
	holds = 0;
	idle = NULL; /* MADV_DONTFORK: the child does not have the pages */
	kept = NULL; /* the parent's */
}

GDRI_IN_CHILD(after_fork);
