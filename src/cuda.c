/* SPDX-License-Identifier: MIT */
/* See cuda.h. The only file of the library that knows the driver API's calls and results. */
#include "cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "error.h"

/* Every call in use; X(name, needed): libcuda without a needed one is not taken at all. */
#define CUDA_CALLS(X) \
	X(cuDriverGetVersion, true) \
	X(cuGetErrorName, true) \
	X(cuPointerGetAttribute, true) \
	X(cuPointerGetAttributes, true) \
	X(cuPointerSetAttribute, true) \
	X(cuMemGetAddressRange_v2, true) \
	X(cuMemHostGetFlags, true) \
	X(cuDeviceGet, true) \
	X(cuDeviceGetAttribute, true) \
	X(cuCtxGetCurrent, true) \
	X(cuCtxGetDevice, true) \
	X(cuCtxPushCurrent_v2, true) \
	X(cuCtxPopCurrent_v2, true) \
	X(cuDevicePrimaryCtxRetain, true) \
	X(cuDevicePrimaryCtxRelease_v2, true) \
	X(cuDeviceGetUuid, false) \
	X(cuDeviceGetUuid_v2, false) \
	X(cuCtxGetFlags, false) \
	X(cuCtxSetFlags, false) \
	X(cuThreadExchangeStreamCaptureMode, false) \
	X(cuMemGetHandleForAddressRange, false) \
	X(cuMemRetainAllocationHandle, false) \
	X(cuMemGetAllocationPropertiesFromHandle, false) \
	X(cuMemExportToShareableHandle, false) \
	X(cuMemRelease, false) \
	X(cuMemImportFromShareableHandle, false) \
	X(cuMemGetAllocationGranularity, false) \
	X(cuMemCreate, false) \
	X(cuMemAddressReserve, false) \
	X(cuMemAddressFree, false) \
	X(cuMemMap, false) \
	X(cuMemUnmap, false) \
	X(cuMemSetAccess, false) \
	X(cuInit, true) \
	X(cuDeviceGetCount, true) \
	X(cuMemAlloc_v2, true) \
	X(cuMemFree_v2, true) \
	X(cuMemHostAlloc, true) \
	X(cuMemFreeHost, true) \
	X(cuMemHostGetDevicePointer_v2, true) \
	X(cuStreamCreate, false) \
	X(cuStreamDestroy_v2, false) \
	X(cuStreamSynchronize, false) \
	X(cuMemcpyHtoDAsync_v2, false) \
	X(cuMemcpyDtoHAsync_v2, false)

/*
 * Filled under load_lock, then loaded is set with release order: whoever has seen it may read the
 * table. The library is never closed: its own threads may be running.
 */
static struct {
#define X(name, needed) __typeof__(&(name)) name;
	CUDA_CALLS(X)
#undef X
} cu;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool loaded;

