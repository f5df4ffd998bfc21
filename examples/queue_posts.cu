/* SPDX-License-Identifier: MIT */
/*
 * Posts and calls from all blocks of a grid to one CPU thread. In each step a block stores a row of
 * numbers. Thread 0 of the block calls a sampler on the CPU, which answers the index of the largest.
 * Then the last warp posts a piece of work to a proxy, which copies the row as a network adapter
 * would. Checks both, and compares every answer.
 *
 *     nvcc -arch=sm_70 queue_posts.cu -lgdrapi -o queue_posts && ./queue_posts   (CUDA 13: sm_75)
 */
#include <barcopy_queue.cuh>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

enum : unsigned { BLOCKS = 64, THREADS = 128, STEPS = 1000, CALL = 1, WORK = 2 };

/* The twelve words of a message. The first six bytes of a call are its name. */
struct message {
	unsigned name[2], kind, row, from, to, size, unused[5];
};

static __host__ __device__ unsigned number(unsigned block, unsigned step, unsigned i)
{
	return (i * 2654435761u ^ step * 40503u) + block * 97;
}

/* Two producers a block: thread 0, and lane 0 of the last warp. */
__global__ void work(barcopy_queue_view_t view, volatile unsigned *rows, unsigned *wrong)
{
	__shared__ unsigned long long largest;
	unsigned row = blockIdx.x * THREADS;
	bool calls = threadIdx.x == 0, posts = threadIdx.x == THREADS - 32;
	message m = { { 0, 0 }, calls ? CALL : WORK, blockIdx.x, row, (BLOCKS * THREADS) + row, THREADS, {} };
	barcopy_posts_t p;

	if (calls || posts)
		barcopy_posts_begin(&p, view, 2 * gridDim.x);
	for (unsigned step = 0; step < STEPS; step++) {
		rows[row + threadIdx.x] = number(blockIdx.x, step, threadIdx.x);
		__syncthreads(); /* the ordered call and post are for the whole block's stores */
		if (calls && barcopy_posts_call(&p, blockIdx.x, (unsigned *)&m, sizeof(m), BARCOPY_WARP_ORDERED))
			barcopy_posts_wait(&p, &largest, 0);
		__syncthreads();
		if (number(blockIdx.x, step, threadIdx.x) > number(blockIdx.x, step, (unsigned)largest))
			atomicAdd(wrong, 1);
		if (posts && step == STEPS - 1)
			barcopy_posts_post(&p, (const unsigned *)&m, sizeof(m), BARCOPY_WARP_ORDERED);
	}
	if (calls || posts)
		barcopy_posts_end(&p);
}

static uint64_t sample(const unsigned *row)
{
	uint64_t best = 0;

	for (uint64_t i = 1; i < THREADS; i++)
		best = row[i] > row[best] ? i : best;
	return best;
}

/* Until the kernel has ended. A proxy of a network adapter posts its work here, and answers the
 * calls that wait for completions when it polls them. */
static int serve(barcopy_queue_t queue, unsigned *rows, unsigned *posts)
{
	uint64_t call, answer;
	uint32_t which = 0;
	message m;
	int rc;

	while (!(rc = barcopy_queue_receive_any(&queue, 1, &which, &m, sizeof(m), nullptr, &call,
						BARCOPY_QUEUE_UNTIL_END, UINT64_MAX))) {
		if (call) {
			answer = sample(rows + m.row * THREADS);
			rc = barcopy_queue_answer(queue, &call, &answer, 1);
			if (rc)
				return rc;
		} else {
			memcpy(rows + m.to, rows + m.from, m.size * sizeof(*rows));
			++*posts;
		}
	}
	return rc == EPIPE ? 0 : rc;
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

int main()
{
	barcopy_queue_options_t options = { sizeof(options), 256, BARCOPY_QUEUE_POSTS };
	unsigned *rows, *wrong, posts = 0;
	barcopy_queue_view_t view;
	barcopy_queue_t queue;
	cudaStream_t stream;
	gdr_t g;

	CUDA(cudaHostAlloc(&rows, 2 * BLOCKS * THREADS * sizeof(*rows), cudaHostAllocMapped));
	CUDA(cudaHostAlloc(&wrong, sizeof(*wrong), cudaHostAllocMapped));
	*wrong = 0;
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	g = barcopy_open(BARCOPY_OPEN_DEFAULT);
	must(!g, "barcopy_open", barcopy_last_error());
	GDR(barcopy_queue_create(g, 0, &options, &queue));
	GDR(barcopy_queue_get_view(queue, &view));
	work<<<BLOCKS, THREADS, 0, stream>>>(view, rows, wrong);
	CUDA(cudaGetLastError());
	GDR(serve(queue, rows, &posts));
	CUDA(cudaStreamSynchronize(stream));
	GDR(barcopy_queue_destroy(queue, 0));
	gdr_close(g);
	for (unsigned i = 0; i < BLOCKS * THREADS; i++)
		*wrong += rows[BLOCKS * THREADS + i] != number(i / THREADS, STEPS - 1, i % THREADS);
	printf("%u calls, %u pieces of work, %u wrong\n", BLOCKS * STEPS, posts, *wrong);
	return *wrong || posts != BLOCKS;
}
