/* SPDX-License-Identifier: MIT */
/*
 * The facts: everything that was found out about a machine, and what they say about a GPU. What a
 * subject (subjects.h) reads from files becomes a struct here. It must not know what is reported.
 */
#ifndef DOCTOR_MACHINE_H
#define DOCTOR_MACHINE_H

#include <stdbool.h>

#include "doctor/pci.h"
#include "doctor/probe.h"
#include "doctor/root.h"

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

/* One GPU, as the PCI bus and CUDA know it: one of the two may be missing. */
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
		bool ours; /* it lists its pins, as NVIDIA's does not */
		char version[16]; /* "" if not known */
		bool revocable; /* its pins are not persistent */
		bool devices_known; /* /proc/devices could be read */
		int major; /* there; -1: not there */
		long long pins; /* that the GPU driver holds for it; 0: none, or not known */
		bool signed_only; /* the kernel loads signed modules only */
		bool init_script; /* of NVIDIA's packages: it makes the node by hand */
	} gdrdrv;
	char container[64]; /* by what it is known; "": it is none */
	char vm[64];
	bool wsl; /* Linux inside Windows: its GPU driver is another */
	char tegra[128]; /* the model; "": it is none */
};

/* The PCI bus and the GPUs, before the subjects fill in the rest; the root stays the caller's. */
void machine_start(struct machine *m, const struct root *root, const struct probes *probes);

bool machine_has_gpu(const struct machine *m);
bool trial_works(const struct probe_trial *t);
/* What a program gets in this environment; NULL: not tried. */
const struct probe_trial *unit_program(const struct unit *u);
/* Their names, in the library's order; ends with NULL. */
extern const char *const backend_names[];
/* With memory of that CUDA call; NULL: with any. */
bool unit_works(const struct unit *u, const char *backend, const char *memory);
/* The backend that will serve ordinary memory; NULL: none. */
const char *unit_server(const struct unit *u);
enum answer unit_answer(const struct unit *u);

#endif