static int load_locked(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return gdri_fail(ENODEV, "no CUDA driver: %s", dlerror());
#define X(name, needed) \
	cu.name = (__typeof__(cu.name))dlsym(lib, #name); \
	if ((needed) && !cu.name) { \
		dlclose(lib); \
		return gdri_fail(ENODEV, "libcuda.so.1 has no " #name); \
	}
	CUDA_CALLS(X)
#undef X
	atomic_store_explicit(&loaded, true, memory_order_release);
	return 0;
}

int gdri_cuda_load(void)
{
	int rc = 0;

	if (atomic_load_explicit(&loaded, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&load_lock);
	if (!atomic_load_explicit(&loaded, memory_order_relaxed))
		rc = load_locked();
	pthread_mutex_unlock(&load_lock);
	return rc;
}

void gdri_cuda_after_fork(void)
{
	pthread_mutex_init(&load_lock, NULL);
}

static int result_errno(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return ENOMEM;
	case CUDA_ERROR_NOT_SUPPORTED:
		return ENOTSUP;
	case CUDA_ERROR_NOT_PERMITTED:
		return EACCES;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_STUB_LIBRARY:
	case CUDA_ERROR_SYSTEM_NOT_READY:
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
		return ENODEV;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
		return EINVAL;
	default:
		return EIO;
	}
}

static const char *result_name(CUresult r)
{
	const char *name = NULL;

	if (cu.cuGetErrorName(r, &name) != CUDA_SUCCESS || !name)
		return "unknown error";
	return name;
}

static int fail_call(CUresult r, const char *call)
{
	return gdri_fail(result_errno(r), "%s: %s (%d)", call, result_name(r), (int)r);
}

static int fail_missing(const char *call)
{
	return gdri_fail(ENOTSUP, "this CUDA driver has no %s", call);
}

/*
 * A stretch of calls in the context of one allocation. The thread's capture mode is relaxed
 * meanwhile, so that a stream capture of the user's is not broken by calls that synchronise.
 */
struct scope {
	CUstreamCaptureMode mode;
	bool mode_changed;
	bool pushed;
	CUdevice retained; /* primary context to give back, or -1 */
};

static void scope_leave(struct scope *s)
{
	CUcontext ctx;

	if (s->pushed)
		cu.cuCtxPopCurrent_v2(&ctx);
	if (s->retained >= 0)
		cu.cuDevicePrimaryCtxRelease_v2(s->retained);
	if (s->mode_changed)
		cu.cuThreadExchangeStreamCaptureMode(&s->mode);
}

/* context: of the allocation; NULL: the current one if it is on that device, else its primary. */
static int scope_enter(struct scope *s, void *context, int device)
{
	CUcontext ctx = context, current = NULL;
	CUdevice dev, at = -1;
	CUresult r;
	int rc;

	*s = (struct scope){ .mode = CU_STREAM_CAPTURE_MODE_RELAXED, .retained = -1 };
	if (cu.cuThreadExchangeStreamCaptureMode)
		s->mode_changed = cu.cuThreadExchangeStreamCaptureMode(&s->mode) == CUDA_SUCCESS;
	if (!ctx && device >= 0) {
		r = cu.cuDeviceGet(&dev, device);
		if (r) {
			rc = fail_call(r, "cuDeviceGet");
			goto err_leave;
		}
		if (!cu.cuCtxGetCurrent(&current) && current && !cu.cuCtxGetDevice(&at) &&
		    at == dev)
			return 0;
		r = cu.cuDevicePrimaryCtxRetain(&ctx, dev);
		if (r) {
			rc = fail_call(r, "cuDevicePrimaryCtxRetain");
			goto err_leave;
		}
		s->retained = dev;
	}
	if (ctx) {
		r = cu.cuCtxPushCurrent_v2(ctx);
		if (r) {
			rc = fail_call(r, "cuCtxPushCurrent");
			goto err_leave;
		}
		s->pushed = true;
	}
	return 0;

err_leave:
	scope_leave(s);
	return rc;
}

int gdri_cuda_driver_version(int *version)
{
	int rc = gdri_cuda_load();
	CUresult r;

	if (rc)
		return rc;
	r = cu.cuDriverGetVersion(version);
	return r ? fail_call(r, "cuDriverGetVersion") : 0;
}

/* The attributes that one call can ask for; unknown addresses give zeros and no error. */
struct attributes {
	unsigned int type, managed;
	int device;
	void *context, *host_ptr;
	unsigned long long buffer_id;
};

static CUresult ask(uint64_t addr, struct attributes *a)
{
	CUpointer_attribute names[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_IS_MANAGED,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					CU_POINTER_ATTRIBUTE_CONTEXT,
					CU_POINTER_ATTRIBUTE_HOST_POINTER,
					CU_POINTER_ATTRIBUTE_BUFFER_ID };
	void *values[] = { &a->type,	&a->managed,  &a->device,
			   &a->context, &a->host_ptr, &a->buffer_id };

	*a = (struct attributes){ .device = -1 };
	return cu.cuPointerGetAttributes(sizeof(names) / sizeof(names[0]), names, values, addr);
}

/*
 * Finds an address of [addr, addr + size) that CUDA knows: the first, the last, then every start
 * that an allocation can have in the first GPU page (cudaMalloc aligns to 256 bytes at least).
 */
static CUresult ask_range(uint64_t addr, size_t size, uint64_t *known, struct attributes *a)
{
	uint64_t end = addr + size;
	CUresult r;

	*known = addr;
	r = ask(addr, a);
	if (r || a->type)
		return r;
	*known = end - 1;
	r = ask(*known, a);
	if (r || a->type)
		return r;
	for (*known = (addr | 255) + 1; *known < end && *known - addr < 65536; *known += 256) {
		r = ask(*known, a);
		if (r || a->type)
			return r;
	}
	return CUDA_SUCCESS;
}

/*
 * cuMemGetAddressRange in whatever context there is, else in the allocation's own: it wants one,
 * and a thread that has never used CUDA has none.
 */
static CUresult address_range(CUdeviceptr *base, size_t *size, uint64_t addr, void *context,
			      int device)
{
	CUresult r = cu.cuMemGetAddressRange_v2(base, size, addr);
	struct scope s;

	if (r != CUDA_ERROR_INVALID_CONTEXT || scope_enter(&s, context, device))
		return r;
	r = cu.cuMemGetAddressRange_v2(base, size, addr);
	scope_leave(&s);
	return r;
}

/* Host memory: where the allocation lies, whichever of its two addresses was given. */
static void describe_host(struct gdri_memory *m, void *host_known)
{
	CUdeviceptr start = 0, device_ptr = 0;
	uint64_t places[3];
	unsigned int flags = 0;
	struct scope s;
	size_t size = 0;
	CUresult r;

	/* The flags decide on the mapping's type: not known, the memory is not served. */
	if (scope_enter(&s, m->context, m->device))
		return;
	r = cu.cuMemHostGetFlags(&flags, host_known);
	scope_leave(&s);
	/* INVALID_VALUE: registered memory, which is what its owner made it: cached. */
	if (r && r != CUDA_ERROR_INVALID_VALUE)
		return;
	m->write_combined = flags & CU_MEMHOSTALLOC_WRITECOMBINED;
	if (cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, m->known) ||
	    cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, m->known)) {
		/* Before CUDA 10.2. */
		if (address_range(&start, &size, m->known, m->context, m->device))
			return;
	}
	(void)cu.cuPointerGetAttribute(&device_ptr, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, m->known);

	/* The start may be the host or the device address of a write-combined allocation. */
	places[0] = m->known;
	places[1] = (uintptr_t)host_known;
	places[2] = device_ptr;
	for (int i = 0; i < 3; i++)
		if (places[i] >= start && places[i] - start < size) {
			m->base = m->known - (places[i] - start);
			m->host_ptr = (char *)host_known - (places[i] - start);
			m->size = size;
			return;
		}
}

