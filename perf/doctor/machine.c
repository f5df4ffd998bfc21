/* SPDX-License-Identifier: MIT */
/* All facts, all checks; see machine.h. It must not know what any subject looks at. */
#include "doctor/machine.h"

#include <string.h>

const struct subject *const machine_subjects[] = {
	&subject_gpus,	&subject_driver, &subject_container, &subject_backends,
	&subject_rm,	&subject_gdrdrv, &subject_bar1,	     &subject_topology,
	&subject_iommu, &subject_vm,	 &subject_tegra,     &subject_peermem,
	NULL,
};

static struct unit *add_unit(struct machine *m)
{
	struct unit *u;

	if (m->units == PROBE_GPUS)
		return NULL;
	u = &m->unit[m->units++];
	*u = (struct unit){ .minor = -1 };
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
		struct unit *u = d->kind == PCI_GPU ? add_unit(m) : NULL;

		if (!u)
			continue;
		u->pci = d;
		u->probe = probe_of(m->probe, d->addr);
		snprintf(u->id, sizeof(u->id), "%s", d->addr);
	}
	for (int i = 0; i < m->probe->gpus; i++) {
		const struct probe_gpu *g = &m->probe->gpu[i];
		const struct pci_dev *d = pci_find(&m->pci, g->pci);
		struct unit *u = d && d->kind == PCI_GPU ? NULL : add_unit(m);

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

void machine_collect(struct machine *m, struct root *root, const struct probes *probes)
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
		for (const struct check *c = (*s)->checks; c->name; c++) {
			r->check = c->name;
			c->run(m, r);
		}
	}
}

void machine_free(struct machine *m)
{
	pci_free(&m->pci);
}

bool machine_has_gpu(const struct machine *m)
{
	return m->units || m->tegra.is;
}

bool trial_works(const struct probe_trial *t)
{
	return !t->error && !strcmp(t->step, "done");
}

/* memory: NULL for any kind */
static bool works_with(const struct unit *u, const char *backend, const char *memory)
{
	for (int i = 0; u->probe && i < u->probe->trials; i++) {
		const struct probe_trial *t = &u->probe->trial[i];

		if (trial_works(t) && !strcmp(t->backend, backend) &&
		    (!memory || !strcmp(t->memory, memory)))
			return true;
	}
	return false;
}

bool unit_works(const struct unit *u, const char *backend)
{
	return works_with(u, backend, NULL);
}

bool unit_serves(const struct unit *u, const char *backend)
{
	return works_with(u, backend, "cuMemAlloc");
}

const char *library_error(const struct probe_library *l)
{
	size_t n = strlen(l->name);

	return !strncmp(l->error, l->name, n) && !strncmp(l->error + n, ": ", 2) ? l->error + n + 2
										 : l->error;
}

const char *bytes_text(long long bytes)
{
	static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	static char text[4][32];
	static unsigned int turn;
	char *t = text[turn++ % 4];
	double v = (double)bytes;
	size_t i = 0;

	while (v >= 1024 && i + 1 < sizeof(unit) / sizeof(unit[0])) {
		v /= 1024;
		i++;
	}
	if (v == (double)(long long)v || v >= 100)
		snprintf(t, sizeof(text[0]), "%.0f %s", v, unit[i]);
	else
		snprintf(t, sizeof(text[0]), "%.1f %s", v, unit[i]);
	return t;
}
