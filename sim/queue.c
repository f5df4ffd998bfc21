/* SPDX-License-Identifier: MIT */
/* The kernels of perf/queue/kernels.cu, as the stand-in's. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "kernel.h"
#include "warp.h"

/* Of a grid of warps, each in a thread. */
static _Thread_local struct {
	unsigned int x;
} blockIdx;

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
	unsigned long long count, *bulk, in, out, first, last;
	unsigned int words;
};

/* One lane of the kernel of that name. */
#define LANE(kernel, ...)                            \
	static void kernel##_lane(void *arg)         \
	{                                            \
		const struct args *a = arg;          \
                                                     \
		gdrcopy_queue_##kernel(__VA_ARGS__); \
	}
LANE(echo, a->view, a->count)
LANE(bulk, a->view, a->bulk, a->words)
LANE(slots, a->in, a->out, a->words, a->first, a->last)

void sim_queue_echo(const struct sim_launch *launch)
{
	struct args a;

	memcpy(&a.count, launch->param[1], sizeof(a.count));
	if (take_view(launch, &a.view))
		sim_warp_run(echo_lane, &a);
}

void sim_queue_bulk(const struct sim_launch *launch)
{
	uint64_t bulk;
	struct args a;

	memcpy(&bulk, launch->param[1], sizeof(bulk));
	memcpy(&a.words, launch->param[2], sizeof(a.words));
	a.bulk = a.words ? (unsigned long long *)(uintptr_t)reach(bulk, a.words * 16u) : NULL;
	if (take_view(launch, &a.view) && (a.bulk || !a.words))
		sim_warp_run(bulk_lane, &a);
}

/* The parameters of a grid of ports, whose threads post from several threads of the stand-in. */
struct port_args {
	barcopy_port_view_t view;
	unsigned int first, producers, count, how, block;
	unsigned long long *sum;
};

static void port_lane(void *arg)
{
	const struct port_args *a = arg;

	gdrcopy_port_posts(a->view, a->first, a->producers, a->count, a->how, a->sum);
}

static void *port_warp(void *arg)
{
	blockIdx.x = ((const struct port_args *)arg)->block;
	sim_warp_run(port_lane, arg);
	return NULL;
}

void sim_port_posts(const struct sim_launch *launch)
{
	enum { WARPS = 8 };
	struct port_args a[WARPS];
	pthread_t thread[WARPS];
	unsigned int n = 0;
	uint64_t sum;

	memcpy(&a->view, launch->param[0], sizeof(a->view));
	memcpy(&a->first, launch->param[1], sizeof(a->first));
	memcpy(&a->producers, launch->param[2], sizeof(a->producers));
	memcpy(&a->count, launch->param[3], sizeof(a->count));
	memcpy(&a->how, launch->param[4], sizeof(a->how));
	memcpy(&sum, launch->param[5], sizeof(sum));
	a->sum = (unsigned long long *)(uintptr_t)reach(sum, 16);
	a->view.ring = reach(a->view.ring, a->view.lines * 64);
	a->view.control = reach(a->view.control,
				BARCOPY_PORT_CONTROL + a->view.lines * BARCOPY_PORT_SLOT);
	if (!a->sum || !a->view.ring || !a->view.control)
		return;
	for (; n < launch->grid[0] && n < WARPS; n++) {
		a[n] = a[0];
		a[n].block = n;
		if (pthread_create(&thread[n], NULL, port_warp, &a[n]))
			break;
	}
	while (n)
		pthread_join(thread[--n], NULL);
}

void sim_queue_slots(const struct sim_launch *launch)
{
	struct args a;

	memcpy(&a.in, launch->param[0], sizeof(a.in));
	memcpy(&a.out, launch->param[1], sizeof(a.out));
	memcpy(&a.words, launch->param[2], sizeof(a.words));
	memcpy(&a.first, launch->param[3], sizeof(a.first));
	memcpy(&a.last, launch->param[4], sizeof(a.last));
	a.in = reach(a.in, a.words * 8u);
	a.out = reach(a.out, a.words * 8u);
	if (a.in && a.out && a.words)
		sim_warp_run(slots_lane, &a);
}
