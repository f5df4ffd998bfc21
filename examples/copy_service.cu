/* SPDX-License-Identifier: MIT */
/*
 * A kernel of many warps behind one queue: the first warp takes and puts, all warps do the
 * work. Here the work is a copy between GPU memory and page-locked memory.
 *
 *     nvcc -arch=sm_75 copy_service.cu -lgdrapi -o copy_service && ./copy_service
 *
 * The CPU writes a buffer again only after the reply: until then the kernel may still use it.
 *
 * The output counts the copies that were right, each compared in every byte: all, both ways.
 */
#include <barcopy_queue.cuh>
#include "must.h"

enum { SIZE = 65536, ROUNDS = 2000, THREADS = 1024 };

static const uint64_t LIMIT = 5000000000; /* ns */

/* A message: copy `size` bytes, a multiple of 16. The reply is its first word. */
struct job {
	unsigned long long to, from, size;
};

__global__ void serve(barcopy_queue_view_t view)
{
	__shared__ alignas(8) unsigned words[12];
	__shared__ unsigned got;
	const job *j = (const job *)words;
	unsigned data[3], size;
	barcopy_warp_t q;

	if (threadIdx.x < 32 && !barcopy_warp_begin(&q, view))
		__trap(); /* a library with another layout */
	for (;;) {
		if (threadIdx.x < 32) {
			/* one at a time: the CPU waits for each reply */
			unsigned n = barcopy_warp_take(&q, data, &size, BARCOPY_WARP_ORDERED);

			for (unsigned k = 0; k < 3 && threadIdx.x < 4; k++)
				words[threadIdx.x * 3 + k] = data[k];
			if (threadIdx.x == 0)
				got = n;
		}
		__syncthreads();
		if (!got)
			break;
		for (unsigned i = threadIdx.x; i < j->size / 16; i += THREADS)
			((int4 *)j->to)[i] = __ldcv((const int4 *)j->from + i);
		__syncthreads(); /* orders all threads' stores before the fence in the put */
		if (threadIdx.x < 32)
			barcopy_warp_put(&q, 1, data, 8, BARCOPY_WARP_ORDERED);
		__syncthreads();
	}
	if (threadIdx.x < 32)
		barcopy_warp_end(&q);
}

static void copy(barcopy_queue_t queue, uint64_t to, uint64_t from)
{
	job j = { to, from, SIZE };
	uint64_t done;

	/* Ordered: the kernel reads what this thread has stored before. */
	GDR(barcopy_queue_send(queue, &j, sizeof(j), BARCOPY_QUEUE_ORDERED, LIMIT));
	GDR(barcopy_queue_receive(queue, &done, sizeof(done), nullptr, LIMIT));
}

int main()
{
	static unsigned char want[SIZE], got[SIZE];
	barcopy_queue_view_t view;
	barcopy_queue_t queue;
	cudaStream_t stream;
	unsigned char *host;
	barcopy_mem_t mem;
	int right = 0;
	gdr_t g;

	CUDA(cudaHostAlloc(&host, SIZE, cudaHostAllocMapped));
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	g = open_any();
	GDR(barcopy_mem_alloc(g, 0, SIZE, 0, &mem));
	GDR(barcopy_queue_create(g, 0, nullptr, &queue));
	GDR(barcopy_queue_get_view(queue, &view));
	serve<<<1, THREADS, 0, stream>>>(view);
	CUDA(cudaGetLastError());
	for (int n = 0; n < ROUNDS; n++) {
		for (int i = 0; i < SIZE; i++)
			want[i] = (unsigned char)(i * 7 + i / 256 + n);
		memcpy(host, want, SIZE);
		copy(queue, mem.device_ptr, (uint64_t)(uintptr_t)host);
		GDR(gdr_copy_from_mapping(mem.handle, got, mem.cpu_ptr, SIZE));
		memset(host, n + 1, SIZE);
		copy(queue, (uint64_t)(uintptr_t)host, mem.device_ptr);
		right += !memcmp(got, want, SIZE) && !memcmp(host, want, SIZE);
	}
	GDR(barcopy_queue_stop(queue, 0));
	CUDA(cudaStreamSynchronize(stream)); /* until the kernel has ended */
	GDR(barcopy_queue_destroy(queue));
	gdr_close(g);
	printf("%d of %d rounds were right: %d bytes to the GPU and back\n", right, ROUNDS, SIZE);
	return right != ROUNDS;
}
