/* SPDX-License-Identifier: MIT */
/*
 * Self-test of libcuda's stand-in, which it is linked with: requests and their answers, as an H100
 * and an H200 with drivers 550 to 580 gave them. It leaves out what tests/gpu and the tests of the
 * library cover: bytes that arrive, refused arguments, streams, kernels, NVML.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "abi/nvml.h"
#include "common/maps.h"
#include "common/unit.h"
#include "gdrsim.h"

#define MIB	((size_t)1 << 20)
#define GRANULE (2 * MIB)

#define CU(call)	 ck_assert_int_eq(call, CUDA_SUCCESS)
#define IS(answer, call) ck_assert_int_eq(call, CUDA_ERROR_##answer)

static CUcontext context_of(int device)
{
	CUcontext ctx;

	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&ctx, device));
	CU(cuCtxSetCurrent(ctx));
	return ctx;
}

static CUdeviceptr allocated(size_t size)
{
	CUdeviceptr ptr;

	CU(cuMemAlloc_v2(&ptr, size));
	return ptr;
}

static uint64_t attribute(CUpointer_attribute which, CUdeviceptr ptr)
{
	uint64_t value = 0;

	CU(cuPointerGetAttribute(&value, which, ptr));
	return value;
}

static CUresult set_sync(CUdeviceptr ptr)
{
	return cuPointerSetAttribute(&(unsigned int){ 1 }, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr);
}

static CUresult copy_from(CUdeviceptr ptr)
{
	char byte;

	return cuMemcpyDtoH_v2(&byte, ptr, 1);
}

/* From the kernel's list: a load would alarm a memory checker. */
static bool cpu_reads(uint64_t address)
{
	return maps_at((void *)(uintptr_t)address)[0] == 'r';
}

/* ---- the driver, devices, contexts ----------------------------------------------------------- */

static int child_has_no_cuda(void *arg)
{
	CUdeviceptr ptr;

	(void)arg;
	return cuInit(0) != CUDA_ERROR_NOT_INITIALIZED ||
	       cuMemAlloc_v2(&ptr, 64) != CUDA_ERROR_NOT_INITIALIZED;
}

static void forked_child(void)
{
	context_of(0);
	ck_assert_int_eq(unit_in_child(child_has_no_cuda, NULL), 0);
	allocated(64);
}

static void contexts(void)
{
	CUcontext primary, again, made, current;
	CUdeviceptr ptr;
	CUdevice dev;

	CU(cuInit(0));
	IS(INVALID_CONTEXT, cuMemAlloc_v2(&ptr, 64));
	IS(INVALID_CONTEXT, cuCtxGetDevice(&dev));
	CU(cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuDevicePrimaryCtxRetain(&again, 0));
	ck_assert_ptr_eq(primary, again);
	CU(cuCtxPushCurrent_v2(primary));
	CU(cuCtxCreate_v2(&made, 0, 0));
	CU(cuCtxGetCurrent(&current));
	ck_assert_ptr_eq(current, made);
	ptr = allocated(64);
	CU(cuCtxPopCurrent_v2(&current));
	ck_assert_ptr_eq(current, made);
	CU(cuCtxGetCurrent(&current));
	ck_assert_ptr_eq(current, primary);
	CU(cuCtxDestroy_v2(made)); /* and its memory with it */
	IS(INVALID_VALUE, cuMemFree_v2(ptr));
	IS(INVALID_CONTEXT, cuCtxSetCurrent(made));
	CU(cuDevicePrimaryCtxRelease_v2(0));
	allocated(64);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	IS(CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&ptr, 64));
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Small ones are neighbours; a freed place is used again, with another buffer ID. */
static void small_allocations(void)
{
	CUdeviceptr a, b;
	char text[65];
	uint64_t id;

	context_of(0);
	a = allocated(64);
	b = allocated(64);
	ck_assert_uint_eq(b - a, 512);
	ck_assert(!cpu_reads(a));
	IS(INVALID_VALUE, cuMemcpyHtoD_v2(b, text, 65));
	IS(INVALID_VALUE, cuMemFree_v2(b + 8));
	id = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, b);
	CU(cuMemFree_v2(b));
	IS(INVALID_VALUE, cuMemFree_v2(b));
	IS(INVALID_VALUE, copy_from(b));
	ck_assert_uint_eq(allocated(64), b);
	ck_assert_uint_ne(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, b), id);
}