int gdri_cuda_describe(uint64_t addr, size_t size, struct gdri_memory *m)
{
	struct attributes a;
	CUdeviceptr base;
	CUresult r;

	*m = (struct gdri_memory){ .device = -1, .known = addr };
	if (gdri_cuda_load()) {
		snprintf(m->note, sizeof(m->note), "%.90s", gdri_error_text());
		return 0;
	}
	r = ask_range(addr, size, &m->known, &a);
	if (r) {
		snprintf(m->note, sizeof(m->note), "%s", result_name(r));
		return 0;
	}
	m->managed = a.managed;
	m->context = a.context;
	if (a.managed)
		return 0;
	switch (a.type) {
	case CU_MEMORYTYPE_DEVICE:
		m->kind = GDRI_MEMORY_DEVICE;
		m->device = a.device;
		m->buffer_id = a.buffer_id;
		if (!address_range(&base, &m->size, m->known, m->context, m->device))
			m->base = base;
		else
			m->size = 0;
		break;
	case CU_MEMORYTYPE_HOST:
		m->kind = GDRI_MEMORY_HOST;
		m->device = a.device;
		if (a.host_ptr)
			describe_host(m, a.host_ptr);
		break;
	default:
		snprintf(m->note, sizeof(m->note), "%s",
			 "pageable host memory, freed memory, or never an address of the GPU");
		break;
	}
	return 0;
}

