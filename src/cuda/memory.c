/* SPDX-License-Identifier: MIT */
/* The program's memory: what CUDA knows of it, SYNC_MEMOPS, exports. See cuda.h. */
#include "cuda/private.h"
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The attributes that one call can ask for; an unknown address gives zeros and no error. */
struct attributes {
	unsigned int type, managed;
	int device;
	void *context, *host_ptr;
	unsigned long long buffer_id;
};

static CUresult ask(uint64_t addr, struct attributes *a)
{
	CUpointer_attribute names[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
		CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_BUFFER_ID
	};
	void *values[] = { &a->type,	&a->managed,  &a->device,
			   &a->context, &a->host_ptr, &a->buffer_id };

	*a = (struct attributes){ .device = -1 };
	return gdri_cu.cuPointerGetAttributes(sizeof(names) / sizeof(names[0]), names, values,
					      addr);
}

/* An address that CUDA knows: the first, the last, then each possible start in the first page. */
static CUresult ask_range(uint64_t addr, size_t size, uint64_t *known, struct attributes *a)
{
	uint64_t end = addr + size, next = (addr | 255) + 1;
	CUresult r;

	*known = addr;
	r = ask(addr, a);
	if (!r && !a->type) {
		*known = end - 1;
		r = ask(*known, a);
	}
	for (; !r && !a->type && next < end && next - addr < 65536; next += 256) {
		*known = next;
		r = ask(next, a);
	}
	return r;
}

/*
 * The calling thread's context first, as mostly the right one. Another device's gives NOT_FOUND,
 * except for VMM memory to which this device has access (two H200, driver 580, 2026-11-21).
 */
static CUresult address_range(CUdeviceptr *base, size_t *size, uint64_t addr, void *context,
			      int device)
{
	CUresult r = gdri_cu.cuMemGetAddressRange_v2(base, size, addr);
	struct gdri_cuda_scope s;

	if ((r != CUDA_ERROR_INVALID_CONTEXT && r != CUDA_ERROR_NOT_FOUND) ||
	    gdri_cuda_enter(&s, context, device))
		return r;
	r = gdri_cu.cuMemGetAddressRange_v2(base, size, addr);
	gdri_cuda_leave(&s);
	return r;
}

/* Where host memory lies, by either of its addresses; m->size remains 0 where that is unknown. */
static void describe_host(struct gdri_memory *m, void *host_known)
{
	CUdeviceptr start = 0, device_ptr = m->known;
	unsigned int flags = 0;
	struct gdri_cuda_scope s;
	size_t size = 0;
	CUresult r;

	/* The flags decide on the mapping's type: without them the memory is not served. */
	if (gdri_cuda_enter(&s, m->context, m->device))
		return;
	r = gdri_cu.cuMemHostGetFlags(&flags, host_known);
	gdri_cuda_leave(&s);
	/* INVALID_VALUE: registered memory, which is cached. */
	if (r && r != CUDA_ERROR_INVALID_VALUE)
		return;
	m->write_combined = flags & CU_MEMHOSTALLOC_WRITECOMBINED;
	if ((gdri_cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
					   m->known) ||
	     gdri_cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, m->known)) &&
	    /* Before CUDA 10.2. */
	    address_range(&start, &size, m->known, m->context, m->device))
		return;
	(void)gdri_cu.cuPointerGetAttribute(&device_ptr, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
					    m->known);

	/* The start is a host or a device address, if the allocation has two. */
	const uint64_t places[] = { (uintptr_t)host_known, device_ptr };

	for (int i = 0; i < 2; i++)
		if (places[i] >= start && places[i] - start < size) {
			m->base = m->known - (places[i] - start);
			m->host_ptr = (char *)host_known - (places[i] - start);
			m->size = size;
			return;
		}
}

static void describe_known(struct gdri_memory *m, const struct attributes *a)
{
	CUdeviceptr base;

	m->device = a->device;
	switch (a->type) {
	case CU_MEMORYTYPE_DEVICE:
		m->kind = GDRI_MEMORY_DEVICE;
		if (address_range(&base, &m->size, m->known, m->context, m->device))
			m->size = 0;
		else
			m->base = base;
		break;
	case CU_MEMORYTYPE_HOST:
		m->kind = GDRI_MEMORY_HOST;
		if (a->host_ptr)
			describe_host(m, a->host_ptr);
		break;
	default:
		m->device = -1;
		m->absent = true;
		strcpy(m->note, "pageable host memory, freed memory, or no address of the GPU");
	}
}

void gdri_cuda_describe(uint64_t addr, size_t size, struct gdri_memory *m)
{
	struct attributes a;
	CUresult r;

	*m = (struct gdri_memory){ .device = -1, .known = addr };
	if (gdri_cuda_load()) {
		snprintf(m->note, sizeof(m->note), "%.90s", gdri_error_text());
		return;
	}
	r = ask_range(addr, size, &m->known, &a);
	if (r) {
		snprintf(m->note, sizeof(m->note), "%s", gdri_cuda_result_name(r));
		return;
	}
	m->managed = a.managed;
	m->buffer_id = a.buffer_id;
	m->context = a.context;
	if (a.managed)
		m->device = a.device;
	else
		describe_known(m, &a);
}

int gdri_cuda_device_of(uint64_t addr, size_t size)
{
	struct gdri_memory m;

	gdri_cuda_describe(addr, size, &m);
	return m.device;
}

