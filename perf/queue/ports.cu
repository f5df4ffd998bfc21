/* SPDX-License-Identifier: MIT */
/*
 * What ports cost and carry, on a GPU. Every message and every answer is compared. For comparison a FIFO
 * as proxies have it: a ticket, one store of 16 bytes that releases, and the CPU's tail in host memory,
 * which whoever waits polls over the link. That is the algorithm of MSCCL++'s FIFO since its pull
 * request 864, written anew. It has two more forms: stores that do not release, as a post that is not
 * ordered, and entries of 64 bytes with 48 of data, as a port has them.
 *
 *     nvcc -O3 -std=c++17 -arch=sm_90 -Iinclude -o ports perf/queue/ports.cu -Lbuild -lgdrapi
 *     CUDA_MODULE_LOADING=EAGER LD_LIBRARY_PATH=build ./ports [MILLIONS]
 *
 * sm_90: from there on a dependent launch overlaps the kernel before it. MILLIONS (20): of posts, and a
 * tenth of calls, that the last part compares; 0: none.
 */
#include <barcopy_queue.cuh>
#include <cuda_runtime.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <sys/prctl.h>
#include <thread>
#include <vector>

#define SECOND 1000000000ull

static void must(bool failed, const char *what, const char *why)
{
	if (!failed)
		return;
	printf("FAIL %s: %s\n", what, why);
	exit(1);
}

#define CUDA(call) must((call) != cudaSuccess, #call, cudaGetErrorString(cudaGetLastError()))
#define GDR(call) must((call) != 0, #call, barcopy_last_error())

