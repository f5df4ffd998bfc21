/* SPDX-License-Identifier: MIT */
/* Queues and their alternatives; see pplat.h. */
#include "pplat/pplat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "barcopy_queue.h"
#include "common/copytest.h"
#include "common/exit.h"
#include "common/progress.h"
#include "bench/timing.h"
#include "queue/ptx.h"

enum way { SLOTS, LAUNCH, GRAPH };

enum {
	QUEUES = 4,
	WARM_UP = 10,
	BURST = 128, /* half of a queue's lines: sending does not wait */
	IN_AT = 0, /* for the alternatives; offset in the buffer or in host memory */
	OUT_AT = 4096
};

#define DATA_MASK ((UINT64_C(1) << BARCOPY_QUEUE_DATA_BITS) - 1)

struct run {
	struct pplat *p;
	struct json *j;
	CUmodule module;
	CUfunction echo, slots;
	CUstream stream[QUEUES];
	barcopy_queue_t queue[QUEUES];
	uint64_t *sample;
	size_t steps; /* begun */
	uint8_t message[BARCOPY_QUEUE_LINE], answer[BARCOPY_QUEUE_LINE];
};

static void launch(CUfunction kernel, CUstream stream, void **params)
{
	cuda_must(cu.LaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL), "cuLaunchKernel");
}

static void report_times(const struct run *r, const char *name, size_t size)
{
	struct stats st;

	stats_compute(&st, r->sample, (size_t)r->p->rounds, timing.ns_per_tick / 1000);
	progress_hide();
	if (!r->j) {
		printf("%-50s %5zu %9.3f %9.3f\n", name, size, st.p50, st.p99);
		return;
	}
	json_object(r->j, NULL);
	json_string(r->j, "name", name);
	json_uint(r->j, "size", size);
	json_number(r->j, "p50", st.p50);
	json_number(r->j, "p99", st.p99);
	json_end(r->j);
}

static void report_figure(const struct run *r, const char *name, const char *key, double value)
{
	progress_hide();
	if (r->j)
		json_number(r->j, key, value);
	else
		printf("%-56s %9.2f\n", name, value);
}

enum { STEPS = 11 }; /* of pplat_queue(); two fewer where the driver has no graphs */

static void begin_step(struct run *r, const char *name)
{
	progress_at(r->steps++, STEPS, "%s", name);
}

/* The answer that the kernel gives to a message: each 4-byte word plus 1. */
static void add_one(uint8_t *message, size_t size)
{
	for (size_t at = 0; at < size; at += 4) {
		uint32_t word;

		memcpy(&word, message + at, 4);
		word++;
		memcpy(message + at, &word, 4);
	}
}

static void start_queue(struct run *r, int i)
{
	unsigned long long count = UINT64_MAX; /* until the stop */
	barcopy_queue_view_t view;
	void *params[] = { &view, &count };

	lib_must(barcopy_queue_create(r->p->b.buf.g, (int)r->p->b.device, NULL, &r->queue[i]),
		 "barcopy_queue_create");
	lib_must(barcopy_queue_get_view(r->queue[i], &view), "barcopy_queue_get_view");
	launch(r->echo, r->stream[i], params);
}

static void stop_queues(struct run *r, int n)
{
	for (int i = 0; i < n; i++)
		lib_must(barcopy_queue_stop(r->queue[i], 0), "barcopy_queue_stop");
	for (int i = 0; i < n; i++) {
		cuda_must(cu.StreamSynchronize(r->stream[i]), "cuStreamSynchronize");
		lib_must(barcopy_queue_destroy(r->queue[i]), "barcopy_queue_destroy");
	}
}

static void queue_round_trips(struct run *r, const char *name, size_t size)
{
	uint64_t timeout_ns = pplat_timeout_ns(r->p), t0, t1;

	begin_step(r, name);
	start_queue(r, 0);
	for (long i = -WARM_UP; i < r->p->rounds; i++) {
		copytest_random(r->message, size, (uint64_t)i);
		t0 = timing_ticks();
		lib_must(barcopy_queue_send(r->queue[0], r->message, size, 0, timeout_ns),
			 "barcopy_queue_send");
		lib_must(barcopy_queue_receive(r->queue[0], r->answer, size, NULL, timeout_ns),
			 "barcopy_queue_receive");
		t1 = timing_ticks();
		if (i >= 0)
			r->sample[i] = t1 - t0;
		add_one(r->message, size);
		if (copytest_compare("answer", 0, r->message, r->answer, size))
			tool_fail("a queue's answer is wrong");
	}
	stop_queues(r, 1);
	report_times(r, name, size);
}

