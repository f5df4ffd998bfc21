/* SPDX-License-Identifier: MIT */
/*
 * The emulated machine's libcuda.so.1: one GPU, whose memory is the stand-in provider's, so that
 * libgdrapi and its tools run on the real driver. A process is one context. Copies go through the
 * provider's own mapping of the BAR, never through gdrdrv: what a program compares is independent
 * of what it tests.
 *
 * Only what libgdrapi, the tools and the client programs call. Must not know gdrdrv or libgdrapi.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "provider_uapi.h"

#define API __attribute__((visibility("default")))

/* A small allocation begins inside a GPU page, like a program's second one. */
#define SMALL	     (1UL << 20)
#define SMALL_OFFSET 512UL

struct alloc {
	struct alloc *next;
	CUdeviceptr start;
	size_t size;
	unsigned long long id;
	unsigned int sync_memops;
	unsigned int flags; /* of host memory */
	bool host;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct alloc *allocs; /* under lock */
static unsigned long long last_id; /* likewise */
static int gpu = -1; /* set once by cuInit, under lock */
static __thread CUcontext current;

#define THE_CONTEXT ((CUcontext)(void *)&gpu)

/* Marks a stand-in to the tools; no call is counted here. */
unsigned long gdrsim_calls(const char *name);
API unsigned long gdrsim_calls(const char *name)
{
	(void)name;
	return 0;
}

static CUresult call(unsigned long request, void *arg)
{
	if (gpu < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!ioctl(gpu, request, arg))
		return CUDA_SUCCESS;
	return errno == ENOMEM			    ? CUDA_ERROR_OUT_OF_MEMORY
	       : errno == EFAULT || errno == EINVAL ? CUDA_ERROR_INVALID_VALUE
						    : CUDA_ERROR_OPERATING_SYSTEM;
}

static struct alloc *find_locked(CUdeviceptr ptr)
{
	struct alloc *a;

