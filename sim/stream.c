/* SPDX-License-Identifier: MIT */
/*
 * Streams: work in order within each. Without GDRSIM_ASYNC_DELAY_US an operation with nothing ahead
 * of it runs when it is submitted; otherwise one worker thread runs it when it is due.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

static struct sim_op *queue; /* in order of submission */
static bool worker_runs;

bool sim_has_delay(void)
{
	return sim_env("GDRSIM_ASYNC_DELAY_US", 0) > 0;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts); /* as pthread_cond_timedwait() */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static bool idle(const struct CUstream_st *stream)
{
	return stream->done_ticket == stream->next_ticket;
}

/*
 * [CUDA driver API, "Stream synchronization behavior"]: work of a stream made without NON_BLOCKING
 * begins when what the legacy stream had before it has ended. The other half, that the legacy
 * stream waits for such streams, is not simulated.
 */
static bool waits_for_legacy(const struct CUstream_st *stream)
{
	return stream != stream->ctx->streams && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

static CUresult stream_new(CUcontext ctx, unsigned int flags, CUstream *out)
{
	CUstream made = calloc(1, sizeof(*made));

	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->ctx = ctx;
	made->flags = flags;
	made->alive = true;
	made->next = ctx->streams->next;
	ctx->streams->next = made;
	*out = made;
	return CUDA_SUCCESS;
}

static CUresult per_thread_stream(CUcontext ctx, CUstream *out)
{
	CUresult r;

	for (CUstream s = ctx->streams; s; s = s->next) {
		if (!s->per_thread || !s->alive || !pthread_equal(s->owner, pthread_self()))
			continue;
		*out = s;
		return CUDA_SUCCESS;
	}
	r = stream_new(ctx, 0, out);
	if (r == CUDA_SUCCESS) {
		(*out)->per_thread = true;
		(*out)->owner = pthread_self();
	}
	return r;
}

CUresult sim_stream(CUstream handle, CUstream *stream)
{
	CUcontext ctx = sim_ctx();

	if (handle == CU_STREAM_PER_THREAD) {
		sim_per_thread_used();
		return per_thread_stream(ctx, stream);
	}
	if (!handle || handle == CU_STREAM_LEGACY) {
		*stream = ctx->streams;
		return CUDA_SUCCESS;
	}
	for (CUstream s = ctx->streams; s; s = s->next) {
		if (s != handle || !s->alive)
			continue;
		*stream = s;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_HANDLE;
}

static bool waits_for_event(const struct sim_op *op)
{
	return op->after && op->after->done_ticket < op->after_ticket;
}

void sim_run_op(const struct sim_op *op)
{
	if (op->after)
		return;
	if (op->src)
		memmove(op->dst, op->src, op->size);
	else if (op->word) /* a CPU polls it */
		__atomic_store_n((uint32_t *)(void *)op->dst, op->value, __ATOMIC_RELEASE);
	else
		memset(op->dst, (int)op->value, op->size);
}

/* Takes the first operation that is due and next in its stream; else sets when to look again. */
static struct sim_op *next_due(uint64_t *look_again_ns)
{
	uint64_t now = now_ns();

	*look_again_ns = 0;
	for (struct sim_op **link = &queue; *link; link = &(*link)->next) {
		struct sim_op *op = *link;

		if (op->ticket != op->stream->done_ticket ||
		    op->stream->ctx->streams->done_ticket < op->behind || waits_for_event(op))
			continue;
		if (op->due_ns <= now) {
			*link = op->next;
			return op;
		}
		if (!*look_again_ns || op->due_ns < *look_again_ns)
			*look_again_ns = op->due_ns;
	}
	return NULL;
}

static void *worker(void *arg)
{
	uint64_t at;

	(void)arg;
	pthread_mutex_lock(&sim.lock);
	for (;;) {
		struct sim_op *op = next_due(&at);

		if (op) {
			sim_run_op(op);
			op->stream->done_ticket++;
			free(op->staged);
			free(op);
			pthread_cond_broadcast(&sim.progress);
		} else if (at) {
			struct timespec ts = { .tv_sec = (time_t)(at / 1000000000u),
					       .tv_nsec = (long)(at % 1000000000u) };

			pthread_cond_timedwait(&sim.progress, &sim.lock, &ts);
		} else {
			pthread_cond_wait(&sim.progress, &sim.lock);
		}
	}
	return NULL;
}

static bool worker_start(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	if (worker_runs)
		return true;
	if (pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	worker_runs = pthread_create(&thread, &attr, worker, NULL) == 0;
	pthread_attr_destroy(&attr);
	return worker_runs;
}

/* Takes over op->staged. */
CUresult sim_submit(const struct sim_op *op)
{
	uint64_t delay_us = (uint64_t)sim_env("GDRSIM_ASYNC_DELAY_US", 0);
	const struct CUstream_st *legacy = op->stream->ctx->streams;
	unsigned long behind = waits_for_legacy(op->stream) ? legacy->next_ticket : 0;
	struct sim_op **link = &queue, *queued;
	CUresult r;

	if (sim_capture_takes(op->stream, &r)) {
		free(op->staged);
		return r;
	}
	if (!sim_has_delay() && idle(op->stream) && legacy->done_ticket >= behind &&
	    !waits_for_event(op)) {
		sim_run_op(op);
		free(op->staged);
		return CUDA_SUCCESS;
	}
	queued = malloc(sizeof(*queued));
	if (!queued || !worker_start()) {
		free(op->staged);
		free(queued);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*queued = *op;
	queued->next = NULL;
	queued->ticket = op->stream->next_ticket++;
	queued->behind = behind;
	queued->due_ns = now_ns() + (sim_has_delay() && !op->after ? delay_us * 1000 : 0);
	while (*link)
		link = &(*link)->next;
	*link = queued;
	pthread_cond_broadcast(&sim.progress);
	return CUDA_SUCCESS;
}

/* Waits for the work submitted so far, not for what other threads add meanwhile. */
void sim_drain_stream(CUstream stream)
{
	unsigned long last = stream->next_ticket;

	while (stream->done_ticket < last)
		pthread_cond_wait(&sim.progress, &sim.lock);
}

void sim_drain_context(CUcontext ctx)
{
	for (CUstream s = ctx->streams; s; s = s->next)
		if (!(s->flags & CU_STREAM_NON_BLOCKING))
			sim_drain_stream(s);
}

/* Waits for all work of all contexts, as the freeing of memory does. */
void sim_drain_all(void)
{
	for (CUcontext ctx = sim_contexts(); ctx; ctx = ctx->next)
		for (CUstream s = ctx->streams; s; s = s->next)
			sim_drain_stream(s);
}

void sim_forget_streams(CUcontext ctx)
{
	for (CUstream s = ctx->streams->next; s; s = s->next)
		s->alive = false;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!stream || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	return stream_new(sim_ctx(), flags, stream);
}

/* The structure stays, so that a stale handle is an error and not a crash. */
CUresult cuStreamDestroy_v2(CUstream stream)
{
	CUstream found;
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	r = sim_stream(stream, &found);
	if (r == CUDA_SUCCESS && found != stream)
		r = CUDA_ERROR_INVALID_HANDLE; /* the NULL stream in one of its forms */
	if (r == CUDA_SUCCESS)
		stream->alive = false;
	return r;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	r = sim_stream(stream, &stream);
	if (r == CUDA_SUCCESS)
		r = sim_capture_asks(stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (stream == sim_ctx()->streams)
		sim_drain_context(sim_ctx());
	else
		sim_drain_stream(stream);
	return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	r = sim_stream(stream, &stream);
	if (r == CUDA_SUCCESS)
		r = sim_capture_asks(stream);
	if (r == CUDA_SUCCESS && !idle(stream))
		r = CUDA_ERROR_NOT_READY;
	return r;
}

/*
 * Writes a word of the context behind a memory fence (CUDA driver API, "Stream Memory Operations").
 * Without the fence, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER, is "not supported in the v2 API".
 */
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, uint32_t value,
				 unsigned int flags)
{
	struct sim_op op = { .value = value, .word = true, .size = sizeof(value) };
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	r = sim_stream(stream, &op.stream);
	if (r != CUDA_SUCCESS)
		return r;
	op.dst = sim_reach(addr, sizeof(value));
	if (!op.dst || addr % sizeof(value) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_submit(&op);
}