static void attributes(void)
{
	CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_HOST_POINTER,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
	uintptr_t ctx = (uintptr_t)context_of(0);
	unsigned int type = 77;
	int ordinal = 77;
	void *host = NULL, *data[] = { &type, &host, &ordinal };
	CUdeviceptr unknown = (uintptr_t)&type, ptr = allocated(3 * MIB + 5), base;
	size_t size;
	const struct {
		CUpointer_attribute which;
		uint64_t answer;
	} rows[] = {
		{ CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE },
		{ CU_POINTER_ATTRIBUTE_IS_MANAGED, 0 },
		{ CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 0 },
		{ CU_POINTER_ATTRIBUTE_CONTEXT, ctx },
		{ CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr },
		{ CU_POINTER_ATTRIBUTE_RANGE_SIZE, 3 * MIB + 5 },
		{ CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0 },
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		ck_assert_uint_eq(attribute(rows[i].which, ptr + 9), rows[i].answer);
	IS(INVALID_VALUE, cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr));
	CU(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, ptr));
	CU(set_sync(ptr));
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr), 1);
	CU(cuMemGetAddressRange_v2(&base, &size, ptr + 100));
	ck_assert_uint_eq(base, ptr);
	CU(cuMemFree_v2(ptr));
	IS(INVALID_VALUE, cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr));
	/* An address that CUDA does not know: an error for one attribute, none for several. */
	IS(INVALID_VALUE, cuPointerGetAttribute(&type, which[0], unknown));
	CU(cuPointerGetAttributes(3, which, data, unknown));
	ck_assert_uint_eq(type, 0);
	ck_assert_int_eq(ordinal, -2);
	ck_assert_ptr_eq(host, &type);
}

static void host_memory(void)
{
	char *a, *b, *wc, *mine = malloc(8192);
	unsigned int flags;
	CUdeviceptr dptr;

	context_of(0);
	CU(cuMemHostAlloc((void **)&a, 64, 0));
	CU(cuMemHostAlloc((void **)&b, 64, CU_MEMHOSTALLOC_PORTABLE));
	ck_assert_int_eq(b - a, 512);
	CU(cuMemHostGetDevicePointer_v2(&dptr, a + 8, 0));
	ck_assert_uint_eq(dptr, (uintptr_t)a + 8);
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dptr), CU_MEMORYTYPE_HOST);
	CU(cuMemHostGetFlags(&flags, b));
	ck_assert_uint_eq(flags, CU_MEMHOSTALLOC_DEVICEMAP);
	/* Write-combined memory has a device address of its own, which the CPU cannot use. */
	CU(cuMemHostAlloc((void **)&wc, 4096, CU_MEMHOSTALLOC_WRITECOMBINED));
	CU(cuMemHostGetDevicePointer_v2(&dptr, wc, 0));
	ck_assert(dptr != (uintptr_t)wc && !cpu_reads(dptr));
	CU(cuMemsetD8_v2(dptr + 5, 0x41, 1));
	ck_assert_int_eq(wc[5], 0x41);
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, dptr), (uintptr_t)wc);
	CU(cuMemFreeHost(wc));
	IS(INVALID_VALUE, copy_from(dptr));
	CU(cuMemFreeHost(a));
	IS(INVALID_VALUE, cuMemFreeHost(a));
	CU(cuMemFreeHost(b));
	ck_assert(!cpu_reads((uintptr_t)b));

	IS(HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(mine));
	CU(cuMemHostRegister_v2(mine, 8192, 0));
	IS(HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(mine + 100, 64, 0));
	CU(cuMemHostGetDevicePointer_v2(&dptr, mine, 0));
	ck_assert_uint_eq(dptr, (uintptr_t)mine);
	CU(cuMemHostUnregister(mine));
	free(mine);
}

