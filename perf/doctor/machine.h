/* SPDX-License-Identifier: MIT */
/*
 * The facts: everything that was found out about a machine, by subject, and the checks that turn them
 * into findings. A subject is one file: what it reads from files becomes a struct here. Facts are
 * filled in before the first check runs, so that a check may use those of other subjects; a check
 * reads no file.
 */
#ifndef DOCTOR_MACHINE_H
#define DOCTOR_MACHINE_H

#include <stdbool.h>

#include "doctor/pci.h"
#include "doctor/probe.h"
#include "doctor/report.h"
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
	char id[16]; /* PCI address, else "device N" of CUDA */
	char name[128]; /* "NVIDIA H200 (0000:17:00.0)" */
	const struct pci_dev *pci;
	const struct probe_gpu *probe;
	int minor; /* of /dev/nvidiaN; -1: not known */
	struct place place;
};

struct machine {
	const struct root *root;
	const struct probes *probe; /* zeroes where `probed` is false */
	bool probed;
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

struct subject {
	const char *name, *title;
	void (*collect)(struct machine *m); /* NULL: other subjects' facts are enough */
	void (*check)(const struct machine *m, struct report *r);
};
extern const struct subject subject_gpus, subject_driver, subject_host, subject_backends,
	subject_gdrdrv, subject_bar1, subject_places;
extern const struct subject *const machine_subjects[]; /* ends with NULL */

/* machine.c: everything, in the order of its table; the root stays the caller's. */
void machine_collect(struct machine *m, const struct root *root, const struct probes *probes);
void machine_check(const struct machine *m, struct report *r);

bool machine_has_gpu(const struct machine *m);
bool trial_works(const struct probe_trial *t);
/* Their names, in the library's order; ends with NULL. */
extern const char *const backend_names[];
/* With memory of that CUDA call; NULL: with any. */
bool unit_works(const struct unit *u, const char *backend, const char *memory);
/* The backend that will serve ordinary memory; NULL: none. */
const char *unit_server(const struct unit *u);
enum answer unit_answer(const struct unit *u);
/* backends.c: what is known to keep rm from memory of cudaMalloc there; NULL: nothing. */
struct obstacle {
	const char *means, *todo;
	bool on_host; /* in a container: nothing to be done inside */
};
const struct obstacle *rm_obstacle(const struct machine *m, const struct unit *u);
/* driver.c: why a node that exists cannot be opened, and what to do about it; false: it opens. */
bool node_refused(const struct machine *m, const struct probe_node *n, const char **means,
		  const char **todo);
/* places.c: how many CPUs two lists ("0-15,32") have in common. */
long cpus_common(const char *a, const char *b);
/* "32.0 MiB" */
const char *bytes_text(long long bytes);

/* verdict.c: what it all comes to, in plain words, and what to do first. */
enum { VERDICT_NEXT = 6 };
struct verdict {
	enum answer answer;
	const char *words;
	const char *next[VERDICT_NEXT]; /* the most urgent first */
	size_t nexts;
};
void verdict_reach(struct verdict *v, const struct machine *m, const struct report *r);

/* print.c: for people, where no byte of a file can control the terminal; as one JSON document. */
void print_text(const struct machine *m, const struct report *r, const struct verdict *v,
		FILE *out);
void print_json(const struct machine *m, const struct report *r, const struct verdict *v,
		FILE *out);

#endif
