/* SPDX-License-Identifier: MIT */
/*
 * Subject: where the GPUs are: from network and NVMe devices, from the CPUs of this process, and what
 * access control does to traffic between devices. Sources: GPUDirect RDMA guide 11.4; PCI Express
 * Base Specification 6.12 and 7.7.11 (ACS). It must not know what the traffic is.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/pci_cap.h"
#include "doctor/paths.h"

enum { LISTED = 8 }; /* devices that one line names */

/* ---- facts ----------------------------------------------------------------------------------- */

static int socket_of(struct machine *m, const struct cpulist *cpus)
{
	long long socket;
	char path[96];
	int cpu = cpulist_first(cpus);

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
		 cpu);
	if (cpu < 0 || root_number(m->root, path, &socket) || socket < 0 || socket > 1024)
		return -1;
	return (int)socket;
}

static void collect(struct machine *m)
{
	struct numa_facts *n = &m->numa;
	char path[96], text[4096];
	struct cpulist online;

	n->allowed_known = m->probe->cpus[0] && !cpulist_parse(&n->allowed, m->probe->cpus);
	if (root_text(m->root, "/sys/devices/system/node/online", text, sizeof(text)) ||
	    cpulist_parse(&online, text))
		return;
	for (int node = 0; node < CPULIST_MAX && n->nodes < MAX_NODES; node++) {
		if (!cpulist_has(&online, (unsigned int)node))
			continue;
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
		if (root_text(m->root, path, text, sizeof(text)) ||
		    cpulist_parse(&n->cpus[n->nodes], text))
			continue;
		n->node[n->nodes] = node;
		n->socket[n->nodes] = socket_of(m, &n->cpus[n->nodes]);
		n->nodes++;
	}
}

/* ---- paths ----------------------------------------------------------------------------------- */

static bool is_peer(const struct pci_dev *d)
{
	return d->kind == PCI_NIC || d->kind == PCI_NVME;
}

/* "mlx5_0 (0000:1a:00.0), nvme0 (...) and 3 more"; false if no device is of that class. */
static bool name_peers(const struct machine *m, const struct unit *u, enum path_class class,
		       enum pci_kind kind, char *text, size_t size)
{
	size_t used = 0, more = 0, listed = 0;

	text[0] = '\0';
	for (size_t i = 0; i < m->pci.count; i++) {
		const struct pci_dev *d = &m->pci.dev[i];

		if (d->kind != kind || path_between(m, u->pci, d) != class)
			continue;
		if (d->virtual || listed == LISTED) {
			more++;
			continue;
		}
		used += (size_t)snprintf(text + used, size - used, "%s%s", listed ? ", " : "",
					 path_device(d));
		listed++;
	}
	if (more && listed)
		snprintf(text + used, size - used, " and %zu more", more);
	else if (more)
		snprintf(text + used, size - used, "%zu virtual function%s", more,
			 more == 1 ? "" : "s");
	return listed || more;
}

static void explain_path(const struct machine *m, enum path_class class, enum pci_kind kind,
			 bool nearer, struct finding *f)
{
	if (m->vm.is && class != PATH_UNKNOWN) {
		finding_means(f, "as the virtual machine shows it: the hypervisor makes that "
				 "topology up, the physical one may differ");
		return;
	}
	switch (class) {
	case PATH_SLOT:
	case PATH_SWITCH:
		finding_means(f, "the best path for GPUDirect (guide 11.4)");
		break;
	case PATH_ROOT:
		finding_means(f, "GPUDirect works, at less bandwidth, reads from the GPU above all "
				 "(guide 11.4)");
		break;
	case PATH_SOCKETS:
		finding_means(f, "GPUDirect may be very slow or unreliable (guide 11.4)");
		finding_todo(f, nearer ? "use one of the nearer devices for this GPU"
				       : "use a GPU at the device's own CPU, or move the card");
		/* a disk far away is no news: most serve the system alone */
		f->severity = nearer || kind == PCI_NVME ? SEV_NOTE : SEV_WARN;
		break;
	default:
		finding_means(f, "the path of the devices below /sys/devices, or the NUMA node of "
				 "one, is not shown");
	}
}

static void check_paths(const struct machine *m, struct report *r)
{
	static const struct {
		enum pci_kind kind;
		const char *name;
	} kinds[] = { { PCI_NIC, "network" }, { PCI_NVME, "NVMe" } };
	bool any = false, on_bus = false;

	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];

		on_bus |= u->pci != NULL;

		for (size_t k = 0; u->pci && k < 2; k++) {
			bool nearer = false;

			for (int c = 0; c < PATH_CLASSES; c++) {
				char names[1024];
				struct finding *f;

				if (!name_peers(m, u, (enum path_class)c, kinds[k].kind, names,
						sizeof(names)))
					continue;
				f = report_add(r, c == PATH_UNKNOWN ? SEV_UNKNOWN : SEV_OK, u->id,
					       "path to %s %s: %s", kinds[k].name, names,
					       path_name[c]);
				explain_path(m, (enum path_class)c, kinds[k].kind, nearer, f);
				nearer = any = true;
			}
		}
	}
	if (!any && on_bus)
		report_add(r, SEV_NOTE, NULL, "no network or NVMe device on the PCI bus");
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

static const struct cpulist *cpus_of(const struct machine *m, int node)
{
	for (int i = 0; i < m->numa.nodes; i++)
		if (m->numa.node[i] == node)
			return &m->numa.cpus[i];
	return NULL;
}

