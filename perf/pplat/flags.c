/* SPDX-License-Identifier: MIT */
/* Flags and data that CPU and kernel share; see flags.h. */
#include "pplat/flags.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "common/timing.h"
#include "pplat/ptx.h"

void pplat_check(int rc, const char *call)
{
	if (!rc)
		return;
	progress_clear();
	tool_fail("%s: %s", call, lib_error_text(rc));
}

static uint32_t *host_word(const struct pplat *p, size_t at)
{
	return (uint32_t *)(void *)(p->host + at);
}

static void load_kernels(struct pplat *p)
{
	CUresult rc;

	if (!cu.ModuleLoadData || !cu.ModuleUnload || !cu.ModuleGetFunction || !cu.LaunchKernel ||
	    !cu.StreamCreate || !cu.StreamDestroy || !cu.StreamSynchronize || !cu.StreamQuery)
		tool_cannot("%s cannot run kernels; a newer NVIDIA driver is needed",
			    cuda_dl_path());
	rc = cu.ModuleLoadData(&p->module, pplat_ptx);
	if (rc != CUDA_SUCCESS)
		tool_cannot(
			"the driver refuses the kernels: cuModuleLoadData: %s; they need a GPU of "
			"compute capability 5.0 or newer",
			cuda_error_text(rc));
	cuda_must(cu.StreamCreate(&p->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

void pplat_open(struct pplat *p)
{
	/* never empty: the kernel gets its address */
	size_t area = (p->size / 4096 + 1) * 4096, whole;
	void *host;

	p->answer_at = MESSAGE_AT + area;
	whole = p->answer_at + area;
	bench_start(&p->b, whole);
	cuda_must(
		cu.MemHostAlloc(&host, whole, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
		"cuMemHostAlloc");
	p->host = host;
	cuda_must(cu.MemHostGetDevicePointer(&p->host_dptr, host, 0), "cuMemHostGetDevicePointer");
	p->message = tool_alloc_pages(p->size);
	p->answer = tool_alloc_pages(p->size);
	load_kernels(p);
}

void pplat_close(struct pplat *p)
{
	cu.StreamDestroy(p->stream);
	cu.ModuleUnload(p->module);
	cu.MemFreeHost(p->host);
	free(p->message);
	free(p->answer);
	bench_stop(&p->b);
}

CUdeviceptr pplat_address(const struct pplat *p, int place, size_t at)
{
	return (place == GPU ? p->b.buf.mem.dptr : p->host_dptr) + at;
}

uint64_t pplat_timeout_ns(const struct pplat *p)
{
	return p->timeout_s ? (uint64_t)p->timeout_s * 1000000000u : UINT64_MAX;
}

void pplat_clear(struct pplat *p)
{
	memset(p->host, 0, MESSAGE_AT);
	cuda_must(cu.MemcpyHtoD(pplat_address(p, GPU, 0), p->host, MESSAGE_AT), "cuMemcpyHtoD");
	cuda_must(cu.CtxSynchronize(), "cuCtxSynchronize");
}

void pplat_launch(struct pplat *p, const char *name, void **params)
{
	CUfunction kernel;

	cuda_must(cu.ModuleGetFunction(&kernel, p->module, name), "cuModuleGetFunction");
	cuda_must(cu.LaunchKernel(kernel, (unsigned int)p->blocks, 1, 1, (unsigned int)p->threads,
				  1, 1, 0, p->stream, params, NULL),
		  "cuLaunchKernel");
}

int pplat_finish(struct pplat *p, int rc, uint32_t rounds)
{
	const volatile uint32_t *status = host_word(p, STATUS_AT);

	cuda_must(cu.StreamSynchronize(p->stream), "the kernel: cuStreamSynchronize");
	for (long i = 0; i < p->blocks && !rc; i++) {
		if (status[i] != rounds) {
			tool_note("block %ld of the kernel counted %u round%s, not %u", i,
				  status[i], plural(status[i]), rounds);
			rc = 1;
		}
	}
	return rc;
}

void pplat_write_message(struct pplat *p)
{
	if (!p->size)
		return;
	if (p->data == CPU) {
		memcpy(p->host + MESSAGE_AT, p->message, p->size);
		/* the mapping may be write-combined, that is weakly ordered against this memory */
		if (p->ping == GPU)
			pplat_check(barcopy_fence(p->b.buf.mh, BARCOPY_FENCE_FULL), "barcopy_fence");
		return;
	}
	pplat_check(gdr_copy_to_mapping(p->b.buf.mh, p->b.buf.cpu + MESSAGE_AT, p->message, p->size),
	      "gdr_copy_to_mapping");
	if (p->ping == CPU)
		pplat_check(barcopy_flush(p->b.buf.mh), "barcopy_flush");
}

void pplat_read_answer(struct pplat *p)
{
	if (!p->size)
		return;
	if (p->data == CPU)
		memcpy(p->answer, p->host + p->answer_at, p->size);
	else
		pplat_check(gdr_copy_from_mapping(p->b.buf.mh, p->answer, p->b.buf.cpu + p->answer_at,
					    p->size),
		      "gdr_copy_from_mapping");
}

void pplat_after_read(struct pplat *p)
{
	/* a copy from the mapping has this fence itself, and a ping in host memory is a release */
	if (p->size && p->data == CPU && p->ping == GPU)
		pplat_check(barcopy_fence(p->b.buf.mh, BARCOPY_FENCE_AFTER_READ), "barcopy_fence");
}

void pplat_set_ping(struct pplat *p, uint32_t value)
{
	if (p->ping == CPU)
		__atomic_store_n(host_word(p, PING_AT), value, __ATOMIC_RELEASE);
	else
		pplat_check(barcopy_put32(p->b.buf.mh, p->b.buf.cpu + PING_AT, value), "barcopy_put32");
}

/* Returns 0 when the word has the value, 1 after the timeout. */
static int wait_host_word(const uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
	uint64_t start = clock_raw_ns();

	/* reads the clock once in 1000 polls, so that it does not slow them */
	do {
		for (int i = 0; i < 1000; i++)
			if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
				return 0;
	} while (clock_raw_ns() - start < timeout_ns);
	return 1;
}

void pplat_wait_pongs(struct pplat *p, uint32_t round)
{
	uint64_t timeout_ns = pplat_timeout_ns(p);

	for (size_t i = 0; i < (size_t)p->blocks; i++) {
		size_t at = PONG_AT + i * sizeof(uint32_t);
		uint32_t finished;
		int rc;

		if (p->pong == GPU)
			rc = barcopy_wait32(p->b.buf.mh, p->b.buf.cpu + at, BARCOPY_CMP_EQ, round,
					    timeout_ns);
		else
			rc = wait_host_word(host_word(p, at), round, timeout_ns);
		if (!rc)
			continue;
		if (p->pong == GPU && rc != ETIMEDOUT)
			pplat_check(rc, "barcopy_wait32");
		progress_clear();
		pplat_set_ping(p, PPLAT_STOP);
		cu.StreamSynchronize(p->stream);
		finished = *host_word(p, STATUS_AT + i * sizeof(uint32_t));
		tool_fail("round %u: no answer from the GPU within %ld s; its block %zu has "
			  "finished %u round%s",
			  round, p->timeout_s, i, finished, plural(finished));
	}
}

uint64_t pplat_time(const struct pplat *p, long block, int which)
{
	uint64_t t;

	memcpy(&t, p->host + TIMES_AT + (size_t)block * 16 + (size_t)which * 8, sizeof(t));
	return t;
}
