/* SPDX-License-Identifier: MIT */
/* Subject: the GPUs, and which driver has them; Tegra. It must not know what the driver reports. */
#include <string.h>

#include "doctor/subjects.h"

/* Source of what it means: GPUDirect RDMA guide 13.4 "Porting to Tegra". */
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
		report_add(r, SEV_UNKNOWN, NULL,
			   text("the PCI bus cannot be seen from here: %s", strerror(m->pci.error)),
			   "whether this machine has an NVIDIA GPU cannot be determined",
			   "mount /sys, if this is a container or a sandbox");
	else
		report_add(r, SEV_FAIL, NULL,
			   text("no NVIDIA GPU among the %zu PCI functions", m->pci.total), NULL,
			   NULL);
}

static void check_bound(const struct machine *m, struct report *r, const struct unit *u)
{
	const char *driver = u->pci->driver;

	if (u->pci->gone)
		report_add(
			r, SEV_FAIL, u->id,
			text("%s does not answer: its configuration space reads as ones", u->name),
			"it has fallen off the bus, or sleeps and does not wake up",
			"look for NVRM and Xid 79 in the kernel log; restart the machine");
	else if (!strcmp(driver, "nvidia"))
		report_add(r, SEV_OK, u->id, text("%s, bound to the nvidia driver", u->name), NULL,
			   NULL);
	else if (!strcmp(driver, "vfio-pci"))
		report_add(r, SEV_WARN, u->id, text("%s is bound to vfio-pci", u->name),
			   "it is set aside for a virtual machine; no program here can use it",
			   "use it inside that machine, or bind it to the nvidia driver");
	else if (!strcmp(driver, "nouveau"))
		report_add(r, SEV_FAIL, u->id, text("%s is bound to nouveau", u->name),
			   "CUDA needs NVIDIA's own driver",
			   "install NVIDIA's driver, put \"blacklist nouveau\" into a file in "
			   "/etc/modprobe.d and restart");
	else
		report_add(r, SEV_FAIL, u->id,
			   text("%s is bound to %s", u->name, driver[0] ? driver : "no driver"),
			   "CUDA cannot use it",
			   m->driver.loaded
				   ? "look for NVRM in the kernel log; if it says BAR1 is 0M, "
				     "enable \"Above 4G decoding\" in the firmware's set-up"
				   : NULL);
}

/* CUDA works, but does not show a GPU that is bound to its driver. */
static void check_seen(const struct machine *m, struct report *r, const struct unit *u)
{
	if (!m->probed || m->probe->init_code || m->probe->stand_in || u->probe ||
	    strcmp(u->pci->driver, "nvidia") != 0)
		return;
	report_add(r, SEV_NOTE, u->id, text("%s is not shown by CUDA", u->name),
		   "it was not tried, and does not count in the exit status",
		   m->probe->env.cuda_visible[0]
			   ? text("CUDA_VISIBLE_DEVICES is \"%s\": unset it to see all GPUs",
				  m->probe->env.cuda_visible)
			   : "if this process should have it, allow it that GPU");
}

static void check(const struct machine *m, struct report *r)
{
	const struct probe_node *nvmap = probes_node(m->probe, "/dev/nvmap");
	const char *means, *todo;

	if (!machine_has_gpu(m))
		no_gpu(m, r);
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++) {
		if (u->pci) {
			check_bound(m, r, u);
			check_seen(m, r, u);
		} else {
			report_add(r, SEV_OK, u->id, u->name, "known to CUDA; not on the PCI bus",
				   NULL);
		}
	}
	if (m->tegra[0])
		report_add(r, SEV_OK, NULL, m->tegra,
			   "CPU and GPU share one memory: programs allocate with cudaHostAlloc or "
			   "barcopy_mem_alloc, which the host backend serves",
			   NULL);
	if (nvmap && nvmap->exists && node_refused(m, nvmap, &means, &todo))
		report_add(r, SEV_FAIL, NULL,
			   text("/dev/nvmap cannot be opened: %s", strerror(nvmap->error)), means,
			   "add the user to the group video: usermod -aG video USER");
}

const struct subject subject_gpus = { "gpus", "GPUs", collect, check };
