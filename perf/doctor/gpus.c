/* SPDX-License-Identifier: MIT */
/* Subject: the GPUs and the drivers that they are bound to; Tegra. It must not know what those report. */
#include <string.h>

#include "doctor/subjects.h"

/* Source: GPUDirect RDMA guide 13.4 "Porting to Tegra". */
static void collect(struct machine *m)
{
	char model[128], compatible[1024];

	if (root_text(m->root, "/proc/device-tree/model", model, sizeof(model)) || !model[0])
		strcpy(model, "a Tegra of unknown model");
	root_text(m->root, "/proc/device-tree/compatible", compatible, sizeof(compatible));
	if (strstr(compatible, "nvidia,tegra") || strstr(model, "Jetson") ||
	    root_exists(m->root, "/etc/nv_tegra_release"))
		strcpy(m->tegra, model);
}

static void no_gpu(const struct machine *m, struct report *r)
{
	if (m->pci.error)
		finding(r, SEV_UNKNOWN, NULL,
			"whether this machine has an NVIDIA GPU cannot be determined",
			"mount /sys, if this is a container or a sandbox",
			"the PCI bus cannot be seen from here: %s", strerror(m->pci.error));
	else
		finding(r, SEV_FAIL, NULL, NULL, NULL, "no NVIDIA GPU among the %zu PCI functions",
			m->pci.total);
}

static void check_bound(const struct machine *m, struct report *r, const struct unit *u)
{
	const char *driver = u->pci->driver;

	if (u->pci->gone)
		finding(r, SEV_FAIL, u->id,
			"it has fallen off the bus, or sleeps and does not wake up",
			"look for NVRM and Xid 79 in the kernel log; restart the machine",
			"%s does not answer: its configuration space reads as ones", u->name);
	else if (!strcmp(driver, "nvidia"))
		finding(r, SEV_OK, u->id, NULL, NULL, "%s, bound to the nvidia driver", u->name);
	else if (!strcmp(driver, "vfio-pci"))
		finding(r, SEV_WARN, u->id,
			"it is set aside for a virtual machine; no program here can use it",
			"use it inside that machine, or bind it to the nvidia driver",
			"%s is bound to vfio-pci", u->name);
	else if (!strcmp(driver, "nouveau"))
		finding(r, SEV_FAIL, u->id, "CUDA needs NVIDIA's own driver",
			"install NVIDIA's driver, put \"blacklist nouveau\" into a file in "
			"/etc/modprobe.d and restart",
			"%s is bound to nouveau", u->name);
	else
		finding(r, SEV_FAIL, u->id, "CUDA cannot use it",
			!m->driver.loaded
				? NULL
				: "look for NVRM in the kernel log; if it says BAR1 is 0M, enable "
				  "\"Above 4G decoding\" in the firmware's set-up",
			"%s is bound to %s", u->name, driver[0] ? driver : "no driver");
}

/* A GPU that is bound to CUDA's driver, and that CUDA does not show though it works. */
static void check_shown(const struct machine *m, struct report *r, const struct unit *u)
{
	const char *visible = m->probe->env.cuda_visible;

	if (!m->probe->init_code && !m->probe->stand_in && !u->probe &&
	    !strcmp(u->pci->driver, "nvidia"))
		finding(r, SEV_NOTE, u->id,
			"it was not tried, and does not count in the exit status",
			visible[0]
				? text("CUDA_VISIBLE_DEVICES is \"%s\": unset it to see all GPUs",
				       visible)
				: "if this process should have it, allow it that GPU",
			"%s is not shown by CUDA", u->name);
}

static void check(const struct machine *m, struct report *r)
{
	const struct probe_node *nvmap = probes_node(m->probe, "/dev/nvmap");

	if (!machine_has_gpu(m))
		no_gpu(m, r);
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++) {
		if (u->pci) {
			check_bound(m, r, u);
			check_shown(m, r, u);
		} else {
			finding(r, SEV_OK, u->id, "known to CUDA; not on the PCI bus", NULL, "%s",
				u->name);
		}
	}
	if (m->tegra[0])
		finding(r, SEV_OK, NULL,
			"CPU and GPU share one memory: programs allocate with cudaHostAlloc or "
			"barcopy_mem_alloc, which the host backend serves",
			NULL, "%s", m->tegra);
	if (nvmap && nvmap->exists && nvmap->error)
		finding(r, SEV_FAIL, NULL, node_means(m, nvmap),
			"add the user to the group video: usermod -aG video USER",
			"/dev/nvmap cannot be opened: %s", strerror(nvmap->error));
}

const struct subject subject_gpus = { "gpus", "GPUs", collect, check };
