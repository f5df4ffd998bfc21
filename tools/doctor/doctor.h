/* SPDX-License-Identifier: MIT */
/* gdrcopy_doctor in the order of its work: files, facts, findings, verdict, report. */
#ifndef DOCTOR_DOCTOR_H
#define DOCTOR_DOCTOR_H

#include <dirent.h>
#include <sys/types.h>

#include "doctor/probe.h"

/* ---- root.c: files below a root; the target of a link is used as it stands ------------ */

#define ROOT_PATH 1024 /* longest path, in bytes */

/* "/", or the directory of a described machine */
struct root {
	char top[ROOT_PATH]; /* without links and the last slash: "" is the machine itself */
};

/* 0 or -errno. `dir` is "/" for the machine itself. */
int root_open(struct root *r, const char *dir);

/*
 * Up to `size` bytes of a regular file: their number, or -errno (EINVAL: not one). Never waits for
 * a FIFO, never opens a device.
 */
ssize_t root_read(const struct root *r, const char *path, void *buf, size_t size);

/* As a string: NULs become newlines, white space at the end goes. 0, or -errno with "" in buf. */
int root_text(const struct root *r, const char *path, char *buf, size_t size);

/* A number, decimal or with 0x; 0 or -errno (EINVAL: the file contains something else). */
int root_number(const struct root *r, const char *path, long long *value);

bool root_exists(const struct root *r, const char *path);

/* The last component of a link's target: 0, or -errno with "" in name. */
int root_link(const struct root *r, const char *path, char *name, size_t size);

/* The names in a directory, sorted, without "." and "..": their number, or -errno. */
int root_list(const struct root *r, const char *path, struct dirent ***names);
void root_list_free(struct dirent **names, int count);

/* ---- pci.c: NVIDIA GPUs, as /sys/bus/pci/devices shows them --------------------------- */

struct pci_dev {
	char addr[16]; /* "0000:17:00.0" */
	bool gone; /* it does not answer: every byte of its header reads 0xff */
	uint16_t vendor, device;
	int numa; /* -1: not known */
	char driver[32]; /* bound to it; "" if none */
};

struct pci {
	int error; /* errno of listing the devices; 0 */
	struct pci_dev *dev;
	size_t count;
	size_t total; /* functions of any kind */
};

void pci_collect(struct pci *pci, const struct root *root);

/* NULL if there is no GPU there. */
const struct pci_dev *pci_find(const struct pci *pci, const char *addr);

/* ---- machine.c: the facts, from files and from the probes, and the conclusions about a GPU  */

enum flavour { FLAVOUR_UNKNOWN, FLAVOUR_OPEN, FLAVOUR_PROPRIETARY };

/* Whether a GPU's ordinary memory can be mapped; the values are those of the exit status. */
enum answer { ANSWER_YES, ANSWER_NO, ANSWER_UNKNOWN };

/* One line of the table of places. */
struct place {
	char numa[8]; /* "0"; "-": the firmware names none */
	char cpus[64]; /* of that node: "0-31"; "-" */
	long usable; /* of them, by this process; -1: not known */
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
		bool numbers_known; /* /proc/devices and /proc/misc could be read */
		int major; /* in /proc/devices, for a node by a script; -1: not there */
		int misc; /* in /proc/misc: the minor number of the kernel's node; -1: not there */
		long long pins; /* that the GPU driver holds for it; 0: none, or not known */
		bool signed_only; /* the kernel loads signed modules only */
		bool init_script; /* of NVIDIA's packages: it makes the node by hand */
	} gdrdrv;
	char container[64]; /* the file or variable that shows it; "": this is none */
	char vm[64];
	bool wsl; /* Linux inside Windows: its GPU driver is another */
	char tegra[128]; /* the model; "": this is none */
};

/* Collects all facts, of the PCI bus, then of each subject. The caller keeps the root. */
void machine_collect(struct machine *m, const struct root *root, const struct probes *probes);
/* A part of it: the GPUs that the PCI bus or CUDA shows. */
void machine_add_units(struct machine *m);

