/* SPDX-License-Identifier: MIT */
/*
 * Subject: what the rm backend needs of the GPU driver's resource manager, of the GPU and of the
 * system: the driver's nodes, a driver of 515 or newer that exports dma-bufs, and a whole GPU whose
 * memory the CPU may reach. Where several are missing the first of rm_obstacle() is the one to mend.
 * It must not know the other backends.
 */
#include <string.h>

#include "doctor/machine.h"

enum { FIRST_DRIVER = 515 }; /* the first with the ioctl that names the objects behind a range */

/* ---- facts ----------------------------------------------------------------------------------- */

/* The release of such a kernel: "5.15.167.4-microsoft-standard-WSL2" */
static void collect(struct machine *m)
{
	m->wsl =
		strstr(m->probe->release, "microsoft-standard") || strstr(m->probe->release, "WSL");
}

static bool node_opens(const struct machine *m, const char *path)
{
	const struct probe_node *n = probes_node(m->probe, path);

	return n && n->exists && !n->error;
}

static bool nodes_open(const struct machine *m, const struct unit *u)
{
	char path[32];

	if (!node_opens(m, "/dev/nvidiactl"))
		return false;
	snprintf(path, sizeof(path), "/dev/nvidia%d", u->minor);
	return u->minor < 0 || node_opens(m, path);
}

static bool is_old(const struct machine *m)
{
	return m->driver.major && m->driver.major < FIRST_DRIVER;
}

/* CUDA's name of a part of a GPU: "NVIDIA H100 80GB HBM3 MIG 1g.10gb" */
static bool is_mig(const struct probe_gpu *g)
{
	return g->mig || strstr(g->name, " MIG ");
}

/* ---- what stands in the way ------------------------------------------------------------------- */

static const struct obstacle
	wsl = {
		"under WSL there is no way to GPU memory",
		"use Linux itself instead of WSL",
		false,
	},
	old = {
		"a driver older than 515 does not tell what is behind an address",
		"install a newer GPU driver, or the kernel module gdrdrv",
		true,
	},
	nodes = {
		"it needs /dev/nvidiactl and the GPU's own node, as CUDA does",
		"see the nodes under \"GPU driver\": NVreg_DeviceFileMode of the driver or a udev "
		"rule sets their mode",
		false,
	},
	nodes_in_container = {
		"it needs /dev/nvidiactl and the GPU's own node, as CUDA does",
		"start the container through NVIDIA's container toolkit with the capability "
		"compute (NVIDIA_DRIVER_CAPABILITIES=compute,utility), which gives it the nodes",
		false,
	},
	proprietary = {
		"the proprietary kernel modules do not export dma-bufs, by which this way learns "
		"what is behind an address; exportable memory does without",
		"install the open kernel modules (Turing and later GPUs), or the kernel module "
		"gdrdrv",
		true,
	},
	confidential = {
		"with confidential computing the CPU may not map the GPU's memory; this way was "
		"not tried there",
		"copy through CUDA, or turn confidential computing off",
		true,
	},
	vgpu = {
		"this is a virtual GPU (vGPU), on which this way was not tried",
		"have the whole GPU passed through to this machine",
		true,
	},
	mig = {
		"this is a part of a GPU (MIG), on which this way was not tried",
		"load the kernel module gdrdrv, or use the whole GPU without MIG",
		true,
	},
	no_export = {
		"this GPU's memory is not exported as dma-buf, by which this way learns what is "
		"behind an address: the kernel may have no dma-bufs, or CUDA be older than 11.7",
		"load the kernel module gdrdrv",
		true,
	};

const struct obstacle *rm_obstacle(const struct machine *m, const struct unit *u)
{
	if (m->probe->stand_in)
		return NULL;
	if (m->wsl)
		return &wsl;
	if (is_old(m))
		return &old;
	if (!nodes_open(m, u))
		return m->container.is ? &nodes_in_container : &nodes;
	if (m->driver.flavour == FLAVOUR_PROPRIETARY && !u->probe->dmabuf)
		return &proprietary;
	if (m->probe->confidential)
		return &confidential;
	if (u->probe->vgpu)
		return &vgpu;
	if (is_mig(u->probe))
		return &mig;
	return u->probe->dmabuf ? NULL : &no_export;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool matters(const struct machine *m)
{
	return m->probed && !m->probe->stand_in && m->probe->gpus && !m->tegra.is;
}

static void check_system(const struct machine *m, struct report *r)
{
	struct finding *f;

	if (!matters(m))
		return;
	if (m->wsl) {
		f = report_add(r, SEV_NOTE, NULL, "this is Linux inside Windows (WSL)");
		finding_means(f, "its GPU driver has other nodes, and no backend for GPU memory "
				 "knows them");
	}
	if (m->probe->confidential) {
		f = report_add(r, SEV_NOTE, NULL, "confidential computing is on");
		finding_means(f, "the CPU may not map the GPU's memory then");
	}
}

static void check_driver(const struct machine *m, struct report *r)
{
	struct finding *f;

	if (!matters(m) || !m->driver.major)
		return;
	if (!is_old(m)) {
		report_add(r, SEV_OK, NULL, "the kernel driver is new enough: %d, rm needs %d",
			   m->driver.major, FIRST_DRIVER);
		return;
	}
	f = report_add(r, SEV_NOTE, NULL, "the kernel driver is too old for rm: %d, it needs %d",
		       m->driver.major, FIRST_DRIVER);
	finding_means(f, "it does not tell what is behind an address");
}

static void check_gpu(struct report *r, const struct unit *u)
{
	const struct probe_gpu *g = u->probe;
	struct finding *f;

	if (g->dmabuf) {
		f = report_add(r, SEV_OK, u->id, "its memory can be exported as dma-buf");
		finding_means(f, "that is how rm learns what is behind an address");
	} else {
		f = report_add(r, SEV_NOTE, u->id, "its memory cannot be exported as dma-buf");
		finding_means(f, "so rm does not learn what is behind memory of cudaMalloc");
	}
	if (g->vgpu)
		report_add(r, SEV_NOTE, u->id, "it is a virtual GPU (vGPU)");
	if (is_mig(g))
		report_add(r, SEV_NOTE, u->id, "it is divided (MIG)");
}

static void check_gpus(const struct machine *m, struct report *r)
{
	for (int i = 0; matters(m) && !m->wsl && i < m->units; i++)
		if (m->unit[i].probe && !m->unit[i].probe->integrated)
			check_gpu(r, &m->unit[i]);
}

static const struct check checks[] = {
	{ "system", check_system },
	{ "driver", check_driver },
	{ "gpu", check_gpus },
	{ NULL, NULL },
};

const struct subject subject_rm = { "rm", "Resource manager, for the backend rm", collect, checks };
