/* SPDX-License-Identifier: MIT */
/* Subjects: the kind of machine; the kernel's GPU driver, its nodes, libcuda. */
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "doctor/doctor.h"

static void find_container(struct machine *m)
{
	static const char *const files[] = { "/.dockerenv", "/run/.containerenv",
					     "/run/systemd/container" };
	const char *sign = NULL;
	char lines[4096];

	if (m->probe->env.container[0] || m->probe->env.kubernetes[0])
		sign = m->probe->env.container[0] ? "environment variable container"
						  : "environment variable KUBERNETES_SERVICE_HOST";
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (!sign && root_exists(m->root, files[i]))
			sign = files[i];
	root_text(m->root, "/proc/1/cgroup", lines, sizeof(lines));
	if (!sign && (strstr(lines, "docker") || strstr(lines, "kubepods") || strstr(lines, "lxc")))
		sign = "/proc/1/cgroup";
	snprintf(m->container, sizeof(m->container), "%s", sign ? sign : "");
}

static void find_host(struct machine *m)
{
	char line[60];

	find_container(m);
	if (m->probe->hypervisor[0])
		snprintf(m->vm, sizeof(m->vm), "%s", m->probe->hypervisor);
	else if (!root_text(m->root, "/sys/hypervisor/type", line, sizeof(line)))
		strcpy(m->vm, line);
	else if (!root_text(m->root, "/sys/class/dmi/id/sys_vendor", line, sizeof(line)) &&
		 (!strcmp(line, "QEMU") || !strncmp(line, "VMware", 6)))
		strcpy(m->vm, line);
	/* "5.15.167.4-microsoft-standard-WSL2" */
	m->wsl = strstr(m->probe->release, "microsoft-standard");
}

static void check_host(const struct machine *m, struct report *r)
{
	const char *visible = m->probe->env.visible;

	if (m->container[0])
		finding(r, SEV_NOTE, NULL,
			"GPU driver and kernel module belong to the host; which parts of them are "
			"visible here was chosen when the container was started",
			NULL, "this is a container (%s)", m->container);
	if (m->container[0] && (!strcmp(visible, "void") || !strcmp(visible, "none")))
		finding(r, SEV_WARN, NULL, "the container was started without a GPU",
			m->probe->env.kubernetes[0] ? give_gpu(m)
						    : "start the container with "
						      "NVIDIA_VISIBLE_DEVICES=all",
			"NVIDIA_VISIBLE_DEVICES is \"%s\"", visible);
	if (m->probe->confidential)
		finding(r, SEV_NOTE, NULL, "the CPU may not map the GPU's memory", NULL,
			"confidential computing is on");
	if (m->wsl)
		finding(r, SEV_NOTE, NULL, "its GPU driver gives the CPU no access to GPU memory",
			NULL, "this is Linux inside Windows (WSL)");
	else if (m->vm[0] && machine_has_gpu(m))
		finding(r, SEV_NOTE, NULL,
			"the NUMA nodes below are what the hypervisor shows", NULL,
			"this is a virtual machine (%s)", m->vm);
}

const struct subject subject_host = { "host", "Machine", find_host, check_host };

/* ---- the GPU driver ------------------------------------------------------------------- */

/*
 * "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ..." or
 * "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
 */
static void parse_version(struct machine *m, const char *line)
{
	const char *version = strstr(line, "  ");

	m->driver.flavour = strstr(line, "Open Kernel Module") ? FLAVOUR_OPEN
			    : strstr(line, "Kernel Module")    ? FLAVOUR_PROPRIETARY
							       : FLAVOUR_UNKNOWN;
	if (version)
		sscanf(version, " %31[0-9.]", m->driver.version);
}

/* The number of a GPU's node: "Device Minor: 	 0" */
static int find_minor(struct machine *m, const char *pci)
{
	char lines[4096], *at;
	int minor = -1;

	root_text(m->root, text("/proc/driver/nvidia/gpus/%s/information", pci), lines,
		  sizeof(lines));
	at = strstr(lines, "Device Minor:");
	return at && sscanf(at, "Device Minor: %d", &minor) == 1 ? minor : -1;
}

