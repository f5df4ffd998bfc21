/* SPDX-License-Identifier: MIT */
/*
 * Subjects: GPUs and their drivers; BAR1; places. GPUDirect RDMA guide, "Supported Systems", "PCI
 * BAR sizes", "Displaying GPU BAR space", "Porting to Tegra".
 */
#include <string.h>

#include "doctor/doctor.h"

/* Source: GPUDirect RDMA guide, "Porting to Tegra". */
static void find_tegra(struct machine *m)
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
	const char *advice =
		visible[0]
			? text("CUDA_VISIBLE_DEVICES is \"%s\": unset it to see all GPUs", visible)
			: "if this process should have it, allow it that GPU";

	if (!m->probe->init_code && !u->probe && !strcmp(u->pci->driver, "nvidia"))
		finding(r, SEV_NOTE, u->id,
			"it was not tried, and does not count in the exit status", advice,
			"%s is not shown by CUDA", u->name);
}

static void check_gpus(const struct machine *m, struct report *r)
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
			"barcopy_mem_alloc, which the host backend maps",
			NULL, "%s", m->tegra);
	if (nvmap && nvmap->exists && nvmap->error)
		finding(r, SEV_FAIL, NULL, node_advice(m, nvmap).means,
			"add the user to the group video: usermod -aG video USER",
			"/dev/nvmap cannot be opened: %s", strerror(nvmap->error));
}

const struct subject subject_gpus = { "gpus", "GPUs", find_tegra, check_gpus };

/* ---- BAR1, the window through which the CPU reaches GPU memory ------------------------ */

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
			? "set NVIDIA_DRIVER_CAPABILITIES=compute,utility in the container's "
			  "environment"
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

static void check_bar1(const struct machine *m, struct report *r)
{
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++)
		if (u->probe && !u->probe->integrated)
			(u->probe->nvml_error[0] ? not_known : check_size)(m, r, u);
}

const struct subject subject_bar1 = { "bar1", "BAR1", NULL, check_bar1 };

/* ---- places: NUMA node and CPUs ------------------------------------------------------- */

enum { MAX_CPUS = 8192 };

/* Parses "0-15,32", as the kernel writes it, up to the first error. */
static void mark(bool set[MAX_CPUS], const char *list)
{
	unsigned int first, last;
	int n;

	while (sscanf(list, "%u%n", &first, &n) == 1) {
		list += n;
		last = first;
		if (sscanf(list, "-%u%n", &last, &n) == 1)
			list += n;
		for (unsigned int cpu = first; cpu <= last && cpu < MAX_CPUS; cpu++)
			set[cpu] = true;
		list += *list == ',';
	}
}

long cpus_common(const char *a, const char *b)
{
	bool in_a[MAX_CPUS] = { false }, in_b[MAX_CPUS] = { false };
	long n = 0;

	mark(in_a, a);
	mark(in_b, b);
	for (int cpu = 0; cpu < MAX_CPUS; cpu++)
		n += in_a[cpu] && in_b[cpu];
	return n;
}

static void find_node(const struct machine *m, const struct unit *u, struct place *p)
{
	char cpus[4096];

	if (u->pci->numa < 0)
		return;
	snprintf(p->numa, sizeof(p->numa), "%d", u->pci->numa % 10000);
	if (root_text(m->root, text("/sys/devices/system/node/node%d/cpulist", u->pci->numa), cpus,
		      sizeof(cpus)) ||
	    !cpus[0])
		return;
	snprintf(p->cpus, sizeof(p->cpus), "%.*s%s", (int)sizeof(p->cpus) - 4, cpus,
		 strlen(cpus) > sizeof(p->cpus) - 4 ? "..." : "");
	if (m->probe->cpus[0])
		p->usable = cpus_common(cpus, m->probe->cpus);
}

static void find_places(struct machine *m)
{
	for (struct unit *u = m->unit; u < m->unit + m->units; u++)
		if (u->pci)
			find_node(m, u, &u->place);
}

static void check_places(const struct machine *m, struct report *r)
{
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++) {
		const char *numa = u->place.numa;

		if (!u->place.usable)
			finding(r, SEV_WARN, u->id,
				"every access crosses the link between CPUs: each read takes "
				"longer",
				text("numactl --cpunodebind=%s, or ask the scheduler of the "
				     "container or "
				     "batch system for CPUs of that node",
				     numa),
				"this process may run on no CPU of the GPU's NUMA node (%s), but "
				"on "
				"CPUs %s",
				numa, m->probe->cpus);
	}
}

const struct subject subject_places = { "places", "Places of the GPUs", find_places, check_places };
