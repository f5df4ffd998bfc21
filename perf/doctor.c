/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy_doctor: why CPU access to GPU memory works on this machine, or why not. Options, and the
 * order of the work:
 *
 *   probes    what is no file: NVML, libcuda, trial pins through libgdrapi, device nodes, the CPU
 *             (doctor/probe.h). Made here, or played back from a file; recorded on request.
 *   facts     what files below a root say (doctor/root.h), put together with the probes
 *             (doctor/machine.h). The root is "/" or a captured machine's.
 *   findings  what the rules conclude from the facts: one subject a file, one check a table row
 *             (doctor/gpus.c, driver.c, container.c, backends.c, gdrdrv.c, bar1.c, topology.c,
 *             iommu.c, vm.c, tegra.c, peermem.c). A finding says what was found, what it means, what to do.
 *   verdict   what that comes to (doctor/verdict.h), and a report for people or as JSON.
 *
 * So a machine is data: probes and a directory. Tests use made-up ones and nothing else differs. A
 * check that lacks a fact says "unknown" and how to get it; it never guesses.
 *
 * Reads only, but for the trials: 64 KiB of GPU memory a backend, in processes of their own.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit.h"
#include "common/opts.h"
#include "common/sim.h"
#include "doctor/print.h"
#include "barcopy.h"

enum { EXIT_WORKS = 0, EXIT_NOT = 1, EXIT_USAGE = 2 };

static struct {
	bool json;
	const char *root, *record, *replay, *files, *sim_dir;
	long clique;
} opt = { .clique = -1 };

static const struct opt options[] = {
	{ 0, "json", OPT_FLAG, &opt.json, NULL, "one JSON document on standard output", 0, 0,
	  NULL },
	{ 0, "p2p-capability", OPT_COUNT, &opt.clique, "CLIQUE",
	  "print the 8 bytes of the peer-to-peer approval\n"
	  "capability, which a hypervisor shows in the\n"
	  "configuration space of GPUs of that clique (0 to 15),\n"
	  "and end",
	  0, P2P_CAP_CLIQUES - 1, NULL },
	{ 0, "record", OPT_TEXT, &opt.record, "FILE",
	  "also write what is no file (answers of libraries,\n"
	  "trials, nodes) to FILE",
	  0, 0, NULL },
	{ 0, "record-files", OPT_TEXT, &opt.files, "DIR",
	  "also copy every file that is read to DIR, which must\n"
	  "be new or empty; the kernel's command line is among\n"
	  "them: look through it before you hand it on",
	  0, 0, NULL },
	{ 0, "root", OPT_TEXT, &opt.root, "DIR",
	  "look at the files below DIR instead of /; nothing is\n"
	  "tried on this machine",
	  0, 0, NULL },
	{ 0, "replay", OPT_TEXT, &opt.replay, "FILE",
	  "take from FILE what --record wrote; with --root only", 0, 0, NULL },
	{ 0, "sim", OPT_TEXT, &opt.sim_dir, "DIR",
	  "run on the stand-in libraries in DIR, without a GPU", 0, 0, NULL },
};

static const struct tool tool = {
	"gdrcopy_doctor",
	"Tells why CPU access to GPU memory works on this machine, or why not.",
	"  Looks at the GPU driver, its nodes and libraries, what the backend rm needs of them,\n"
	"  the kernel module gdrdrv, BAR1, the places of the GPUs, the IOMMU, and tries every\n"
	"  backend on every GPU with 64 KiB. Each line tells what was found; where it matters,\n"
	"  what that means and what to do. Changes nothing. Some things only root may see; the\n"
	"  report says which.\n"
	"  A captured machine can be looked at elsewhere: --record FILE --record-files DIR there,\n"
	"  --replay FILE --root DIR here.",
	options,
	sizeof(options) / sizeof(options[0]),
};

static const char exit_text[] =
	"Exit status: 0 at least one backend works for a GPU of this machine; 1 none does;\n"
	"2 a bad option, or a file that cannot be read or written.";

static void parse(int argc, char **argv)
{
	int major = 0, minor = 0;
	char version[64];

	gdr_runtime_get_version(&major, &minor);
	snprintf(version, sizeof(version), "%s (libgdrapi %d.%d)", BARCOPY_VERSION, major, minor);
	opts_exit_status(EXIT_USAGE, exit_text);
	opts_parse(&tool, NULL, 0, version, argc, argv);
	if (opt.replay && !opt.root)
		tool_fail("--replay: give the files that belong to it with --root");
	if (opt.root && (opt.record || opt.files || opt.sim_dir))
		tool_fail("--root looks at another machine: %s has no meaning with it",
			  opt.record  ? "--record"
			  : opt.files ? "--record-files"
				      : "--sim");
	sim_enter(opt.sim_dir, argv);
}

/* An empty directory of that name, or the end. */
static void make_empty(const char *name)
{
	struct dirent *entry;
	DIR *dir;

	if (!mkdir(name, 0755))
		return;
	dir = opendir(name);
	if (!dir)
		tool_fail("--record-files %s: %s", name, strerror(errno));
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			tool_fail("--record-files %s: it is not empty", name);
	closedir(dir);
}

static struct probes *get_probes(FILE *record)
{
	struct probes *p;
	char why[256];

	if (opt.replay) {
		p = probes_replay(opt.replay, why, sizeof(why));
		if (!p)
			tool_fail("--replay %s: %s", opt.replay, why);
		return p;
	}
	if (opt.root)
		return tool_calloc(1, sizeof(*p));
	p = probes_make();
	if (record) {
		probes_record(p, record);
		if (fclose(record))
			tool_fail("--record %s: %s", opt.record, strerror(errno));
	}
	return p;
}

/* Colours for a terminal that wants them (no-color.org). */
static bool want_colour(void)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") && !(no && *no);
}

int main(int argc, char **argv)
{
	static struct machine m;
	struct report r = { 0 };
	FILE *record = NULL;
	struct verdict v;
	struct probes *p;
	struct root root;
	int rc;

	parse(argc, argv);
	if (opt.clique >= 0) {
		print_capability((unsigned int)opt.clique, opt.json, stdout);
		if (fflush(stdout))
			tool_fail("standard output: %s", strerror(errno));
		return EXIT_WORKS;
	}
	rc = root_open(&root, opt.root ? opt.root : "/");
	if (rc)
		tool_fail("--root %s: %s", opt.root ? opt.root : "/", strerror(-rc));
	if (opt.record && !(record = fopen(opt.record, "we")))
		tool_fail("--record %s: %s", opt.record, strerror(errno));
	if (opt.files) {
		make_empty(opt.files);
		root.copy = opt.files;
	}

	p = get_probes(record);
	machine_collect(&m, &root, p);
	machine_check(&m, &r);
	verdict_reach(&v, &m, &r);
	if (opt.json)
		print_json(&m, &r, &v, stdout);
	else
		print_text(&m, &r, &v, want_colour(), stdout);
	if (fflush(stdout) || ferror(stdout))
		tool_fail("standard output: %s", strerror(errno));
	rc = root.copy_failed ? EXIT_USAGE : v.works ? EXIT_WORKS : EXIT_NOT;
	report_free(&r);
	machine_free(&m);
	root_close(&root);
	free(p);
	return rc;
}