static void managed_and_pool(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr managed, pool;

	context_of(0);
	CU(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	ck_assert(cpu_reads(managed));
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed), 1);
	CU(cuMemFree_v2(managed));
	CU(cuMemAllocAsync(&pool, 4096, NULL));
	ck_assert_uint_ne(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pool), 0);
	IS(INVALID_VALUE, cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)pool));
	CU(cuMemFreeAsync(pool, NULL));
	IS(INVALID_VALUE, cuMemFreeAsync(pool, NULL));
}

static CUresult dmabuf(int *fd, CUdeviceptr ptr, size_t size, unsigned long long flags)
{
	return cuMemGetHandleForAddressRange(fd, ptr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					     flags);
}

static void dmabufs(void)
{
	static const struct {
		size_t at, size;
		unsigned long long flags;
		CUresult answer;
	} rows[] = {
		{ 512, 4096, 0, CUDA_ERROR_INVALID_VALUE },
		{ 0, 100, 0, CUDA_ERROR_INVALID_VALUE },
		{ 0, 8 * MIB, 0, CUDA_ERROR_INVALID_VALUE },
		{ 0, 4096, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE, CUDA_ERROR_NOT_SUPPORTED },
		{ 0, 65536, 0, CUDA_SUCCESS },
		{ 65536, 131072, 0, CUDA_SUCCESS },
	};
	CUdeviceptr ptr;
	int fd;

	context_of(0);
	ptr = allocated(4 * MIB);
	for (size_t i = 0; i < COUNT(rows); i++)
		ck_assert_int_eq(dmabuf(&fd, ptr + rows[i].at, rows[i].size, rows[i].flags),
				 rows[i].answer);
	ck_assert_ptr_eq(mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
	/* Only with the context of its device. SYNC_MEMOPS needs none. */
	context_of(1);
	IS(INVALID_VALUE, dmabuf(&fd, ptr, 65536, 0));
	CU(cuCtxSetCurrent(NULL));
	IS(INVALID_CONTEXT, dmabuf(&fd, ptr, 65536, 0));
	CU(set_sync(ptr));
	CU(cuMemFree_v2(ptr));
	close(fd);
}

static unsigned long long bar1_used(void)
{
	nvmlBAR1Memory_t bar1;
	nvmlDevice_t device;
	char id[32];

	CU(nvmlInit_v2());
	CU(cuDeviceGetPCIBusId(id, sizeof(id), 0));
	CU(nvmlDeviceGetHandleByPciBusId_v2(id, &device));
	CU(nvmlDeviceGetBAR1MemoryInfo(device, &bar1));
	return bar1.bar1Used;
}

/*
 * A descriptor holds the dma-buf's memory, and so does a mapping, which also holds BAR1. The
 * buffers begin with their memory's object, and inside it.
 */
static void mapped_dmabufs(void)
{
	static const size_t starts[] = { 0, MIB };
	CUdeviceptr ptr;
	char *map;
	int fd;

	context_of(0);
	for (size_t i = 0; i < COUNT(starts); i++) {
		ptr = allocated(4 * MIB);
		CU(dmabuf(&fd, ptr + starts[i], 2 * MIB, 0));
		CU(cuMemsetD8_v2(ptr, 0x5a, 4 * MIB));
		CU(cuMemFree_v2(ptr));
		ck_assert_uint_eq(gdrsim_device_bytes(0), 4 * MIB);
		ck_assert_uint_eq(bar1_used(), 0);
		map = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		ck_assert_ptr_ne(map, MAP_FAILED);
		close(fd);
		ck_assert_uint_eq(gdrsim_device_bytes(0), 4 * MIB);
		ck_assert_int_eq(map[2 * MIB - 1], 0x5a);
		/* What else is mapped must fit beside it. */
		ptr = allocated(8 * MIB);
		CU(dmabuf(&fd, ptr + starts[i], 7 * MIB, 0));
		ck_assert_ptr_eq(mmap(NULL, 7 * MIB, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
		ck_assert_int_eq(errno, ENOMEM);
		ck_assert_uint_eq(bar1_used(), 2 * MIB);
		ck_assert_int_eq(munmap(map, 2 * MIB), 0);
		ck_assert_uint_eq(gdrsim_device_bytes(0), 8 * MIB);
		map = mmap(NULL, 7 * MIB, PROT_READ, MAP_SHARED, fd, 0);
		ck_assert_ptr_ne(map, MAP_FAILED);
		CU(cuMemFree_v2(ptr));
		close(fd);
		ck_assert_int_eq(munmap(map, 7 * MIB), 0);
		ck_assert_uint_eq(gdrsim_device_bytes(0), 0);
		ck_assert_uint_eq(bar1_used(), 0);
	}
}

/* ---- virtual memory management --------------------------------------------------------------- */

static CUmemGenericAllocationHandle created(size_t size, int handle_types)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes =
					     (CUmemAllocationHandleType)handle_types,
				     .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
	CUmemGenericAllocationHandle handle;

	CU(cuMemCreate(&handle, size, &prop, 0));
	return handle;
}

static CUresult access_by(CUmemLocationType who, CUdeviceptr ptr, size_t size)
{
	CUmemAccessDesc access = { .location.type = who,
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return cuMemSetAccess(ptr, size, &access, 1);
}

static void map(void)
{
	const struct {
		size_t at, size, offset;
		CUresult answer;
	} rows[] = {
		{ 4096, 2 * GRANULE, 0, CUDA_ERROR_INVALID_VALUE },
		{ 0, 2 * GRANULE, GRANULE, CUDA_ERROR_NOT_SUPPORTED },
		{ 0, 3 * GRANULE, 0, CUDA_ERROR_NOT_SUPPORTED },
		{ 4 * GRANULE, 2 * GRANULE, 0, CUDA_ERROR_INVALID_VALUE }, /* not reserved */
		{ 0, GRANULE, 0, CUDA_ERROR_NOT_SUPPORTED },
		{ 0, 2 * GRANULE, 0, CUDA_SUCCESS },
		{ 0, 2 * GRANULE, 0, CUDA_ERROR_INVALID_VALUE }, /* twice */
	};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;
	uint64_t id;

	context_of(0);
	handle = created(2 * GRANULE, 0);
	CU(cuMemAddressReserve(&ptr, 4 * GRANULE, 0, 0, 0));
	for (size_t i = 0; i < COUNT(rows); i++)
		ck_assert_int_eq(
			cuMemMap(ptr + rows[i].at, rows[i].size, rows[i].offset, handle, 0),
			rows[i].answer);
	IS(INVALID_VALUE, copy_from(ptr));
	IS(NOT_SUPPORTED, access_by(CU_MEM_LOCATION_TYPE_HOST, ptr, 2 * GRANULE));
	CU(access_by(CU_MEM_LOCATION_TYPE_DEVICE, ptr, 2 * GRANULE));
	CU(copy_from(ptr));
	ck_assert(!cpu_reads(ptr));
	id = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr);
	IS(INVALID_VALUE, cuMemUnmap(ptr, GRANULE));
	IS(INVALID_VALUE, cuMemAddressFree(ptr, 4 * GRANULE));
	CU(cuMemUnmap(ptr, 2 * GRANULE));
	CU(cuMemMap(ptr, 2 * GRANULE, 0, handle, 0));
	ck_assert_uint_ne(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr), id);
	CU(cuMemUnmap(ptr, 2 * GRANULE));
	CU(cuMemRelease(handle));
	CU(cuMemAddressFree(ptr, 4 * GRANULE));
}

static struct {
	const char *driver;
	int other; /* the signal of an access to another object than the first */
} first_objects[] = {
	{ "13000", SIGBUS },
	{ "13020", SIGBUS },
	{ "12090", 0 },
	{ "13030", 0 },
};

/* Three objects; a mapping begins in the first one, then in the second. */
static void first_object(void)
{
	CUdeviceptr ptr;
	char *map;
	int fd;

	setenv("GDRSIM_DRIVER_VERSION", first_objects[unit_row].driver, 1);
	context_of(0);
	CU(cuMemAddressReserve(&ptr, 3 * GRANULE, 0, 0, 0));
	for (size_t i = 0; i < 3; i++)
		CU(cuMemMap(ptr + i * GRANULE, GRANULE, 0, created(GRANULE, 0), 0));
	CU(access_by(CU_MEM_LOCATION_TYPE_DEVICE, ptr, 3 * GRANULE));
	CU(cuMemsetD8_v2(ptr, 0x5a, 3 * GRANULE));
	for (size_t from = 0; from < 2; from++) {
		CU(dmabuf(&fd, ptr, 3 * GRANULE, 0));
		map = mmap(NULL, (3 - from) * GRANULE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			   (off_t)(from * GRANULE));
		ck_assert_ptr_ne(map, MAP_FAILED);
		ck_assert_int_eq(unit_touch(map, false), from ? first_objects[unit_row].other : 0);
		ck_assert_int_eq(unit_touch(map + GRANULE, false), first_objects[unit_row].other);
		ck_assert_int_eq(unit_touch(map + GRANULE, true), first_objects[unit_row].other);
		ck_assert_int_eq(munmap(map, (3 - from) * GRANULE), 0);
		close(fd);
	}
}

static void chunks(void)
{
	CUmemGenericAllocationHandle handles[3], handle;
	CUmemAllocationProp prop;
	CUdeviceptr ptr, base;
	size_t size;

	context_of(0);
	CU(cuMemAddressReserve(&ptr, 3 * GRANULE, 0, 0, 0));
	for (size_t i = 0; i < 3; i++) {
		handles[i] = created(GRANULE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
		CU(cuMemMap(ptr + i * GRANULE, GRANULE, 0, handles[i], 0));
	}
	CU(access_by(CU_MEM_LOCATION_TYPE_DEVICE, ptr, 3 * GRANULE));
	CU(cuMemGetAddressRange_v2(&base, &size, ptr + GRANULE + 9));
	ck_assert_uint_eq(base, ptr + GRANULE);
	ck_assert_uint_eq(size, GRANULE);
	CU(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(ptr + GRANULE + 9)));
	ck_assert_uint_eq(handle, handles[1]);
	CU(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
	ck_assert_int_eq(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CU(cuMemRelease(handle));
	/* The reservation's; no context; and no SYNC_MEMOPS. */
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr), 3 * GRANULE);
	ck_assert_uint_eq(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, ptr), 0);
	IS(NOT_SUPPORTED, set_sync(ptr));
	/* Memory lives as long as a handle or a mapping. */
	for (size_t i = 0; i < 3; i++)
		CU(cuMemRelease(handles[i]));
	IS(INVALID_VALUE, cuMemRelease(handles[0]));
	ck_assert_uint_eq(gdrsim_device_bytes(0), 3 * GRANULE);
	CU(copy_from(ptr));
	CU(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr));
	ck_assert_uint_eq(handle, handles[0]);
	CU(cuMemUnmap(ptr, 3 * GRANULE));
	ck_assert_uint_eq(gdrsim_device_bytes(0), GRANULE);
	CU(cuMemRelease(handle));
	ck_assert_uint_eq(gdrsim_device_bytes(0), 0);
	IS(INVALID_VALUE, cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr));
}

