/* SPDX-License-Identifier: MIT */
/*
 * Calls into a kernel that stays on the GPU: one queue, a warp that serves it, a stop. A message
 * carries a vector of twelve numbers, the reply its product with a small matrix.
 *
 *     nvcc -arch=sm_75 queue.cu -lgdrapi -o queue && ./queue
 *
 * The output counts the right products: all, by one launch. gdrcopy_pplat -q measures round trips.
 * With lazy loading, CUDA's default, a kernel's first launch waits until running kernels have ended:
 * launch this program's other kernels, if it gets any, once before serve().
 */
#include <barcopy_queue.cuh>
#include "must.h"

enum { N = 12, CALLS = 20000 }; /* 12 floats are 48 bytes: one line each way */

static const uint64_t LIMIT = 5000000000; /* ns */

static __host__ __device__ float row(const float *matrix, const float *x, unsigned i)
{
	float sum = 0;

	for (unsigned k = 0; k < N; k++)
		sum += matrix[i * N + k] * x[k];
	return sum;
}

/* One warp. Lane i computes element i of each product, until the CPU stops the queue. */
__global__ void serve(barcopy_queue_view_t view, const float *matrix)
{
	__shared__ unsigned long long message[N / 2], product[N / 2];
	barcopy_warp_t q;

	barcopy_warp_begin(&q, view);
	while (barcopy_warp_receive(&q, message, 0)) {
		if (q.lane < N)
			((float *)product)[q.lane] = row(matrix, (const float *)message, q.lane);
		if (!barcopy_warp_reply(&q, product, sizeof(product), 0))
			break;
	}
	barcopy_warp_end(&q);
}

int main()
{
	float matrix[N * N], x[N], y[N], *on_gpu;
	barcopy_queue_view_t view;
	barcopy_queue_t queue;
	cudaStream_t stream;
	int right = 0;
	gdr_t g;

	for (int i = 0; i < N * N; i++)
		matrix[i] = (float)(i % 7);
	CUDA(cudaMalloc(&on_gpu, sizeof(matrix)));
	CUDA(cudaMemcpy(on_gpu, matrix, sizeof(matrix), cudaMemcpyHostToDevice));
	CUDA(cudaDeviceSynchronize()); /* a copy from pageable memory may still be under way */
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	g = open_any();
	GDR(barcopy_queue_create(g, 0, nullptr, &queue));
	GDR(barcopy_queue_get_view(queue, &view));
	serve<<<1, 32, 0, stream>>>(view, on_gpu);
	CUDA(cudaGetLastError());
	for (int n = 0; n < CALLS; n++) {
		bool same = true;

		for (int k = 0; k < N; k++)
			x[k] = (float)((n + k) % 64); /* small: the sums are exact */
		GDR(barcopy_queue_send(queue, x, sizeof(x), 0, LIMIT));
		GDR(barcopy_queue_receive(queue, y, sizeof(y), nullptr, 0, LIMIT));
		for (unsigned i = 0; i < N; i++)
			same = same && y[i] == row(matrix, x, i);
		right += same;
	}
	GDR(barcopy_queue_stop(queue, 0));
	GDR(barcopy_queue_destroy(queue, LIMIT)); /* waits until the kernel has ended */
	gdr_close(g);
	printf("%d of %d products were right, by one launch\n", right, CALLS);
	return right != CALLS;
}