bool machine_has_gpu(const struct machine *m);
bool trial_works(const struct probe_trial *t);
/* The trial of gdr_open() in this environment; NULL: not tried. */
const struct probe_trial *unit_program(const struct unit *u);
/* The backends in the library's order; ends with NULL. */
extern const char *const backend_names[];
/* Its trial with memory of that CUDA call succeeded; NULL: with any. */
bool unit_works(const struct unit *u, const char *backend, const char *memory);
/* false: a GPU of CUDA's is integrated, or a GeForce, whose pins the GPU driver refuses. */
bool unit_takes_gdrdrv(const struct unit *u);
/* The backend that will serve ordinary memory; NULL: none. */
const char *unit_server(const struct unit *u);
enum answer unit_answer(const struct unit *u);
/* GPUDirect RDMA, which gdrdrv and rm need, is no feature of these. */
bool unit_is_geforce(const struct unit *u);
/* gpus.c: how many CPUs two lists ("0-15,32") have in common. */
long cpus_common(const char *a, const char *b);

/* ---- report.c: the findings, in the order in which they are made; the verdict --------- */

enum severity {
	SEV_OK, /* as it should be */
	SEV_NOTE, /* worth knowing; nothing is wrong */
	SEV_UNKNOWN, /* cannot be determined from here */
	SEV_WARN, /* works, but less or slower than it could */
	SEV_FAIL, /* something does not work because of this */
	SEVERITIES
};

/* "ok", "note", "unknown", "warning", "fault" */
extern const char *const severity_name[SEVERITIES];

/* The texts are of static storage, or text()'s. */
struct finding {
	const char *subject;
	const char *gpu; /* the unit's id, which the texts leave out; NULL: not about one GPU */
	enum severity severity;
	const char *found, *means, *todo; /* the last two may be NULL */
};

struct report {
	struct finding *finding;
	size_t count, room;
	const char *subject; /* of the findings that are added now */
};

/* Adds one. Its first text comes last, formatted. */
void finding(struct report *r, enum severity severity, const char *gpu, const char *means,
	     const char *todo, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* Frees the list; its texts are kept until the process ends. */
void report_end(struct report *r);

/* A formatted string, kept until the process ends. */
const char *text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The answer in plain words, and what to do first. */
enum { VERDICT_NEXT = 6 };
struct verdict {
	enum answer answer;
	const char *words;
	const char *next[VERDICT_NEXT]; /* the most urgent first */
	size_t nexts;
};
void verdict_reach(struct verdict *v, const struct machine *m, const struct report *r);

/* ---- the subjects --------------------------------------------------------------------- */

/* collect() turns files into facts, then check() all facts into findings; it reads no file. */
struct subject {
	const char *name, *title;
	void (*collect)(struct machine *m); /* NULL: it needs only other subjects' facts */
	void (*check)(const struct machine *m, struct report *r);
};
extern const struct subject subject_gpus, subject_driver, subject_host, subject_backends,
	subject_gdrdrv, subject_bar1, subject_places;

/* examine.c: all, in the order of the report; ends with NULL. */
extern const struct subject *const subjects[];
void subjects_check(const struct machine *m, struct report *r);

/* machine.c: why a node that exists cannot be opened, and what to do about it. */
struct advice {
	const char *means, *todo;
};
/* How a container gets a node of the host; the GPU. */
const char *give_node(const struct machine *m, const char *path);
const char *give_gpu(const struct machine *m);
struct advice node_advice(const struct machine *m, const struct probe_node *n);

/* ---- print.c: for people (no byte of a file can control the terminal); as one JSON document -- */

void print_text(const struct machine *m, const struct report *r, const struct verdict *v,
		FILE *out);
void print_json(const struct machine *m, const struct report *r, const struct verdict *v,
		FILE *out);

#endif
