/* SPDX-License-Identifier: MIT */
/* Flags and data that CPU and kernel share, and the round trips; see pplat.h. */
#include "pplat/pplat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/copytest.h"
#include "common/exit.h"
#include "pplat/ptx.h"

#define WARM_UP 10

static uint32_t *host_word(const struct pplat *p, size_t at)
{
	return (uint32_t *)(void *)(p->host + at);
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
	cuda_load_kernels(pplat_ptx, &p->module, &p->stream, "");
}

void pplat_close(struct pplat *p)
{
	cu.StreamDestroy(p->stream);
	cu.ModuleUnload(p->module);
	cu.MemFreeHost(p->host);
}

CUdeviceptr pplat_address(const struct pplat *p, int place, size_t at)
{
	return (place == GPU ? p->b.buf.mem.dptr : p->host_dptr) + at;
}

uint64_t pplat_timeout_ns(const struct pplat *p)
{
	return p->timeout_s ? (uint64_t)p->timeout_s * 1000000000u : UINT64_MAX;
}

/* Zeroes the flags in both memories; they are zero before a kernel starts. */
static void clear(struct pplat *p)
{
	memset(p->host, 0, MESSAGE_AT);
	cuda_must(cu.MemcpyHtoD(pplat_address(p, GPU, 0), p->host, MESSAGE_AT), "cuMemcpyHtoD");
	cuda_must(cu.CtxSynchronize(), "cuCtxSynchronize");
}

/* Starts a kernel of pplat_ptx. */
static void launch(struct pplat *p, const char *name, void **params)
{
	CUfunction kernel;

	cuda_must(cu.ModuleGetFunction(&kernel, p->module, name), "cuModuleGetFunction");
	cuda_must(cu.LaunchKernel(kernel, (unsigned int)p->blocks, 1, 1, (unsigned int)p->threads,
				  1, 1, 0, p->stream, params, NULL),
		  "cuLaunchKernel");
}

/* The kernel's end. `rc` if not 0; else 1 unless every block has finished `rounds` rounds. */
static int finish(struct pplat *p, int rc, uint32_t rounds)
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

/* Copies the message to where the kernel reads it; it is complete before a later ping. */
static void write_message(struct pplat *p)
{
	if (!p->size)
		return;
	if (p->data == CPU) {
		memcpy(p->host + MESSAGE_AT, p->message, p->size);
		/* the mapping may be write-combined, that is weakly ordered against this memory */
		if (p->ping == GPU)
			lib_must(barcopy_fence(p->b.buf.mh, BARCOPY_FENCE_FULL), "barcopy_fence");
		return;
	}
	lib_must(gdr_copy_to_mapping(p->b.buf.mh, p->b.buf.cpu + MESSAGE_AT, p->message, p->size),
		 "gdr_copy_to_mapping");
	if (p->ping == CPU)
		lib_must(barcopy_flush(p->b.buf.mh), "barcopy_flush");
}

static void read_answer(struct pplat *p)
{
	if (!p->size)
		return;
	if (p->data == CPU)
		memcpy(p->answer, p->host + p->answer_at, p->size);
	else
		lib_must(gdr_copy_from_mapping(p->b.buf.mh, p->answer, p->b.buf.cpu + p->answer_at,
					       p->size),
			 "gdr_copy_from_mapping");
}

/* Call before a ping that lets the kernel overwrite what was read. */
static void after_read(struct pplat *p)
{
	/* a copy from the mapping has this fence itself, and a ping in host memory is a release */
	if (p->size && p->data == CPU && p->ping == GPU)
		lib_must(barcopy_fence(p->b.buf.mh, BARCOPY_FENCE_AFTER_READ), "barcopy_fence");
}

static void set_ping(struct pplat *p, uint32_t value)
{
	if (p->ping == CPU)
		__atomic_store_n(host_word(p, PING_AT), value, __ATOMIC_RELEASE);
	else
		lib_must(barcopy_put32(p->b.buf.mh, p->b.buf.cpu + PING_AT, value),
			 "barcopy_put32");
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

/* Waits for every block's pong. If one does not come in time, ends the kernel and the tool. */
static void wait_pongs(struct pplat *p, uint32_t round)
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
			lib_must(rc, "barcopy_wait32");
		set_ping(p, PPLAT_STOP);
		cu.StreamSynchronize(p->stream);
		finished = *host_word(p, STATUS_AT + i * sizeof(uint32_t));
		tool_fail("round %u: no answer from the GPU within %ld s; its block %zu has "
			  "finished %u round%s",
			  round, p->timeout_s, i, finished, plural(finished));
	}
}

