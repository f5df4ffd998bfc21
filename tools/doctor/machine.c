/* SPDX-License-Identifier: MIT */
/* The GPUs, the results of their trials, device nodes; see doctor.h. */
#include <errno.h>
#include <string.h>

#include "doctor/doctor.h"

const char *const backend_names[] = { "gdrdrv", "rm", "dmabuf", "host", NULL };

static const struct probe_gpu *probe_of(const struct probes *p, const char *pci)
{
	for (int i = 0; i < p->gpus; i++)
		if (!strcmp(p->gpu[i].pci, pci))
			return &p->gpu[i];
	return NULL;
}

/* As the PCI bus and CUDA know it: one of the two may be missing. */
static void add_unit(struct machine *m, const struct pci_dev *d, const struct probe_gpu *g)
{
	struct unit *u = &m->unit[m->units];

	if (m->units == PROBE_GPUS)
		return;
	m->units++;
	*u = (struct unit){
		.pci = d, .probe = g, .minor = -1, .place = { "-", "-", -1 }
	};
	u->id = d ? d->addr : g->pci[0] ? g->pci : text("device %d", g->ordinal);
	u->name = g && g->name[0] ? text("%s (%s)", g->name, u->id)
		  : d		  ? text("GPU %04x:%04x (%s)", d->vendor, d->device, u->id)
				  : text("GPU %s", u->id);
}

/* The GPUs of the PCI bus, then those that only CUDA knows. */
void machine_add_units(struct machine *m)
{
	for (size_t i = 0; i < m->pci.count; i++)
		add_unit(m, &m->pci.dev[i], probe_of(m->probe, m->pci.dev[i].addr));
	for (int i = 0; i < m->probe->gpus; i++)
		if (!pci_find(&m->pci, m->probe->gpu[i].pci))
			add_unit(m, NULL, &m->probe->gpu[i]);
}

bool machine_has_gpu(const struct machine *m)
{
	return m->units || m->tegra[0];
}

bool trial_works(const struct probe_trial *t)
{
	return !t->error && !strcmp(t->step, "done");
}

const struct probe_trial *unit_program(const struct unit *u)
{
	for (int i = 0; u->probe && i < u->probe->trials; i++)
		if (!strcmp(u->probe->trial[i].backend, TRIAL_PROGRAM))
			return &u->probe->trial[i];
	return NULL;
}

bool unit_works(const struct unit *u, const char *backend, const char *memory)
{
	for (int i = 0; u->probe && i < u->probe->trials; i++) {
		const struct probe_trial *t = &u->probe->trial[i];

		if (trial_works(t) && !strcmp(t->backend, backend) &&
		    (!memory || !strcmp(t->memory, memory)))
			return true;
	}
	return false;
}

bool unit_takes_gdrdrv(const struct unit *u)
{
	return !u->probe->integrated && !unit_is_geforce(u);
}

const char *unit_server(const struct unit *u)
{
	for (const char *const *name = backend_names; *name; name++)
		if (unit_works(u, *name, "cuMemAlloc"))
			return *name;
	return NULL;
}

enum answer unit_answer(const struct unit *u)
{
	const struct probe_gpu *g = u->probe;
	const struct probe_trial *program = unit_program(u);

	if (!g)
		return ANSWER_UNKNOWN;
	/* a backend that works does not count if a program does not get it */
	if (program && !trial_works(program) && unit_server(u))
		return program->error == ENOMEM ? ANSWER_UNKNOWN : ANSWER_NO;
	/* an integrated GPU has no memory of its own: programs allocate with cudaHostAlloc */
	if (unit_server(u) || (g->integrated && unit_works(u, "host", NULL)))
		return ANSWER_YES;
	for (int i = 0; i < g->trials; i++)
		if (g->trial[i].error == ENOMEM) /* memory or BAR1 was short */
			return ANSWER_UNKNOWN;
	return ANSWER_NO;
}

bool unit_is_geforce(const struct unit *u)
{
	return u->probe && strstr(u->probe->name, "GeForce");
}

const char *give_node(const struct machine *m, const char *path)
{
	return text(m->probe->env.kubernetes[0]
			    ? "have a device plugin give the pod %s: see docs/containers.md"
			    : "start the container with --device %s",
		    path);
}

const char *give_gpu(const struct machine *m)
{
	return m->probe->env.kubernetes[0]
		       ? "give the pod's container resources: {limits: {nvidia.com/gpu: 1}}, and "
			 "the pod runtimeClassName: nvidia, where that is not the default: see "
			 "docs/containers.md"
		       : "start the container with the GPU: docker run --gpus all, or podman run "
			 "--device nvidia.com/gpu=all";
}

struct advice node_advice(const struct machine *m, const struct probe_node *n)
{
	switch (n->error) {
	case EPERM:
		return (struct advice){
			"a device cgroup forbids it, not the mode",
			m->container[0] ? give_node(m, n->path)
					: text("allow it to this service (systemd: "
					       "DeviceAllow=%s rw)",
					       n->path),
		};
	case EACCES:
		return (struct advice){
			text("this user (%d) may not use it", m->probe->euid),
			text("join the group %d (%s), or change the node's mode: see gdrdrv(4) for "
			     "/dev/gdrdrv, NVreg_DeviceFileMode of the GPU driver for its nodes",
			     n->gid, n->path),
		};
	case ENOTTY:
	case ENXIO:
	case ENODEV:
		return (struct advice){
			n->error == ENOTTY
				? "it is not a device node"
				: text("the number %d:%d belongs to no driver: the node is "
				       "a leftover",
				       n->major, n->minor),
			text("as root: rm %s, then nvidia-modprobe -u -c 0 and nvidia-smi",
			     n->path),
		};
	default:
		return (struct advice){ "the driver refuses",
					"look for NVRM, Xid and gdrdrv in the kernel log" };
	}
}