/* The CPU sees the page-locked memory change without a call. */
static void delayed(void)
{
	char source[64], *host;
	CUdeviceptr ptr;
	CUstream stream;

	context_of(0);
	ptr = allocated(4096);
	CU(cuMemHostAlloc((void **)&host, 64, 0));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	memset(source, 5, sizeof(source));
	CU(cuMemcpyHtoDAsync_v2(ptr, source, sizeof(source), stream));
	memset(source, 6, sizeof(source)); /* pageable: was staged */
	CU(cuMemcpyDtoHAsync_v2(host, ptr, 64, stream));
	IS(NOT_READY, cuStreamQuery(stream));
	CU(cuStreamSynchronize(stream));
	ck_assert_int_eq(host[63], 5);
	CU(cuStreamQuery(stream));
	/* A memset returns early until SYNC_MEMOPS is set; setting it waits for nothing (H100). */
	CU(cuMemsetD8_v2(ptr, 9, 64));
	IS(NOT_READY, cuStreamQuery(NULL));
	CU(set_sync(ptr));
	IS(NOT_READY, cuStreamQuery(NULL));
	CU(cuMemsetD8_v2(ptr, 10, 64));
	CU(cuStreamQuery(NULL));
	CU(cuMemcpyDtoH_v2(source, ptr, 1));
	ck_assert_int_eq(source[0], 10);
	CU(cuMemsetD8Async(ptr, 11, 64, stream));
	CU(cuMemFree_v2(ptr)); /* waits */
	CU(cuStreamQuery(stream));
}

