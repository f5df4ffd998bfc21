/* SPDX-License-Identifier: MIT */
/* Subject: the kernel's GPU driver, its nodes, libcuda. It must not know libgdrapi. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/cuda.h"
#include "doctor/machine.h"

/* ---- facts ----------------------------------------------------------------------------------- */

/* "580.159.04": digits and points, at least one point */
static bool is_version(const char *word)
{
	return isdigit((unsigned char)*word) && strchr(word, '.') &&
	       strspn(word, "0123456789.") == strlen(word);
}

/*
 * "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ..." or
 * "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
 */
static void parse_version(struct driver_facts *d, char *text)
{
	char *line, *word, *save = NULL;

	line = strtok_r(text, "\n", &save);
	if (!line)
		return;
	if (strstr(line, "Open Kernel Module"))
		d->flavour = FLAVOUR_OPEN;
	else if (strstr(line, "Kernel Module"))
		d->flavour = FLAVOUR_PROPRIETARY;
	save = NULL;
	for (word = strtok_r(line, " \t", &save); word; word = strtok_r(NULL, " \t", &save))
		if (is_version(word) && strlen(word) < sizeof(d->version)) {
			strcpy(d->version, word);
			return;
		}
}

/* The number of a GPU's node: "Device Minor: 	 0" */
static int find_minor(struct machine *m, const char *pci)
{
	char path[128], text[4096], *at;

	snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", pci);
	if (root_text(m->root, path, text, sizeof(text)))
		return -1;
	at = strstr(text, "Device Minor:");
	if (!at)
		return -1;
	at += strlen("Device Minor:");
	at += strspn(at, " \t");
	return isdigit((unsigned char)*at) ? atoi(at) : -1;
}

