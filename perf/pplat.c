/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy_pplat: round trip between the CPU and a kernel that is running on the GPU: the CPU sets a
 * flag, the kernel sees it and sets another. Flags and data lie in GPU memory (through the mapping)
 * or in host memory. It must not know how the library copies.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bench.h"
#include "common/copytest.h"
#include "common/exit.h"
#include "common/progress.h"
#include "common/stats.h"
#include "common/timing.h"
#include "pplat_ptx.h"

enum place { GPU, CPU };
static const char *const place_name[] = { "gpu", "cpu", NULL };

static struct {
	long rounds, timeout_s;
	size_t size;
	int ping, pong, data; /* enum place */
} opt = { .rounds = 1000, .timeout_s = 10, .ping = GPU, .pong = CPU, .data = GPU };

static const struct opt options[] = {
	{ 't', "iters", OPT_COUNT, &opt.rounds, "N", "round trips (1000)", 1, 100000000, NULL },
	{ 's', "size", OPT_SIZE, &opt.size, "SIZE",
	  "bytes of data each way in a round trip, a multiple of\n"
	  "4 (0: flags alone)",
	  0, 16 << 20, NULL },
	{ 'p', "ping", OPT_CHOICE, &opt.ping, "PLACE",
	  "where the flag to the kernel lies: gpu or cpu (gpu)", 0, 0, place_name },
	{ 'q', "pong", OPT_CHOICE, &opt.pong, "PLACE",
	  "where the flag to the CPU lies: gpu or cpu (cpu)", 0, 0, place_name },
	{ 'D', "data", OPT_CHOICE, &opt.data, "PLACE",
	  "where data lie, both ways: gpu or cpu (gpu)", 0, 0, place_name },
	{ 'u', "timeout", OPT_COUNT, &opt.timeout_s, "SECONDS",
	  "how long each side waits for the other (10)", 1, 3600, NULL },
};

static const struct tool tool = {
	"gdrcopy_pplat",
	"Measures the round trip between the CPU and a running GPU kernel.",
	"  One block of threads stays on the GPU. A round: the CPU writes the message, if there "
	"is\n"
	"  one, and sets the ping; the kernel sees it, answers each word of the message by that\n"
	"  word plus the round's number and sets the pong; the CPU sees that and copies the "
	"answer.\n"
	"  Each round is timed by the CPU as a whole, after 10 untimed ones; percentiles are "
	"values\n"
	"  that were seen (nearest rank), in microseconds. Every word of every answer is "
	"compared.\n"
	"  With data in GPU memory and the ping in host memory the CPU has to flush its writes\n"
	"  first, which costs it one more trip over the link.",
	options,
	sizeof(options) / sizeof(options[0]),
};

static const char examples[] = "  gdrcopy_pplat\n"
			       "      a flag each way, the one to the GPU in its memory\n"
			       "  gdrcopy_pplat -s 4K -t 200\n"
			       "      and 4 KiB of data each way";

/* Flags and data keep a distance, so that no line is shared. The same layout in both places. */
enum layout { PING_AT = 0, PONG_AT = 256, STATUS_AT = 512, MESSAGE_AT = 4096 };

#define STOP	    UINT32_MAX /* as a ping: the kernel ends */
#define WARM_UP	    10
#define MAX_THREADS 1024

struct state {
	struct bench b;
	uint8_t *host; /* page-locked memory of the CPU */
	CUdeviceptr host_dptr;
	size_t answer_at;
	uint32_t *message, *answer; /* the CPU's own copies */
	uint64_t *sample;
	CUmodule module;
	CUfunction kernel;
	CUstream stream;
};

static CUdeviceptr device_address(const struct state *s, int place, size_t at)
{
	return (place == GPU ? s->b.buf.mem.dptr : s->host_dptr) + at;
}

