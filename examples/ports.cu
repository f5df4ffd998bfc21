/* SPDX-License-Identifier: MIT */
/*
 * Posts and calls from all blocks of kernels in two streams to one CPU thread. Each block stores a
 * row of numbers. Its first thread calls the CPU, which answers with the index of the row's largest
 * number. Its last thread posts the row, which the CPU copies as a proxy of a network adapter would,
 * and waits until the row may be written again.
 *
 *     nvcc -arch=sm_75 ports.cu -lgdrapi -o ports && ./ports
 *
 * See in the output: as many calls as posts, one of each from every block, and none wrong.
 */
#include <barcopy_queue.cuh>
#include "must.h"

enum : unsigned { STREAMS = 2, BLOCKS = 32, THREADS = 128, STEPS = 100, ROWS = STREAMS * BLOCKS };

static __host__ __device__ unsigned number(unsigned row, unsigned step, unsigned i)
{
	return (i * 2654435761u ^ step * 40503u) + row * 97;
}

/* A message: the call's name, which the library writes, the row and the step. */
__global__ void work(barcopy_port_view_t view, unsigned first, unsigned step, volatile unsigned *rows, unsigned *wrong)
{
	unsigned row = first + blockIdx.x, i = threadIdx.x, message[3] = { 0, row, step };
	unsigned long long largest, post;
	barcopy_poster_t p;

	rows[row * THREADS + i] = number(row, step, i);
	__syncthreads(); /* ordered, the call and the post are for the whole block's stores */
	if (i != 0 && i != THREADS - 1)
		return;
	barcopy_port_open(&p, view);
	if (i == 0) {
		if (!barcopy_port_call(&p, message, 12, &largest, BARCOPY_PORT_NO_LIMIT, BARCOPY_WARP_ORDERED))
			largest = THREADS; /* the CPU has aborted */
		for (unsigned k = 0; k < THREADS; k++)
			if (largest >= THREADS || number(row, step, k) > number(row, step, (unsigned)largest))
				atomicAdd(wrong, 1);
	} else {
		post = barcopy_port_post(&p, message, 12, BARCOPY_PORT_NO_LIMIT, BARCOPY_WARP_ORDERED);
		if (!post || !barcopy_port_wait(&p, post, BARCOPY_PORT_NO_LIMIT, 0))
			atomicAdd(wrong, 1);
	}
}

/* After all kernels. Takes no lock and makes no call of CUDA, as a host function must. */
static void ended(void *port)
{
	barcopy_port_end((barcopy_port_t)port);
}

int main()
{
	unsigned *rows, *wrong, calls = 0, posts = 0, differ = 0, sent[THREADS];
	cudaStream_t stream[STREAMS];
	barcopy_port_message_t m;
	barcopy_port_view_t view;
	barcopy_port_t port;
	cudaEvent_t last;
	uint32_t n;
	int rc;
	gdr_t g;

	CUDA(cudaHostAlloc(&rows, ROWS * THREADS * sizeof(*rows), cudaHostAllocMapped));
	CUDA(cudaHostAlloc(&wrong, sizeof(*wrong), cudaHostAllocMapped));
	*wrong = 0;
	CUDA(cudaEventCreate(&last));
	g = open_any();
	GDR(barcopy_port_create(g, 0, nullptr, &port));
	GDR(barcopy_port_get_view(port, &view));
	for (unsigned s = 0; s < STREAMS; s++) {
		CUDA(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking));
		for (unsigned step = 0; step < STEPS; step++)
			work<<<BLOCKS, THREADS, 0, stream[s]>>>(view, s * BLOCKS, step, rows, wrong);
	}
	CUDA(cudaEventRecord(last, stream[1]));
	CUDA(cudaStreamWaitEvent(stream[0], last, 0));
	CUDA(cudaLaunchHostFunc(stream[0], ended, port));
	while (!(rc = barcopy_port_receive(port, &m, 1, &n, UINT64_MAX))) {
		const unsigned *message = (const unsigned *)m.data, *row = rows + message[1] * THREADS;
		uint64_t best = 0;

		if (!m.call) { /* a proxy that reads ahead: BARCOPY_PORT_MANUAL */
			memcpy(sent, row, sizeof(sent));
			posts++;
			for (unsigned i = 0; i < THREADS; i++)
				differ += sent[i] != number(message[1], message[2], i);
			continue;
		}
		for (unsigned i = 1; i < THREADS; i++)
			best = row[i] > row[best] ? i : best;
		GDR(barcopy_port_answer(port, &m.call, &best, 1));
		calls++;
	}
	CUDA(cudaStreamSynchronize(stream[0])); /* EPIPE also comes after an error of CUDA: here it is */
	if (rc != EPIPE)
		fail("barcopy_port_receive()", barcopy_last_error());
	GDR(barcopy_port_destroy(port));
	gdr_close(g);
	printf("%u calls, %u posts, %u wrong\n", calls, posts, *wrong + differ);
	return *wrong || differ || calls != STEPS * ROWS || posts != STEPS * ROWS;
}