static void collect(struct machine *m)
{
	struct driver_facts *d = &m->driver;
	char text[1024];

	if (!root_text(m->root, "/proc/driver/nvidia/version", text, sizeof(text))) {
		d->loaded = true;
		parse_version(d, text);
	} else if (!root_text(m->root, "/sys/module/nvidia/version", text, sizeof(text))) {
		d->loaded = true;
		snprintf(d->version, sizeof(d->version), "%.31s", text);
	} else {
		d->loaded = root_exists(m->root, "/sys/module/nvidia");
	}
	if (is_version(d->version))
		d->major = atoi(d->version);
	for (int i = 0; i < m->units; i++)
		if (m->unit[i].pci)
			m->unit[i].minor = find_minor(m, m->unit[i].id);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void check_module(const struct machine *m, struct report *r)
{
	const struct driver_facts *d = &m->driver;
	struct finding *f;

	if (!d->loaded) {
		if (!m->units || m->tegra.is) /* a Jetson has another; no GPU: none is needed */
			return;
		if (m->probed && m->probe->gpus) {
			f = report_add(r, SEV_UNKNOWN, NULL,
				       "the version of the kernel's GPU driver: neither "
				       "/proc/driver/nvidia nor /sys/module/nvidia is there");
			finding_means(f, "CUDA works all the same, so the driver is loaded");
			return;
		}
		f = report_add(r, SEV_FAIL, NULL, "the kernel module nvidia is not loaded");
		finding_means(f, "without it there is no CUDA and no way to GPU memory");
		finding_todo(
			f,
			m->container.is
				? "install and load NVIDIA's driver on the host, not here"
				: "modprobe nvidia; if there is no such module, install NVIDIA's "
				  "driver. With Secure Boot its modules must be signed");
		return;
	}
	f = report_add(r, SEV_OK, NULL, "kernel driver %s%s",
		       d->version[0] ? d->version : "of unknown version",
		       d->flavour == FLAVOUR_OPEN	   ? ", open kernel modules"
		       : d->flavour == FLAVOUR_PROPRIETARY ? ", proprietary kernel modules"
							   : "");
	if (d->flavour == FLAVOUR_OPEN)
		finding_means(f, "this flavour can export GPU memory as dma-buf");
	else if (d->flavour == FLAVOUR_PROPRIETARY)
		finding_means(f,
			      "this flavour does not export GPU memory as dma-buf (README of the "
			      "driver, \"Open Linux Kernel Modules\"): the dmabuf backend cannot "
			      "serve here, and rm serves exportable memory at most");
}

/* One node that CUDA needs; `gpu` is the one it belongs to, NULL: all. */
static void check_node(const struct machine *m, struct report *r, const char *path, const char *gpu)
{
	const struct probe_node *n = probes_node(m->probe, path);
	struct finding *f;

	if (n && n->exists && !n->error) {
		report_add(r, SEV_OK, gpu, "%s: mode %04o, owner %d:%d, opens", path, n->mode,
			   n->uid, n->gid);
		return;
	}
	if (!n || !n->exists) {
		f = report_add(r, SEV_FAIL, gpu, "%s is missing", path);
		finding_means(f, "CUDA needs it%s",
			      strcmp(path, "/dev/nvidia-uvm") ? ", and so does the rm backend"
							      : "");
		if (m->container.is)
			finding_todo(
				f, "start the container with the GPU (--gpus all, or CDI: --device "
				   "nvidia.com/gpu=all)");
		else if (!strcmp(path, "/dev/nvidia-uvm"))
			finding_todo(f, "as root: nvidia-modprobe -u -c 0");
		else
			finding_todo(f, "as root: run nvidia-smi once, which makes it");
		return;
	}
	f = report_add(r, SEV_FAIL, gpu, "%s: mode %04o, owner %d:%d, cannot be opened: %s", path,
		       n->mode, n->uid, n->gid, strerror(n->error));
	switch (n->error) {
	case EPERM:
		finding_means(f, "the mode is not what forbids it: a device cgroup does");
		if (m->container.is)
			finding_todo(f, "start the container with --device %s", path);
		else
			finding_todo(f,
				     "the service or session that this runs in must be allowed "
				     "it (systemd: DeviceAllow=%s rw)",
				     path);
		break;
	case EACCES:
		finding_means(f, "this user (%d) may not use the GPU", m->probe->euid);
		finding_todo(f,
			     "join the group that owns the node, or have the driver's parameters "
			     "NVreg_DeviceFileMode, NVreg_DeviceFileGID set otherwise");
		break;
	case ENXIO:
	case ENODEV:
		finding_means(f,
			      "the node's number (%d:%d) belongs to no driver: it was left by "
			      "another one",
			      n->major, n->minor);
		finding_todo(f, "as root: rm %s, then nvidia-modprobe -u -c 0, nvidia-smi", path);
		break;
	case ENOTTY:
		finding_means(f, "something else than a device node stands in its place");
		finding_todo(f, "as root: remove it, then nvidia-modprobe -u -c 0, nvidia-smi");
		break;
	default:
		finding_means(f, "the driver cannot start the GPU");
		finding_todo(f, "look into the kernel's log for NVRM and Xid");
	}
}

static void check_nodes(const struct machine *m, struct report *r)
{
	char path[64];

	if (!m->driver.loaded)
		return;
	if (!m->probed) {
		report_add(r, SEV_UNKNOWN, NULL, "the nodes of the driver: not probed");
		return;
	}
	if (m->probe->stand_in)
		return;
	check_node(m, r, "/dev/nvidiactl", NULL);
	check_node(m, r, "/dev/nvidia-uvm", NULL);
	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];

		if (u->minor < 0 || !u->pci || strcmp(u->pci->driver, "nvidia"))
			continue;
		/* a GPU of the host that a container was not given is looked at elsewhere */
		if (!u->probe && m->probe->gpus && m->container.is)
			continue;
		snprintf(path, sizeof(path), "/dev/nvidia%d", u->minor);
		check_node(m, r, path, u->id);
	}
}

/* The release that a library's file name carries: "libcuda.so.580.159.04"; "" if none. */
static const char *release_of(const struct probe_library *l)
{
	const char *so = strstr(l->path, ".so.");

	return so && is_version(so + 4) ? so + 4 : "";
}