/* What cuThreadExchangeStreamCaptureMode() and cuStreamIsCapturing() are documented to do. */
static void captures(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstreamCaptureStatus status;
	CUdeviceptr ptr;
	CUstream stream;
	CUgraph graph;

	context_of(0);
	ptr = allocated(64);
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	IS(ILLEGAL_STATE, cuStreamEndCapture(stream, &graph));
	IS(STREAM_CAPTURE_UNSUPPORTED,
	   cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	/* recorded, not run */
	CU(cuMemsetD8_v2(ptr, 1, 64));
	CU(cuMemsetD8Async(ptr, 2, 64, stream));
	CU(cuStreamQuery(NULL)); /* the captured stream is not a blocking one */
	CU(cuStreamQuery(CU_STREAM_PER_THREAD));
	CU(cuStreamIsCapturing(stream, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	/* what is unsafe only by the thread's mode */
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	allocated(64);
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphDestroy(graph));
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	IS(STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&ptr, 64));
	IS(STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(ptr, 2, 64, stream));
	IS(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
	/* a question about a stream that captures, in every mode */
	CU(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
	allocated(64);
	IS(STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
	CU(cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	IS(STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(CU_STREAM_PER_THREAD));
	IS(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
	CU(cuStreamQuery(CU_STREAM_PER_THREAD));
}

static const struct unit_test tests[] = {
	{ "a forked child", forked_child, "" },
	{ "contexts", contexts, "" },
	{ "small allocations", small_allocations, "" },
	{ "attributes", attributes, "" },
	{ "host memory", host_memory, "" },
	{ "managed memory, pools", managed_and_pool, "" },
	{ "dma-bufs", dmabufs, "GDRSIM_DEVICES=2" },
	{ "mapped dma-bufs", mapped_dmabufs, "GDRSIM_DMABUF_MMAP=1 GDRSIM_BAR1_MIB=8" },
	{ "a mapping of the first object", first_object, "GDRSIM_DMABUF_MMAP=1",
	  .rows = COUNT(first_objects) },
	{ "VMM: map", map, "" },
	{ "VMM: chunks", chunks, "" },
	{ "captures", captures, "" },
	{ "what is asynchronous", delayed, "GDRSIM_ASYNC_DELAY_US=200000" },
};

UNIT_MAIN("sim", tests)
