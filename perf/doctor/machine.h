/* SPDX-License-Identifier: MIT */
/*
 * The facts: everything that was found out about a machine, by subject, and the tables of checks
 * that turn them into findings. A subject is one file: what it reads from files becomes a struct
 * here, what it concludes is one row of its table for each check. Facts are filled in before the
 * first check runs, so that a check may use those of other subjects; a check reads no file.
 */
#ifndef DOCTOR_MACHINE_H
#define DOCTOR_MACHINE_H

#include <stdbool.h>

#include "doctor/cpulist.h"
#include "doctor/p2p_cap.h"
#include "doctor/pci.h"
#include "doctor/probe.h"
#include "doctor/report.h"
#include "doctor/root.h"

enum { MAX_NODES = 64, MAX_PINS = 16 };

enum flavour { FLAVOUR_UNKNOWN, FLAVOUR_OPEN, FLAVOUR_PROPRIETARY };

/* One GPU, as the PCI bus and CUDA know it: one of the two may be missing. */
struct unit {
	char id[16]; /* PCI address, else "device N" of CUDA */
	char name[128]; /* "NVIDIA H200 (0000:17:00.0)" */
	const struct pci_dev *pci;
	const struct probe_gpu *probe;
	int minor; /* of /dev/nvidiaN; -1: not known */
	struct p2p_cap cap;
};

struct driver_facts {
	bool loaded;
	char version[32]; /* "580.159.04"; "" if not known */
	int major; /* 580; 0: not known */
	enum flavour flavour;
};

struct pin {
	long pid;
	long long bytes;

	bool alive; /* the process is there */
};

struct gdrdrv_facts {
	bool loaded;
	char version[16], flavour[32]; /* "" if not known */
	int persistent; /* 1, 0, or -1: not known */
	int major; /* of /proc/devices; -1: not there */
	int refcount; /* pins that the GPU driver holds for it; -1: not known */
	int refcount_error; /* errno of reading that */

	int pins_error; /* errno of reading the list of pins */
	struct pin pin[MAX_PINS];
	int pins; /* in the list, also beyond MAX_PINS */
	bool installed; /* modules.dep of the running kernel has it */
	bool signed_only; /* the kernel loads signed modules only */
};

struct numa_facts {
	int node[MAX_NODES]; /* their numbers */
	int socket[MAX_NODES]; /* physical package of the node's CPUs; -1: not known */
	struct cpulist cpus[MAX_NODES];
	int nodes; /* 0: not known */
	struct cpulist allowed; /* CPUs of this process */
	bool allowed_known;
};

struct machine {
	struct root *root;
	const struct probes *probe; /* zeroes where `probed` is false */
	bool probed;
	struct pci pci;
	struct unit unit[PROBE_GPUS];
	int units;
	struct driver_facts driver;
	struct gdrdrv_facts gdrdrv;
	struct numa_facts numa;
	struct {
		bool is;
		char sign[96]; /* by what it is known */
	} container;
	struct {
		bool is;
		char sign[96];
	} vm;
	bool wsl; /* Linux inside Windows: its GPU driver is another */
	struct {
		bool active; /* the kernel drives one */
		char units[96]; /* "dmar0, dmar1" */
		char cmdline[256]; /* what the kernel's command line says of it */
	} iommu;
	struct {
		bool is;
		char model[128];
	} tegra;
	struct {
		bool nvidia_peermem, nv_peer_mem, rdma; /* rdma: an RDMA device is there */
	} peermem;
};

struct check {
	const char *name; /* NULL ends a table */
	void (*run)(const struct machine *m, struct report *r);
};

struct subject {
	const char *name, *title;
	void (*collect)(struct machine *m); /* NULL: other subjects' facts are enough */
	const struct check *checks;
};

extern const struct subject subject_gpus, subject_driver, subject_container, subject_backends,
	subject_rm, subject_gdrdrv, subject_bar1, subject_topology, subject_iommu, subject_vm,
	subject_tegra, subject_peermem;

/* machine.c: everything, in the order of its table; the root stays the caller's. */
void machine_collect(struct machine *m, struct root *root, const struct probes *probes);
void machine_check(const struct machine *m, struct report *r);
void machine_free(struct machine *m);
extern const struct subject *const machine_subjects[]; /* ends with NULL */

/* What is known of several subjects. */
bool machine_has_gpu(const struct machine *m);
bool trial_works(const struct probe_trial *t);
/* backends.c: their names, in the library's order; ends with NULL. */
extern const char *const backend_names[];
/* With some kind of memory; with that of cudaMalloc. */
bool unit_works(const struct unit *u, const char *backend);
bool unit_serves(const struct unit *u, const char *backend);
/* rm.c: what is known to keep the rm backend from memory of cudaMalloc there; NULL: nothing. */
struct obstacle {
	const char *means, *todo;
	bool on_host; /* in a container: nothing to be done inside */
};
const struct obstacle *rm_obstacle(const struct machine *m, const struct unit *u);
/* The loader's reason, without the name that it begins with. */
const char *library_error(const struct probe_library *l);
/* "32 MiB", in static storage that holds the last four. */
const char *bytes_text(long long bytes);

#endif
