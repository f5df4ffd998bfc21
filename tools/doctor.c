/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy_doctor reports whether the CPU can map ordinary GPU memory here, and by what, or why not
 * and what to do. A machine is data (doctor/doctor.h), and tests/doctor has made-up ones. A check
 * that lacks a fact reports "unknown". Nothing is changed but for the trials: 64 KiB of GPU
 * memory, in children.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "barcopy.h"
#include "common/exit.h"
#include "common/json.h"
#include "common/opts.h"
#include "common/progress.h"
#include "doctor/doctor.h"

static struct {
	bool json;
	const char *sim_dir;
} opt;

static const struct opt options[] = { OPTION_JSON(&opt.json), OPTION_SIM(&opt.sim_dir) };

static const struct tool tool = {
	"gdrcopy_doctor",
	"Shows whether the CPU can map GPU memory on this machine, and why not.",
	"  Examines the GPU driver, its nodes and libraries, the kernel module gdrdrv,\n"
	"  the container, BAR1 and NUMA nodes, and tries every backend on every\n"
	"  GPU with 64 KiB. Each line shows what was found and, where it matters, what\n"
	"  that means and what to do. Changes nothing. The exit status makes it a health\n"
	"  check. Ordinary GPU memory is that of cudaMalloc, on an integrated GPU that of\n"
	"  cudaHostAlloc.",
	options,
	ARRAY_SIZE(options),
	.examples = "  gdrcopy_doctor\n"
		    "      the whole report; what to do stands at its end\n"
		    "  gdrcopy_doctor >/dev/null || echo 'no CPU access to GPU memory'\n"
		    "      a node check",
	.exit_text =
		"Exit status:\n"
		"  0  ordinary GPU memory can be mapped on every GPU that CUDA shows here, by a\n"
		"     program in this environment (GDRCOPY_BACKEND, GDRCOPY_USE_DMABUF_MMAP)\n"
		"  1  it cannot on at least one, or there is no GPU\n"
		"  2  that could not be determined, or a bad option, a file that cannot be read, "
		"or\n"
		"     output that could not be written",
	.failure = ANSWER_UNKNOWN,
};

int main(int argc, char **argv)
{
	static struct machine m;
	static struct probes *p; /* static: kept to the end */
	static struct report r;
	struct verdict v;
	struct root root;

	opts_parse(&tool, NULL, 0, argc, argv);
	if (opt.json)
		json_report_errors();
	sim_enter(opt.sim_dir, argv);
	if (root_open(&root, "/"))
		tool_fail("the root directory: %s", strerror(errno));
	progress_begin(!opt.json);
	p = probes_make();
	progress_hide();
	machine_collect(&m, &root, p);
	subjects_check(&m, &r);
	verdict_reach(&v, &m, &r);
	(opt.json ? print_json : print_text)(&m, &r, &v, stdout);
	return (int)v.answer;
}
