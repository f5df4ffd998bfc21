/* SPDX-License-Identifier: MIT */
/*
 * A kernel that stays on the GPU and copies between GPU memory and page-locked memory when the CPU
 * sends it a message. Compares every byte of every copy, and the times of the kernel, the mapping
 * and the copy engine. It is this program's only kernel: with lazy loading, CUDA's default, the first
 * launch of another one would wait until it ends.
 *
 *     nvcc -arch=sm_70 copy_service.cu -lgdrapi -o copy_service && ./copy_service   (CUDA 13: -arch=sm_75)
 */
#include <barcopy_queue.cuh>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

enum { LARGEST = 65536, ROUNDS = 2000, THREADS = 1024 };

static const uint64_t WAIT = 5000000000; /* ns */

/* A message: copy `size` bytes, a multiple of 16. The reply is its first word. */
struct job {
	unsigned long long to, from, size;
};

/* The first warp receives and replies; all warps copy. */
__global__ void serve(barcopy_queue_view_t view)
{
	__shared__ unsigned long long message[BARCOPY_QUEUE_MESSAGE_MAX / 8];
	__shared__ unsigned got;
	const job *j = (const job *)message;
	barcopy_warp_t q;

	if (threadIdx.x < 32)
		barcopy_warp_begin(&q, view);
	for (;;) {
		if (threadIdx.x < 32) {
			unsigned n = barcopy_warp_receive(&q, message, BARCOPY_WARP_ORDERED);

			if (threadIdx.x == 0)
				got = n;
		}
		__syncthreads();
		if (!got)
			break;
		for (unsigned i = threadIdx.x; i < j->size / 16; i += THREADS)
			((int4 *)j->to)[i] = __ldcv((const int4 *)j->from + i);
		__syncthreads(); /* orders all threads' stores before the fence in the reply */
		if (threadIdx.x < 32)
			barcopy_warp_reply(&q, message, 8, BARCOPY_WARP_ORDERED);
		__syncthreads();
	}
	if (threadIdx.x < 32)
		barcopy_warp_end(&q);
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

/* The median of ROUNDS copies, in us. Before each, fill(n) makes other bytes; after it, check() looks. */
template <class Fill, class Copy, class Check> static double measure(Fill fill, Copy copy, Check check)
{
	std::vector<double> us;

	for (int n = 0; n < ROUNDS; n++) {
		fill(n);
		auto start = std::chrono::steady_clock::now();
		copy();
		us.push_back(std::chrono::duration<double, std::micro>(
				     std::chrono::steady_clock::now() - start)
				     .count());
		check();
	}
	std::nth_element(us.begin(), us.begin() + ROUNDS / 2, us.end());
	return us[ROUNDS / 2];
}

int main()
{
	barcopy_queue_view_t view;
	barcopy_queue_t queue;
	cudaStream_t stream, engine;
	unsigned char *host, want[LARGEST], got[LARGEST];
	barcopy_mem_t mem;
	long bad = 0;
	gdr_t g;

	CUDA(cudaHostAlloc(&host, LARGEST, cudaHostAllocMapped));
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDA(cudaStreamCreateWithFlags(&engine, cudaStreamNonBlocking));
	g = barcopy_open(BARCOPY_OPEN_DEFAULT);
	must(!g, "barcopy_open", barcopy_last_error());
	GDR(barcopy_mem_alloc(g, 0, LARGEST, 0, &mem));
	GDR(barcopy_queue_create(g, 0, nullptr, &queue));
	GDR(barcopy_queue_get_view(queue, &view));
	serve<<<1, THREADS, 0, stream>>>(view);
	CUDA(cudaGetLastError());

	auto service = [&](uint64_t to, uint64_t from, size_t size) {
		job j = { to, from, size };
		uint64_t done;

		/* Ordered: the kernel reads what this thread has stored into host memory. */
		GDR(barcopy_queue_send(queue, &j, sizeof(j), BARCOPY_QUEUE_ORDERED, WAIT));
		GDR(barcopy_queue_receive(queue, &done, sizeof(done), nullptr, 0, WAIT));
		bad += done != to;
	};
	printf("%8s | %-29s | %-29s\n%8s | %9s %9s %9s | %9s %9s %9s\n", "", "read, us", "write, us", "bytes",
	       "service", "mapping", "engine", "service", "mapping", "engine");
	for (size_t size = 512; size <= LARGEST; size *= 2) {
		uint64_t at = (uint64_t)(uintptr_t)host;
		void *gpu = (void *)(uintptr_t)mem.device_ptr;
		double us[6];

		auto fill = [&](int n) {
			for (size_t i = 0; i < size; i++)
				want[i] = (unsigned char)(i * 7 + i / 256 + n);
		};
		/* Reads: the bytes are in GPU memory, others in the host's. */
		auto fill_gpu = [&](int n) {
			fill(n);
			GDR(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, want, size));
			memset(host, n + 1, size);
		};
		auto check_host = [&] { bad += memcmp(host, want, size) != 0; };
		/* Writes: the other way round. */
		auto fill_host = [&](int n) {
			fill(n);
			memcpy(host, want, size);
		};
		auto check_gpu = [&] {
			GDR(gdr_copy_from_mapping(mem.handle, got, mem.cpu_ptr, size));
			bad += memcmp(got, want, size) != 0;
		};

		us[0] = measure(fill_gpu, [&] { service(at, mem.device_ptr, size); }, check_host);
		us[1] = measure(
			fill_gpu, [&] { GDR(gdr_copy_from_mapping(mem.handle, host, mem.cpu_ptr, size)); },
			check_host);
		us[2] = measure(
			fill_gpu,
			[&] {
				CUDA(cudaMemcpyAsync(host, gpu, size, cudaMemcpyDeviceToHost, engine));
				CUDA(cudaStreamSynchronize(engine));
			},
			check_host);
		us[3] = measure(fill_host, [&] { service(mem.device_ptr, at, size); }, check_gpu);
		us[4] = measure(
			fill_host, [&] { GDR(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, host, size)); },
			check_gpu);
		us[5] = measure(
			fill_host,
			[&] {
				CUDA(cudaMemcpyAsync(gpu, host, size, cudaMemcpyHostToDevice, engine));
				CUDA(cudaStreamSynchronize(engine));
			},
			check_gpu);
		printf("%8zu | %9.2f %9.2f %9.2f | %9.2f %9.2f %9.2f\n", size, us[0], us[1], us[2], us[3], us[4],
		       us[5]);
	}
	GDR(barcopy_queue_stop(queue, 0));
	GDR(barcopy_queue_destroy(queue, WAIT));
	gdr_close(g);
	printf("%ld copies of %d were wrong\n", bad, 8 * 6 * ROUNDS);
	return bad != 0;
}
