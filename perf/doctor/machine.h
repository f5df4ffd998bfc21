/* SPDX-License-Identifier: MIT */
/*
 * The facts about a machine: what the subjects (subjects.h) read from files, the answers of the probes,
 * and the conclusions about a GPU from both. It must not know what is reported.
 */
#ifndef DOCTOR_MACHINE_H
#define DOCTOR_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "doctor/probe.h"
#include "doctor/root.h"

/* ---- pci.c: NVIDIA GPUs and network adapters, as /sys/bus/pci/devices shows them ---------------- */

struct pci_dev {
	char addr[16]; /* "0000:17:00.0" */
	bool gpu; /* else a network adapter */
	bool gone; /* it does not answer: every byte of its header reads 0xff */
	bool virtual; /* a virtual function of another */
	uint16_t vendor, device;
	int numa, socket; /* -1: not known */
	char driver[32]; /* bound to it; "" if none */
	char label[32]; /* of an adapter: "mlx5_0", "eth0"; "" if none */
	int group; /* number of its IOMMU group; -1: none */
	char real[ROOT_PATH]; /* "/sys/devices/pci0000:00/0000:00:01.0/..."; "": not known */
};

struct pci {
	int error; /* errno of listing the devices; 0 */
	struct pci_dev *dev;
	size_t count;
	size_t total; /* functions of any kind */
};

void pci_collect(struct pci *pci, const struct root *root);

/* NULL if there is none, or it is none that matters. */
const struct pci_dev *pci_find(const struct pci *pci, const char *addr);

/* The path between two functions, in the classes of the GPUDirect RDMA guide, section 11.4. */
enum path_class {
	PATH_SWITCH, /* PCIe switches only, or one slot */
	PATH_ROOT, /* one CPU's root complex */
	PATH_FAR, /* another CPU's: over the link between sockets */
	PATH_UNKNOWN, /* what is visible does not show it */
	PATH_CLASSES
};
extern const char *const path_name[PATH_CLASSES];
enum path_class pci_path(const struct pci_dev *a, const struct pci_dev *b);

/* ---- machine.c ---------------------------------------------------------------------------------- */

enum flavour { FLAVOUR_UNKNOWN, FLAVOUR_OPEN, FLAVOUR_PROPRIETARY };

/* Whether a GPU's ordinary memory can be mapped; the values are those of the exit status. */
enum answer { ANSWER_YES, ANSWER_NO, ANSWER_UNKNOWN };

/* One line of the table of places. */
struct place {
	char numa[8]; /* "0"; "-": the firmware names none */
	char cpus[64]; /* of that node: "0-31"; "-" */
	long usable; /* of them, by this process; -1: not known */
	char iommu[24]; /* "identity", "DMA-FQ"; "none"; "?" */
	char adapter[40]; /* the nearest; "-" */
	enum path_class path; /* to it */
};

/* One GPU, from the PCI bus and from CUDA; one of the two may be missing. */
struct unit {
	const char *id; /* PCI address, else "device N" of CUDA */
	const char *name; /* "NVIDIA H200 (0000:17:00.0)" */
	const struct pci_dev *pci;
	const struct probe_gpu *probe;
	int minor; /* of /dev/nvidiaN; -1: not known */
	struct place place;
};

struct machine {
	const struct root *root;
	const struct probes *probe;
	struct pci pci;
	struct unit unit[PROBE_GPUS];
	int units;
	struct {
		bool loaded;
		char version[32]; /* "580.159.04"; "" if not known */
		int major; /* 580; 0: not known */
		enum flavour flavour;
	} driver;
	struct {
		bool loaded;
		bool from_barcopy; /* it lists its pins, which NVIDIA's does not */
		char version[16]; /* "" if not known */
		bool revocable; /* its pins are not persistent */
		bool devices_known; /* /proc/devices could be read */
		int major; /* there; -1: not there */
		long long pins; /* that the GPU driver holds for it; 0: none, or not known */
		bool signed_only; /* the kernel loads signed modules only */
		bool init_script; /* of NVIDIA's packages: it makes the node by hand */
	} gdrdrv;
	char container[64]; /* the file or variable that shows it; "": this is none */
	char vm[64];
	bool wsl; /* Linux inside Windows: its GPU driver is another */
	char tegra[128]; /* the model; "": this is none */
};

/* Fills in the PCI bus and the GPUs; the subjects do the rest. The caller keeps the root. */
void machine_start(struct machine *m, const struct root *root, const struct probes *probes);

bool machine_has_gpu(const struct machine *m);
bool trial_works(const struct probe_trial *t);
/* The trial of gdr_open() in this environment; NULL: not tried. */
const struct probe_trial *unit_program(const struct unit *u);
/* The backends in the library's order; ends with NULL. */
extern const char *const backend_names[];
/* Its trial with memory of that CUDA call succeeded; NULL: with any. */
bool unit_works(const struct unit *u, const char *backend, const char *memory);
/* The backend that will serve ordinary memory; NULL: none. */
const char *unit_server(const struct unit *u);
enum answer unit_answer(const struct unit *u);

#endif
