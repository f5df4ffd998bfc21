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

/*
 * One warp. A message of 12 floats is in lanes 0 to 3, three floats each; up to eight may come at
 * once. Lane 4 n + k computes the elements 3 k to 3 k + 2 of product n, and sends them.
 */
__global__ void serve(barcopy_queue_view_t view, const float *matrix)
{
	unsigned data[3], size, n;
	float x[N], y[3];
	barcopy_warp_t q;

	if (!barcopy_warp_begin(&q, view))
		return;
	while ((n = barcopy_warp_take(&q, data, &size, 0)) != 0) {
		for (unsigned k = 0; k < N; k++) /* from the four lanes that have this message */
			x[k] = __uint_as_float(__shfl_sync(BARCOPY_WARP_ALL, data[k % 3],
							   (int)(q.lane / 4 * 4 + k / 3)));
		for (unsigned k = 0; k < 3; k++) {
			y[k] = row(matrix, x, q.lane % 4 * 3 + k);
			data[k] = __float_as_uint(y[k]);
		}
		if (!barcopy_warp_put(&q, n, data, sizeof(x), 0))
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
		GDR(barcopy_queue_receive(queue, y, sizeof(y), nullptr, LIMIT));
		for (unsigned i = 0; i < N; i++)
			same = same && y[i] == row(matrix, x, i);
		right += same;
	}
	GDR(barcopy_queue_stop(queue, 0));
	CUDA(cudaStreamSynchronize(stream)); /* until the kernel has ended */
	GDR(barcopy_queue_destroy(queue));
	gdr_close(g);
	printf("%d of %d products were right, by one launch\n", right, CALLS);
	return right != CALLS;
}
