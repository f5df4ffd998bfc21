/* SPDX-License-Identifier: MIT */
/*
 * A ring buffer from the CPU to a running kernel. It lies in GPU memory: the kernel polls its own
 * memory, and the CPU writes messages through the mapping. The CPU reads only the kernel's counter
 * of messages read, and only when the ring looks full.
 *
 *     cc ring.c -lgdrapi -lcuda -o ring && ./ring
 *
 * Order. gdr_copy_to_mapping() ends with a fence, so that the counter of barcopy_put32() arrives
 * after the message. The kernel loads the counter with acquire semantics before it loads the
 * message. NVIDIA promises no order between the BAR and a running kernel (GPUDirect RDMA guide,
 * section 11.7); on the GPUs that were tested, the writes of one CPU arrive in order.
 */
#include <cuda.h>
#include <barcopy.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 16, WORDS = 64, MESSAGES = 10000 };

/* One writer for each cache line. */
struct ring {
	uint32_t head; /* messages written, by the CPU */
	char pad1[124];
	uint32_t tail; /* messages read, by the kernel */
	char pad2[124];
	uint64_t sum; /* of all words, by the kernel at its end */
	char pad3[120];
	uint32_t slot[SLOTS][WORDS];
};

/*
 * One thread. For each message it waits for head, adds the words and publishes tail.
 * Parameters: the ring, how many messages.
 */
static const char kernel[] =
	".version 6.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry gdrapi_example_ring(.param .u64 ring, .param .u32 messages)\n"
	"{\n"
	"	.reg .pred p;\n"
	"	.reg .u32 n, head, tail, i, k, word;\n"
	"	.reg .u64 base, at, offset, wide, sum;\n"
	"	ld.param.u64 base, [ring];\n"
	"	ld.param.u32 n, [messages];\n"
	"	cvta.to.global.u64 base, base;\n"
	"	mov.u32 tail, 0;\n"
	"	mov.u64 sum, 0;\n"
	"NEXT:\n"
	"	setp.eq.u32 p, tail, n;\n"
	"	@p bra DONE;\n"
	"WAIT:\n"
	"	ld.acquire.sys.global.u32 head, [base];\n"
	"	setp.eq.u32 p, head, tail;\n"
	"	@p bra WAIT;\n"
	"	and.b32 i, tail, 15;\n"
	"	mul.wide.u32 offset, i, 256;\n"
	"	add.u64 at, base, offset;\n"
	"	mov.u32 k, 0;\n"
	"WORD:\n"
	"	ld.relaxed.sys.global.u32 word, [at+384];\n"
	"	cvt.u64.u32 wide, word;\n"
	"	add.u64 sum, sum, wide;\n"
	"	add.u64 at, at, 4;\n"
	"	add.u32 k, k, 1;\n"
	"	setp.lt.u32 p, k, 64;\n"
	"	@p bra WORD;\n"
	"	add.u32 tail, tail, 1;\n"
	"	st.release.sys.global.u32 [base+128], tail;\n"
	"	bra NEXT;\n"
	"DONE:\n"
	"	st.global.u64 [base+256], sum;\n"
	"	ret;\n"
	"}\n";

static void must(int failed, const char *what, const char *why)
{
	if (!failed)
		return;
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static void cuda(CUresult r, const char *call)
{
	const char *name = "unknown error";

	if (r)
		cuGetErrorName(r, &name);
	must(r != CUDA_SUCCESS, call, name);
}

static CUfunction load_kernel(void)
{
	CUfunction function;
	CUmodule module;
	CUcontext ctx;
	CUdevice dev;

	cuda(cuInit(0), "cuInit");
	cuda(cuDeviceGet(&dev, 0), "cuDeviceGet");
	cuda(cuDevicePrimaryCtxRetain(&ctx, dev), "cuDevicePrimaryCtxRetain");
	cuda(cuCtxSetCurrent(ctx), "cuCtxSetCurrent");
	cuda(cuModuleLoadData(&module, kernel), "cuModuleLoadData");
	cuda(cuModuleGetFunction(&function, module, "gdrapi_example_ring"), "cuModuleGetFunction");
	return function;
}

/* Writes message number n (from 0), waiting for room. Returns the sum of its words. */
static uint64_t send(gdr_mh_t mh, struct ring *ring, uint32_t n, uint32_t *seen_tail)
{
	uint32_t message[WORDS];
	uint64_t sum = 0;

	for (uint32_t i = 0; i < WORDS; i++) {
		message[i] = n * WORDS + i;
		sum += message[i];
	}
	/* A read across the link is slow: read only when the last known tail leaves no room. */
	while (n - *seen_tail == SLOTS)
		must(barcopy_get32(mh, &ring->tail, seen_tail), "barcopy_get32",
		     barcopy_last_error());
	must(gdr_copy_to_mapping(mh, ring->slot[n % SLOTS], message, sizeof(message)),
	     "gdr_copy_to_mapping", barcopy_last_error());
	must(barcopy_put32(mh, &ring->head, n + 1), "barcopy_put32", barcopy_last_error());
	return sum;
}

int main(void)
{
	uint32_t seen_tail = 0, messages = MESSAGES;
	uint64_t sum = 0, kernel_sum = 0;
	CUfunction function = load_kernel();
	struct ring *ring, empty = { 0 };
	barcopy_mem_t mem;
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);

	must(!g, "barcopy_open", barcopy_last_error());
	must(barcopy_mem_alloc(g, 0, sizeof(*ring), 0, &mem), "barcopy_mem_alloc",
	     barcopy_last_error());
	ring = mem.cpu_ptr;
	must(gdr_copy_to_mapping(mem.handle, ring, &empty, sizeof(empty)) ||
		     barcopy_flush(mem.handle),
	     "clearing the ring", barcopy_last_error());

	void *params[] = { &mem.device_ptr, &messages };

	cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), "cuLaunchKernel");
	for (uint32_t n = 0; n < MESSAGES; n++)
		sum += send(mem.handle, ring, n, &seen_tail);
	cuda(cuCtxSynchronize(), "cuCtxSynchronize");
	must(barcopy_get64(mem.handle, &ring->sum, &kernel_sum), "barcopy_get64",
	     barcopy_last_error());
	must(kernel_sum != sum, "the sums differ", "a message was lost");
	printf("%d messages of %zu bytes: the kernel has seen every word\n", MESSAGES,
	       sizeof(ring->slot[0]));
	barcopy_mem_free(g, &mem);
	gdr_close(g);
	return 0;
}
