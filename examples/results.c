/* SPDX-License-Identifier: MIT */
/*
 * Do not read GPU memory for results: let the kernel write them into host memory. Here a running
 * kernel answers requests of the CPU. The CPU writes a request through the mapping and posts a flag
 * after it. The kernel writes its result into host memory and a flag after it, and the CPU polls
 * that flag in its own cache. Each poll of a flag in GPU memory would take a round trip of the link.
 *
 *     cc results.c -lgdrapi -lcuda -o results && ./results
 *
 * The output counts the requests whose result was right: all. The kernel is PTX, so that the program
 * needs no nvcc.
 *
 * Order. gdr_copy_to_mapping() ends with a fence, so the posted flag arrives after the request. The
 * CPU copies the next request only after it has seen this one's answer: until then the kernel may
 * still read this one. The kernel stores its flag with release semantics at system scope; the CPU
 * loads it with acquire semantics.
 */
#include "gpu.h"

enum { WORDS = 16, REQUESTS = 1000 };

/* In GPU memory, written by the CPU. */
struct request {
	uint32_t number;
	char pad[124];
	uint32_t word[WORDS];
};

/* In host memory, written by the kernel. */
struct result {
	uint32_t number;
	char pad[60];
	uint64_t sum;
};

/*
 * One thread. For each request it waits for the number, adds the words, stores the sum, then the
 * number. Parameters: the request, the result, how many.
 */
static const char kernel[] =
	".version 6.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry gdrapi_example_results(.param .u64 request, .param .u64 result,\n"
	"	.param .u32 requests)\n"
	"{\n"
	"	.reg .pred p;\n"
	"	.reg .u32 n, last, seen, k, word;\n"
	"	.reg .u64 from, to, at, wide, sum;\n"
	"	ld.param.u64 from, [request];\n"
	"	ld.param.u64 to, [result];\n"
	"	ld.param.u32 last, [requests];\n"
	"	cvta.to.global.u64 from, from;\n"
	"	cvta.to.global.u64 to, to;\n"
	"	mov.u32 n, 0;\n"
	"NEXT:\n"
	"	setp.eq.u32 p, n, last;\n"
	"	@p bra DONE;\n"
	"	add.u32 n, n, 1;\n"
	"WAIT:\n"
	"	ld.acquire.sys.global.u32 seen, [from];\n"
	"	setp.ne.u32 p, seen, n;\n"
	"	@p bra WAIT;\n"
	"	mov.u64 sum, 0;\n"
	"	mov.u64 at, from;\n"
	"	mov.u32 k, 0;\n"
	"WORD:\n"
	"	ld.relaxed.sys.global.u32 word, [at+128];\n"
	"	cvt.u64.u32 wide, word;\n"
	"	add.u64 sum, sum, wide;\n"
	"	add.u64 at, at, 4;\n"
	"	add.u32 k, k, 1;\n"
	"	setp.lt.u32 p, k, 16;\n"
	"	@p bra WORD;\n"
	"	st.relaxed.sys.global.u64 [to+64], sum;\n"
	"	st.release.sys.global.u32 [to], n;\n"
	"	bra NEXT;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

static CUfunction load_kernel(void)
{
	CUfunction function;
	CUmodule module;

	gpu_begin();
	CUDA(cuModuleLoadData(&module, kernel));
	CUDA(cuModuleGetFunction(&function, module, "gdrapi_example_results"));
	return function;
}

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
	CUfunction function = load_kernel();
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
