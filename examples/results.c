/* SPDX-License-Identifier: MIT */
/*
 * Do not read GPU memory for results: let the kernel write them into host memory. Here a running
 * kernel answers requests of the CPU. The CPU writes a request through the mapping and posts a flag
 * after it. The kernel writes its result into host memory and a flag after it, and the CPU polls
 * that flag in its own cache. Each poll of a flag in GPU memory would take a round trip of the link.
 *
 *     cc -I/usr/local/cuda/include results.c -lgdrapi -lcuda -o results && ./results
 *
 * The output counts the requests whose result was right: all. The kernel is PTX, so that the program
 * needs no nvcc.
 *
 * Order. gdr_copy_to_mapping() ends with a fence, so the posted flag arrives after the request. The
 * CPU copies the next request only after it has seen this one's answer: until then the kernel may
 * still read this one. The kernel stores its flag with release semantics at system scope; the CPU
 * loads it with acquire semantics.
 */
#include "sum_kernel.h"

enum { REQUESTS = 1000 };

/* Sends request number n (from 1) and waits for its result. */
static void ask(gdr_mh_t mh, struct request *request, struct result *result, uint32_t n)
{
	uint32_t word[WORDS];
	uint64_t sum = 0;

	for (uint32_t i = 0; i < WORDS; i++) {
		word[i] = n * WORDS + i;
		sum += word[i];
	}
	GDR(gdr_copy_to_mapping(mh, request->word, word, sizeof(word)));
	GDR(barcopy_post32(mh, &request->number, n));
	while (__atomic_load_n(&result->number, __ATOMIC_ACQUIRE) != n)
		;
	if (result->sum != sum)
		fail("a request", "its sum is wrong: the flag arrived before the result");
}

int main(void)
{
	CUfunction function = load_sum_kernel();
	struct request empty = { 0 };
	uint32_t requests = REQUESTS;
	CUdeviceptr result_device;
	struct result *result;
	barcopy_mem_t mem;
	void *host;
	gdr_t g = open_any();

	GDR(barcopy_mem_alloc(g, 0, sizeof(struct request), 0, &mem));
	GDR(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, &empty, sizeof(empty)));
	GDR(barcopy_flush(mem.handle));
	CUDA(cuMemHostAlloc(&host, sizeof(*result),
			    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	/* the same for CPU and GPU: unified addressing */
	result_device = (CUdeviceptr)(uintptr_t)host;
	result = host;
	result->number = 0;

	void *params[] = { &mem.device_ptr, &result_device, &requests };

	CUDA(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	for (uint32_t n = 1; n <= REQUESTS; n++)
		ask(mem.handle, mem.cpu_ptr, result, n);
	CUDA(cuCtxSynchronize());
	printf("%d requests were answered right, without a read of GPU memory\n", REQUESTS);
	CUDA(cuMemFreeHost(host));
	barcopy_mem_free(g, &mem);
	gdr_close(g);
	return 0;
}
