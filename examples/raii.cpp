/* SPDX-License-Identifier: MIT */
/*
 * The library in C++17: std::unique_ptr owns context, memory and stream, spans say what is copied,
 * and a call of the library that fails throws (one of CUDA's ends the example: must.h). There is no
 * header for C++ but barcopy.h. The CPU writes numbers into GPU memory, launches a kernel that adds
 * them, and waits for the flag that the kernel stores after the sum. Sum and flag are in GPU memory
 * as well; results.c has the faster place for them.
 *
 *     g++ -std=c++17 -I/usr/local/cuda/include raii.cpp -lgdrapi -lcuda -o raii && ./raii
 *
 * See in the output: all sums were right; and the cause in words of a copy that failed on purpose.
 *
 * Order. The kernel is launched after the copies, so it sees them. The CPU writes the next numbers
 * after it has seen the flag: the kernel reads and writes nothing behind it. Memory ends after its
 * kernel: the stream, declared after the memory, waits in its destructor for the kernels in it,
 * with a limit, and else ends the process. The CUDA context has to be current in that thread.
 */
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <barcopy.h>

#include "sum_kernel.h"

namespace
{

constexpr uint64_t LIMIT = 5'000'000'000; /* ns */
constexpr uint32_t ROUNDS = 100;

struct error : std::runtime_error {
	using std::runtime_error::runtime_error;
};

void check(int err, const char *call)
{
	if (err)
		throw error(std::string(call) + ": " + barcopy_last_error());
}

/* A destructor does not throw. */
void report(int err, const char *call)
{
	if (err)
		std::fprintf(stderr, "%s: %s\n", call, barcopy_last_error());
}

struct close_context {
	void operator()(gdr_t g) const
	{
		report(gdr_close(g), "gdr_close");
	}
};
using context = std::unique_ptr<gdr, close_context>;

context open_context()
{
	context g(barcopy_open(BARCOPY_OPEN_ANY));

	if (!g)
		throw error(std::string("barcopy_open: ") + barcopy_last_error());
	return g;
}

/* The memory ends before its context: it is declared after it. */
struct free_memory {
	gdr_t g;

	void operator()(barcopy_mem_t *mem) const
	{
		report(barcopy_mem_free(g, mem), "barcopy_mem_free");
		delete mem;
	}
};
using memory = std::unique_ptr<barcopy_mem_t, free_memory>;

memory allocate(const context &g, std::size_t size)
{
	auto mem = std::make_unique<barcopy_mem_t>();

	check(barcopy_mem_alloc(g.get(), 0, size, 0, mem.get()), "barcopy_mem_alloc");
	return memory(mem.release(), free_memory{ g.get() });
}

/* Its kernels end before their memory: it is declared after it. */
struct end_stream {
	void operator()(CUstream s) const
	{
		const double end = now_us() + LIMIT / 1e3;
		CUresult result;

		/* Calls that wait for the GPU have no limit, and the free does not wait. */
		while ((result = cuStreamQuery(s)) != CUDA_SUCCESS)
			if (result != CUDA_ERROR_NOT_READY || now_us() > end) {
				std::fprintf(stderr,
					     "a kernel may still run (cuStreamQuery: %d); before it: %s\n",
					     static_cast<int>(result), barcopy_last_error());
				std::_Exit(1); /* the driver ends the kernel */
			}
		cuStreamDestroy(s);
	}
};
using stream = std::unique_ptr<std::remove_pointer_t<CUstream>, end_stream>;

stream new_stream()
{
	CUstream s;

	CUDA(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return stream(s);
}

/* As std::span of C++20. */
template <typename T> struct span {
	T *data;
	std::size_t size;
};

/* Where an object of type T lies in GPU memory, for the CPU and for kernels. */
template <typename T> struct view {
	const barcopy_mem_t *mem;
	std::size_t at;

	T *cpu() const
	{
		return reinterpret_cast<T *>(static_cast<char *>(mem->cpu_ptr) + at);
	}
	CUdeviceptr gpu() const
	{
		return mem->device_ptr + at;
	}
	gdr_mh_t handle() const
	{
		return mem->handle;
	}
};

template <typename T> void write(gdr_mh_t handle, T *to, span<const T> from)
{
	check(gdr_copy_to_mapping(handle, to, from.data, from.size * sizeof(T)),
	      "gdr_copy_to_mapping");
}

uint64_t sum_of(CUfunction kernel, const stream &s, view<request> in, view<result> out,
		span<const uint32_t> words)
{
	CUdeviceptr from = in.gpu(), to = out.gpu();
	uint32_t requests = 1;
	uint64_t sum = 0;
	void *params[] = { &from, &to, &requests };

	write(in.handle(), in.cpu()->word, words);
	check(barcopy_put32(out.handle(), &out.cpu()->number, 0), "barcopy_put32");
	check(barcopy_put32(in.handle(), &in.cpu()->number, 1), "barcopy_put32");
	CUDA(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s.get(), params, nullptr));
	check(barcopy_wait32(out.handle(), &out.cpu()->number, BARCOPY_CMP_EQ, 1, LIMIT),
	      "barcopy_wait32");
	check(barcopy_get64(out.handle(), &out.cpu()->sum, &sum), "barcopy_get64");
	return sum;
}

void run()
{
	CUfunction kernel = load_sum_kernel();
	const context g = open_context();
	const memory mem = allocate(g, 4096);
	const stream s = new_stream();
	const view<request> in{ mem.get(), 0 };
	const view<result> out{ mem.get(), 1024 };
	std::vector<uint32_t> words(WORDS);
	uint32_t right = 0;

	for (uint32_t n = 1; n <= ROUNDS; n++) {
		uint64_t want = 0;

		for (auto &word : words)
			want += word = n + static_cast<uint32_t>(&word - words.data());
		right += sum_of(kernel, s, in, out, { words.data(), words.size() }) == want;
	}
	std::printf("%u of %u sums were right\n", right, ROUNDS);
	if (right != ROUNDS)
		throw error("a sum is wrong");
	try {
		write(mem->handle, reinterpret_cast<uint32_t *>(mem->device_ptr),
		      { words.data(), words.size() });
	} catch (const error &e) { /* a device address in the place of the CPU's */
		std::printf("as it should, %s\n", e.what());
	}
}

} // namespace

int main()
{
	try {
		run();
	} catch (const error &e) {
		std::fprintf(stderr, "%s\n", e.what());
		return 1;
	}
	return 0;
}