static void find_driver(struct machine *m)
{
	char lines[1024];

	m->driver.loaded = true;
	if (!root_text(m->root, "/proc/driver/nvidia/version", lines, sizeof(lines)))
		parse_version(m, lines);
	else if (!root_text(m->root, "/sys/module/nvidia/version", lines, sizeof(lines)))
		snprintf(m->driver.version, sizeof(m->driver.version), "%.31s", lines);
	else
		m->driver.loaded = root_exists(m->root, "/sys/module/nvidia");
	m->driver.major = atoi(m->driver.version);
	for (struct unit *u = m->unit; u < m->unit + m->units; u++)
		if (u->pci)
			u->minor = find_minor(m, u->id);
}

static void check_module(const struct machine *m, struct report *r)
{
	static const char *const flavour[] = { [FLAVOUR_UNKNOWN] = "",
					       [FLAVOUR_OPEN] = ", open kernel modules",
					       [FLAVOUR_PROPRIETARY] =
						       ", proprietary kernel modules" };

	if (m->driver.loaded)
		finding(r, SEV_OK, NULL, NULL, NULL, "kernel driver %s%s",
			m->driver.version[0] ? m->driver.version : "of unknown version",
			flavour[m->driver.flavour]);
	else if (m->units && !m->tegra[0] && !m->probe->gpus) /* a Jetson has another */
		finding(r, SEV_FAIL, NULL,
			"without it there is no CUDA and no access to GPU memory",
			m->container[0]
				? "install and load NVIDIA's driver on the host, not here"
				: "modprobe nvidia; if there is no such module, install NVIDIA's "
				  "driver. With Secure Boot its modules must be signed",
			"the kernel module nvidia is not loaded");
}

/* The newest release in tests/rm-abi/rm-abi.txt. */
#define RM_COMPARED "595.45.04"

static bool newer(const char *version, const char *than)
{
	unsigned int a[3] = { 0 }, b[3] = { 0 };
	int i = 0;

	sscanf(version, "%u.%u.%u", &a[0], &a[1], &a[2]);
	sscanf(than, "%u.%u.%u", &b[0], &b[1], &b[2]);
	while (i < 2 && a[i] == b[i])
		i++;
	return a[i] > b[i];
}

static void check_compared(const struct machine *m, struct report *r)
{
	if (m->driver.loaded && !m->tegra[0] && newer(m->driver.version, RM_COMPARED))
		finding(r, SEV_NOTE, NULL,
			text("they are the same in all releases from 580 on; no later source was "
			     "read. rm tries them on memory of its own before it maps any, and "
			     "names what differs%s",
			     newer(m->driver.version, "609")
				     ? ". By NVIDIA's notes drivers from 610 on also map dma-bufs "
				       "of "
				       "discrete GPUs: the library tries rm first"
				     : ""),
			NULL,
			"the driver is newer than " RM_COMPARED
			", the newest that the rm backend's "
			"structures were compared with");
}

/*
 * nvidia_vma_access() of 595.44.02 to 595.45.04 reads a mapping's context before it has looked for
 * it (kernel-open/nvidia/nv-mmap.c). A crash of 595.58.03 is reported, and 595.71.05 fixes it, by
 * open-gpu-kernel-modules 1107 and 1096; neither release's source was read.
 */
static void check_vma_access(const struct machine *m, struct report *r)
{
	if (m->driver.loaded && newer(m->driver.version, "595.44") &&
	    !newer(m->driver.version, "595.71.04"))
		finding(r, SEV_NOTE, NULL,
			"use no gdb, and nothing else that reads /proc/PID/mem, on processes that "
			"have mapped GPU memory, by this library or by CUDA; 595.71.05 fixes it",
			NULL, "a debugger that reads a mapping of this driver crashes the kernel");
}