bool gdri_cuda_is_rdma_capable(uint64_t addr)
{
	unsigned int capable = 1;

	return gdri_cu.cuPointerGetAttribute(
		       &capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, addr) ||
	       capable;
}

bool gdri_cuda_sync_memops(const struct gdri_memory *m)
{
	struct gdri_cuda_scope s;
	unsigned int on = 1;
	CUresult r;

	if (m->kind == GDRI_MEMORY_HOST)
		return true;
	if (m->kind != GDRI_MEMORY_DEVICE || gdri_cuda_enter(&s, m->context, m->device))
		return false;
	r = gdri_cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, m->known);
	gdri_cuda_leave(&s);
	return !r;
}

uint64_t gdri_cuda_buffer_id(uint64_t addr)
{
	unsigned long long id = 0;

	return gdri_cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr) ? 0 : id;
}

bool gdri_cuda_has_buffer_id(uint64_t addr, uint64_t id)
{
	unsigned long long now = 0;

	return !gdri_cu.cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr) &&
	       now == id;
}

/* ---- descriptors: a dma-buf of a range, or an exported VMM chunk ----------------------------- */

enum { NEEDED_DESCRIPTORS = 4 }; /* libcuda may need more than the one that it returns */

static int take_descriptor(CUresult r, const char *call, int made, int *fd)
{
	int probes[NEEDED_DESCRIPTORS], n = 0, err = 0;

	if (!r) {
		(void)fcntl(made, F_SETFD, FD_CLOEXEC);
		*fd = made;
		return 0;
	}
	/* CUDA has one result for a lack of descriptors and other failures of the system. */
	while (!err && n < NEEDED_DESCRIPTORS) {
		probes[n] = gdri_fork_open("/", O_PATH);
		if (probes[n] < 0)
			err = errno;
		else
			n++;
	}
	while (n)
		gdri_fork_close(probes[--n]);
	if (err == EMFILE || err == ENFILE)
		return gdri_fail(err, "%s: %s", call, strerror(err));
	return gdri_cuda_result(r, call);
}

int gdri_cuda_dmabuf(const struct gdri_memory *m, uint64_t addr, size_t size, bool pcie, int *fd)
{
	struct gdri_cuda_scope s;
	int rc, made = -1;
	CUresult r;

	/* Checked first: to enter a context may create one. */
	if (!gdri_cu.cuMemGetHandleForAddressRange)
		return gdri_fail(ENOTSUP, "this CUDA driver has no cuMemGetHandleForAddressRange");
	rc = gdri_cuda_enter(&s, m->context, m->device);
	if (rc)
		return rc;
	r = gdri_cu.cuMemGetHandleForAddressRange(
		&made, addr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
		pcie ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0);
	gdri_cuda_leave(&s);
	return take_descriptor(r, "cuMemGetHandleForAddressRange", made, fd);
}

/* Fails if the chunk is on another device or cannot be exported; finds its bounds. */
static int check_chunk(CUmemGenericAllocationHandle handle, uint64_t addr, int device,
		       CUdeviceptr *base, size_t *size)
{
	CUmemAllocationProp prop;
	int rc = GDRI_CU(cuMemGetAllocationPropertiesFromHandle, &prop, handle);

	if (rc)
		return rc;
	if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return gdri_fail(ENOTSUP, "memory of cuMemCreate that is not on a device");
	if (device >= 0 && prop.location.id != device)
		return gdri_fail(EINVAL,
				 "the range has memory of GPU %d and of GPU %d: pin the memory of "
				 "each by itself",
				 prop.location.id, device);
	if (!(prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return gdri_fail(ENOTSUP,
				 "the memory was created without the handle type "
				 "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, or it is imported "
				 "(barcopy_mem_import() maps that)");
	rc = gdri_cuda_result(address_range(base, size, addr, NULL, prop.location.id),
			      "cuMemGetAddressRange");
	if (!rc && addr - *base >= *size)
		rc = gdri_fail(EINVAL, "cuMemGetAddressRange returned a range without the address");
	return rc;
}

int gdri_cuda_export_chunk(uint64_t addr, int device, uint64_t *base, size_t *size, int *fd)
{
	CUmemGenericAllocationHandle handle;
	struct gdri_first first = { 0 };
	CUdeviceptr start;
	size_t length;
	int rc, made = -1, taken = -1;
	CUresult r;

	if (!gdri_cu.cuMemRetainAllocationHandle)
		return gdri_fail(ENOTSUP, "this CUDA driver has no cuMemRetainAllocationHandle");
	r = gdri_cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)addr);
	if (r == CUDA_ERROR_INVALID_VALUE)
		return gdri_fail(ENOTSUP, "not memory of cuMemCreate (cudaMalloc memory cannot be "
					  "imported)");
	if (r)
		return gdri_cuda_result(r, "cuMemRetainAllocationHandle");
	rc = check_chunk(handle, addr, device, &start, &length);
	if (!rc) {
		r = gdri_cu.cuMemExportToShareableHandle(
			&made, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		rc = take_descriptor(r, "cuMemExportToShareableHandle", made, &taken);
	}
	gdri_first_note(&first, rc);
	gdri_first_note(&first, gdri_cuda_release(handle));
	if (!first.rc) {
		*base = start;
		*size = length;
		*fd = taken;
	} else if (!rc) {
		close(taken);
	}
	return gdri_first_failure(&first);
}