/* One thread keeps `n` queues full. Returns millions of messages per second; compares each answer. */
static void queue_rate(struct run *r, const char *name, const char *key, int n)
{
	uint64_t sent[QUEUES] = { 0 }, received[QUEUES] = { 0 }, total = (uint64_t)r->p->rounds * 100;
	uint64_t left = total * (uint64_t)n, start, last;

	begin_step(r, name);
	for (int i = 0; i < n; i++)
		start_queue(r, i);
	start = last = clock_raw_ns();
	for (int i = 0; left; i = (i + 1) % n) {
		uint64_t m[BARCOPY_QUEUE_LINE / 8] = { 0 }, got[BARCOPY_QUEUE_LINE / 8], before = left;

		for (; sent[i] < total; sent[i]++) {
			m[0] = sent[i];
			m[5] = sent[i] << 32;
			if (barcopy_queue_send(r->queue[i], m, sizeof(m), 0, 0))
				break;
		}
		while (!barcopy_queue_receive(r->queue[i], got, sizeof(got), NULL, 0)) {
			/* the kernel adds 1 to each 4 bytes; these are the first and the last */
			if ((uint32_t)got[0] != (uint32_t)++received[i] ||
			    got[5] >> 32 != (uint32_t)received[i])
				tool_fail("answer %" PRIu64 " of queue %d is wrong", received[i], i);
			left--;
		}
		if (left != before)
			last = clock_raw_ns();
		else if (clock_raw_ns() - last > pplat_timeout_ns(r->p))
			lib_must(ETIMEDOUT, "barcopy_queue_receive");
	}
	start = clock_raw_ns() - start;
	stop_queues(r, n);
	report_figure(r, name, key, (double)total * n * 1000 / (double)start);
}

/* The CPU time of a send while the ring has space. */
static void queue_send_cost(struct run *r)
{
	static const char name[] = "a send of 48 bytes costs the CPU, ns";
	struct stats st;

	begin_step(r, name);
	start_queue(r, 0);
	for (long i = 0; i < r->p->rounds; i++) {
		uint64_t t0 = timing_ticks();

		for (int k = 0; k < BURST; k++)
			lib_must(barcopy_queue_send(r->queue[0], r->message, BARCOPY_QUEUE_LINE, 0, 0),
				 "barcopy_queue_send");
		r->sample[i] = timing_ticks() - t0;
		for (int k = 0; k < BURST; k++)
			lib_must(barcopy_queue_receive(r->queue[0], r->answer, BARCOPY_QUEUE_LINE, NULL,
						       pplat_timeout_ns(r->p)),
				 "barcopy_queue_receive");
	}
	stop_queues(r, 1);
	stats_compute(&st, r->sample, (size_t)r->p->rounds, timing.ns_per_tick / BURST);
	report_figure(r, name, "send_ns", st.p50);
}

/* The last word first: while no answer arrives, a poll reads only this word. */
static void wait_words(const struct run *r, const uint64_t *words, unsigned int n)
{
	const volatile uint64_t *out = (uint64_t *)(void *)(r->p->host + OUT_AT);
	uint64_t start = clock_raw_ns();

	for (unsigned int looks = 0; n-- > 0;) {
		uint64_t want = ((words[n] + 1) & DATA_MASK) | (words[n] & ~DATA_MASK);

		while (out[n] != want)
			if (!(++looks % 4096) && clock_raw_ns() - start > pplat_timeout_ns(r->p))
				tool_fail("no right answer within %ld s", r->p->timeout_s);
	}
}