/*
 * Allocations that SYNC_MEMOPS has been set on, by buffer ID (one names one allocation for the life
 * of the process). Reading the attribute does not tell: driver 580 reads 1 for memory that nobody
 * has set it on. A table that forgets costs another set, no more.
 */
static _Atomic unsigned long long synced[256];

static _Atomic unsigned long long *synced_slot(uint64_t buffer_id)
{
	return &synced[buffer_id % (sizeof(synced) / sizeof(synced[0]))];
}

static bool set_sync_memops(const struct gdri_memory *m, bool by_context)
{
	unsigned int on = 1, flags;

	if (!cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, m->known)) {
		atomic_store_explicit(synced_slot(m->buffer_id), m->buffer_id,
				      memory_order_relaxed);
		return true;
	}
	if (!by_context || !cu.cuCtxSetFlags || !cu.cuCtxGetFlags || cu.cuCtxGetFlags(&flags))
		return false;
	return flags & CU_CTX_SYNC_MEMOPS || !cu.cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS);
}

bool gdri_cuda_sync_memops(const struct gdri_memory *m, bool by_context)
{
	struct scope s;
	bool in_force;

	if (m->kind == GDRI_MEMORY_HOST)
		return true;
	if (m->kind != GDRI_MEMORY_DEVICE)
		return false;
	if (m->buffer_id && atomic_load_explicit(synced_slot(m->buffer_id),
						 memory_order_relaxed) == m->buffer_id)
		return true;
	if (scope_enter(&s, m->context, m->device))
		return false;
	in_force = set_sync_memops(m, by_context);
	scope_leave(&s);
	return in_force;
}

int gdri_cuda_device_id(int device, struct gdri_device_id *id)
{
	/* The first version: Vulkan's deviceUUID is that of the GPU, _v2 tells a MIG slice's. */
	__typeof__(cu.cuDeviceGetUuid) get_uuid =
		cu.cuDeviceGetUuid ? cu.cuDeviceGetUuid : cu.cuDeviceGetUuid_v2;
	int domain, bus, slot;
	CUdevice dev;
	CUuuid uuid;
	CUresult r;

	if (!get_uuid)
		return fail_missing("cuDeviceGetUuid");
	r = cu.cuDeviceGet(&dev, device);
	if (r)
		return fail_call(r, "cuDeviceGet");
	r = get_uuid(&uuid, dev);
	if (r)
		return fail_call(r, "cuDeviceGetUuid");
	r = cu.cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, dev);
	if (!r)
		r = cu.cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, dev);
	if (!r)
		r = cu.cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, dev);
	if (r)
		return fail_call(r, "cuDeviceGetAttribute");
	memcpy(id->uuid, uuid.bytes, sizeof(id->uuid));
	id->pci_domain = (uint32_t)domain;
	id->pci_bus = (uint32_t)bus;
	id->pci_device = (uint32_t)slot;
	return 0;
}

