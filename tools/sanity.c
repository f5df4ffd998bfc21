/* SPDX-License-Identifier: MIT */
/* gdrcopy_sanity tests CPU access to GPU memory here: options, order of events, output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "common/json.h"
#include "common/opts.h"
#include "common/progress.h"
#include "sanity/sanity.h"

static struct {
	bool list, quick, verbose, json, no_summary, extended;
	struct opt_texts only;
	long device, seconds;
	int kind;
	const char *sim_dir;
} opt = { .kind = ALLOC_ANY, .seconds = 60 };

static const struct opt options[] = {
	OPTION_FLAG('l', "list", &opt.list, "the names of the tests"),
	{ 't', "test", OPT_TEXTS, &opt.only, "NAME",
	  "this test only; may be given again for another; names of\n"
	  "GDRCopy's tests are taken too, and _cumemalloc or\n"
	  "_vmmalloc behind a name chooses the memory, as -a does",
	  0, 0, NULL },
	OPTION_FLAG('q', "quick", &opt.quick,
		    "a health check in seconds: the tests that need no process\n"
		    "of their own, one after the other in one"),
	OPTION_FLAG('s', "no-summary", &opt.no_summary, "without the last line"),
	OPTION_FLAG('e', "extended", &opt.extended, "accepted and ignored: all tests always run"),
	OPTION_DEVICE(&opt.device),
	OPTION_ALLOC(&opt.kind),
	OPTION_COUNT(0, "timeout", &opt.seconds,
		     "seconds that one test may take, with -q all of them (60)", 1, 86400),
	OPTION_FLAG('v', "verbose", &opt.verbose, "what the tests found out, and their times"),
	OPTION_JSON(&opt.json),
	OPTION_SIM(&opt.sim_dir),
};

static const struct tool tool = {
	"gdrcopy_sanity",
	"Tests CPU access to GPU memory on this machine.",
	"  Each test runs in a process of its own, which opens CUDA and the library: a crash or a\n"
	"  hang fails that test alone; with -q the tests share a process as long as they pass.\n"
	"  What cannot be tested here is waived, with the reason. Data that went through the\n"
	"  mapping is compared with what CUDA's own copies see.\n"
	"  The last line is \"Total: N, Passed: N, Failed: N, Waived: N\", as GDRCopy's sanity has "
	"it.",
	options,
	ARRAY_SIZE(options),
	.examples =
		"  gdrcopy_sanity | grep -q 'Failed: 0'\n"
		"      a node check as existing scripts do it; the exit status alone is enough,\n"
		"      and 2 distinguishes a machine without GPU memory from a failed test\n"
		"  gdrcopy_sanity --quick >/dev/null\n"
		"      the same in seconds, for a probe that runs often\n"
		"  gdrcopy_sanity -t offsets -t basic_vmmalloc -v\n"
		"      two tests, the second on memory of cuMemCreate, with what they found out",
	.exit_text = "Exit status:\n"
		     "  0  no test failed, and at least one passed\n"
		     "  1  a test failed; also a bad option, or output that could not be written\n"
		     "  2  nothing was tested: gdr_open() fails here or no GPU memory was reached "
		     "(the\n"
		     "     message has the reason), or every test was waived",
	.failure = TOOL_FAIL,
};

static const char *const outcome_name[OUTCOMES] = { "passed", "failed", "waived" };

static struct memory {
	struct probe probe;
	bool known;
} memories[MEM_KINDS + 1]; /* by the kind asked for, ALLOC_ANY first */

static void print_memory(const struct probe *p)
{
	const struct sanity_facts *facts = &p->facts;

	printf("memory:   %s: %s\nmapping:  %s, backend %s, %s\n", mem_kind_name[facts->kind],
	       facts->place, mapping_name(facts->type), backend_name(facts->backend),
	       facts->backend == BARCOPY_BACKEND_HOST ? "not through the BAR"
	       : facts->persistent		      ? "persistent"
						      : "revoked when the memory is freed");
	if (p->passed_over[0])
		printf("not used: %s\n", p->passed_over);
	fflush(stdout);
}

/* Every kind of memory that the chosen tests need, before the first test. */
static void probe_all(struct chosen *list)
{
	bool first = true;

	for (struct chosen *c = list; c->test; c++) {
		struct memory *m = &memories[c->kind - ALLOC_ANY];
		enum outcome outcome;

		c->facts = &m->probe.facts;
		if (m->known)
			continue;
		m->known = true;
		m->probe = (struct probe){ .device = (int)opt.device,
					   .kind = c->kind,
					   .sim_dir = opt.sim_dir };
		progress_at(0, 0, "memory to test is looked for");
		outcome = probe_run(&m->probe, opt.seconds);
		progress_hide();
		switch (outcome) {
		case PASSED:
			break;
		case WAIVED: /* the reason is on stderr already */
			if (opt.json)
				json_error(report->text, TOOL_CANNOT);
			exit(TOOL_CANNOT);
		default:
			tool_fail("%s", report->text);
		}
		m->probe.facts.kernel_pins = sanity_kernel_pins();
		if (opt.json)
			continue;
		if (first && m->probe.simulated)
			printf("%s: running on the stand-in %s: no GPU is used\n", tool_name,
			       m->probe.libcuda);
		if (first)
			gpu_print(&m->probe.gpu);
		print_memory(&m->probe);
		first = false;
	}
}

