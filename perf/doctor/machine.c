/* SPDX-License-Identifier: MIT */
/* All facts, all checks; see machine.h. It must not know what any subject looks at. */
#include "doctor/machine.h"

#include <errno.h>
#include <string.h>

const struct subject *const machine_subjects[] = { &subject_gpus,   &subject_driver,
						   &subject_host,   &subject_backends,
						   &subject_gdrdrv, &subject_bar1,
						   &subject_places, NULL };

const char *const backend_names[] = { "gdrdrv", "dmabuf", "rm", "host", NULL };

static struct unit *add_unit(struct machine *m)
{
	struct unit *u;

	if (m->units == PROBE_GPUS)
		return NULL;
	u = &m->unit[m->units++];
	*u = (struct unit){ .minor = -1, .place = { "-", "-", -1, "?", "-", PATH_UNKNOWN } };
	return u;
}

static const struct probe_gpu *probe_of(const struct probes *p, const char *pci)
{
	for (int i = 0; i < p->gpus; i++)
		if (!strcmp(p->gpu[i].pci, pci))
			return &p->gpu[i];
	return NULL;
}

/* The GPUs of the PCI bus, then those that only CUDA knows. */
static void find_units(struct machine *m)
{
	for (size_t i = 0; i < m->pci.count; i++) {
		const struct pci_dev *d = &m->pci.dev[i];
		struct unit *u = d->gpu ? add_unit(m) : NULL;

		if (!u)
			continue;
		u->pci = d;
		u->probe = probe_of(m->probe, d->addr);
		snprintf(u->id, sizeof(u->id), "%s", d->addr);
	}
	for (int i = 0; i < m->probe->gpus; i++) {
		const struct probe_gpu *g = &m->probe->gpu[i];
		const struct pci_dev *d = pci_find(&m->pci, g->pci);
		struct unit *u = d && d->gpu ? NULL : add_unit(m);

		if (!u)
			continue;
		u->probe = g;
		if (g->pci[0])
			snprintf(u->id, sizeof(u->id), "%s", g->pci);
		else
			snprintf(u->id, sizeof(u->id), "device %d", g->ordinal % 1000);
	}
	for (int i = 0; i < m->units; i++) {
		struct unit *u = &m->unit[i];

		if (u->probe && u->probe->name[0])
			snprintf(u->name, sizeof(u->name), "%s (%s)", u->probe->name, u->id);
		else if (u->pci)
			snprintf(u->name, sizeof(u->name), "GPU %04x:%04x (%s)", u->pci->vendor,
				 u->pci->device, u->id);
		else
			snprintf(u->name, sizeof(u->name), "GPU %s", u->id);
	}
}

void machine_collect(struct machine *m, const struct root *root, const struct probes *probes)
{
	*m = (struct machine){ .root = root, .probe = probes, .probed = probes->format };
	pci_collect(&m->pci, root);
	find_units(m);
	for (const struct subject *const *s = machine_subjects; *s; s++)
		if ((*s)->collect)
			(*s)->collect(m);
}

void machine_check(const struct machine *m, struct report *r)
{
	for (const struct subject *const *s = machine_subjects; *s; s++) {
		r->subject = (*s)->name;
		(*s)->check(m, r);
	}
}

bool machine_has_gpu(const struct machine *m)
{
	return m->units || m->tegra[0];
}

bool trial_works(const struct probe_trial *t)
{
	return !t->error && !strcmp(t->step, "done");
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

	if (!g)
		return ANSWER_UNKNOWN;
	/* an integrated GPU has no memory of its own: cudaHostAlloc is the way to allocate there */
	if (unit_server(u) || (g->integrated && unit_works(u, "host", NULL)))
		return ANSWER_YES;
	for (int i = 0; i < g->trials; i++)
		if (g->trial[i].error == ENOMEM) /* memory or BAR1 was short just then */
			return ANSWER_UNKNOWN;
	return ANSWER_NO;
}

const char *bytes_text(long long bytes)
{
	return bytes < 1LL << 30 ? text("%.1f MiB", (double)bytes / (1 << 20))
				 : text("%.1f GiB", (double)bytes / (1 << 30));
}