/* One node that CUDA needs; `gpu` is the one it belongs to, NULL: all. */
static void check_node(const struct machine *m, struct report *r, const char *path, const char *gpu)
{
	const struct probe_node *n = probes_node(m->probe, path);
	bool uvm = !strcmp(path, "/dev/nvidia-uvm");

	if (!n || !n->exists)
		finding(r, SEV_FAIL, gpu,
			uvm ? "CUDA needs it" : "CUDA needs it, and so does the rm backend",
			m->container[0] ? give_gpu(m)
			: uvm		? "as root: nvidia-modprobe -u -c 0"
					: "as root: run nvidia-smi once, which makes it",
			"%s is missing", path);
	else if (n->error)
		finding(r, SEV_FAIL, gpu, node_advice(m, n).means, node_advice(m, n).todo,
			"%s (mode %04o, owner %d:%d) cannot be opened: %s", path, n->mode, n->uid,
			n->gid, strerror(n->error));
}

static void check_nodes(const struct machine *m, struct report *r)
{
	size_t before = r->count;

	if (!m->driver.loaded || m->probe->stand_in)
		return;
	check_node(m, r, "/dev/nvidiactl", NULL);
	check_node(m, r, "/dev/nvidia-uvm", NULL);
	/* A container has only the nodes of its own GPUs: those of GPUs that CUDA does not show may
	 * be missing. */
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++)
		if (u->minor >= 0 && (u->probe || !m->probe->gpus))
			check_node(m, r, text("/dev/nvidia%d", u->minor), u->id);
	if (r->count == before)
		finding(r, SEV_OK, NULL, NULL, NULL, "its device nodes open");
}

/* What to do about an error of cuInit(); NULL: nothing is known. */
static const char *cuda_todo(const struct machine *m)
{
	switch (m->probe->init_code) {
	case CUDA_ERROR_NO_DEVICE:
		return m->probe->env.cuda_visible[0]
			       ? text("CUDA_VISIBLE_DEVICES is \"%s\": unset it",
				      m->probe->env.cuda_visible)
			       : NULL;
	case CUDA_ERROR_SYSTEM_NOT_READY:
		return "GPUs with NVSwitch need the service nvidia-fabricmanager: systemctl status "
		       "nvidia-fabricmanager";
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
		return m->container[0] ? "remove the image's own libcuda, or restart the container "
					 "if the host's driver was upgraded"
				       : "restart, or reload the driver's modules: libcuda and the "
					 "kernel driver must be of one release";
	default:
		return NULL;
	}
}

static void check_cuda(const struct machine *m, struct report *r)
{
	const struct probe_library *l = probes_library(m->probe, "libcuda.so.1");
	enum severity severity = machine_has_gpu(m) ? SEV_FAIL : SEV_NOTE;
	const struct probes *p = m->probe;

	if (l && l->found)
		finding(r, SEV_OK, NULL, NULL, NULL, "%s, CUDA %d.%d",
			p->stand_in ? "barcopy's stand-in for libcuda" : l->path,
			p->cuda_version / 1000, p->cuda_version % 1000 / 10);
	if (p->cuda_failure[0])
		finding(r, SEV_FAIL, NULL, "the driver is broken or hangs",
			"look for NVRM and Xid in the kernel log; see whether nvidia-smi answers",
			"asking libcuda for its GPUs failed: %s", p->cuda_failure);
	else if (l && !l->found)
		finding(r, severity, NULL,
			"it comes with the GPU driver, not with the CUDA toolkit",
			!machine_has_gpu(m) ? NULL
			: m->container[0]   ? "start the container by NVIDIA's runtime (a pod: "
					      "runtimeClassName: nvidia, where that is not the "
					      "default), with NVIDIA_DRIVER_CAPABILITIES="
					      "compute,utility in its environment"
					    : "install the driver's user space part (Debian, "
					      "Ubuntu: libcuda1 or libnvidia-compute-*)",
			"cannot load %s", l->error);
	else if (l && p->init_code)
		finding(r, severity, NULL, "no program here can use a GPU", cuda_todo(m),
			"CUDA does not start: cuInit: %s", p->init_text);
	else if (l)
		finding(r, SEV_OK, NULL, NULL, NULL, "CUDA starts and sees %d GPU%s", p->gpus,
			plural((unsigned int)p->gpus));
}

static void check_driver(const struct machine *m, struct report *r)
{
	check_module(m, r);
	check_compared(m, r);
	check_vma_access(m, r);
	check_nodes(m, r);
	check_cuda(m, r);
}

const struct subject subject_driver = { "driver", "GPU driver", find_driver, check_driver };