static double now()
{
	timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- the CPU's side ------------------------------------------------------------------------------- */

struct ring {
	barcopy_port_t q;
	barcopy_port_view_t view;

	ring(gdr_t g, unsigned lines, uint64_t spin_ns = 0, uint64_t yield_ns = 0, uint64_t sleep_ns = 0,
	     unsigned flags = 0)
	{
		barcopy_port_options_t o = { sizeof(o), lines, flags, spin_ns, yield_ns, sleep_ns };

		GDR(barcopy_port_create(g, 0, &o, &q));
		GDR(barcopy_port_get_view(q, &view));
	}
	~ring() { GDR(barcopy_port_destroy(q)); }

	void retire() /* the last that was taken */
	{
		barcopy_port_message_t m;
		uint32_t n;

		barcopy_port_receive(q, &m, 1, &n, 0);
	}

	/* `at_once`: of a manual port, posts in one call of retire; 0: it is not manual */
	unsigned take(unsigned most, const std::function<uint64_t(const unsigned *)> &see, unsigned at_once = 0)
	{
		barcopy_port_message_t m[32];
		uint32_t n, call[32], k = 0;
		uint64_t answer[32];

		if (barcopy_port_receive(q, m, most, &n, 5 * SECOND))
			return 0;
		for (uint32_t i = 0; at_once && i < n; i += at_once)
			GDR(barcopy_port_retire(q, m[i].post, std::min(at_once, n - i)));
		for (uint32_t i = 0; i < n; i++) {
			uint64_t a = see((const unsigned *)m[i].data);

			if (m[i].call) {
				call[k] = m[i].call;
				answer[k++] = a;
			}
		}
		if (k)
			GDR(barcopy_port_answer(q, call, answer, k));
		return n;
	}
};

struct fifo {
	ulonglong2 *slots;		  /* in host memory, like the tail */
	unsigned long long *tail, *head;  /* head: in GPU memory, and behind it the tail as last seen */
	unsigned long long size;	  /* entries: a power of two */
	unsigned shift;			  /* its logarithm */
};

/* ---- kernels ------------------------------------------------------------------------------------- */

enum { ORDERED = 1, CALL = 2, WAIT = 4, LIMIT = 8, UNAWAITED = 16, EIGHT = 32 };

__device__ static unsigned long long global_ns()
{
	unsigned long long ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

static __host__ __device__ unsigned number(unsigned who, unsigned n, unsigned i)
{
	return (who * 2654435761u ^ n * 40503u) + i * 97;
}

/*
 * Words 2 and 3 of a message: who, which. sum[0]: refused, sum[1]: wrong answers; ns: of each, thread 0's.
 * FIXED: `how` of a kernel that does nothing else; in the loop with all of it (-1) a post of one thread
 * takes a fifth to a third longer. Thread 0 makes one post each every_ns.
 */
template <int FIXED>
__global__ void post(barcopy_port_view_t view, unsigned first, unsigned count, int how, unsigned long long *sum,
		     unsigned *ns, unsigned every_ns)
{
	unsigned t = blockIdx.x * blockDim.x + threadIdx.x, who = first + t, m[12];
	const bool timed = FIXED < 0 && ns && t == 0;
	how = FIXED < 0 ? how : FIXED;
	unsigned flags = (how & ORDERED ? BARCOPY_WARP_ORDERED : 0) | (how & UNAWAITED ? BARCOPY_PORT_UNAWAITED : 0);
	const unsigned long long limit = how & LIMIT ? 10 * SECOND : BARCOPY_PORT_NO_LIMIT;
	unsigned long long reply = 0, start;
	bool ok = true;
	barcopy_poster_t p;

	barcopy_port_open(&p, view);
#if __CUDA_ARCH__ >= 900 /* of a dependent launch, the next grid may begin now */
	asm volatile("griddepcontrol.launch_dependents;");
#endif
	for (unsigned n = 1; n <= count && ok; n++) {
		for (unsigned i = 0; i < 12; i++)
			m[i] = number(who, n, i);
		m[2] = who;
		m[3] = n;
		start = timed ? global_ns() : 0;
		if (how & CALL) {
			ok = barcopy_port_call(&p, m, 48, &reply, BARCOPY_PORT_NO_LIMIT, flags);
			if (ok && reply != ((unsigned long long)who << 24 ^ n))
				atomicAdd(sum + 1, 1);
		} else {
			unsigned long long at = barcopy_port_post(&p, m, 48, limit, flags);

			ok = at && (!(how & WAIT) || barcopy_port_wait(&p, at, BARCOPY_PORT_NO_LIMIT, flags));
		}
		if (timed)
			ns[n - 1] = (unsigned)(global_ns() - start);
		while (timed && global_ns() - start < every_ns)
			;
	}
	if (!ok)
		atomicAdd(sum, 1);
}

/* Ordered, eight at once. */
__global__ void post_eight(barcopy_port_view_t view, unsigned count, unsigned long long *sum)
{
	unsigned m[96];
	barcopy_poster_t p;

	barcopy_port_open(&p, view);
	for (unsigned n = 1; n <= count; n += 8) {
		for (unsigned k = 0; k < 96; k++)
			m[k] = k % 12 == 2 ? 0 : k % 12 == 3 ? n + k / 12 : number(0, n + k / 12, k % 12);
		if (!barcopy_port_post_many(&p, m, 48, 8, BARCOPY_PORT_NO_LIMIT, BARCOPY_WARP_ORDERED))
			atomicAdd(sum, 1);
	}
}

__global__ void empty()
{
}

__device__ static unsigned long long fifo_tail(const fifo &f)
{
	unsigned long long v;

	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(f.tail) : "memory");
	return v;
}

/* Entries of E times 16 bytes; in one of more than one the last word of each 16 has the lap. */
template <int E, bool RELEASES>
__global__ void push(fifo f, unsigned count, bool wait, unsigned *ns)
{
	unsigned t = blockIdx.x * blockDim.x + threadIdx.x, m[12];

	for (unsigned n = 1; n <= count; n++) {
		unsigned long long start = global_ns(), h, v, lap;

		for (unsigned i = 0; E > 1 && i < 12; i++)
			m[i] = number(t, n, i);
		if (E > 1 && RELEASES)
			asm volatile("fence.acq_rel.sys;" ::: "memory");
		h = atomicAdd(f.head, 1);
		lap = ((h >> f.shift) + 1 & 1) << 63;
		if (h >= f.size + *(volatile unsigned long long *)(f.head + 1)) {
			while ((v = fifo_tail(f)) + f.size <= h)
				;
			f.head[1] = v;
		}
		for (unsigned k = 0; k < E; k++) {
			ulonglong2 *to = f.slots + (h & f.size - 1) * E + k;
			unsigned long long x = E > 1 ? (unsigned long long)m[3 * k + 1] << 32 | m[3 * k] :
						       (unsigned long long)t << 32 | n;
			unsigned long long y = lap | (E > 1 ? m[3 * k + 2] : 1);

			if (E == 1 && RELEASES)
				asm volatile("st.release.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(x), "l"(y)
					     : "memory");
			else
				asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(x), "l"(y)
					     : "memory");
		}
		while (wait && fifo_tail(f) <= h)
			;
		if (ns && t == 0)
			ns[n - 1] = (unsigned)(global_ns() - start);
	}
}

