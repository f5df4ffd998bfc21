/* SPDX-License-Identifier: MIT */
/*
 * Subject: a virtual machine and what its hypervisor says of traffic between GPUs; see p2p_cap.h for
 * the source. It must not know topology.
 */
#include <string.h>

#include "doctor/machine.h"
#include "doctor/pci_cap.h"

/* ---- facts ----------------------------------------------------------------------------------- */

static void collect(struct machine *m)
{
	char text[128];

	if (m->probe->hypervisor) {
		m->vm.is = true;
		snprintf(m->vm.sign, sizeof(m->vm.sign), "the CPU says so%s%s",
			 m->probe->hypervisor_name[0] ? ": " : "", m->probe->hypervisor_name);
	} else if (!root_text(m->root, "/sys/hypervisor/type", text, sizeof(text)) && text[0]) {
		m->vm.is = true;
		snprintf(m->vm.sign, sizeof(m->vm.sign), "/sys/hypervisor/type: %.60s", text);
	} else if (!root_text(m->root, "/sys/class/dmi/id/sys_vendor", text, sizeof(text)) &&
		   (!strcmp(text, "QEMU") || !strncmp(text, "VMware", 6))) {
		m->vm.is = true;
		snprintf(m->vm.sign, sizeof(m->vm.sign), "its vendor is %.60s", text);
	}
	for (int i = 0; i < m->units; i++)
		if (m->unit[i].pci)
			p2p_cap_find(m->unit[i].pci->config, m->unit[i].pci->config_size,
				     &m->unit[i].cap);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void check_vm(const struct machine *m, struct report *r)
{
	struct finding *f;

	if (!m->vm.is || !machine_has_gpu(m))
		return;
	f = report_add(r, SEV_NOTE, NULL, "this is a virtual machine (%s)", m->vm.sign);
	finding_means(f,
		      "its PCI topology is the hypervisor's invention, and the GPU driver does not "
		      "allow traffic between GPUs on the strength of it");
}

static int pci_gpus(const struct machine *m)
{
	int n = 0;

	for (int i = 0; i < m->units; i++)
		n += m->unit[i].pci != NULL;
	return n;
}

static void say_found(const struct machine *m, const struct unit *u, struct report *r)
{
	const struct p2p_cap *cap = &u->cap;
	int recommended = p2p_cap_recommended(u->pci->device);
	struct finding *f;

	f = report_add(r, cap->faults[0] ? SEV_WARN : SEV_OK, u->id,
		       "peer-to-peer approval capability at %02Xh, version %u, clique %u",
		       (unsigned int)cap->offset, cap->version, cap->clique);
	if (cap->faults[0]) {
		finding_means(f, "its encoding is wrong (%s): the GPU driver may not heed it",
			      cap->faults);
		finding_todo(f,
			     "have the hypervisor show the bytes that gdrcopy_doctor "
			     "--p2p-capability %u prints",
			     cap->clique);
	} else if (!m->vm.is) {
		f->severity = SEV_NOTE;
		finding_means(f, "a hypervisor's doing, though this does not look like a virtual "
				 "machine");
	} else {
		finding_means(f, "GPUs of the same clique may reach each other's memory%s",
			      cap->offset == recommended
				      ? ""
				      : "; another offset is recommended for this GPU, this one is "
					"allowed");
	}
}

static void say_missing(const struct unit *u, int gpus, struct report *r)
{
	const struct p2p_cap *cap = &u->cap;
	struct finding *f;

	if (cap->unlinked) {
		f = report_add(r, SEV_WARN, u->id,
			       "the bytes of the peer-to-peer approval capability stand at "
			       "%02Xh (clique %u), but the capability list does not lead there",
			       (unsigned int)cap->offset, cap->clique);
		finding_means(f, "the GPU driver looks along the list and does not find it%s%s",
			      cap->faults[0] ? "; also: " : "", cap->faults);
		finding_todo(f,
			     "have the hypervisor link it: the next pointer of the last "
			     "capability before it must be %02Xh",
			     (unsigned int)cap->offset);
		return;
	}
	if (cap->faults[0]) {
		f = report_add(r, SEV_WARN, u->id, "%s", cap->faults);
		finding_means(f, "whether there is a peer-to-peer approval capability cannot be "
				 "told; the GPU driver will not find one either");
		finding_todo(f, "this is the hypervisor's fault: mend it there");
		return;
	}
	f = report_add(r, gpus > 1 ? SEV_WARN : SEV_NOTE, u->id,
		       "no peer-to-peer approval capability");
	if (gpus > 1) {
		finding_means(f,
			      "the GPU driver then refuses traffic over PCIe between GPUs of this "
			      "machine (NVLink is another matter)");
		finding_todo(f, "on the host: gdrcopy_doctor --p2p-capability 0 prints what the "
				"hypervisor has to show to GPUs that reach each other there (QEMU: "
				"x-nv-gpudirect-clique=0)");
	} else {
		finding_means(f, "it is for traffic between GPUs, and there is one");
	}
}

static void check_capability(const struct machine *m, struct report *r)
{
	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];
		struct finding *f;

		if (!u->pci)
			continue;
		if (pci_is_gone(u->pci->config, u->pci->config_size)) {
			continue; /* told elsewhere */
		} else if (u->cap.found) {
			say_found(m, u, r);
		} else if (!m->vm.is) {
			continue; /* nobody needs it there */
		} else if (u->cap.unreadable) {
			f = report_add(r, SEV_UNKNOWN, u->id,
				       "the peer-to-peer approval capability cannot be looked for");
			finding_means(f, "%d bytes of the configuration space could be read",
				      u->pci->config_size < 0 ? 0 : u->pci->config_size);
			if (m->probe->euid)
				finding_todo(f, "run this as root");
		} else {
			say_missing(u, pci_gpus(m), r);
		}
	}
}

static const struct check checks[] = {
	{ "vm", check_vm },
	{ "capability", check_capability },
	{ NULL, NULL },
};

const struct subject subject_vm = { "vm", "Virtual machine", collect, checks };