/* An fd of the driver's that a program started later must not inherit. */
static void set_cloexec(int fd)
{
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

int gdri_cuda_dmabuf(const struct gdri_memory *m, uint64_t addr, size_t size, bool pcie, int *fd)
{
	struct scope s;
	int new_fd = -1;
	CUresult r;
	int rc;

	if (!cu.cuMemGetHandleForAddressRange)
		return fail_missing("cuMemGetHandleForAddressRange");
	rc = scope_enter(&s, m->context, m->device);
	if (rc)
		return rc;
	r = cu.cuMemGetHandleForAddressRange(
		&new_fd, addr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
		pcie ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0);
	scope_leave(&s);
	if (r)
		return fail_call(r, "cuMemGetHandleForAddressRange");
	set_cloexec(new_fd);
	*fd = new_fd;
	return 0;
}

int gdri_cuda_export_chunk(uint64_t addr, uint64_t *base, size_t *size, int *fd)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	CUdeviceptr chunk;
	size_t chunk_size;
	int new_fd = -1;
	CUresult r;
	int rc = 0;

	if (!cu.cuMemRetainAllocationHandle || !cu.cuMemGetAllocationPropertiesFromHandle ||
	    !cu.cuMemExportToShareableHandle || !cu.cuMemRelease)
		return fail_missing("virtual memory management");
	r = cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)addr);
	if (r == CUDA_ERROR_INVALID_VALUE)
		return gdri_fail(ENOTSUP,
				 "not memory of cuMemCreate (cudaMalloc memory cannot be imported)");
	if (r)
		return fail_call(r, "cuMemRetainAllocationHandle");
	r = cu.cuMemGetAllocationPropertiesFromHandle(&prop, handle);
	if (r) {
		rc = fail_call(r, "cuMemGetAllocationPropertiesFromHandle");
		goto out_release;
	}
	if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
		rc = gdri_fail(ENOTSUP, "memory of cuMemCreate that is not on a device");
		goto out_release;
	}
	if (!(prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
		rc = gdri_fail(ENOTSUP, "cuMemCreate was not asked for an exportable allocation "
					"(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)");
		goto out_release;
	}
	r = address_range(&chunk, &chunk_size, addr, NULL, prop.location.id);
	if (r) {
		rc = fail_call(r, "cuMemGetAddressRange");
		goto out_release;
	}
	if (addr < chunk || addr - chunk >= chunk_size) {
		rc = gdri_fail(EINVAL, "cuMemGetAddressRange answered another range");
		goto out_release;
	}
	r = cu.cuMemExportToShareableHandle(&new_fd, handle,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (r) {
		rc = fail_call(r, "cuMemExportToShareableHandle");
		goto out_release;
	}
	set_cloexec(new_fd);
	*base = chunk;
	*size = chunk_size;
	*fd = new_fd;
out_release:
	cu.cuMemRelease(handle);
	return rc;
}

int gdri_cuda_init(void)
{
	int rc = gdri_cuda_load();
	CUresult r;

	if (rc)
		return rc;
	r = cu.cuInit(0);
	return r ? fail_call(r, "cuInit") : 0;
}

/* The device of an ordinal, CUDA initialised if need be. */
static int find_device(int ordinal, CUdevice *dev)
{
	int rc = gdri_cuda_init(), count;
	CUresult r;

	if (rc)
		return rc;
	r = cu.cuDeviceGetCount(&count);
	if (r)
		return fail_call(r, "cuDeviceGetCount");
	if (ordinal < 0 || ordinal >= count)
		return gdri_fail(EINVAL, "no CUDA device %d: there are %d", ordinal, count);
	r = cu.cuDeviceGet(dev, ordinal);
	return r ? fail_call(r, "cuDeviceGet") : 0;
}

/* A boolean attribute; false where this driver does not know it. */
static bool device_has(CUdevice dev, CUdevice_attribute attribute)
{
	int value = 0;

	return !cu.cuDeviceGetAttribute(&value, attribute, dev) && value;
}

int gdri_cuda_is_integrated(int device, bool *integrated)
{
	CUdevice dev;
	int rc = find_device(device, &dev);

	if (!rc)
		*integrated = device_has(dev, CU_DEVICE_ATTRIBUTE_INTEGRATED);
	return rc;
}

int gdri_cuda_tag(uint64_t addr, struct gdri_cuda_tag *tag)
{
	unsigned long long id = 0;
	struct gdri_memory m;
	CUresult r;
	int rc;

	rc = gdri_cuda_load();
	if (!rc)
		rc = gdri_cuda_describe(addr, 1, &m);
	if (rc)
		return rc;
	if (m.kind == GDRI_MEMORY_UNKNOWN || !m.size)
		return gdri_fail(EINVAL, "CUDA knows no allocation at 0x%llx%s%s",
				 (unsigned long long)addr, m.note[0] ? ": " : "", m.note);
	r = cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr);
	if (r)
		return fail_call(r, "cuPointerGetAttribute(BUFFER_ID)");
	*tag = (struct gdri_cuda_tag){ .start = m.base, .end = m.base + m.size, .id = id };
	return 0;
}

