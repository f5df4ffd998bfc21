/* SPDX-License-Identifier: MIT */
/*
 * The kernel of results.c and raii.cpp, and its messages. It is PTX, so that the programs need no nvcc.
 */
#ifndef SUM_KERNEL_H
#define SUM_KERNEL_H

#include "gpu.h"

enum { WORDS = 16 };

/* In GPU memory, written by the CPU. */
struct request {
	uint32_t number;
	char pad[124];
	uint32_t word[WORDS];
};

/* Written by the kernel: in host memory (results.c) or in GPU memory (raii.cpp). */
struct result {
	uint32_t number;
	char pad[60];
	uint64_t sum;
};

/*
 * One thread. For each request it waits for the number, adds the words, stores the sum, then the
 * number. Parameters: the request, the result, how many.
 */
static const char sum_kernel[] =
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

static inline CUfunction load_sum_kernel(void)
{
	CUfunction function;
	CUmodule module;

	gpu_begin();
	CUDA(cuModuleLoadData(&module, sum_kernel));
	CUDA(cuModuleGetFunction(&function, module, "gdrapi_example_results"));
	return function;
}

#endif
