/* SPDX-License-Identifier: MIT */
/*
 * Subject: the IOMMU. Source of the consequence: GPUDirect RDMA guide 11.4, "IOMMUs". What the CPU
 * does through BAR1 never passes an IOMMU, which stands between devices and the rest.
 */
#include <string.h>

#include "doctor/machine.h"

enum { LISTED = 8 }; /* devices that one line names */

/* ---- facts ----------------------------------------------------------------------------------- */

/* The words of the kernel's command line that have "iommu" in them. */
static void read_cmdline(struct machine *m)
{
	char text[4096], *word, *save = NULL;
	size_t used = 0, size = sizeof(m->iommu.cmdline);

	if (root_text(m->root, "/proc/cmdline", text, sizeof(text)))
		return;
	for (word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
		if (strstr(word, "iommu") && used + strlen(word) + 2 < size)
			used += (size_t)snprintf(m->iommu.cmdline + used, size - used, "%s%s",
						 used ? " " : "", word);
}

static void read_type(struct machine *m, struct pci_dev *d)
{
	char path[96];

	if (d->kind == PCI_BRIDGE || d->group < 0)
		return;
	snprintf(path, sizeof(path), "/sys/kernel/iommu_groups/%d/type", d->group);
	root_text(m->root, path, d->group_type, sizeof(d->group_type));
}

static void collect(struct machine *m)
{
	struct root_names names;
	size_t used = 0, size = sizeof(m->iommu.units);

	read_cmdline(m);
	if (!root_list(m->root, "/sys/class/iommu", &names)) {
		m->iommu.active = names.count;
		for (size_t i = 0; i < names.count && used + strlen(names.name[i]) + 3 < size; i++)
			used += (size_t)snprintf(m->iommu.units + used, size - used, "%s%s",
						 used ? ", " : "", names.name[i]);
		root_names_free(&names);
	}
	for (size_t i = 0; i < m->pci.count; i++)
		read_type(m, &m->pci.dev[i]);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool has_peer(const struct machine *m)
{
	for (size_t i = 0; i < m->pci.count; i++)
		if (m->pci.dev[i].kind == PCI_NIC || m->pci.dev[i].kind == PCI_NVME)
			return true;
	return false;
}

static void say(const struct machine *m, struct report *r, const struct unit *u)
{
	const char *type = u->pci->group_type;
	struct finding *f;

	if (u->pci->group < 0) {
		f = report_add(r, SEV_OK, u->id, "no IOMMU translates the GPU's addresses");
		finding_means(f, m->vm.is ? "inside this virtual machine; the host's own is not "
					    "visible here"
					  : "GPUDirect sees physical addresses, as it needs them "
					    "(guide 11.4)");
	} else if (!strcmp(type, "identity")) {
		f = report_add(r, SEV_OK, u->id,
			       "the IOMMU passes the GPU's addresses through (identity)");
		finding_means(f,
			      "GPUDirect sees physical addresses, as it needs them (guide 11.4)");
	} else if (!strncmp(type, "DMA", 3)) {
		f = report_add(r, has_peer(m) ? SEV_WARN : SEV_NOTE, u->id,
			       "the IOMMU translates the GPU's addresses (%s)", type);
		finding_means(f,
			      "GPUDirect between devices needs physical addresses (guide 11.4): "
			      "it may fail or be slow; the CPU's own access to GPU memory is not "
			      "affected");
		finding_todo(f,
			     "if devices are to exchange data with the GPU: start the kernel "
			     "with %s",
			     !strcmp(m->probe->machine, "aarch64") ? "iommu.passthrough=1"
								   : "iommu=pt");
	} else {
		f = report_add(r, SEV_UNKNOWN, u->id, "IOMMU group %d, %s", u->pci->group,
			       type[0] ? type : "of a type that this kernel does not tell");
		if (strstr(m->iommu.cmdline, "iommu=pt") ||
		    strstr(m->iommu.cmdline, "iommu.passthrough=1"))
			finding_means(f,
				      "the kernel was started with %s, which asks for "
				      "pass-through",
				      m->iommu.cmdline);
		else
			finding_means(f, "GPUDirect between devices needs an IOMMU that is off or "
					 "passes through (guide 11.4)");
	}
}

/* The other end: a device's accesses to the GPU are translated as its own group says. */
static void check_peers(const struct machine *m, struct report *r)
{
	char names[512] = "";
	size_t used = 0, count = 0;
	struct finding *f;

	for (size_t i = 0; i < m->pci.count; i++) {
		const struct pci_dev *d = &m->pci.dev[i];

		if ((d->kind != PCI_NIC && d->kind != PCI_NVME) || strncmp(d->group_type, "DMA", 3))
			continue;
		if (++count <= LISTED)
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
						 used ? ", " : "", d->addr);
	}
	if (!count || !m->units)
		return;
	f = report_add(r, SEV_NOTE, NULL, "the IOMMU translates addresses of %s%s", names,
		       count > LISTED ? " and others" : "");
	finding_means(f, "what these network and NVMe devices send to a GPU is translated too "
			 "(guide 11.4: GPUDirect wants that off)");
}

static void check_iommu(const struct machine *m, struct report *r)
{
	bool any = false;

	for (int i = 0; i < m->units; i++) {
		if (!m->unit[i].pci)
			continue;
		say(m, r, &m->unit[i]);
		any = true;
	}
	if (any && m->iommu.active)
		report_add(r, SEV_NOTE, NULL, "the kernel drives the IOMMU %s%s%s%s",
			   m->iommu.units, m->iommu.cmdline[0] ? " (command line: " : "",
			   m->iommu.cmdline, m->iommu.cmdline[0] ? ")" : "");
}

static const struct check checks[] = {
	{ "iommu", check_iommu },
	{ "peers", check_peers },
	{ NULL, NULL },
};

const struct subject subject_iommu = { "iommu", "IOMMU", collect, checks };