/* ---- measurements -------------------------------------------------------------------------------- */

static gdr_t g;
static cudaStream_t stream[4];
static unsigned long long *sum;
static unsigned *ns;
static std::vector<unsigned> seen;
static unsigned long wrong;

static uint64_t see(const unsigned *m)
{
	unsigned who = m[2], n = m[3];

	if (who >= seen.size() || n != ++seen[who] || m[11] != number(who, n, 11) || m[5] != number(who, n, 5))
		wrong++;
	return (uint64_t)who << 24 ^ n;
}

static void check(const char *what)
{
	CUDA(cudaDeviceSynchronize());
	if (!wrong && !sum[0] && !sum[1])
		return;
	printf("FAIL %s: %lu messages wrong, %llu threads refused, %llu answers wrong\n", what, wrong, sum[0], sum[1]);
	exit(1);
}

/* Millions a second. */
static double rate(unsigned kernels, unsigned blocks, unsigned threads, unsigned count, int how, unsigned most,
		   unsigned lines, unsigned at_once = 0)
{
	ring r(g, lines, 0, 0, 0, at_once ? BARCOPY_PORT_MANUAL : 0);
	unsigned per = blocks * threads;
	unsigned long total = (unsigned long)kernels * per * count, got = 0;
	double start;

	seen.assign(kernels * per, 0);
	CUDA(cudaDeviceSynchronize());
	start = now();
	if (how == EIGHT)
		post_eight<<<1, 1, 0, stream[0]>>>(r.view, count, sum);
	for (unsigned k = 0; k < kernels && how != EIGHT; k++)
		(how == 0	    ? post<0>
		 : how == ORDERED   ? post<ORDERED>
		 : how == LIMIT	    ? post<LIMIT>
		 : how == UNAWAITED ? post<UNAWAITED>
				    : post<-1>)<<<blocks, threads, 0, stream[k]>>>(r.view, k * per, count, how, sum, nullptr, 0);
	while (got < total) {
		unsigned n = r.take(most, see, at_once);

		must(!n, "receive", "nothing came for 5 s");
		got += n;
	}
	start = total / (now() - start) / 1e6;
	r.retire();
	check("rate");
	return start;
}

static double median(unsigned n)
{
	std::sort(ns, ns + n);
	return ns[n / 2] / 1e3;
}

static double trip(int how)
{
	const unsigned n = 20000;
	ring r(g, 1024);

	seen.assign(1, 0);
	post<-1><<<1, 1, 0, stream[0]>>>(r.view, 0, n, how, sum, ns, 0);
	for (unsigned got = 0; got < n; got++)
		must(!r.take(1, see), "receive", "nothing came for 5 s");
	r.retire();
	check("trip");
	return median(n);
}

static void row(const char *what, double value, const char *unit);

/*
 * The rows of a receiver that idles: one post each half millisecond to a receiver with those options and that
 * timer slack (0: the default). How long until it is taken, and how much of a CPU the receiver takes.
 */
static void idle(const char *what, unsigned long slack, uint64_t spin_ns, uint64_t yield_ns, uint64_t sleep_ns)
{
	const unsigned n = 4000, every_ns = 500000;
	ring r(g, 1024, spin_ns, yield_ns, sleep_ns);
	double start = now();
	struct timespec cpu0, cpu;
	char text[64];

	seen.assign(1, 0);
	prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu0);
	post<-1><<<1, 1, 0, stream[0]>>>(r.view, 0, n, WAIT, sum, ns, every_ns);
	for (unsigned got = 0; got < n; got++)
		must(!r.take(1, see), "receive", "nothing came for 5 s");
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	start = now() - start;
	r.retire();
	prctl(PR_SET_TIMERSLACK, 0ul, 0, 0, 0);
	check("idle");
	std::sort(ns, ns + n);
	snprintf(text, sizeof(text), "%s: median", what);
	row(text, ns[n / 2] / 1e3, "us");
	snprintf(text, sizeof(text), "%s: 99 of 100", what);
	row(text, ns[n * 99 / 100] / 1e3, "us");
	snprintf(text, sizeof(text), "%s: of a CPU", what);
	row(text, ((cpu.tv_sec - cpu0.tv_sec) + (cpu.tv_nsec - cpu0.tv_nsec) / 1e9) / start * 100, "%");
}