static void load_kernel(struct state *s)
{
	CUresult rc;

	if (!cu.ModuleLoadData || !cu.ModuleUnload || !cu.ModuleGetFunction || !cu.LaunchKernel ||
	    !cu.StreamCreate || !cu.StreamDestroy || !cu.StreamSynchronize || !cu.StreamQuery)
		tool_cannot("%s cannot run kernels; a newer NVIDIA driver is needed",
			    cuda_dl_path());
	rc = cu.ModuleLoadData(&s->module, pplat_ptx);
	if (rc != CUDA_SUCCESS)
		tool_cannot(
			"the driver refuses the kernel: cuModuleLoadData: %s; it needs a GPU of "
			"compute capability 5.0 or newer",
			cuda_error_text(rc));
	cuda_must(cu.ModuleGetFunction(&s->kernel, s->module, "gdrcopy_pplat"),
		  "cuModuleGetFunction");
	cuda_must(cu.StreamCreate(&s->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

/* Starts the kernel; it waits for the first ping. */
static void launch(struct state *s, uint32_t rounds)
{
	CUdeviceptr ping = device_address(s, opt.ping, PING_AT);
	CUdeviceptr pong = device_address(s, opt.pong, PONG_AT);
	CUdeviceptr status = device_address(s, CPU, STATUS_AT);
	CUdeviceptr message = device_address(s, opt.data, MESSAGE_AT);
	CUdeviceptr answer = device_address(s, opt.data, s->answer_at);
	uint32_t words = (uint32_t)(opt.size / sizeof(uint32_t));
	uint64_t timeout_ns = (uint64_t)opt.timeout_s * 1000000000u;
	void *params[] = { &ping, &pong, &status, &message, &answer, &words, &rounds, &timeout_ns };
	unsigned int threads = words < 32 ? 32 : words > MAX_THREADS ? MAX_THREADS : words;

	cuda_must(cu.LaunchKernel(s->kernel, 1, 1, 1, threads, 1, 1, 0, s->stream, params, NULL),
		  "cuLaunchKernel");
}

/* Ends the tool if a call of libgdrapi failed. */
static void check(int rc, const char *call)
{
	if (rc)
		tool_fail("%s: %s", call, lib_error_text(rc));
}

static volatile uint32_t *host_word(const struct state *s, size_t at)
{
	return (volatile uint32_t *)(void *)(s->host + at);
}

static void set_ping(struct state *s, uint32_t value)
{
	if (opt.ping == GPU) {
		check(barcopy_put32(s->b.buf.mh, s->b.buf.cpu + PING_AT, value), "barcopy_put32");
		return;
	}
	__atomic_store_n((uint32_t *)(void *)(s->host + PING_AT), value, __ATOMIC_RELEASE);
}

static void write_message(struct state *s)
{
	if (opt.data == CPU) {
		memcpy(s->host + MESSAGE_AT, s->message, opt.size);
		/* the mapping may be write-combined, that is weakly ordered against this memory */
		if (opt.ping == GPU)
			check(barcopy_fence(s->b.buf.mh, BARCOPY_FENCE_FULL), "barcopy_fence");
		return;
	}
	check(gdr_copy_to_mapping(s->b.buf.mh, s->b.buf.cpu + MESSAGE_AT, s->message, opt.size),
	      "gdr_copy_to_mapping");
	if (opt.ping == CPU)
		check(barcopy_flush(s->b.buf.mh), "barcopy_flush");
}

/* 0, or not if the kernel did not answer in time. */
static int wait_pong(struct state *s, uint32_t value)
{
	uint64_t timeout_ns = (uint64_t)opt.timeout_s * 1000000000u, start;
	int rc;

	if (opt.pong == GPU) {
		rc = barcopy_wait32(s->b.buf.mh, s->b.buf.cpu + PONG_AT, BARCOPY_CMP_EQ, value,
				    timeout_ns);
		return rc;
	}
	for (start = clock_raw_ns(); clock_raw_ns() - start < timeout_ns;) {
		int i;

		/* the clock is looked at now and then, so that it does not slow the polling */
		for (i = 0; i < 1000; i++)
			if (__atomic_load_n((uint32_t *)(void *)(s->host + PONG_AT),
					    __ATOMIC_ACQUIRE) == value)
				return 0;
	}
	return 1;
}

static void read_answer(struct state *s)
{
	if (opt.data == CPU)
		memcpy(s->answer, s->host + s->answer_at, opt.size);
	else
		check(gdr_copy_from_mapping(s->b.buf.mh, s->answer, s->b.buf.cpu + s->answer_at,
					    opt.size),
		      "gdr_copy_from_mapping");
}

/* Both sides' words to zero, by the CPU, and there before a kernel starts. */
static void clear(struct state *s)
{
	uint32_t zero = 0;

	memset(s->host, 0, MESSAGE_AT);
	cuda_must(cu.MemcpyHtoD(device_address(s, GPU, PING_AT), &zero, sizeof(zero)),
		  "cuMemcpyHtoD");
	cuda_must(cu.MemcpyHtoD(device_address(s, GPU, PONG_AT), &zero, sizeof(zero)),
		  "cuMemcpyHtoD");
	cuda_must(cu.CtxSynchronize(), "cuCtxSynchronize");
}

/* Ends a kernel that is out of step and the tool with it. */
static _Noreturn void give_up(struct state *s, uint32_t round)
{
	progress_clear();
	set_ping(s, STOP);
	cu.StreamSynchronize(s->stream);
	tool_fail("round %u: no answer from the GPU within %ld s; it has answered %u rounds", round,
		  opt.timeout_s, *host_word(s, STATUS_AT));
}

static int check_answer(struct state *s, uint32_t round)
{
	size_t i, words = opt.size / sizeof(uint32_t);

	for (i = 0; i < words; i++)
		s->message[i] += round; /* now what the answer must be */
	return copytest_compare("answer", 0, (const uint8_t *)s->message,
				(const uint8_t *)s->answer, opt.size);
}

static int run(struct state *s)
{
	uint32_t rounds = (uint32_t)(opt.rounds + WARM_UP), i;
	uint64_t t0, t1;
	CUresult res;
	int rc = 0;

	clear(s);
	launch(s, rounds);
	for (i = 1; i <= rounds && !rc; i++) {
		if (opt.size)
			copytest_random(s->message, opt.size, i);
		t0 = timing_ticks();
		if (opt.size)
			write_message(s);
		set_ping(s, i);
		if (wait_pong(s, i))
			give_up(s, i);
		if (opt.size)
			read_answer(s);
		t1 = timing_ticks();
		if (i > WARM_UP)
			s->sample[i - WARM_UP - 1] = t1 - t0;
		if (opt.size)
			rc = check_answer(s, i);
	}
	if (rc)
		set_ping(s, STOP);
	res = cu.StreamSynchronize(s->stream);
	cuda_must(res, "the kernel: cuStreamSynchronize");
	if (!rc && *host_word(s, STATUS_AT) != rounds) {
		tool_note("the kernel counted %u rounds, not %u", *host_word(s, STATUS_AT), rounds);
		rc = 1;
	}
	return rc;
}

static void print_result(const struct state *s, const struct stats *st)
{
	const char *const place[] = { [GPU] = s->b.buf.place, [CPU] = "host memory" };

	printf("ping:     flag in %s\npong:     flag in %s\n", place[opt.ping], place[opt.pong]);
	if (opt.size)
		printf("data:     %zu bytes each way in %s\n", opt.size, place[opt.data]);
	printf("\n%-12s %9s %9s %9s %9s %9s\n", "round trip", "P0 us", "P50 us", "P99 us",
	       "mean us", "max us");
	printf("%12zu %9.3f %9.3f %9.3f %9.3f %9.3f\n\nall data verified\n", st->count, st->p0,
	       st->p50, st->p99, st->mean, st->max);
}

static void print_json(const struct state *s, const struct stats *st, bool verified)
{
	struct json j;

	bench_json(&s->b, &j);
	json_string(&j, "ping", place_name[opt.ping]);
	json_string(&j, "pong", place_name[opt.pong]);
	json_string(&j, "data", place_name[opt.data]);
	json_uint(&j, "data_size", opt.size);
	json_string(&j, "unit", "us");
	if (verified) {
		json_object(&j, "round_trip");
		json_uint(&j, "iterations", st->count);
		json_number(&j, "p0", st->p0);
		json_number(&j, "p50", st->p50);
		json_number(&j, "p99", st->p99);
		json_number(&j, "mean", st->mean);
		json_number(&j, "max", st->max);
		json_end(&j);
	}
	json_bool(&j, "verified", verified);
	json_finish(&j, stdout);
}

int main(int argc, char **argv)
{
	struct state s = { 0 };
	struct stats st = { 0 };
	size_t area, whole;
	void *p;
	int rc;

	opts_examples(examples);
	bench_options(&s.b, &tool, argc, argv);
	if (opt.size % sizeof(uint32_t))
		tool_fail("-s %zu: must be a multiple of 4", opt.size);
	area = (opt.size / 4096 + 1) * 4096; /* never empty: its address is given to the kernel */
	s.answer_at = MESSAGE_AT + area;
	whole = s.answer_at + area;
	bench_start(&s.b, whole);
	cuda_must(cu.MemHostAlloc(&p, whole, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
		  "cuMemHostAlloc");
	s.host = p;
	cuda_must(cu.MemHostGetDevicePointer(&s.host_dptr, p, 0), "cuMemHostGetDevicePointer");
	s.message = tool_alloc_pages(opt.size);
	s.answer = tool_alloc_pages(opt.size);
	s.sample = tool_calloc((size_t)opt.rounds, sizeof(*s.sample));
	load_kernel(&s);

	rc = run(&s);
	if (!rc)
		stats_compute(&st, s.sample, (size_t)opt.rounds, timing.ns_per_tick / 1000);
	if (s.b.json)
		print_json(&s, &st, !rc);
	else if (!rc)
		print_result(&s, &st);

	cu.StreamDestroy(s.stream);
	cu.ModuleUnload(s.module);
	cu.MemFreeHost(s.host);
	free(s.message);
	free(s.answer);
	free(s.sample);
	bench_stop(&s.b);
	return rc ? TOOL_FAIL : TOOL_OK;
}
