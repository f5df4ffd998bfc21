/* SPDX-License-Identifier: MIT */
/*
 * memcpy and memset, through the stand-in's own mapping of the memory. The whole range is checked
 * before the first byte moves. Where CUDA may return early they become operations of a stream.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* Up to this size a "synchronous" copy of pageable memory may return when it is only staged. */
#define STAGED_COPY ((size_t)64 << 10)

/* The CPU address by which the current GPU reaches addr, and how far; NULL: it cannot. */
static char *reach(sim_addr addr, bool write, size_t *len, struct sim_alloc **found)
{
	struct sim_alloc *alloc = sim_find(addr);
	size_t offset;

	*found = alloc;
	if (!alloc) {
		if (sim_va_inside(addr) || !addr)
			return NULL;
		return (char *)(uintptr_t)addr; /* pageable memory; len stays */
	}
	offset = addr - alloc->base < alloc->size
			 ? (size_t)(addr - alloc->base)
			 : (size_t)(addr - (sim_addr)(uintptr_t)alloc->host);
	if (alloc->kind == SIM_VMM) {
		uint8_t access = alloc->access[sim_ctx()->dev];

		if (!(access & CU_MEM_ACCESS_FLAGS_PROT_READ) ||
		    (write && access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
			return NULL;
		if (*len > alloc->size - offset)
			*len = alloc->size - offset;
	}
	return *len <= alloc->size - offset ? alloc->cpu + offset : NULL;
}

/* Whether the whole range is accessible; pageable memory is if the call allows it. */
static bool check(sim_addr addr, size_t size, bool write, bool pageable_ok)
{
	while (size) {
		size_t len = size;
		struct sim_alloc *alloc;

		if (!reach(addr, write, &len, &alloc) || (!alloc && !pageable_ok))
			return false;
		addr += len;
		size -= len;
	}
	return true;
}

static bool synchronous_memory(sim_addr addr)
{
	struct sim_alloc *alloc = sim_find(addr);

	return alloc && (alloc->sync_memops || alloc->host);
}

/* src 0: a memset. wait: run here and now; the caller has drained the stream. */
static CUresult transfer(sim_addr dst, sim_addr src, size_t size, struct sim_op op, bool wait)
{
	CUresult r = CUDA_SUCCESS;

	while (size && r == CUDA_SUCCESS) {
		struct sim_alloc *to, *from = NULL;
		size_t len = size;

		if (src)
			op.src = reach(src, false, &len, &from);
		op.dst = reach(dst, true, &len, &to);
		op.size = len;
		op.staged = NULL;
		if (src && !from && !wait) {
			op.staged = malloc(len);
			if (!op.staged)
				return CUDA_ERROR_OUT_OF_MEMORY;
			op.src = memcpy(op.staged, op.src, len);
		}
		if (wait)
			sim_run_op(&op);
		else
			r = sim_submit(&op);
		dst += len;
		src += src ? len : 0;
		size -= len;
	}
	return r;
}

static CUresult copy(sim_addr dst, bool dst_host, sim_addr src, bool src_host, size_t size,
		     CUstream stream, bool async)
{
	struct sim_op op = { 0 };
	CUresult r = sim_stream(stream, &op.stream);
	bool wait;

	if (r != CUDA_SUCCESS)
		return r;
	if (size == 0)
		return CUDA_SUCCESS;
	/* drains before it checks the addresses, since other threads run meanwhile */
	wait = async && dst_host && !sim_find(dst); /* into pageable memory: as if synchronous */
	if (!async)
		sim_drain_context(sim_ctx());
	else if (wait)
		sim_drain_stream(op.stream);
	if (!check(dst, size, true, dst_host) || !check(src, size, false, src_host))
		return CUDA_ERROR_INVALID_VALUE;
	if (async)
		return transfer(dst, src, size, op, wait);
	if (dst_host)
		wait = true;
	else if (src_host)
		wait = sim_find(src) || size > STAGED_COPY || synchronous_memory(dst);
	else
		wait = synchronous_memory(dst) || synchronous_memory(src);
	return transfer(dst, src, size, op, wait || !sim_has_delay());
}

static CUresult set(sim_addr dst, unsigned char value, size_t count, CUstream stream, bool async)
{
	struct sim_op op = { .value = value };
	CUresult r = sim_stream(stream, &op.stream);

	if (r != CUDA_SUCCESS || count == 0)
		return r;
	if (!async)
		sim_drain_context(sim_ctx());
	if (!check(dst, count, true, false))
		return CUDA_ERROR_INVALID_VALUE;
	return transfer(dst, 0, count, op, !async && (synchronous_memory(dst) || !sim_has_delay()));
}

void *sim_reach(sim_addr addr, size_t size)
{
	struct sim_alloc *alloc;
	size_t len = size;
	char *cpu = reach(addr, true, &len, &alloc);

	return alloc && len == size ? cpu : NULL;
}

static sim_addr of(const void *ptr)
{
	return (sim_addr)(uintptr_t)ptr;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t size)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	return copy(dst, false, of(src), true, size, NULL, false);
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t size)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	return copy(of(dst), true, src, false, size, NULL, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size, CUstream stream)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	return copy(dst, false, of(src), true, size, stream, true);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	return copy(of(dst), true, src, false, size, stream, true);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	return set(dst, value, count, NULL, false);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	return set(dst, value, count, stream, true);
}
