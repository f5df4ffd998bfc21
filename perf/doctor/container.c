/* SPDX-License-Identifier: MIT */
/*
 * Subject: a container and what it was given of the GPU driver. It must not know what the parts of
 * the driver are needed for beyond naming the backend.
 */
#include <string.h>

#include "doctor/machine.h"

/* ---- facts ----------------------------------------------------------------------------------- */

static void sign(struct machine *m, const char *text)
{
	m->container.is = true;
	snprintf(m->container.sign, sizeof(m->container.sign), "%s", text);
}

static void collect(struct machine *m)
{
	static const char *const names[] = { "docker", "kubepods", "containerd",
					     "libpod", "lxc",	   "crio" };
	char text[4096];

	if (root_exists(m->root, "/.dockerenv")) {
		sign(m, "/.dockerenv");
	} else if (root_exists(m->root, "/run/.containerenv")) {
		sign(m, "/run/.containerenv");
	} else if (m->probe->env.container[0]) {
		sign(m, "the variable container");
	} else if (m->probe->env.kubernetes[0]) {
		sign(m, "the variable KUBERNETES_SERVICE_HOST");
	} else if (root_exists(m->root, "/run/systemd/container")) {
		sign(m, "/run/systemd/container");
	} else if (!root_text(m->root, "/proc/1/cgroup", text, sizeof(text))) {
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			if (strstr(text, names[i]) && !m->container.is)
				sign(m, "/proc/1/cgroup");
	}
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void check_container(const struct machine *m, struct report *r)
{
	const char *visible;
	struct finding *f;

	if (!m->container.is)
		return;
	f = report_add(r, SEV_NOTE, NULL, "this is a container (%s)", m->container.sign);
	finding_means(f,
		      "driver and kernel module belong to the host; what is visible of them here "
		      "was chosen when the container was started");
	if (!m->probed)
		return;
	visible = m->probe->env.visible;
	if (!strcmp(visible, "void") || !strcmp(visible, "none")) {
		f = report_add(r, SEV_WARN, NULL, "NVIDIA_VISIBLE_DEVICES is \"%s\"", visible);
		finding_means(f, "the container was started without a GPU");
		finding_todo(f, "start it with --gpus all, or NVIDIA_VISIBLE_DEVICES=all");
	}
	if (m->probe->env.capabilities[0])
		report_add(r, SEV_NOTE, NULL, "NVIDIA_DRIVER_CAPABILITIES is \"%s\"",
			   m->probe->env.capabilities);
}

/* The parts of the driver beside libcuda: libraries that a capability of the container brings. */
static void check_parts(const struct machine *m, struct report *r)
{
	const struct probe_library *cuda = probes_library(m->probe, "libcuda.so.1");
	const struct probe_library *nvml = probes_library(m->probe, "libnvidia-ml.so.1");
	struct finding *f;

	/* without libcuda it is no news */
	if (!m->probed || !cuda || !cuda->found || !nvml || !machine_has_gpu(m))
		return;
	if (m->tegra.is || m->probe->stand_in)
		return; /* NVML does not matter there */
	if (nvml->found) {
		report_add(r, SEV_OK, NULL, "%s: the driver's part \"utility\" is here",
			   nvml->name);
		return;
	}
	f = report_add(r, SEV_WARN, NULL, "%s: the driver's part \"utility\" is missing",
		       nvml->name);
	finding_means(f, "NVML cannot be asked: nobody tells how full BAR1 is");
	if (m->container.is)
		finding_todo(f, "start the container with "
				"NVIDIA_DRIVER_CAPABILITIES=compute,utility");
	else
		finding_todo(f, "install the driver's utility libraries (loader: %s)",
			     library_error(nvml));
}

static const struct check checks[] = {
	{ "container", check_container },
	{ "parts", check_parts },
	{ NULL, NULL },
};

const struct subject subject_container = { "container", "Container and parts of the driver",
					   collect, checks };