static fifo make_fifo(unsigned shift, unsigned pairs)
{
	size_t bytes = sizeof(ulonglong2) * pairs << shift;
	fifo f;

	CUDA(cudaHostAlloc((void **)&f.slots, bytes, cudaHostAllocMapped));
	CUDA(cudaHostAlloc((void **)&f.tail, 64, cudaHostAllocMapped));
	CUDA(cudaMalloc((void **)&f.head, 16));
	CUDA(cudaMemset(f.head, 0, 16));
	memset((void *)f.slots, 0, bytes);
	*f.tail = 0;
	f.size = 1ull << shift;
	f.shift = shift;
	return f;
}

static void free_fifo(fifo &f)
{
	CUDA(cudaFreeHost(f.slots));
	CUDA(cudaFreeHost(f.tail));
	CUDA(cudaFree(f.head));
}

template <int E> static void pop(fifo &f)
{
	unsigned long long t = *f.tail, lap = (t >> f.shift) + 1 & 1;

	for (unsigned k = E; k--;)
		while (__atomic_load_n(&f.slots[(t & f.size - 1) * E + k].y, __ATOMIC_ACQUIRE) >> 63 != lap)
			;
	__atomic_store_n(f.tail, t + 1, __ATOMIC_RELEASE);
}

template <int E, bool RELEASES> static double fifo_run(unsigned blocks, unsigned threads, unsigned count, bool wait, bool latency)
{
	fifo f = make_fifo(13, E);
	unsigned long total = (unsigned long)blocks * threads * count;
	double start;

	CUDA(cudaDeviceSynchronize());
	start = now();
	push<E, RELEASES><<<blocks, threads, 0, stream[0]>>>(f, count, wait, latency ? ns : nullptr);
	for (unsigned long i = 0; i < total; i++)
		pop<E>(f);
	start = total / (now() - start) / 1e6;
	CUDA(cudaDeviceSynchronize());
	free_fifo(f);
	return latency ? median(count) : start;
}

/* Microseconds of a kernel of 132 threads, launched 1000 times; how -1: an empty one, -2: the FIFO's push. */
static double step(int how)
{
	ring r(g, 4096);
	fifo f = make_fifo(13, 1);
	std::atomic<bool> end{ false };
	cudaEvent_t from, to;
	float ms = 0, best = 1e9;

	CUDA(cudaEventCreate(&from));
	CUDA(cudaEventCreate(&to));
	std::thread taker([&] {
		unsigned long left = how == -2 ? 3 * 132000 : 0;

		while (!end)
			if (how >= 0) {
				barcopy_port_message_t m[32];
				uint32_t n;
				barcopy_port_receive(r.q, m, 32, &n, 1000000);
			} else if (left) {
				pop<1>(f);
				left--;
			} else {
				std::this_thread::yield();
			}
	});
	for (int k = 0; k < 3; k++) {
		CUDA(cudaEventRecord(from, stream[0]));
		for (int i = 0; i < 1000; i++)
			if (how == -1)
				empty<<<132, 1, 0, stream[0]>>>();
			else if (how == -2)
				push<1, true><<<132, 1, 0, stream[0]>>>(f, 1, false, nullptr);
			else
				post<-1><<<132, 1, 0, stream[0]>>>(r.view, 0, 1, how, sum, nullptr, 0);
		CUDA(cudaEventRecord(to, stream[0]));
		CUDA(cudaEventSynchronize(to));
		CUDA(cudaEventElapsedTime(&ms, from, to));
		best = std::min(best, ms);
	}
	end = true;
	taker.join();
	CUDA(cudaDeviceSynchronize());
	free_fifo(f);
	return best; /* ms of 1000: us of one */
}

