/* SPDX-License-Identifier: MIT */
/*
 * Events: a place in a stream that another stream waits for, without the CPU (CUDA driver API,
 * "Event Management"). For the Python tests, whose producers of arrays order streams so; the
 * library uses none.
 */
#include <stdlib.h>

#include "sim.h"

struct CUevent_st {
	CUstream stream; /* NULL: not recorded */
	unsigned long ticket; /* the stream's work before it has a smaller one */
};

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!event || flags & ~(unsigned int)CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_VALUE;
	*event = calloc(1, sizeof(**event));
	return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	r = event ? sim_stream(stream, &stream) : CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS) {
		event->stream = stream;
		event->ticket = stream->next_ticket;
	}
	return r;
}

/* Nothing waits for one that was never recorded. */
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	struct sim_op op = { 0 };
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!event || flags)
		return event ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	r = sim_stream(stream, &op.stream);
	if (r != CUDA_SUCCESS || !event->stream)
		return r;
	op.after = event->stream;
	op.after_ticket = event->ticket;
	return sim_submit(&op);
}

CUresult cuEventDestroy_v2(CUevent event)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	free(event);
	return CUDA_SUCCESS;
}
