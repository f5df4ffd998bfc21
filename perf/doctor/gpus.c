/* SPDX-License-Identifier: MIT */
/* Subject: the GPUs, and who has them. It must not know what the driver says of them. */
#include <string.h>

#include "doctor/machine.h"
#include "doctor/pci_cap.h"

static void gpu_missing(const struct machine *m, struct report *r)
{
	struct finding *f;

	if (m->pci.error) {
		f = report_add(r, SEV_UNKNOWN, NULL, "the PCI bus cannot be seen from here: %s",
			       strerror(m->pci.error));
		finding_means(f, "whether this machine has an NVIDIA GPU cannot be told");
		finding_todo(f, "mount /sys, if this is a container or a sandbox");
		return;
	}
	f = report_add(r, SEV_FAIL, NULL, "no NVIDIA GPU among the %zu functions of the PCI bus",
		       m->pci.total);
	finding_means(f, "there is no GPU memory here that a CPU could reach");
	if (m->vm.is)
		finding_todo(f,
			     "this is a virtual machine: have its host pass a GPU through to it");
	else
		finding_todo(f, "if there should be one: lspci -d 10de: lists NVIDIA's devices; "
				"check that the card is seated and powered, and the firmware's "
				"set-up");
}

/* Every byte of its configuration space reads 0xff. */
static bool gone(const struct unit *u, struct report *r)
{
	struct finding *f;

	if (!u->pci || !pci_is_gone(u->pci->config, u->pci->config_size))
		return false;
	f = report_add(r, SEV_FAIL, u->id,
		       "%s does not answer: its configuration space reads as ones", u->name);
	finding_means(f, "it has fallen off the bus, or sleeps in a state from which it does not "
			 "wake");
	finding_todo(f, "look into the kernel's log for NVRM and Xid 79; restart the machine");
	return true;
}

static void check_gpus(const struct machine *m, struct report *r)
{
	if (!m->units && !m->tegra.is)
		gpu_missing(m, r);
	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];
		struct finding *f;

		if (gone(u, r))
			continue;
		if (!u->pci) {
			f = report_add(r, u->probe->integrated ? SEV_OK : SEV_NOTE, u->id, "%s",
				       u->name);
			finding_means(f, "%s",
				      m->tegra.is || u->probe->integrated
					      ? "CUDA knows it; it is no device of the PCI bus"
					      : "CUDA knows it, but the PCI bus does not show it "
						"here: nothing can be said of its place");
		} else if (!strcmp(u->pci->driver, "nvidia")) {
			report_add(r, SEV_OK, u->id, "%s, bound to the nvidia driver", u->name);
		} else if (!strcmp(u->pci->driver, "vfio-pci")) {
			f = report_add(r, SEV_WARN, u->id, "%s is bound to vfio-pci", u->name);
			finding_means(f,
				      "it is set aside for a virtual machine; no program of this "
				      "system can use it");
			finding_todo(f,
				     "use it inside that machine, or bind it to nvidia: echo %s "
				     "> /sys/bus/pci/drivers/vfio-pci/unbind, then echo %s > "
				     "/sys/bus/pci/drivers/nvidia/bind",
				     u->id, u->id);
		} else if (!strcmp(u->pci->driver, "nouveau")) {
			f = report_add(r, SEV_FAIL, u->id, "%s is bound to nouveau", u->name);
			finding_means(f,
				      "CUDA needs NVIDIA's own driver, which cannot take the GPU "
				      "while nouveau has it");
			finding_todo(f,
				     "install NVIDIA's driver and put \"blacklist nouveau\" into "
				     "a file below /etc/modprobe.d, then restart");
		} else {
			f = report_add(r, SEV_FAIL, u->id, "%s is bound to %s", u->name,
				       u->pci->driver[0] ? u->pci->driver : "no driver");
			finding_means(f, "CUDA cannot use it");
			if (m->driver.loaded)
				finding_todo(f, "look into the kernel's log for NVRM: it says why "
						"the driver left this GPU alone");
		}
	}
}

static void check_seen(const struct machine *m, struct report *r)
{
	if (!m->probed || m->probe->init_code || m->probe->stand_in)
		return;
	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];
		struct finding *f;

		if (u->probe || strcmp(u->pci->driver, "nvidia"))
			continue;
		f = report_add(r, SEV_NOTE, u->id, "%s is here, but CUDA does not show it",
			       u->name);
		finding_means(f, "it was not tried");
		if (m->probe->env.cuda_visible[0])
			finding_todo(f, "CUDA_VISIBLE_DEVICES is \"%s\": unset it to see all",
				     m->probe->env.cuda_visible);
		else if (m->container.is)
			finding_todo(f, "if this container should have it, start it with that GPU "
					"(--gpus all)");
		else
			finding_todo(f, "does nvidia-smi show it? Then its compute mode may forbid "
					"CUDA (nvidia-smi -c DEFAULT)");
	}
}

static const struct check checks[] = {
	{ "gpus", check_gpus },
	{ "seen", check_seen },
	{ NULL, NULL },
};

const struct subject subject_gpus = { "gpus", "GPUs", NULL, checks };
