/* SPDX-License-Identifier: MIT */
/*
 * Contexts: primary and created ones, and each thread's stack of them. A context's structure is
 * never freed, so that a stale handle is recognised.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "sim.h"

#define STACK_DEPTH 64

static _Thread_local CUcontext stack[STACK_DEPTH];
static _Thread_local unsigned int depth;
static CUcontext contexts;
static atomic_ulong contexts_made;
static CUcontext primaries[SIM_MAX_GPUS];

void sim_ctx_adopt(CUcontext ctx)
{
	stack[0] = ctx;
	depth = 1;
}

CUcontext sim_contexts(void)
{
	return contexts;
}

CUcontext sim_ctx(void)
{
	CUcontext ctx = depth ? stack[depth - 1] : NULL;

	return ctx && ctx->alive ? ctx : NULL;
}

CUresult sim_ctx_check(void)
{
	if (!depth || !stack[depth - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	return stack[depth - 1]->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Whether ctx is a live context; `reset`: or one that a reset ended, which can still be pushed. */
static bool known(CUcontext ctx, bool reset)
{
	for (CUcontext c = contexts; c; c = c->next)
		if (c == ctx)
			return c->alive || (reset && c->was_reset);
	return false;
}

static CUcontext context_new(CUdevice dev, bool primary)
{
	CUcontext ctx = calloc(1, sizeof(*ctx));
	CUstream stream = calloc(1, sizeof(*stream));

	if (!ctx || !stream) {
		free(ctx);
		free(stream);
		return NULL;
	}
	stream->ctx = ctx;
	stream->alive = true;
	ctx->streams = stream;
	ctx->dev = dev;
	ctx->primary = primary;
	ctx->alive = true;
	ctx->next = contexts;
	contexts = ctx;
	contexts_made++;
	return ctx;
}

static void context_end(CUcontext ctx)
{
	sim_drain_all();
	sim_free_of_context(ctx);
	sim_forget_streams(ctx);
	ctx->alive = false;
}

static CUresult push(CUcontext ctx)
{
	if (depth == STACK_DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++] = ctx;
	return CUDA_SUCCESS;
}

/* The primary context keeps its handle when it ends and begins again, but not after a reset. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!primaries[dev])
		primaries[dev] = context_new(dev, true);
	if (!primaries[dev])
		return CUDA_ERROR_OUT_OF_MEMORY;
	contexts_made += !primaries[dev]->alive;
	primaries[dev]->alive = true;
	primaries[dev]->primary_refs++;
	*out = primaries[dev];
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = 0;
	*active = primaries[dev] && primaries[dev]->alive;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!primaries[dev] || !primaries[dev]->primary_refs)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--primaries[dev]->primary_refs == 0)
		context_end(primaries[dev]);
	return CUDA_SUCCESS;
}

/*
 * "Destroy all allocations and reset all state on the primary context", which stays retained as
 * often as it was (CUDA driver API, 6.7, Primary Context Management). Seen on an H200 (580.159.04):
 * the handle can be pushed after it, calls then give CONTEXT_IS_DESTROYED, and the next retain
 * gives another handle.
 */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUcontext former;

	SIM_ENTER(SIM_NEED_INIT);
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	former = primaries[dev];
	if (!former || !former->alive)
		return CUDA_SUCCESS;
	context_end(former);
	former->was_reset = true;
	primaries[dev] = context_new(dev, true);
	if (!primaries[dev])
		return CUDA_ERROR_OUT_OF_MEMORY;
	primaries[dev]->primary_refs = former->primary_refs;
	primaries[dev]->alive = false; /* until it is retained */
	contexts_made--;
	return CUDA_SUCCESS;
}

unsigned long gdrsim_contexts(void)
{
	return contexts_made;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	CUcontext made;
	CUresult r;

	SIM_ENTER(SIM_NEED_INIT);
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_ok(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	made = context_new(dev, false);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->flags = flags;
	r = push(made);
	if (r == CUDA_SUCCESS)
		*ctx = made;
	return r;
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!known(ctx, false) || ctx->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	context_end(ctx);
	if (depth && stack[depth - 1] == ctx)
		depth--;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!known(ctx, true))
		return ctx ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
	return push(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (ctx)
		*ctx = stack[depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (ctx && !known(ctx, false))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth)
		depth--;
	return ctx ? push(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	*ctx = depth ? stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

/* A destroyed context still has its device. */
CUresult cuCtxGetFlags(unsigned int *flags)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = sim_ctx()->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
	SIM_ENTER(SIM_NEED_INIT);
	if (!dev)
		return CUDA_ERROR_INVALID_VALUE;
	if (!depth || !stack[depth - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	*dev = stack[depth - 1]->dev;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	CUcontext ctx;

	SIM_ENTER(SIM_NEED_CONTEXT);
	ctx = sim_ctx();
	for (CUstream s = ctx->streams; s; s = s->next)
		sim_drain_stream(s);
	return CUDA_SUCCESS;
}
