/* SPDX-License-Identifier: MIT */
/* See cuda.h. The only file of the library that knows the driver API's calls and results. */
#include "cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
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
	X(cuMemRelease, false)

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
};

static CUresult ask(uint64_t addr, struct attributes *a)
{
	CUpointer_attribute names[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_IS_MANAGED,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					CU_POINTER_ATTRIBUTE_CONTEXT,
					CU_POINTER_ATTRIBUTE_HOST_POINTER };
	void *values[] = { &a->type, &a->managed, &a->device, &a->context, &a->host_ptr };

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
		if (cu.cuMemGetAddressRange_v2(&start, &size, m->known))
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
		if (!cu.cuMemGetAddressRange_v2(&base, &m->size, m->known))
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

bool gdri_cuda_sync_memops(const struct gdri_memory *m, bool by_context)
{
	unsigned int on = 0, flags;
	struct scope s;
	bool in_force;

	if (m->kind == GDRI_MEMORY_HOST)
		return true;
	if (m->kind != GDRI_MEMORY_DEVICE)
		return false;
	if (!cu.cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, m->known) && on)
		return true;
	if (scope_enter(&s, m->context, m->device))
		return false;
	on = 1;
	in_force = !cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, m->known);
	if (!in_force && by_context && cu.cuCtxSetFlags && cu.cuCtxGetFlags &&
	    !cu.cuCtxGetFlags(&flags))
		in_force = flags & CU_CTX_SYNC_MEMOPS ||
			   !cu.cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS);
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
	struct scope s;
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
	rc = scope_enter(&s, NULL, prop.location.id);
	if (rc)
		goto out_release;
	r = cu.cuMemGetAddressRange_v2(&chunk, &chunk_size, addr);
	scope_leave(&s);
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
