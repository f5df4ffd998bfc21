/* SPDX-License-Identifier: MIT */
/* What CUDA knows of an address: its allocation, the tag of it, SYNC_MEMOPS. See cuda.h. */
#include "cuda/private.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The attributes that one call can ask for; unknown addresses give zeros and no error. */
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
 * The calling thread's context comes first, as it mostly is the right one. CUDA answers NOT_FOUND
 * where it is another device's, save for VMM memory that this device has access to (two H200, driver
 * 580, 2026-11-21).
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

/* Host memory: where the allocation lies, whichever of its two addresses was given. */
static void describe_host(struct gdri_memory *m, void *host_known)
{
	CUdeviceptr start = 0, device_ptr = 0;
	uint64_t places[3];
	unsigned int flags = 0;
	struct gdri_cuda_scope s;
	size_t size = 0;
	CUresult r;

	/* The flags decide on the mapping's type: not known, the memory is not served. */
	if (gdri_cuda_enter(&s, m->context, m->device))
		return;
	r = gdri_cu.cuMemHostGetFlags(&flags, host_known);
	gdri_cuda_leave(&s);
	/* INVALID_VALUE: registered memory, which is what its owner made it: cached. */
	if (r && r != CUDA_ERROR_INVALID_VALUE)
		return;
	m->write_combined = flags & CU_MEMHOSTALLOC_WRITECOMBINED;
	if (gdri_cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
					  m->known) ||
	    gdri_cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, m->known)) {
		/* Before CUDA 10.2. */
		if (gdri_cuda_address_range(&start, &size, m->known, m->context, m->device))
			return;
	}
	(void)gdri_cu.cuPointerGetAttribute(&device_ptr, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
					    m->known);

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
		snprintf(m->note, sizeof(m->note), "%s", gdri_cuda_result_name(r));
		return 0;
	}
	m->managed = a.managed;
	m->buffer_id = a.buffer_id;
	m->context = a.context;
	if (a.managed)
		return 0;
	switch (a.type) {
	case CU_MEMORYTYPE_DEVICE:
		m->kind = GDRI_MEMORY_DEVICE;
		m->device = a.device;
		if (!gdri_cuda_address_range(&base, &m->size, m->known, m->context, m->device))
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

int gdri_cuda_device_of(uint64_t addr, size_t size)
{
	struct gdri_memory m;

	return gdri_cuda_describe(addr, size, &m) ? -1 : m.device;
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

bool gdri_cuda_tag_holds(uint64_t addr, uint64_t id)
{
	unsigned long long now = 0;

	return !gdri_cu.cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr) &&
	       now == id;
}
