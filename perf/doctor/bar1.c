/* SPDX-License-Identifier: MIT */
/*
 * Subject: BAR1, the window through which the CPU reaches GPU memory: its size and what is
 * free. It must not know who maps. Source: GPUDirect RDMA guide 11.5, 12.1.
 */
#include "doctor/subjects.h"

enum { LITTLE = 16 << 20 }; /* below this, pins fail one after the other */
enum { OLD = 256 << 20 }; /* at most, without Resizable BAR */

/* "32.0 MiB" */
static const char *bytes_text(long long bytes)
{
	return bytes < 1LL << 30 ? text("%.1f MiB", (double)bytes / (1 << 20))
				 : text("%.1f GiB", (double)bytes / (1 << 30));
}

static void not_known(const struct machine *m, struct report *r, const struct unit *u)
{
	const struct probe_library *nvml = probes_library(m->probe, "libnvidia-ml.so.1");
	const char *all = m->probe->nvml_error;

	finding(r, SEV_UNKNOWN, u->id, NULL,
		!nvml || nvml->found ? NULL
		: m->container[0]
			? "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
			: "install the driver's utility libraries",
		"the use of BAR1: %s", all[0] ? all : u->probe->nvml_error);
}

static void check_size(const struct machine *m, struct report *r, const struct unit *u)
{
	const struct probe_gpu *g = u->probe;
	const char *means = NULL, *todo = NULL;
	enum severity severity = SEV_OK;

	if (g->bar1_free < LITTLE) {
		severity = SEV_WARN;
		means = "hardly anything more can be pinned: pins fail with ENOMEM";
		todo = "end or shrink what pins this GPU's memory: nvidia-smi lists its processes";
	} else if (g->bar1_total < g->memory) {
		severity = SEV_NOTE;
		means = text("smaller than the GPU's memory (%s): only a part of it can be pinned "
			     "at a time%s",
			     bytes_text(g->memory),
			     g->bar1_total > OLD ? ""
						 : "; this is the size of GPUs without Resizable "
						   "BAR, and of others while it is off");
		if (!m->vm[0])
			todo = "to enlarge it, if this GPU can: enable \"Resizable BAR\" and "
			       "\"Above 4G decoding\" in the firmware's set-up";
	} else if (g->memory) {
		means = text("all of the GPU's memory (%s) can be pinned at once",
			     bytes_text(g->memory));
	}
	finding(r, severity, u->id, means, todo, "BAR1: %s, %s used, %s free",
		bytes_text(g->bar1_total), bytes_text(g->bar1_used), bytes_text(g->bar1_free));
}

static void check(const struct machine *m, struct report *r)
{
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++)
		if (u->probe && !u->probe->integrated)
			(u->probe->nvml_error[0] ? not_known : check_size)(m, r, u);
}

const struct subject subject_bar1 = { "bar1", "BAR1", NULL, check };