static size_t words_of(const struct pplat *p)
{
	return p->size / sizeof(uint32_t);
}

static int check_answer(struct pplat *p, uint32_t round)
{
	for (size_t i = 0; i < words_of(p); i++)
		p->message[i] += round; /* now what the answer must be */
	return copytest_compare("answer", 0, (const uint8_t *)p->message,
				(const uint8_t *)p->answer, p->size);
}

int pplat_cpu_first(struct pplat *p, struct stats *st)
{
	CUdeviceptr ping = pplat_address(p, p->ping, PING_AT);
	CUdeviceptr pong = pplat_address(p, p->pong, PONG_AT);
	CUdeviceptr status = pplat_address(p, CPU, STATUS_AT);
	CUdeviceptr message = pplat_address(p, p->data, MESSAGE_AT);
	CUdeviceptr answer = pplat_address(p, p->data, p->answer_at);
	uint32_t words = (uint32_t)words_of(p), rounds = (uint32_t)(p->rounds + WARM_UP);
	uint64_t timeout_ns = pplat_timeout_ns(p), t0, t1;
	void *params[] = { &ping, &pong, &status, &message, &answer, &words, &rounds, &timeout_ns };
	uint64_t *sample = tool_calloc((size_t)p->rounds, sizeof(*sample));
	int rc = 0;

	clear(p);
	launch(p, "gdrcopy_pplat", params);
	for (uint32_t i = 1; i <= rounds && !rc; i++) {
		if (p->size)
			copytest_random(p->message, p->size, i);
		t0 = timing_ticks();
		write_message(p);
		set_ping(p, i);
		wait_pongs(p, i);
		read_answer(p);
		t1 = timing_ticks();
		if (i > WARM_UP)
			sample[i - WARM_UP - 1] = t1 - t0;
		if (p->size)
			rc = check_answer(p, i);
	}
	if (rc)
		set_ping(p, PPLAT_STOP);
	else
		stats_compute(st, sample, (size_t)p->rounds, timing.ns_per_tick / 1000);
	free(sample);
	return finish(p, rc, rounds);
}

/* Checks every word that the kernel wrote, or the last one, which does not delay the next round. */
static int check_data(struct pplat *p, uint32_t round, bool all)
{
	size_t words = words_of(p), first = all ? 0 : words - 1, i;

	for (i = first; i < words; i++)
		p->message[i] = (uint32_t)i + round;
	return copytest_compare(
		"data", first * sizeof(uint32_t), (const uint8_t *)(p->message + first),
		(const uint8_t *)(p->answer + first), (words - first) * sizeof(uint32_t));
}

/* The kernel leaves two times a block, in ns of the GPU's clock. */
static double mean_us_of(const struct pplat *p)
{
	const uint64_t *times = (uint64_t *)(void *)(p->host + TIMES_AT);
	uint64_t from = UINT64_MAX, to = 0;

	for (long i = 0; i < 2 * p->blocks; i += 2) {
		from = times[i] < from ? times[i] : from;
		to = times[i + 1] > to ? times[i + 1] : to;
	}
	return (double)(to - from) / 1000 / (double)p->rounds;
}

int pplat_gpu_first(struct pplat *p, struct stats *st)
{
	CUdeviceptr ping = pplat_address(p, p->ping, PING_AT);
	CUdeviceptr pong = pplat_address(p, p->pong, PONG_AT);
	CUdeviceptr status = pplat_address(p, CPU, STATUS_AT);
	CUdeviceptr data = pplat_address(p, p->data, p->answer_at);
	CUdeviceptr times = pplat_address(p, CPU, TIMES_AT);
	uint32_t words = (uint32_t)words_of(p), from = WARM_UP;
	uint32_t to = from + (uint32_t)p->rounds, rounds = to + WARM_UP;
	uint64_t timeout_ns = pplat_timeout_ns(p);
	void *params[] = { &ping,  &pong,   &status, &data, &times,
			   &words, &rounds, &from,   &to,   &timeout_ns };
	int rc = 0;

	clear(p);
	launch(p, "gdrcopy_pplat_produce", params);
	for (uint32_t i = 1; i <= rounds && !rc; i++) {
		wait_pongs(p, i);
		read_answer(p);
		after_read(p);
		if (p->size)
			rc = check_data(p, i, i <= from || i > to);
		set_ping(p, rc ? PPLAT_STOP : i);
	}
	rc = finish(p, rc, rounds);
	if (!rc)
		*st = (struct stats){ .count = (size_t)p->rounds, .mean = mean_us_of(p) };
	return rc;
}