static CUgraphExec new_graph(const struct run *r, void **params)
{
	CUgraphExec exec;
	CUgraph graph;

	cuda_must(cu.StreamBeginCapture(r->stream[0], CU_STREAM_CAPTURE_MODE_RELAXED),
		  "cuStreamBeginCapture");
	launch(r->slots, r->stream[0], params);
	cuda_must(cu.StreamEndCapture(r->stream[0], &graph), "cuStreamEndCapture");
	cuda_must(cu.GraphInstantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags");
	cu.GraphDestroy(graph);
	return exec;
}

/* A launch runs one round, which is its kernel's round 1; slots use one kernel for all rounds. */
static void alternative(struct run *r, const char *name, enum way way, unsigned int n, bool sync)
{
	CUdeviceptr in = pplat_address(r->p, way == SLOTS ? CPU : GPU, IN_AT);
	CUdeviceptr out = pplat_address(r->p, CPU, OUT_AT);
	unsigned long long first = 1, last = way == SLOTS ? (uint64_t)(r->p->rounds + WARM_UP) : 1;
	void *params[] = { &in, &out, &n, &first, &last };
	uint64_t words[64], t0;
	CUgraphExec exec = NULL;

	begin_step(r, name);
	memset(r->p->host, 0, OUT_AT + sizeof(words));
	if (way == GRAPH)
		exec = new_graph(r, params);
	if (way == SLOTS)
		launch(r->slots, r->stream[0], params);
	for (long i = -WARM_UP; i < r->p->rounds; i++) {
		uint64_t round = way == SLOTS ? (uint64_t)(i + WARM_UP + 1) : 1;

		copytest_random(words, sizeof(words), (uint64_t)i);
		for (unsigned int k = 0; k < n; k++)
			words[k] = (words[k] & DATA_MASK) | round << BARCOPY_QUEUE_DATA_BITS;
		t0 = timing_ticks();
		for (unsigned int k = 0; way == SLOTS && k < n; k++)
			((volatile uint64_t *)(void *)(r->p->host + IN_AT))[k] = words[k];
		if (way != SLOTS)
			lib_must(gdr_copy_to_mapping(r->p->b.buf.mh, r->p->b.buf.cpu + IN_AT, words,
						     8 * n),
				 "gdr_copy_to_mapping");
		if (way == LAUNCH)
			launch(r->slots, r->stream[0], params);
		if (way == GRAPH)
			cuda_must(cu.GraphLaunch(exec, r->stream[0]), "cuGraphLaunch");
		if (sync)
			cuda_must(cu.StreamSynchronize(r->stream[0]), "cuStreamSynchronize");
		wait_words(r, words, n);
		if (i >= 0)
			r->sample[i] = timing_ticks() - t0;
	}
	cuda_must(cu.StreamSynchronize(r->stream[0]), "cuStreamSynchronize");
	if (exec)
		cu.GraphExecDestroy(exec);
	report_times(r, name, n * 6);
}

void pplat_queue(struct pplat *p, struct json *j)
{
	struct run r = { .p = p, .j = j };

	cuda_must(cu.ModuleLoadData(&r.module, queue_ptx), "cuModuleLoadData of the queue's kernels");
	cuda_must(cu.ModuleGetFunction(&r.echo, r.module, "gdrcopy_queue_echo"), "cuModuleGetFunction");
	cuda_must(cu.ModuleGetFunction(&r.slots, r.module, "gdrcopy_queue_slots"), "cuModuleGetFunction");
	for (int i = 0; i < QUEUES; i++)
		cuda_must(cu.StreamCreate(&r.stream[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	r.sample = tool_calloc((size_t)p->rounds, sizeof(*r.sample));
	if (j)
		json_array(j, "round_trips");
	else
		printf("\n%-50s %5s %9s %9s\n", "round trip", "bytes", "P50 us", "P99 us");
	queue_round_trips(&r, "queue", 8);
	queue_round_trips(&r, "queue", 48);
	alternative(&r, "words in host memory, which the kernel polls", SLOTS, 8, false);
	alternative(&r, "words in host memory, which the kernel polls", SLOTS, 40, false);
	alternative(&r, "launch a kernel, poll its answer", LAUNCH, 8, false);
	alternative(&r, "launch a kernel, synchronise", LAUNCH, 8, true);
	if (cu.StreamBeginCapture && cu.StreamEndCapture && cu.GraphInstantiate && cu.GraphLaunch) {
		alternative(&r, "launch a CUDA graph, poll its answer", GRAPH, 8, false);
		alternative(&r, "launch a CUDA graph, synchronise", GRAPH, 8, true);
	}
	if (j)
		json_end(j);
	else
		printf("\n");
	queue_rate(&r, "million messages/s of 48 bytes, one warp", "one_warp_million_s", 1);
	queue_rate(&r, "million messages/s of 48 bytes, four warps", "four_warps_million_s", QUEUES);
	queue_send_cost(&r);
	for (int i = 0; i < QUEUES; i++)
		cu.StreamDestroy(r.stream[i]);
	cu.ModuleUnload(r.module);
	free(r.sample);
}