/* Of the first kind of memory; each test names its own. */
static void json_facts(struct json *j, const struct probe *p)
{
	const struct sanity_facts *facts = &p->facts;

	json_head_library(j);
	json_bool(j, "simulated", p->simulated);
	json_object(j, "gpu");
	json_int(j, "device", p->gpu.ordinal);
	json_string(j, "name", p->gpu.name);
	json_string(j, "pci", p->gpu.pci[0] ? p->gpu.pci : NULL);
	json_string(j, "libcuda", p->libcuda);
	json_end(j);
	json_string(j, "alloc", mem_kind_name[facts->kind]);
	json_string(j, "place", facts->place);
	json_string(j, "note", p->passed_over[0] ? p->passed_over : NULL);
	json_string(j, "backend", backend_name(facts->backend));
	json_string(j, "mapping", mapping_name(facts->type));
	json_bool(j, "persistent", facts->persistent);
	json_array(j, "tests");
}

static void print_outcome(const struct chosen *c)
{
	static const char *const word[OUTCOMES] = { "ok", "FAILED", "waived" };

	printf("%-7s %s", word[c->outcome], c->test->name);
	if (c->kind != opt.kind)
		printf(" (%s)", mem_kind_name[c->facts->kind]);
	if (c->outcome != PASSED)
		printf(": %s", report->text);
	if (opt.verbose) {
		printf(" (%.2f s)", report->seconds);
		for (char *line = strtok(report->notes, "\n"); line; line = strtok(NULL, "\n"))
			printf("\n        %s", line);
	}
	printf("\n");
	fflush(stdout);
}

static void json_outcome(struct json *j, const struct chosen *c)
{
	json_object(j, NULL);
	json_string(j, "name", c->test->name);
	json_string(j, "alloc", mem_kind_name[c->facts->kind]);
	json_string(j, "result", outcome_name[c->outcome]);
	json_string(j, "reason", c->outcome == PASSED ? NULL : report->text);
	json_number(j, "seconds", report->seconds);
	json_array(j, "notes");
	for (char *line = strtok(report->notes, "\n"); line; line = strtok(NULL, "\n"))
		json_string(j, NULL, line);
	json_end(j);
	json_end(j);
}

/* Runs all in one process (-q), or each in its own; prints each when its process has ended. */
static void run(struct chosen *list, size_t n, struct json *j, unsigned int *count)
{
	size_t together = opt.quick ? n : 1;

	memset(report, 0, sizeof(*report)); /* probe_all() has used it */
	for (size_t i = 0; i < n; i++, report++) {
		if (i % together == 0) {
			progress_at(i, n, "test %s", list[i].test->name);
			run_tests(&list[i], together, opt.seconds);
			progress_hide();
		}
		count[list[i].outcome]++;
		if (opt.json)
			json_outcome(j, &list[i]);
		else
			print_outcome(&list[i]);
	}
}

int main(int argc, char **argv)
{
	unsigned int count[OUTCOMES] = { 0 };
	struct chosen *list;
	size_t n = 0;
	struct json j;

	opts_parse(&tool, NULL, 0, argc, argv);
	if (opt.json)
		json_report_errors();
	if (opt.list) {
		names_print();
		return TOOL_OK;
	}
	list = names_choose(&opt.only, opt.kind, opt.quick);
	while (list[n].test)
		n++;
	if (!n)
		tool_fail("-q: a test that was asked for needs a process of its own");
	sim_enter(opt.sim_dir, argv);
	progress_begin(!opt.json && !opt.quick);
	report_make(n);
	probe_all(list);
	if (opt.json)
		json_facts(&j, &memories[list->kind - ALLOC_ANY].probe);
	run(list, n, &j, count);
	free(list);
	if (opt.json) {
		json_end(&j);
		for (int i = 0; i < OUTCOMES; i++)
			json_uint(&j, outcome_name[i], count[i]);
		json_finish(&j, stdout);
	} else if (!opt.no_summary) {
		printf("Total: %zu, Passed: %u, Failed: %u, Waived: %u\n", n, count[PASSED],
		       count[FAILED], count[WAIVED]);
	}
	return count[FAILED] ? TOOL_FAIL : count[PASSED] ? TOOL_OK : TOOL_CANNOT;
}
