/* SPDX-License-Identifier: MIT */
/* What CUDA knows of an address: its allocation, its buffer ID, SYNC_MEMOPS. See cuda.h. */
#include "cuda/private.h"

#include <stdio.h>

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

/*
 * Finds an address of [addr, addr + size) that CUDA knows: the first, the last, then every start
 * that an allocation can have in the first GPU page (cudaMalloc aligns to 256 bytes at least).
 */
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
 * The calling thread's context is tried first, as it is mostly the right one. If it is another
 * device's, CUDA answers NOT_FOUND, except for VMM memory to which this device has access (two
 * H200, driver 580, 2026-11-21).
 */
CUresult gdri_cuda_address_range(CUdeviceptr *base, size_t *size, uint64_t addr, void *context,
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
	CUdeviceptr start = 0, device_ptr = 0;
	uint64_t places[3];
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
	    gdri_cuda_address_range(&start, &size, m->known, m->context, m->device))
		return;
	(void)gdri_cu.cuPointerGetAttribute(&device_ptr, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
					    m->known);

	/* The start is a host or a device address, if the allocation has two. */
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

static void describe_known(struct gdri_memory *m, const struct attributes *a)
{
	CUdeviceptr base;

	m->device = a->device;
	switch (a->type) {
	case CU_MEMORYTYPE_DEVICE:
		m->kind = GDRI_MEMORY_DEVICE;
		if (gdri_cuda_address_range(&base, &m->size, m->known, m->context, m->device))
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
		snprintf(m->note, sizeof(m->note), "%s",
			 "pageable host memory, freed memory, or never an address of the GPU");
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
	if (!a.managed)
		describe_known(m, &a);
}

int gdri_cuda_device_of(uint64_t addr, size_t size)
{
	struct gdri_memory m;

	gdri_cuda_describe(addr, size, &m);
	return m.device;
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

bool gdri_cuda_has_buffer_id(uint64_t addr, uint64_t id)
{
	unsigned long long now = 0;

	return !gdri_cu.cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr) &&
	       now == id;
}
