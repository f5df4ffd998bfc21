/* SPDX-License-Identifier: MIT */
/* Subject: the kind of machine: a container, a virtual machine, WSL. It must not know backends. */
#include <string.h>

#include "common/exit.h"
#include "doctor/subjects.h"

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

static void collect(struct machine *m)
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

static void check(const struct machine *m, struct report *r)
{
	const char *visible = m->probe->env.visible;

	if (m->container[0])
		finding(r, SEV_NOTE, NULL,
			"GPU driver and kernel module belong to the host; which parts of them are "
			"visible here was chosen when the container was started",
			NULL, "this is a container (%s)", m->container);
	if (m->container[0] && (!strcmp(visible, "void") || !strcmp(visible, "none")))
		finding(r, SEV_WARN, NULL, "the container was started without a GPU",
			"start the container with NVIDIA_VISIBLE_DEVICES=all",
			"NVIDIA_VISIBLE_DEVICES is \"%s\"", visible);
	if (m->probe->confidential)
		finding(r, SEV_NOTE, NULL, "the CPU may not map the GPU's memory", NULL,
			"confidential computing is on");
	if (m->wsl)
		finding(r, SEV_NOTE, NULL, "its GPU driver gives the CPU no access to GPU memory",
			NULL, "this is Linux inside Windows (WSL)");
	else if (m->vm[0] && machine_has_gpu(m))
		finding(r, SEV_NOTE, NULL,
			"the PCI topology below is the one that the hypervisor shows", NULL,
			"this is a virtual machine (%s)", m->vm);
}

const struct subject subject_host = { "host", "Machine", collect, check };
