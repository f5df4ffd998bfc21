// SPDX-License-Identifier: MIT
/* The program's allocations, and the GPU's side of their bytes. */
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

void fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i % 29 ? p[i] * 3 + i
					: (unsigned int)(unit_random(&w.random) >> 33));
}

void mem_put(struct mem *m)
{
	if (--m->refs)
		return;
	free(m->bytes);
	free(m);
}

/* Also the library's own, while its first owner has it. */
struct mem *any_mem(void)
{
	unsigned int i = below(MEMS + VIEWS / 4);
	struct view *own = i < MEMS ? NULL : any_view(OWN);

	if (own)
		return own->mem->freed ? NULL : own->mem;
	return i < MEMS ? w.mem[i] : NULL;
}

static void gpu_copy(const struct mem *m, bool to_gpu, uint8_t *host, size_t off, size_t n)
{
	if (m->kind == HOST) {
		memcpy(to_gpu ? m->host + off : host, to_gpu ? host : m->host + off, n);
		return;
	}
	CU(cuda.cuCtxSetCurrent(w.primary[m->device]));
	if (to_gpu)
		standin_to_gpu(m->at + off, host, n);
	else
		CU(cuda.cuMemcpyDtoH_v2(host, m->at + off, n));
	CU(cuda.cuCtxSetCurrent(w.current));
}

void gpu_write(struct mem *m, size_t off, size_t n)
{
	if (m->freed)
		return;
	fill(m->bytes + off, n);
	gpu_copy(m, true, m->bytes + off, off, n);
}

void gpu_check(const struct mem *m, size_t off, size_t n)
{
	static uint8_t seen[1 << 16];

	for (size_t part; n && !m->freed; off += part, n -= part) {
		part = n < sizeof(seen) ? n : sizeof(seen);
		gpu_copy(m, false, seen, off, part);
		MUST(!memcmp(seen, m->bytes + off, part), "the GPU has other bytes at 0x%zx", off);
	}
}

void gpu_check_some(const struct mem *m)
{
	size_t n = m->size < 65536 ? m->size : 65536;

	gpu_check(m, below((unsigned int)(m->size - n + 1)), n);
}

void read_all(struct mem *m)
{
	m->bytes = calloc(1, m->size);
	if (m->kind != CHUNKED || w.machine->gpu) /* the stand-in's begin as zeroes */
		gpu_copy(m, false, m->bytes, 0, m->size);
}

gdr_mapping_type_t device_type(void)
{
	return standin_device_bar1() ? GDR_MAPPING_TYPE_DEVICE : GDR_MAPPING_TYPE_WC;
}

void step_alloc(void)
{
	static const size_t sizes[] = { 8, 300, 4096, 30000, 65536, 100000, 1 << 20 };
	struct mem **slot = &w.mem[below(MEMS)], *m;
	unsigned int kind = below(w.machine->host ? 3 : 2), n = 1 + below(2);
	size_t size = sizes[below(COUNT(sizes))] + 8 * below(9);
	bool odd = below(2), by_device_pointer = below(2), registered = once_in(3);
	CUdeviceptr at;

	if (*slot)
		return;
	m = *slot = calloc(1, sizeof(*m));
	m->kind = w.machine->backend == BARCOPY_BACKEND_HOST ? HOST : kind;
	m->device = (int)below((unsigned int)w.machine->devices);
	m->size = m->kind == CHUNKED ? n * (size_t)CHUNK : size;
	CU(cuda.cuCtxSetCurrent(w.primary[m->device]));
	/* Registered memory that shares a page with other such memory is refused by a GPU's driver. */
	m->registered = m->kind == HOST && registered && !w.machine->gpu;
	m->type = m->kind != HOST	  ? device_type()
		  : odd && !m->registered ? GDR_MAPPING_TYPE_WC
					  : GDR_MAPPING_TYPE_CACHING;
	if (m->kind == HOST) {
		if (m->registered) {
			m->host = (uint8_t *)malloc(size + 8) + 8;
			CU(cuda.cuMemHostRegister_v2(m->host, size, 0));
		} else {
			m->host = standin_host_alloc(size, odd ? CU_MEMHOSTALLOC_WRITECOMBINED : 0);
		}
		CU(cuda.cuMemHostGetDevicePointer_v2(&at, m->host, 0));
		m->at = by_device_pointer ? at : (uintptr_t)m->host;
	} else if (m->kind == CHUNKED) {
		m->at = standin_chunks(0, m->device, n, CHUNK,
				       (odd ? 0 : STANDIN_EXPORTABLE) | STANDIN_RDMA);
	} else {
		m->at = standin_alloc(size);
	}
	CU(cuda.cuCtxSetCurrent(w.current));
	m->refs = 1;
	read_all(m);
	gpu_write(m, 0, m->size < 64 ? m->size : 64);
	say("mem %td: %zu bytes of kind %d at 0x%lx", slot - w.mem, m->size, m->kind, m->at);
}

static void free_in(struct mem **slot)
{
	struct mem *m = *slot;

	gpu_check_some(m);
	caches_forget(m);
	CU(cuda.cuCtxSetCurrent(w.primary[m->device]));
	if (m->registered) {
		CU(cuda.cuMemHostUnregister(m->host));
		free(m->host - 8);
	} else if (m->kind == HOST)
		CU(cuda.cuMemFreeHost(m->host));
	else if (m->kind == CHUNKED)
		vmm_delete(m->at, (unsigned int)(m->size / CHUNK));
	else
		CU(cuda.cuMemFree_v2(m->at));
	CU(cuda.cuCtxSetCurrent(w.current));
	m->freed = true;
	mem_put(m);
	*slot = NULL;
}

/*
 * Now and then while views of it are in use: their pages stay as they are, except host memory, and
 * small allocations of a GPU, of which others get the space.
 */
void step_free(void)
{
	struct mem **slot = &w.mem[below(MEMS)];
	bool anyway = once_in(4), stays;

	if (!*slot)
		return;
	stays = (*slot)->kind == CHUNKED || ((*slot)->kind == PLAIN && !w.machine->gpu);
	if ((*slot)->refs > 1 && !(stays && anyway))
		return;
	say("free mem %td, %u views", slot - w.mem, (*slot)->refs - 1);
	free_in(slot);
}

void free_all(void)
{
	for (int i = 0; i < MEMS; i++)
		if (w.mem[i])
			free_in(&w.mem[i]);
}