/* Posts and calls of four streams at once, kernels, a graph and dependent launches, all compared. */
static void proof(unsigned millions)
{
	const unsigned blocks = 33, threads = 32, per = blocks * threads, each = 1000, asks = 300;
	barcopy_port_options_t o = { sizeof(o), 1024, 0, 0, 0, 0 };
	const int hows[] = { 0, ORDERED, WAIT, CALL };
	unsigned long posts = 0, calls = 0, want = millions * 1000000ul;
	cudaGraphExec_t graph;
	barcopy_port_view_t view;
	cudaGraph_t captured;
	barcopy_port_t port;
	double start = now();

	GDR(barcopy_port_create(g, 0, &o, &port));
	GDR(barcopy_port_get_view(port, &view));
	CUDA(cudaStreamBeginCapture(stream[3], cudaStreamCaptureModeThreadLocal));
	post<-1><<<blocks, threads, 0, stream[3]>>>(view, 3 * per, asks, CALL, sum, nullptr, 0);
	CUDA(cudaStreamEndCapture(stream[3], &captured));
	CUDA(cudaGraphInstantiate(&graph, captured, 0));
	/* Each thread's messages are numbered anew by each launch: see() is told by the last of one. */
	std::vector<unsigned> last(4 * per, 0);
	unsigned long rounds = want / (3ul * per * each) + 1;
	std::thread launcher([&] {
		for (unsigned long r = 0; r < rounds; r++) {
			for (unsigned k = 0; k < 3; k++) {
				cudaLaunchAttribute early = {};
				cudaLaunchConfig_t c = {};

				early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
				early.val.programmaticStreamSerializationAllowed = 1;
				c.gridDim = dim3(blocks);
				c.blockDim = dim3(threads);
				c.stream = stream[k];
				c.attrs = &early;
				c.numAttrs = k == 2; /* a second grid of it runs before the first has ended */
				CUDA(cudaLaunchKernelEx(&c, post<-1>, view, k * per, each, hows[k], sum, (unsigned *)nullptr,
							0u));
			}
			CUDA(cudaGraphLaunch(graph, stream[3]));
		}
		for (auto s : stream)
			CUDA(cudaStreamSynchronize(s));
		GDR(barcopy_port_end(port));
	});
	barcopy_port_message_t m[32];
	uint32_t n, call[32], k;
	uint64_t answer[32];
	int rc;

	while (!(rc = barcopy_port_receive(port, m, 32, &n, 60 * SECOND))) {
		for (uint32_t i = k = 0; i < n; i++) {
			const unsigned *w = (const unsigned *)m[i].data;
			unsigned who = w[2], at = w[3];
			bool bad = who >= 4 * per || m[i].size != 48;

			for (unsigned x = 0; !bad && x < 12; x++)
				bad = w[x] != number(who, at, x) && x != 2 && x != 3 && !(m[i].call && x == 0);
			/* Of dependent launches two may run at once: their numbers interleave. */
			if (!bad && who / per != 2)
				bad = at != last[who] % (who / per == 3 ? asks : each) + 1;
			wrong += bad;
			if (!bad)
				last[who] = at;
			posts++;
			if (m[i].call) {
				call[k] = m[i].call;
				answer[k++] = (uint64_t)who << 24 ^ at;
			}
		}
		calls += k;
		if (k)
			GDR(barcopy_port_answer(port, call, answer, k));
	}
	must(rc != EPIPE, "receive", barcopy_last_error());
	launcher.join();
	must(posts != rounds * per * (3ul * each + asks), "proof", "posts were lost");
	check("proof");
	GDR(barcopy_port_destroy(port));
	printf("%-48s %lu posts, of them %lu calls: 0 wrong, 0 lost (%.0f s)\n",
	       "4 streams: kernels, dependent ones, a graph", posts, calls, now() - start);
}