static void check_numa(const struct machine *m, struct report *r)
{
	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];
		const struct cpulist *near = u->pci ? cpus_of(m, u->pci->numa) : NULL;
		struct finding *f;
		char cpus[256];
		size_t common;

		if (!u->pci)
			continue;
		if (u->pci->numa < 0) {
			f = report_add(r, m->numa.nodes > 1 ? SEV_UNKNOWN : SEV_OK, u->id,
				       "the firmware names no NUMA node");
			finding_means(f, m->numa.nodes > 1 ? "which CPUs are near it is not known"
					 : m->numa.nodes == 1 ? "there is only one"
							      : "which there are is not known");
			continue;
		}
		if (!near || !m->numa.allowed_known) {
			report_add(r, SEV_UNKNOWN, u->id, "NUMA node %d; %s", u->pci->numa,
				   near ? "the CPUs of this process were not probed"
					: "its CPUs are not shown");
			continue;
		}
		cpulist_text(near, cpus, sizeof(cpus));
		common = cpulist_common(near, &m->numa.allowed);
		if (!cpulist_count(near)) {
			report_add(r, SEV_NOTE, u->id, "NUMA node %d has no CPUs", u->pci->numa);
		} else if (common) {
			report_add(r, SEV_OK, u->id,
				   "NUMA node %d (CPUs %s); this process may use %zu of them",
				   u->pci->numa, cpus, common);
		} else {
			f = report_add(
				r, SEV_WARN, u->id,
				"NUMA node %d (CPUs %s); this process may use none of them, but "
				"CPUs %s",
				u->pci->numa, cpus, m->probe->cpus);
			finding_means(f, "every access crosses the link between CPUs: each read "
					 "takes longer");
			finding_todo(f,
				     "numactl --cpunodebind=%d, or ask the container's or batch "
				     "system's scheduler for CPUs of that node",
				     u->pci->numa);
		}
	}
}

/* ---- access control --------------------------------------------------------------------------- */

enum { ACS_P2P_REQUEST = 1 << 2, ACS_P2P_COMPLETION = 1 << 3, ACS_EGRESS = 1 << 5 };

struct acs {
	char ports[512]; /* that send peers' traffic up */
	size_t sending, looked, unknown;
};

static void look_at_port(const struct machine *m, const char *addr, struct acs *acs)
{
	const struct pci_dev *d = pci_find(&m->pci, addr);
	enum pci_cap_result result = CAP_SHORT;
	size_t used = strlen(acs->ports);
	int at = 0;

	if (strstr(acs->ports, addr))
		return;
	if (d)
		result = pci_find_ecap(d->config, d->config_size, PCI_ECAP_ACS, &at);
	if (result == CAP_NONE) {
		acs->looked++;
		return;
	}
	if (result != CAP_FOUND || at + 8 > d->config_size) {
		acs->unknown++;
		return;
	}
	acs->looked++;
	if (!(pci_u16(d->config, at + 6) & (ACS_P2P_REQUEST | ACS_P2P_COMPLETION | ACS_EGRESS)))
		return;
	acs->sending++;
	snprintf(acs->ports + used, sizeof(acs->ports) - used, "%s%s", used ? ", " : "", addr);
}

/* The ports at which the path from one to the other turns: just below what they share. */
static void look_at_turn(const struct machine *m, const struct pci_dev *a, const struct pci_dev *b,
			 struct acs *acs)
{
	int common = 0;

	while (common < a->depth && common < b->depth &&
	       !strcmp(a->place[common], b->place[common]))
		common++;
	if (common + 1 < a->depth)
		look_at_port(m, a->place[common], acs);
	if (common + 1 < b->depth)
		look_at_port(m, b->place[common], acs);
}

static void check_acs(const struct machine *m, struct report *r)
{
	struct acs acs = { "", 0, 0, 0 };
	struct finding *f;

	for (int i = 0; i < m->units; i++)
		for (size_t k = 0; m->unit[i].pci && k < m->pci.count; k++) {
			const struct pci_dev *d = &m->pci.dev[k];

			if (d != m->unit[i].pci && (is_peer(d) || d->kind == PCI_GPU) &&
			    path_between(m, m->unit[i].pci, d) == PATH_SWITCH)
				look_at_turn(m, m->unit[i].pci, d, &acs);
		}
	if (acs.sending) {
		f = report_add(r, SEV_WARN, NULL,
			       "access control (ACS) sends traffic between devices up to the root "
			       "complex at %s",
			       acs.ports);
		finding_means(f,
			      "what could stay within a switch goes through the CPU, as slow as "
			      "\"one CPU's root complex\"; the CPU's own access to GPU memory is "
			      "not affected");
		finding_todo(f,
			     "switch ACS off in the firmware's set-up; or until the next restart, "
			     "as root, for each of these ports: setpci -s PORT ECAP_ACS+6.w=0000. "
			     "Not on a host that passes devices through to virtual machines: ACS "
			     "keeps those apart");
	} else if (acs.unknown) {
		f = report_add(r, SEV_UNKNOWN, NULL,
			       "access control (ACS) on the switches: their configuration space "
			       "cannot be read");
		if (m->probe->euid)
			finding_todo(f, "run this as root");
	} else if (acs.looked) {
		report_add(
			r, SEV_OK, NULL,
			"access control (ACS) lets traffic between devices stay within switches");
	}
}

static const struct check checks[] = {
	{ "paths", check_paths },
	{ "numa", check_numa },
	{ "acs", check_acs },
	{ NULL, NULL },
};

const struct subject subject_topology = { "topology", "Place of the GPUs", collect, checks };