	for (a = allocs; a; a = a->next)
		if (ptr >= a->start && ptr - a->start < a->size)
			return a;
	return NULL;
}

/* Copies the allocation of @ptr; false if it does not exist. */
static bool find(CUdeviceptr ptr, struct alloc *out)
{
	struct alloc *a;

	pthread_mutex_lock(&lock);
	a = find_locked(ptr);
	if (a)
		*out = *a;
	pthread_mutex_unlock(&lock);
	return a;
}

static CUresult add(CUdeviceptr start, size_t size, bool host, unsigned int flags)
{
	struct alloc *a = calloc(1, sizeof(*a));

	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a->start = start;
	a->size = size;
	a->host = host;
	a->flags = flags;
	pthread_mutex_lock(&lock);
	a->id = ++last_id;
	a->next = allocs;
	allocs = a;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* Takes the allocation that begins at @start off the list; NULL if none of this kind does. */
static struct alloc *take(CUdeviceptr start, bool host)
{
	struct alloc **at, *a = NULL;

	pthread_mutex_lock(&lock);
	for (at = &allocs; *at; at = &(*at)->next)
		if ((*at)->start == start && (*at)->host == host) {
			a = *at;
			*at = a->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	return a;
}

/* ---- device and context ---- */

API CUresult cuInit(unsigned int flags)
{
	CUresult r = CUDA_SUCCESS;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (gpu < 0)
		gpu = open(PROVIDER_NODE, O_RDWR | O_CLOEXEC);
	if (gpu < 0)
		r = CUDA_ERROR_NO_DEVICE;
	pthread_mutex_unlock(&lock);
	return r;
}

API CUresult cuDriverGetVersion(int *version)
{
	*version = 13000;
	return CUDA_SUCCESS;
}

API CUresult cuGetErrorName(CUresult error, const char **str)
{
	switch (error) {
#define NAME(e)            \
	case e:            \
		*str = #e; \
		return CUDA_SUCCESS
		NAME(CUDA_SUCCESS);
		NAME(CUDA_ERROR_INVALID_VALUE);
		NAME(CUDA_ERROR_OUT_OF_MEMORY);
		NAME(CUDA_ERROR_NOT_INITIALIZED);
		NAME(CUDA_ERROR_NO_DEVICE);
		NAME(CUDA_ERROR_INVALID_DEVICE);
		NAME(CUDA_ERROR_INVALID_CONTEXT);
		NAME(CUDA_ERROR_OPERATING_SYSTEM);
		NAME(CUDA_ERROR_NOT_SUPPORTED);
#undef NAME
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

API CUresult cuGetErrorString(CUresult error, const char **str)
	__attribute__((alias("cuGetErrorName")));

API CUresult cuDeviceGetCount(int *count)
{
	*count = 1;
	return gpu < 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	if (gpu < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (ordinal)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = 0;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	if (dev)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)len, "%s", "the emulated machine's");
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
	struct provider_info info;
	CUresult r;

	if (dev)
		return CUDA_ERROR_INVALID_DEVICE;
	r = call(PROVIDER_IOC_INFO, &info);
	if (!r && snprintf(id, (size_t)len, "%04X:%02X:%02X.%x", info.pci_domain, info.pci_bus,
			   info.pci_devfn >> 3, info.pci_devfn & 7) >= len)
		r = CUDA_ERROR_INVALID_VALUE;
	return r;
}

API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	if (dev)
		return CUDA_ERROR_INVALID_DEVICE;
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*value = -1;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
		*value = 1;
		break;
	default: /* no virtual memory management */
		*value = 0;
		break;
	}
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	if (gpu < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (dev)
		return CUDA_ERROR_INVALID_DEVICE;
	*ctx = THE_CONTEXT;
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return dev ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* The one context exists from the start, with the default flags. */
API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	if (gpu < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (dev)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = 0;
	*active = 1;
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetFlags(unsigned int *flags)
{
	*flags = 0;
	return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuCtxSetCurrent(CUcontext ctx)
{
	current = ctx;
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	*ctx = current;
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *dev)
{
	*dev = 0;
	return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* One context exists, so the stack has one place. */
API CUresult cuCtxPushCurrent_v2(CUcontext ctx) __attribute__((alias("cuCtxSetCurrent")));
API CUresult cuCtxPopCurrent_v2(CUcontext *ctx) __attribute__((alias("cuCtxGetCurrent")));

API CUresult cuCtxSynchronize(void)
{
	return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- memory ---- */

API CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
	size_t offset = size < SMALL ? SMALL_OFFSET : 0;
	struct provider_alloc arg = { .size = size + offset };
	struct provider_free undo;
	CUresult r;

	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	r = call(PROVIDER_IOC_ALLOC, &arg);
	if (r)
		return r;
	r = add(arg.va + offset, size, false, 0);
	if (r) {
		undo.va = arg.va;
		(void)call(PROVIDER_IOC_FREE, &undo);
		return r;
	}
	*ptr = arg.va + offset;
	return CUDA_SUCCESS;
}

API CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	struct alloc *a = take(ptr, false);
	struct provider_free arg = { .va = ptr & ~(PROVIDER_PAGE_SIZE - 1) };

	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	free(a);
	return call(PROVIDER_IOC_FREE, &arg);
}

API CUresult cuMemHostAlloc(void **ptr, size_t size, unsigned int flags)
{
	void *p;
	CUresult r;

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	p = aligned_alloc(4096, (size + 4095) & ~4095UL);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = add((uintptr_t)p, size, true, flags);
	if (r) {
		free(p);
		return r;
	}
	*ptr = p;
	return CUDA_SUCCESS;
}

API CUresult cuMemFreeHost(void *ptr)
{
	struct alloc *a = take((uintptr_t)ptr, true);

	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	free(a);
	free(ptr);
	return CUDA_SUCCESS;
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *dptr, void *ptr, unsigned int flags)
{
	(void)flags;
	*dptr = (uintptr_t)ptr;
	return CUDA_SUCCESS;
}

API CUresult cuMemHostGetFlags(unsigned int *flags, void *ptr)
{
	struct alloc a;

	if (!find((uintptr_t)ptr, &a) || !a.host)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = a.flags;
	return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	struct alloc a;

	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!find(ptr, &a))
		return CUDA_ERROR_INVALID_VALUE;
	*base = a.start;
	*size = a.size;
	return CUDA_SUCCESS;
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t size)
{
	struct provider_copy arg = { .va = dst, .len = size, .buf = (uintptr_t)src };

	return call(PROVIDER_IOC_POKE, &arg);
}

API CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t size)
{
	struct provider_copy arg = { .va = src, .len = size, .buf = (uintptr_t)dst };

	return call(PROVIDER_IOC_PEEK, &arg);
}

/* CUDA's answer with GPU driver 580 (measured on an H100): no token, and the address space's. */
static CUresult tokens(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS *out)
{
	out->p2pToken = 0;
	out->vaSpaceToken = PROVIDER_VA_SPACE;
	return CUDA_SUCCESS;
}

/* One attribute of @ptr; @a: its allocation, or NULL */
static CUresult attribute_of(const struct alloc *a, CUdeviceptr ptr, CUpointer_attribute name,
			     void *data)
{
	switch (name) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = !a	  ? 0
					: a->host ? CU_MEMORYTYPE_HOST
						  : CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = a ? THE_CONTEXT : NULL;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = a ? 0 : -2;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = 0;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data = a && a->host ? (void *)(uintptr_t)ptr : NULL;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = a ? ptr : 0;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = a ? a->id : 0;
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = a ? a->sync_memops : 0;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = a ? a->start : 0;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = a ? a->size : 0;
		break;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return a && !a->host ? tokens(data) : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}

API CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
				    void **data, CUdeviceptr ptr)
{
	CUresult r = CUDA_SUCCESS;
	struct alloc a;
	bool found = find(ptr, &a);
	unsigned int i;

	for (i = 0; i < count && !r; i++)
		r = attribute_of(found ? &a : NULL, ptr, attributes[i], data[i]);
	return r;
}

API CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct alloc a;

	return find(ptr, &a) ? attribute_of(&a, ptr, attribute, data) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
				   CUdeviceptr ptr)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	struct alloc *a;

	if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	a = find_locked(ptr);
	if (a && !a->host) {
		a->sync_memops = *(const unsigned int *)value;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- calls that programs look up, and do not use with memory of cuMemAlloc ---- */

static CUresult __attribute__((used)) not_supported(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* The call @name ignores its arguments. */
#define NOT_SUPPORTED(name) __asm__(".globl " #name "\n\t.set " #name ", not_supported")

NOT_SUPPORTED(cuMemGetHandleForAddressRange);
NOT_SUPPORTED(cuMemCreate);
NOT_SUPPORTED(cuMemRelease);
NOT_SUPPORTED(cuMemAddressReserve);
NOT_SUPPORTED(cuMemMap);
NOT_SUPPORTED(cuMemSetAccess);
