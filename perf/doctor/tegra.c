/* SPDX-License-Identifier: MIT */
/*
 * Subject: Tegra (Jetson, DRIVE): the model and how programs allocate there. Source: GPUDirect RDMA
 * guide 13.4 "Porting to Tegra".
 */
#include <string.h>

#include "doctor/machine.h"

static void collect(struct machine *m)
{
	char model[256], compatible[1024];

	if (root_text(m->root, "/proc/device-tree/model", model, sizeof(model)))
		model[0] = '\0';
	if (root_text(m->root, "/proc/device-tree/compatible", compatible, sizeof(compatible)))
		compatible[0] = '\0';
	m->tegra.is = strstr(compatible, "nvidia,tegra") || strstr(model, "Jetson") ||
		      root_exists(m->root, "/etc/nv_tegra_release");
	if (m->tegra.is)
		snprintf(m->tegra.model, sizeof(m->tegra.model), "%.127s",
			 model[0] ? model : "a Tegra of unknown model");
}

static void check_tegra(const struct machine *m, struct report *r)
{
	const struct probe_node *n = probes_node(m->probe, "/dev/nvmap");
	bool dmabuf = false;
	struct finding *f;

	if (!m->tegra.is)
		return;
	for (int i = 0; i < m->units; i++)
		dmabuf |= unit_works(&m->unit[i], "dmabuf");
	f = report_add(r, SEV_OK, NULL, "%s", m->tegra.model);
	finding_means(f, "its GPU has no memory and no BAR of its own: CPU and GPU share one");
	f = report_add(r, SEV_NOTE, NULL,
		       "allocate by cudaHostAlloc instead of cudaMalloc (guide "
		       "13.4.1), or by barcopy_mem_alloc(), which does so");
	finding_means(f,
		      "that memory is served by the host backend, without a kernel module; memory "
		      "of cudaMalloc %s",
		      dmabuf ? "is served too here, by dmabuf" : "cannot be pinned here");
	if (n && n->exists && n->error) {
		f = report_add(r, SEV_FAIL, NULL,
			       "/dev/nvmap: mode %04o, owner %d:%d, cannot be "
			       "opened: %s",
			       n->mode, n->uid, n->gid, strerror(n->error));
		finding_means(f, "this user may not use the GPU");
		finding_todo(f, "join the group video: usermod -aG video USER, then log in again");
	}
}

static const struct check checks[] = {
	{ "tegra", check_tegra },
	{ NULL, NULL },
};

const struct subject subject_tegra = { "tegra", "Tegra", collect, checks };
