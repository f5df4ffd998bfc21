/* SPDX-License-Identifier: MIT */
/*
 * Subject: the place of each GPU: its NUMA node and CPUs, the nearest network adapter (GPUDirect RDMA
 * guide 11.4), its IOMMU. The CPU's access through BAR1 never passes the IOMMU.
 */
#include <string.h>

#include "doctor/subjects.h"

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

static void find_adapter(const struct machine *m, const struct unit *u, struct place *p)
{
	enum path_class best = PATH_CLASSES;

	for (size_t i = 0; i < m->pci.count; i++) {
		const struct pci_dev *d = &m->pci.dev[i];

		if (d->gpu || d->virtual || pci_path(u->pci, d) >= best)
			continue;
		p->path = best = pci_path(u->pci, d);
		snprintf(p->adapter, sizeof(p->adapter), "%s", d->label[0] ? d->label : d->addr);
	}
}

static void collect(struct machine *m)
{
	for (struct unit *u = m->unit; u < m->unit + m->units; u++) {
		if (!u->pci)
			continue;
		find_node(m, u, &u->place);
		if (u->pci->group < 0)
			strcpy(u->place.iommu, "none");
		else if (root_text(m->root, text("/sys/kernel/iommu_groups/%d/type", u->pci->group),
				   u->place.iommu, sizeof(u->place.iommu)))
			strcpy(u->place.iommu, "?");
		find_adapter(m, u, &u->place);
	}
}

static void check(const struct machine *m, struct report *r)
{
	bool arm = !strcmp(m->probe->machine, "aarch64");

	for (const struct unit *u = m->unit; u < m->unit + m->units; u++) {
		const char *numa = u->place.numa;

		if (!u->place.usable)
			finding(r, SEV_WARN, u->id,
				"every access crosses the link between CPUs: each read takes "
				"longer",
				text("numactl --cpunodebind=%s, or ask the scheduler of the "
				     "container or batch system for CPUs of that node",
				     numa),
				"this process may run on no CPU of the GPU's NUMA node (%s), but "
				"on "
				"CPUs %s",
				numa, m->probe->cpus);
		if (!strncmp(u->place.iommu, "DMA", 3))
			finding(r, SEV_NOTE, u->id,
				"CPU access to GPU memory is not affected; GPUDirect RDMA may fail "
				"or "
				"be slow",
				text("for GPUDirect RDMA: start the kernel with %s",
				     arm ? "iommu.passthrough=1" : "iommu=pt"),
				"the IOMMU translates the GPU's addresses");
	}
}

const struct subject subject_places = { "places", "Places of the GPUs", collect, check };
