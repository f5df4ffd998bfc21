/* SPDX-License-Identifier: MIT */
/*
 * Calls into a kernel that stays on the GPU. A message carries a vector, the reply its product with
 * a small matrix. Checks the products and compares the time with a launch for each product.
 *
 * One kernel serves several queues, a warp each: of several resident kernels not all may run. Every
 * other kernel is launched once before, as its first launch would wait for the resident one (lazy
 * loading, CUDA's default).
 *
 *     nvcc -arch=sm_70 queue.cu -lgdrapi -o queue && ./queue        (with CUDA 13: -arch=sm_75)
 */
#include <barcopy_queue.cuh>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

enum { N = 12, CALLS = 20000, QUEUES = 4 }; /* 12 floats are 48 bytes: one line each way */

static const uint64_t WAIT = 5000000000; /* ns */

/* Lane i computes element i of the product. */
static __device__ float row(const float *matrix, const float *x, unsigned i)
{
	float sum = 0;

	for (unsigned k = 0; k < N; k++)
		sum += matrix[i * N + k] * x[k];
	return sum;
}

struct views {
	barcopy_queue_view_t of[QUEUES];
};

/* Warp i serves queue i, in shared memory of its own. */
__global__ void serve(views view, const float *matrix)
{
	__shared__ unsigned long long messages[QUEUES][N / 2], products[QUEUES][N / 2];
	unsigned warp = threadIdx.x / 32;
	unsigned long long *message = messages[warp], *product = products[warp];
	barcopy_warp_t q;

	barcopy_warp_begin(&q, view.of[warp]);
	while (barcopy_warp_receive(&q, message, 0)) {
		if (q.lane < N)
			((float *)product)[q.lane] = row(matrix, (const float *)message, q.lane);
		if (!barcopy_warp_reply(&q, product, sizeof(products[0]), 0))
			break;
	}
	barcopy_warp_end(&q);
}

__global__ void once(const float *matrix, const float *x, float *y)
{
	if (threadIdx.x < N)
		y[threadIdx.x] = row(matrix, x, threadIdx.x);
}

static void must(int failed, const char *what, const char *why)
{
	if (!failed)
		return;
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

#define CUDA(call) must((call) != cudaSuccess, #call, cudaGetErrorString(cudaGetLastError()))
#define GDR(call) must((call) != 0, #call, barcopy_last_error())

static void fill(float *x, int call)
{
	for (int k = 0; k < N; k++)
		x[k] = (float)((call + k) % 64);
}

/* The number of wrong elements of the product. Sums are exact, as all numbers are small. */
static int wrong(const float *matrix, const float *x, const float *y)
{
	int bad = 0;

	for (int i = 0; i < N; i++) {
		float sum = 0;

		for (int k = 0; k < N; k++)
			sum += matrix[i * N + k] * x[k];
		bad += y[i] != sum;
	}
	return bad;
}

/* The median of CALLS products that call(x, y) makes, in us; counts wrong elements. */
template <class Call> static double measure(const float *matrix, float *x, float *y, int *bad, Call call)
{
	std::vector<double> us;

	for (int n = 0; n < CALLS; n++) {
		fill(x, n);
		auto start = std::chrono::steady_clock::now();
		call();
		us.push_back(std::chrono::duration<double, std::micro>(
				     std::chrono::steady_clock::now() - start)
				     .count());
		*bad += wrong(matrix, x, y);
	}
	std::nth_element(us.begin(), us.begin() + CALLS / 2, us.end());
	return us[CALLS / 2];
}

int main()
{
	float matrix[N * N], *on_gpu, *x, *y;
	barcopy_queue_t queue[QUEUES];
	cudaStream_t stream;
	double resident, launched;
	int at = 0;
	views view;
	int bad = 0;
	gdr_t g;

	for (int i = 0; i < N * N; i++)
		matrix[i] = (float)(i % 7);
	CUDA(cudaMalloc(&on_gpu, sizeof(matrix)));
	CUDA(cudaMemcpy(on_gpu, matrix, sizeof(matrix), cudaMemcpyHostToDevice));
	CUDA(cudaHostAlloc(&x, 4096, cudaHostAllocMapped)); /* the launched kernel reads it over the link */
	CUDA(cudaHostAlloc(&y, 4096, cudaHostAllocMapped));
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	g = barcopy_open(BARCOPY_OPEN_DEFAULT);
	must(!g, "barcopy_open", barcopy_last_error());

	launched = measure(matrix, x, y, &bad, [&] {
		once<<<1, 32, 0, stream>>>(on_gpu, x, y);
		CUDA(cudaStreamSynchronize(stream));
	});

	for (int i = 0; i < QUEUES; i++) {
		GDR(barcopy_queue_create(g, 0, nullptr, &queue[i]));
		GDR(barcopy_queue_get_view(queue[i], &view.of[i]));
	}
	serve<<<1, 32 * QUEUES, 0, stream>>>(view, on_gpu);
	CUDA(cudaGetLastError());
	resident = measure(matrix, x, y, &bad, [&] {
		barcopy_queue_t q = queue[at++ % QUEUES];

		GDR(barcopy_queue_send(q, x, N * sizeof(*x), 0, WAIT));
		GDR(barcopy_queue_receive(q, y, N * sizeof(*y), nullptr, 0, WAIT));
	});
	for (int i = 0; i < QUEUES; i++) {
		GDR(barcopy_queue_stop(queue[i], 0));
		GDR(barcopy_queue_destroy(queue[i], WAIT));
	}
	gdr_close(g);
	printf("%d products of %d by %d: a call into the resident kernel %.2f us, a launch and its end %.2f us, "
	       "%d wrong\n",
	       CALLS, N, N, resident, launched, bad);
	return bad != 0;
}