static void row(const char *what, double value, const char *unit)
{
	printf("%-48s %8.2f %s\n", what, value, unit);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const unsigned most = 32;
	double before;

	CUDA(cudaFree(nullptr));
	for (auto &s : stream)
		CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaHostAlloc((void **)&sum, 64, cudaHostAllocMapped));
	CUDA(cudaHostAlloc((void **)&ns, 1 << 18, cudaHostAllocMapped));
	memset(sum, 0, 64);
	g = barcopy_open(BARCOPY_OPEN_DEFAULT);
	must(!g, "barcopy_open", barcopy_last_error());
	step(0); /* warm: the kernels are loaded */
	row("posts, ordered, 1 thread", rate(1, 1, 1, 100000, ORDERED, most, 4096), "M/s");
	row("FIFO of 16 bytes, ordered, 1 thread", fifo_run<1, true>(1, 1, 100000, false, false), "M/s");
	row("FIFO of 64 bytes, ordered, 1 thread", fifo_run<4, true>(1, 1, 100000, false, false), "M/s");
	row("posts, 1 thread", rate(1, 1, 1, 300000, 0, most, 4096), "M/s");
	row("FIFO of 16 bytes, 1 thread", fifo_run<1, false>(1, 1, 300000, false, false), "M/s");
	row("FIFO of 64 bytes, 1 thread", fifo_run<4, false>(1, 1, 300000, false, false), "M/s");
	row("posts, ordered, 4224 threads", rate(1, 132, 32, 1000, ORDERED, most, 4096), "M/s");
	row("FIFO of 16 bytes, ordered, 4224 threads", fifo_run<1, true>(132, 32, 1000, false, false), "M/s");
	row("posts, 4224 threads", rate(1, 132, 32, 1000, 0, most, 4096), "M/s");
	row("FIFO of 16 bytes, 4224 threads", fifo_run<1, false>(132, 32, 1000, false, false), "M/s");
	row("posts, 132 threads", rate(1, 132, 1, 20000, 0, most, 4096), "M/s");
	row("posts, 4 kernels of 1056 threads", rate(4, 33, 32, 1000, 0, most, 4096), "M/s");
	row("posts, eight at once, ordered, 1 thread", rate(1, 1, 1, 400000, EIGHT, most, 4096), "M/s");
	row("posts with a limit, 1 thread", rate(1, 1, 1, 300000, LIMIT, most, 4096), "M/s");
	row("posts with a limit, 132 threads", rate(1, 132, 1, 20000, LIMIT, most, 4096), "M/s");
	row("posts with a limit, 4224 threads", rate(1, 132, 32, 1000, LIMIT, most, 4096), "M/s");
	row("posts, 4224 threads, one a receive", rate(1, 132, 32, 500, 0, 1, 4096), "M/s");
	row("the same, nobody waits for them", rate(1, 132, 32, 500, UNAWAITED, 1, 4096), "M/s");
	row("posts, 4224 threads, retired 32 at once", rate(1, 132, 32, 1000, 0, most, 4096, 32), "M/s");
	row("posts, 4224 threads, retired one by one", rate(1, 132, 32, 500, 0, most, 4096, 1), "M/s");
	row("post and wait, 1 thread, median", trip(WAIT), "us");
	row("post and wait, 1056 threads", rate(1, 132, 8, 1000, WAIT, most, 4096), "M/s");
	row("call, 1 thread, median", trip(CALL), "us");
	row("call, ordered, 1 thread, median", trip(CALL | ORDERED), "us");
	row("calls, 132 threads", rate(1, 132, 1, 4000, CALL, most, 4096), "M/s");
	row("calls, 1056 threads", rate(1, 132, 8, 500, CALL, most, 4096), "M/s");
	before = step(-1);
	row("a kernel of 132 posts, beyond an empty one", step(0) - before, "us");
	row("FIFO: push and wait, 1 thread, median", fifo_run<1, true>(1, 1, 20000, true, true), "us");
	row("FIFO: a kernel of 132, beyond an empty one", step(-2) - before, "us");
	idle("spin", 0, 0, 0, 0);
	idle("50 us, then yield", 0, 50000, 0, 0);
	idle("50 us, then sleep 1 us, slack 1 ns", 1, 50000, 1, 1000);
	idle("50 us, then sleep 10 us, slack 1 ns", 1, 50000, 1, 10000);
	idle("50 us, then sleep 50 us, slack 1 ns", 1, 50000, 1, 50000);
	idle("50 us, then sleep 1 us", 0, 50000, 1, 1000);
	idle("50 us, then sleep 50 us", 0, 50000, 1, 50000);
	if (argc > 1 ? atoi(argv[1]) : 20)
		proof(argc > 1 ? atoi(argv[1]) : 20);
	gdr_close(g);
	return 0;
}
