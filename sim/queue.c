/* SPDX-License-Identifier: MIT */
/* The kernels of perf/queue/kernels.cu, as the stand-in's. */
#include "queue.h"

#include <stdbool.h>
#include <string.h>

#include "kernel.h"
#include "warp.h"

#include "queue/kernels.cu"

/* Kernels address memory by the GPU's addresses, lanes by the CPU's. */
static uint64_t reach(uint64_t addr, size_t size)
{
	return (uintptr_t)sim_kernel_reach(addr, size);
}

static bool take_view(const struct sim_launch *launch, barcopy_queue_view_t *view)
{
	memcpy(view, launch->param[0], sizeof(*view));
	view->requests = reach(view->requests, view->lines * 64);
	view->replies = reach(view->replies, view->lines * 64);
	view->control = reach(view->control, BARCOPY_QUEUE_CONTROL);
	view->state = reach(view->state, BARCOPY_QUEUE_STATE);
	return view->requests && view->replies && view->control && view->state;
}

struct args {
	barcopy_queue_view_t view;
	unsigned long long count, *in, *out;
	unsigned int words, flags;
};

static void echo_lane(void *arg)
{
	const struct args *a = arg;

	gdrcopy_queue_echo(a->view, a->count, a->flags);
}

void sim_queue_echo(const struct sim_launch *launch)
{
	struct args a;

	memcpy(&a.count, launch->param[1], sizeof(a.count));
	memcpy(&a.flags, launch->param[2], sizeof(a.flags));
	if (take_view(launch, &a.view))
		sim_warp_run(echo_lane, &a);
}

static void lines_lane(void *arg)
{
	const struct args *a = arg;

	gdrcopy_queue_lines(a->view, a->flags);
}

void sim_queue_lines(const struct sim_launch *launch)
{
	struct args a;

	memcpy(&a.flags, launch->param[1], sizeof(a.flags));
	if (take_view(launch, &a.view))
		sim_warp_run(lines_lane, &a);
}

static void bulk_lane(void *arg)
{
	const struct args *a = arg;

	gdrcopy_queue_bulk(a->view, a->in, a->out, a->words);
}

void sim_queue_bulk(const struct sim_launch *launch)
{
	uint64_t in, out;
	struct args a;

	memcpy(&in, launch->param[1], sizeof(in));
	memcpy(&out, launch->param[2], sizeof(out));
	memcpy(&a.words, launch->param[3], sizeof(a.words));
	a.in = (unsigned long long *)(uintptr_t)reach(in, a.words * 8u);
	a.out = (unsigned long long *)(uintptr_t)reach(out, a.words * 8u);
	if (take_view(launch, &a.view) && a.in && a.out)
		sim_warp_run(bulk_lane, &a);
}
