/* SPDX-License-Identifier: MIT */
/*
 * Posts and calls from all blocks of the kernels of two streams to one CPU thread; a kernel a step. Each
 * block stores a row of numbers. Thread 0 calls a sampler on the CPU, which answers the index of the
 * largest. Then the last thread posts a piece of work to a proxy, which copies the row as a network
 * adapter would, and waits until the row may be written again. Checks both, and compares every answer.
 *
 *     nvcc -arch=sm_70 ports.cu -lgdrapi -o ports && ./ports   (CUDA 13: sm_75)
 */
#include <barcopy_queue.cuh>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

enum : unsigned { STREAMS = 2, BLOCKS = 32, THREADS = 128, STEPS = 500, CALL = 1, WORK = 2, ROWS = STREAMS * BLOCKS };

/* The twelve words of a message. The first of a call is its name. */
struct message {
	unsigned name, kind, row, step, unused[8];
};

static __host__ __device__ unsigned number(unsigned row, unsigned step, unsigned i)
{
	return (i * 2654435761u ^ step * 40503u) + row * 97;
}

__global__ void work(barcopy_port_view_t view, unsigned first, unsigned step, volatile unsigned *rows, unsigned *wrong)
{
	__shared__ unsigned long long largest;
	unsigned row = first + blockIdx.x, i = threadIdx.x;
	message m = { 0, i == 0 ? CALL : WORK, row, step, {} };
	barcopy_poster_t p;
	unsigned long long post;

	if (i == 0 || i == THREADS - 1)
		barcopy_port_open(&p, view);
	rows[row * THREADS + i] = number(row, step, i);
	__syncthreads(); /* the ordered call and post are for the whole block's stores */
	if (i == 0 && !barcopy_port_call(&p, (unsigned *)&m, sizeof(m), &largest, BARCOPY_PORT_NO_LIMIT,
					 BARCOPY_WARP_ORDERED))
		largest = THREADS; /* the CPU has aborted */
	__syncthreads();
	if (largest >= THREADS || number(row, step, i) > number(row, step, (unsigned)largest))
		atomicAdd(wrong, 1);
	if (i == THREADS - 1) {
		post = barcopy_port_post(&p, (const unsigned *)&m, sizeof(m), BARCOPY_WARP_ORDERED);
		if (!post || !barcopy_port_wait(&p, post, BARCOPY_PORT_NO_LIMIT, 0))
			atomicAdd(wrong, 1);
	}
}

static uint64_t sample(const unsigned *row)
{
	uint64_t best = 0;

	for (uint64_t i = 1; i < THREADS; i++)
		best = row[i] > row[best] ? i : best;
	return best;
}

/*
 * Until barcopy_port_end(). A proxy of a network adapter posts its work where this copies, reads ahead,
 * and retires a post when the adapter is done (BARCOPY_PORT_MANUAL). EPIPE also comes after an error of
 * CUDA, which then calls no host function; cudaStreamSynchronize() has the error.
 */
static int serve(barcopy_port_t port, const unsigned *rows, unsigned *sent, unsigned *calls, unsigned *posts)
{
	barcopy_port_message_t messages[16];
	uint32_t n, call[16], k;
	uint64_t answer[16];
	int rc;

	while (!(rc = barcopy_port_receive(port, messages, 16, &n, UINT64_MAX))) {
		for (uint32_t i = k = 0; i < n; i++) {
			const message *m = (const message *)messages[i].data;
			const unsigned *row = rows + m->row * THREADS;

			if (messages[i].call) {
				call[k] = messages[i].call;
				answer[k++] = sample(row);
			} else {
				memcpy(sent + (m->step * ROWS + m->row) * THREADS, row, THREADS * sizeof(*row));
				++*posts;
			}
		}
		*calls += k;
		if (k && barcopy_port_answer(port, call, answer, k))
			return EIO;
	}
	return rc == EPIPE ? 0 : rc;
}

/* After all kernels: takes no lock and calls nothing of CUDA, as a host function must. */
static void ended(void *port)
{
	barcopy_port_end((barcopy_port_t)port);
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
	unsigned *rows, *wrong, calls = 0, posts = 0;
	unsigned *sent = (unsigned *)calloc(STEPS * ROWS * THREADS, sizeof(*sent));
	cudaStream_t stream[STREAMS];
	barcopy_port_view_t view;
	barcopy_port_t port;
	cudaEvent_t last;
	gdr_t g;

	CUDA(cudaHostAlloc(&rows, ROWS * THREADS * sizeof(*rows), cudaHostAllocMapped));
	CUDA(cudaHostAlloc(&wrong, sizeof(*wrong), cudaHostAllocMapped));
	*wrong = 0;
	for (unsigned i = 0; i < STREAMS; i++)
		CUDA(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
	CUDA(cudaEventCreate(&last));
	g = barcopy_open(BARCOPY_OPEN_DEFAULT);
	must(!g, "barcopy_open", barcopy_last_error());
	GDR(barcopy_port_create(g, 0, nullptr, &port));
	GDR(barcopy_port_get_view(port, &view));
	std::thread launcher([&] { /* the launches wait for the kernels before them, and those for serve() */
		for (unsigned step = 0; step < STEPS; step++)
			for (unsigned i = 0; i < STREAMS; i++)
				work<<<BLOCKS, THREADS, 0, stream[i]>>>(view, i * BLOCKS, step, rows, wrong);
		CUDA(cudaGetLastError());
		for (unsigned i = 1; i < STREAMS; i++) {
			CUDA(cudaEventRecord(last, stream[i]));
			CUDA(cudaStreamWaitEvent(stream[0], last, 0));
		}
		CUDA(cudaLaunchHostFunc(stream[0], ended, port));
	});
	GDR(serve(port, rows, sent, &calls, &posts));
	launcher.join();
	CUDA(cudaStreamSynchronize(stream[0]));
	GDR(barcopy_port_destroy(port));
	gdr_close(g);
	for (unsigned i = 0; i < STEPS * ROWS * THREADS; i++)
		*wrong += sent[i] != number(i / THREADS % ROWS, i / THREADS / ROWS, i % THREADS);
	printf("%u calls, %u pieces of work, %u wrong\n", calls, posts, *wrong);
	return *wrong || calls != STEPS * ROWS || posts != STEPS * ROWS;
}