bool gdri_cuda_tag_holds(uint64_t addr, uint64_t id)
{
	unsigned long long now = 0;

	return !cu.cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr) && now == id;
}

/* What VMM memory of ours is made with: exportable, and reachable by peers where the device can. */
static CUmemAllocationProp vmm_properties(CUdevice dev)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, dev },
	};

	if (device_has(dev, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	if (device_has(dev, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
		prop.allocFlags.gpuDirectRDMACapable = 1;
	return prop;
}

/* Gives VMM memory an address, and its device the right to use it. */
static int place_vmm(struct gdri_allocation *a, CUmemGenericAllocationHandle handle, CUdevice dev,
		     size_t grain)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, dev },
				   CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr ptr;
	CUresult r;
	int rc;

	r = cu.cuMemAddressReserve(&ptr, a->size, grain, 0, 0);
	if (r)
		return fail_call(r, "cuMemAddressReserve");
	r = cu.cuMemMap(ptr, a->size, 0, handle, 0);
	if (r) {
		rc = fail_call(r, "cuMemMap");
		goto err_reserved;
	}
	r = cu.cuMemSetAccess(ptr, a->size, &access, 1);
	if (r) {
		rc = fail_call(r, "cuMemSetAccess");
		goto err_unmap;
	}
	a->addr = ptr;
	return 0;

err_unmap:
	cu.cuMemUnmap(ptr, a->size);
err_reserved:
	cu.cuMemAddressFree(ptr, a->size);
	return rc;
}

static bool have_vmm(void)
{
	return cu.cuMemGetAllocationGranularity && cu.cuMemCreate && cu.cuMemAddressReserve &&
	       cu.cuMemAddressFree && cu.cuMemMap && cu.cuMemUnmap && cu.cuMemSetAccess &&
	       cu.cuMemRelease && cu.cuMemRetainAllocationHandle &&
	       cu.cuMemGetAllocationPropertiesFromHandle;
}

static int granularity(const CUmemAllocationProp *prop, size_t *grain)
{
	CUresult r = cu.cuMemGetAllocationGranularity(grain, prop,
						      CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	return r ? fail_call(r, "cuMemGetAllocationGranularity") : 0;
}

static int alloc_vmm(struct gdri_allocation *a, size_t size, CUdevice dev)
{
	CUmemAllocationProp prop = vmm_properties(dev);
	CUmemGenericAllocationHandle handle;
	size_t grain;
	CUresult r;
	int rc;

	if (!have_vmm())
		return fail_missing("virtual memory management");
	rc = granularity(&prop, &grain);
	if (rc)
		return rc;
	if (__builtin_add_overflow(size, grain - 1, &a->size))
		return gdri_fail(ENOMEM, "size 0x%zx cannot be rounded up to %zu", size, grain);
	a->size -= a->size % grain;
	r = cu.cuMemCreate(&handle, a->size, &prop, 0);
	if (r)
		return fail_call(r, "cuMemCreate");
	rc = place_vmm(a, handle, dev, grain);
	cu.cuMemRelease(handle); /* the map keeps the memory */
	return rc;
}

static int alloc_plain(struct gdri_allocation *a, size_t size)
{
	CUdeviceptr ptr;
	CUresult r = cu.cuMemAlloc_v2(&ptr, size);

	if (r)
		return fail_call(r, "cuMemAlloc");
	a->addr = ptr;
	a->size = size;
	return 0;
}

static int alloc_host(struct gdri_allocation *a, size_t size, bool cached)
{
	CUdeviceptr ptr;
	CUresult r = cu.cuMemHostAlloc(&a->host, size,
				       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
					       (cached ? 0 : CU_MEMHOSTALLOC_WRITECOMBINED));

	if (r)
		return fail_call(r, "cuMemHostAlloc");
	r = cu.cuMemHostGetDevicePointer_v2(&ptr, a->host, 0);
	if (r) {
		cu.cuMemFreeHost(a->host);
		return fail_call(r, "cuMemHostGetDevicePointer");
	}
	a->addr = ptr;
	a->size = size;
	return 0;
}

/* Its primary context is kept while the allocation lives, in case nobody else keeps one. */
static int enter_allocation(struct gdri_allocation *a, int device, CUdevice *dev, struct scope *s)
{
	CUcontext primary;
	CUresult r;
	int rc = find_device(device, dev);

	if (rc)
		return rc;
	r = cu.cuDevicePrimaryCtxRetain(&primary, *dev);
	if (r)
		return fail_call(r, "cuDevicePrimaryCtxRetain");
	rc = scope_enter(s, primary, device);
	if (rc) {
		cu.cuDevicePrimaryCtxRelease_v2(*dev);
		return rc;
	}
	a->device = device;
	a->context = primary;
	return 0;
}

int gdri_cuda_alloc(struct gdri_allocation *a, enum gdri_allocation_kind kind, int device,
		    size_t size, bool cached)
{
	struct scope s;
	CUdevice dev;
	int rc;

	*a = (struct gdri_allocation){ .kind = kind };
	rc = enter_allocation(a, device, &dev, &s);
	if (rc)
		return rc;
	switch (kind) {
	case GDRI_ALLOCATION_VMM:
		rc = alloc_vmm(a, size, dev);
		break;
	case GDRI_ALLOCATION_PLAIN:
		rc = alloc_plain(a, size);
		break;
	case GDRI_ALLOCATION_HOST:
		rc = alloc_host(a, size, cached);
		break;
	}
	scope_leave(&s);
	if (rc)
		cu.cuDevicePrimaryCtxRelease_v2(dev);
	return rc;
}

int gdri_cuda_import(struct gdri_allocation *a, int device, int fd, size_t size)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	struct scope s;
	size_t grain;
	CUdevice dev;
	CUresult r;
	int rc;

	*a = (struct gdri_allocation){ .kind = GDRI_ALLOCATION_VMM, .size = size };
	rc = enter_allocation(a, device, &dev, &s);
	if (rc)
		return rc;
	if (!have_vmm() || !cu.cuMemImportFromShareableHandle) {
		rc = fail_missing("virtual memory management");
		goto out_leave;
	}
	r = cu.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (r) {
		rc = fail_call(r, "cuMemImportFromShareableHandle");
		goto out_leave;
	}
	prop = vmm_properties(dev);
	rc = granularity(&prop, &grain);
	if (!rc && size % grain)
		rc = gdri_fail(EINVAL, "size %zu of an import is no multiple of %zu", size, grain);
	if (!rc)
		rc = place_vmm(a, handle, dev, grain);
	cu.cuMemRelease(handle);
out_leave:
	scope_leave(&s);
	if (rc)
		cu.cuDevicePrimaryCtxRelease_v2(dev);
	return rc;
}

int gdri_cuda_free(struct gdri_allocation *a)
{
	struct scope s;
	CUdevice dev;
	CUresult r = CUDA_SUCCESS;
	int rc = scope_enter(&s, a->context, a->device);

	if (rc)
		return rc;
	switch (a->kind) {
	case GDRI_ALLOCATION_VMM:
		r = cu.cuMemUnmap(a->addr, a->size);
		if (!r)
			r = cu.cuMemAddressFree(a->addr, a->size);
		break;
	case GDRI_ALLOCATION_PLAIN:
		r = cu.cuMemFree_v2(a->addr);
		break;
	case GDRI_ALLOCATION_HOST:
		r = cu.cuMemFreeHost(a->host);
		break;
	}
	if (r)
		rc = fail_call(r, "freeing device memory");
	scope_leave(&s);
	if (!cu.cuDeviceGet(&dev, a->device))
		cu.cuDevicePrimaryCtxRelease_v2(dev);
	return rc;
}

/* ---- the copy engine --------------------------------------------------------------------------- */

/*
 * The context is the allocation's own; for VMM memory, which has none, the device's primary one,
 * retained as long as the engine lives: one that was merely current could be destroyed meanwhile.
 */
struct gdri_cuda_engine {
	CUcontext ctx;
	CUstream stream;
	CUdevice retained; /* primary context to give back, or -1 */
	uint64_t known;	   /* an address of the memory, */
	uint64_t buffer_id; /* and what it was when the engine was made */
};

static int choose_context(struct gdri_cuda_engine *e, void *context, int device)
{
	CUdevice dev;
	CUresult r;

	e->ctx = context;
	if (context)
		return 0;
	r = cu.cuDeviceGet(&dev, device);
	if (r)
		return fail_call(r, "cuDeviceGet");
	r = cu.cuDevicePrimaryCtxRetain(&e->ctx, dev);
	if (r)
		return fail_call(r, "cuDevicePrimaryCtxRetain");
	e->retained = dev;
	return 0;
}

int gdri_cuda_engine_new(uint64_t addr, size_t size, struct gdri_cuda_engine **out)
{
	struct gdri_cuda_engine *e;
	struct gdri_memory m;
	struct scope s;
	CUresult r;
	int rc;

	gdri_cuda_describe(addr, size, &m);
	if (m.kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "the copy engine serves device memory only%s%s",
				 *m.note ? ": " : "", m.note);
	if (!cu.cuStreamCreate || !cu.cuStreamDestroy_v2 || !cu.cuStreamSynchronize ||
	    !cu.cuMemcpyHtoDAsync_v2 || !cu.cuMemcpyDtoHAsync_v2)
		return fail_missing("streams");
	e = calloc(1, sizeof(*e));
	if (!e)
		return gdri_fail(ENOMEM, "no memory for a copy engine");
	e->retained = -1;
	e->known = m.known;
	e->buffer_id = m.buffer_id;
	rc = choose_context(e, m.context, m.device);
	if (!rc)
		rc = scope_enter(&s, e->ctx, -1);
	if (!rc) {
		r = cu.cuStreamCreate(&e->stream, CU_STREAM_NON_BLOCKING);
		scope_leave(&s);
		if (r)
			rc = fail_call(r, "cuStreamCreate");
	}
	if (rc) {
		if (e->retained >= 0)
			cu.cuDevicePrimaryCtxRelease_v2(e->retained);
		free(e);
		return rc;
	}
	*out = e;
	return 0;
}

/*
 * No text of a failure: to the caller's caller nothing has failed. The buffer ID comes first: where
 * the memory has been freed, its context may be gone too, and its address be somebody else's.
 */
bool gdri_cuda_engine_copy(struct gdri_cuda_engine *e, bool to_device, void *host, uint64_t addr,
			   size_t size)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool mode_changed = false;
	CUcontext ctx;
	CUresult r;

	if (!gdri_cuda_tag_holds(e->known, e->buffer_id))
		return false;
	if (cu.cuThreadExchangeStreamCaptureMode)
		mode_changed = !cu.cuThreadExchangeStreamCaptureMode(&mode);
	r = cu.cuCtxPushCurrent_v2(e->ctx);
	if (!r) {
		if (to_device)
			r = cu.cuMemcpyHtoDAsync_v2(addr, host, size, e->stream);
		else
			r = cu.cuMemcpyDtoHAsync_v2(host, addr, size, e->stream);
		/* After a failure too: nothing of the copy may come later. */
		if (cu.cuStreamSynchronize(e->stream))
			r = CUDA_ERROR_UNKNOWN;
		cu.cuCtxPopCurrent_v2(&ctx);
	}
	if (mode_changed)
		cu.cuThreadExchangeStreamCaptureMode(&mode);
	return r == CUDA_SUCCESS;
}

void gdri_cuda_engine_free(struct gdri_cuda_engine *e)
{
	CUcontext ctx;

	if (!e)
		return;
	/* A context that went with its memory took the stream along. */
	if ((e->retained >= 0 || gdri_cuda_tag_holds(e->known, e->buffer_id)) &&
	    !cu.cuCtxPushCurrent_v2(e->ctx)) {
		cu.cuStreamDestroy_v2(e->stream);
		cu.cuCtxPopCurrent_v2(&ctx);
	}
	if (e->retained >= 0)
		cu.cuDevicePrimaryCtxRelease_v2(e->retained);
	free(e);
}