static void check_libcuda(const struct machine *m, struct report *r)
{
	const struct probe_library *l = probes_library(m->probe, "libcuda.so.1");
	const struct driver_facts *d = &m->driver;
	struct finding *f;

	if (!m->probed) {
		if (machine_has_gpu(m))
			report_add(r, SEV_UNKNOWN, NULL, "libcuda: not probed");
		return;
	}
	if (!l) {
		f = report_add(r, SEV_UNKNOWN, NULL, "libcuda: looking for it failed: %s",
			       m->probe->cuda_failure);
		return;
	}
	if (!l->found && m->probe->cuda_failure[0])
		return; /* told below */
	if (!l->found) {
		f = report_add(r, machine_has_gpu(m) ? SEV_FAIL : SEV_NOTE, NULL,
			       "libcuda.so.1 cannot be loaded: %s", library_error(l));
		finding_means(f, "CUDA's own library comes with the GPU driver, not with the "
				 "toolkit; without it no program here can use a GPU");
		if (machine_has_gpu(m))
			finding_todo(
				f,
				m->container.is
					? "start the container through NVIDIA's container toolkit "
					  "with the capability compute "
					  "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
					: "install the user space part of the driver (Debian, "
					  "Ubuntu: libcuda1 or libnvidia-compute-*)");
		return;
	}
	if (m->probe->stand_in) {
		f = report_add(r, SEV_NOTE, NULL, "%s is barcopy's stand-in, CUDA %d.%d", l->path,
			       m->probe->cuda_version / 1000, m->probe->cuda_version % 1000 / 10);
		finding_means(f, "nothing below is about a GPU of this machine");
		return;
	}
	if (release_of(l)[0] && d->version[0] && strcmp(release_of(l), d->version) &&
	    !m->probe->init_code) {
		f = report_add(r, SEV_NOTE, NULL, "%s, CUDA %d.%d, beside the kernel driver %s",
			       l->path, m->probe->cuda_version / 1000,
			       m->probe->cuda_version % 1000 / 10, d->version);
		finding_means(
			f, "of two releases, and CUDA starts all the same: the library is that of "
			   "CUDA's package for forward compatibility");
		return;
	}
	if (release_of(l)[0] && d->version[0] && strcmp(release_of(l), d->version)) {
		f = report_add(r, SEV_FAIL, NULL, "%s does not fit the kernel driver %s", l->path,
			       d->version);
		finding_means(f, "the two must be of one release, or the library must be that of "
				 "CUDA's package for forward compatibility");
		finding_todo(
			f,
			m->container.is
				? "remove the image's own libcuda, or restart the container after "
				  "the host's driver was upgraded"
				: "restart, or reload the driver's modules: an upgrade is half "
				  "done");
		return;
	}
	report_add(r, SEV_OK, NULL, "%s, CUDA %d.%d", l->path, m->probe->cuda_version / 1000,
		   m->probe->cuda_version % 1000 / 10);
}

static void check_cuda(const struct machine *m, struct report *r)
{
	const struct probe_library *l = probes_library(m->probe, "libcuda.so.1");
	struct finding *f;

	if (!m->probed)
		return;
	if (m->probe->cuda_failure[0]) {
		f = report_add(r, SEV_FAIL, NULL, "asking libcuda about its GPUs failed: %s",
			       m->probe->cuda_failure);
		finding_means(f, "the driver is broken or hangs");
		finding_todo(f, "look into the kernel's log for NVRM and Xid; does nvidia-smi "
				"answer?");
		return;
	}
	if (!l || !l->found)
		return;
	if (m->probe->init_code) {
		f = report_add(r, machine_has_gpu(m) ? SEV_FAIL : SEV_NOTE, NULL,
			       "CUDA does not start: cuInit: %s", m->probe->init_text);
		finding_means(f, "no program here can use a GPU");
		if (m->probe->init_code == CUDA_ERROR_NO_DEVICE && m->probe->env.cuda_visible[0])
			finding_todo(f, "CUDA_VISIBLE_DEVICES is \"%s\": unset it",
				     m->probe->env.cuda_visible);
		else if (m->probe->init_code == CUDA_ERROR_SYSTEM_NOT_READY)
			finding_todo(f, "GPUs joined by NVSwitch need the service "
					"nvidia-fabricmanager: systemctl status "
					"nvidia-fabricmanager");
		else if (machine_has_gpu(m))
			finding_todo(f,
				     "mend the other faults of this report first; then %sthe "
				     "kernel's log%s may tell more",
				     m->tegra.is ? "" : "nvidia-smi and ",
				     m->tegra.is ? "" : " (NVRM)");
		return;
	}
	report_add(r, SEV_OK, NULL, "CUDA starts and sees %d GPU%s", m->probe->gpus,
		   m->probe->gpus == 1 ? "" : "s");
}

static const struct check checks[] = {
	{ "module", check_module }, { "nodes", check_nodes }, { "libcuda", check_libcuda },
	{ "cuda", check_cuda },	    { NULL, NULL },
};

const struct subject subject_driver = { "driver", "GPU driver", collect, checks };
