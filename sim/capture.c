/* SPDX-License-Identifier: MIT */
/*
 * Captures of streams, whose graphs hold nothing: what a capture forbids, and what ends it (CUDA
 * driver API, cuThreadExchangeStreamCaptureMode() and cuStreamIsCapturing(); CUDA C++ Programming
 * Guide, "Prohibited and Unhandled Operations"). A call that it forbids invalidates it.
 */
#include <stdlib.h>

#include "sim.h"

struct CUgraph_st {
	int nothing;
};

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void invalidate(CUstream stream)
{
	stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

/* Captures of blocking streams, which the legacy stream would wait for. */
static CUresult legacy(CUcontext ctx, bool used)
{
	CUresult r = CUDA_SUCCESS;

	for (CUstream s = ctx->streams; s; s = s->next) {
		if (!s->alive || !s->capture || s->flags & CU_STREAM_NON_BLOCKING)
			continue;
		if (used)
			invalidate(s);
		r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	return r;
}

CUresult sim_capture_asks(CUstream stream)
{
	if (stream == stream->ctx->streams)
		return legacy(stream->ctx, true);
	if (!stream->capture)
		return CUDA_SUCCESS;
	invalidate(stream);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool sim_capture_takes(CUstream stream, CUresult *r)
{
	*r = CUDA_SUCCESS;
	if (stream == stream->ctx->streams)
		*r = legacy(stream->ctx, true);
	else if (stream->capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		*r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	return *r || stream->capture;
}

static bool forbids(const struct CUstream_st *stream)
{
	bool own = pthread_equal(stream->owner, pthread_self());

	if (!stream->alive || !stream->capture || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	return own ? stream->capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED
		   : stream->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			       thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_forbids(void)
{
	CUresult r = CUDA_SUCCESS;

	for (CUcontext ctx = sim_contexts(); ctx; ctx = ctx->next) {
		for (CUstream s = ctx->streams; s; s = s->next) {
			if (!forbids(s))
				continue;
			invalidate(s);
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return r;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = thread_mode;

	SIM_ENTER(SIM_NEED_INIT);
	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	r = sim_stream(stream, &stream);
	if (r != CUDA_SUCCESS)
		return r;
	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream == sim_ctx()->streams)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	stream->capture_mode = mode;
	stream->owner = pthread_self();
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	r = sim_stream(stream, &stream);
	if (r == CUDA_SUCCESS && stream == stream->ctx->streams)
		r = legacy(stream->ctx, false);
	if (r == CUDA_SUCCESS)
		*status = stream->capture;
	return r;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	bool valid;
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	r = sim_stream(stream, &stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (!stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (stream->capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    !pthread_equal(stream->owner, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	valid = stream->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
	stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
	*graph = valid ? calloc(1, sizeof(**graph)) : NULL;
	if (!valid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	SIM_ENTER(SIM_NEED_INIT);
	free(graph);
	return CUDA_SUCCESS;
}
