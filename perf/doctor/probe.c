/* SPDX-License-Identifier: MIT */
/*
 * Asks the machine, part by part; the parts that load drivers run in children of their own, which may
 * crash, hang or end without ending the doctor. It must not know what the answers mean.
 */
#include "doctor/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "common/exit.h"
#include "common/child.h"

enum { LOAD_S = 60, TRIALS_S = 60, NODES_S = 20 };
enum { DESCRIPTORS = 64 }; /* of libcuda and the library together; the doctor itself needs a few */

/* With too few descriptors every open() fails, as if the machine lacked the file. */
static void make_room_for_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= DESCRIPTORS)
		return;
	limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
	if (limit.rlim_cur < DESCRIPTORS || setrlimit(RLIMIT_NOFILE, &limit))
		tool_fail("this process may open %llu files at a time, too few to look at the "
			  "machine: raise that (ulimit -n)",
			  (unsigned long long)limit.rlim_cur);
}

static void load(void *arg)
{
	struct probes *p = arg;

	probe_library(p, 0);
	if (p->library[0].found)
		probe_cuda(p);
}

static void ask_nvml(void *arg)
{
	struct probes *p = arg;

	probe_library(p, 1);
	if (p->library[1].found)
		probe_nvml(p);
	else
		strcpy(p->nvml_error, "libnvidia-ml.so.1 cannot be loaded");
}

/* Without gpu_find(), which would end the process. */
static void try_gpu(void *arg)
{
	struct probe_gpu *g = arg;
	struct gpu gpu = { .ordinal = g->ordinal };
	CUresult rc;

	cuda_dl_load();
	rc = cu.Init(0);
	if (rc == CUDA_SUCCESS)
		rc = cu.DeviceGet(&gpu.dev, gpu.ordinal);
	if (rc == CUDA_SUCCESS)
		rc = cu.DevicePrimaryCtxRetain(&gpu.ctx, gpu.dev);
	if (rc == CUDA_SUCCESS)
		rc = cu.CtxSetCurrent(gpu.ctx);
	if (rc == CUDA_SUCCESS)
		probe_trials(g, &gpu);
	else
		snprintf(g->context_error, sizeof(g->context_error), "%s", cuda_error_text(rc));
}

/* A trial that ends its process has failed; the next child starts with the trial after it. */
static void try_all(struct probe_gpu *g)
{
	char why[PROBE_TEXT - 32];
	int before;

	do {
		before = g->trials;
		if (child_isolate(try_gpu, g, TRIALS_S, why, sizeof(why)))
			return;
		if (g->trials == before) {
			snprintf(g->context_error, sizeof(g->context_error), "%.*s",
				 (int)sizeof(g->context_error) - 1, why);
			return;
		}
		g->trial[g->trials - 1].error = EIO;
		snprintf(g->trial[g->trials - 1].text, PROBE_TEXT, "the trial was %s", why);
	} while (g->trials < PROBE_TRIALS);
}

struct probes *probes_make(void)
{
	struct probes *shared;
	char why[sizeof(shared->cuda_failure)];

	make_room_for_descriptors();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		tool_fail("out of memory: %zu bytes", sizeof(*shared));
	probe_process(shared);
	if (!child_isolate(load, shared, LOAD_S, why, sizeof(why)))
		memcpy(shared->cuda_failure, why, sizeof(why));
	if (!child_isolate(ask_nvml, shared, LOAD_S, why, sizeof(why)))
		snprintf(shared->nvml_error, sizeof(shared->nvml_error), "asking it: %.200s", why);
	for (int i = 0; i < shared->gpus; i++)
		try_all(&shared->gpu[i]);
	/* last, because libcuda may make missing nodes by nvidia-modprobe; twice, because an open()
	 * that hangs ends the first child */
	for (int i = 0; i < 2 && !child_isolate(probe_nodes, shared, NODES_S, why, sizeof(why));
	     i++)
		;
	return shared;
}
