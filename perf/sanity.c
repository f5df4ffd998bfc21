/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy_sanity: does CPU access to GPU memory work on this machine? Options, the order of the
 * tests, and what is printed. It must not know how a test is run or what it does.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/exit.h"
#include "common/json.h"
#include "common/opts.h"
#include "common/sim.h"
#include "sanity/run.h"

static const struct sanity_test *const tables[] = {
	sanity_basic,	sanity_calls,	sanity_arguments, sanity_memory, sanity_invalidation,
	sanity_process, sanity_pass_fd, sanity_threads,	  sanity_leaks,
};

static struct {
	bool list, verbose, json;
	struct opt_texts only;
	long device, seconds;
	int kind;
	const char *sim_dir;
} opt = { .kind = ALLOC_ANY, .seconds = 60 };

static const struct opt options[] = {
	{ 'l', "list", OPT_FLAG, &opt.list, NULL, "the names of the tests", 0, 0, NULL },
	{ 't', "test", OPT_TEXTS, &opt.only, "NAME",
	  "this test only; may be given again for another", 0, 0, NULL },
	{ 'd', "device", OPT_COUNT, &opt.device, "N", "CUDA device (0)", 0, 1 << 20, NULL },
	{ 'a', "alloc", OPT_CHOICE, &opt.kind, "KIND",
	  "cuMemAlloc, cuMemCreate or cuMemHostAlloc; without it the\n"
	  "first of them that can be pinned and mapped here, but host\n"
	  "memory (the last) only on an integrated GPU",
	  0, 0, mem_kind_name },
	{ 0, "timeout", OPT_COUNT, &opt.seconds, "N", "seconds that one test may take (60)", 1,
	  86400, NULL },
	{ 'v', "verbose", OPT_FLAG, &opt.verbose, NULL, "what the tests found out, and their times",
	  0, 0, NULL },
	{ 0, "json", OPT_FLAG, &opt.json, NULL, "one JSON document on standard output", 0, 0,
	  NULL },
	{ 0, "sim", OPT_TEXT, &opt.sim_dir, "DIR",
	  "run on the stand-in libraries in DIR, without a GPU", 0, 0, NULL },
};

static const struct tool tool = {
	"gdrcopy_sanity",
	"Tests CPU access to GPU memory on this machine.",
	"  Each test runs in a process of its own, which opens CUDA and the library: a crash or a\n"
	"  hang fails that test alone. What cannot be tested here is waived, with the reason. "
	"Data\n"
	"  that went through the mapping is compared with what CUDA's own copies see.\n"
	"  Exit status 2 also tells that every test was waived.",
	options,
	sizeof(options) / sizeof(options[0]),
};

static const char *const outcome_name[OUTCOMES] = { "passed", "failed", "waived" };

/* ---- what the tests run on ------------------------------------------------------------------- */

/* Finds a kind of memory that can be pinned, in a process of its own as every test. */
static void probe(void)
{
	struct sanity_facts *facts = &report->facts;
	struct buffer b;

	cuda_dl_load();
	sim_check(opt.sim_dir, cuda_dl_path());
	gpu_find(&sanity.gpu, (int)opt.device);
	gpu_start(&sanity.gpu);
	buffer_open(&b, &sanity.gpu, opt.kind, GPU_PAGE_SIZE, GDR_MAP_FLAG_DEFAULT);
	*facts = (struct sanity_facts){
		.device = (int)opt.device,
		.kind = b.mem.kind,
		.backend = b.backend,
		.place = b.place,
		.sync_memops = b.sync_memops == 1,
		.type = b.info.mapping_type,
	};
	{
		uint64_t v = 0;

		OK(barcopy_get_handle_attribute(b.g, b.mh, BARCOPY_HANDLE_ATTR_PERSISTENT, &v));
		facts->persistent = v;
	}
	snprintf(report->passed_over, sizeof(report->passed_over), "%s", b.note);
	snprintf(report->libcuda, sizeof(report->libcuda), "%s", cuda_dl_path());
	report->simulated = cuda_dl_is_stand_in();
	report->gpu = sanity.gpu;
	/* drivers before level 2.5 cannot be asked whether a pin outlives the free: it is tried */
	if (b.backend == BARCOPY_BACKEND_GDRDRV && !facts->persistent) {
		int revoked = 0;

		mem_free(&b.mem);
		OK(gdr_get_callback_flag(b.g, b.mh, &revoked));
		facts->persistent = !revoked;
		OK(gdr_close(b.g));
		return;
	}
	buffer_close(&b);
}

static const char *backend_name(void)
{
	const struct buffer b = { .backend = sanity.facts.backend };

	return buffer_backend_name(&b);
}

static void print_facts(void)
{
	const struct gpu *gpu = &report->gpu;
	const char *type = "unknown";

	gdr_get_mapping_type_string(sanity.facts.type, &type);
	if (report->simulated)
		printf("%s: running on the stand-in %s: no GPU is used\n", tool_name,
		       report->libcuda);
	printf("GPU:      %d: %s, CUDA driver %d.%d", gpu->ordinal, gpu->name,
	       gpu->driver_version / 1000, gpu->driver_version % 1000 / 10);
	if (gpu->kernel_driver[0] && !report->simulated)
		printf(" (%s)", gpu->kernel_driver);
	printf("\nmemory:   %s: %s\nmapping:  %s, backend %s, %s\n",
	       mem_kind_name[sanity.facts.kind], sanity.facts.place, type, backend_name(),
	       sanity_is_host()		 ? "not through the BAR"
	       : sanity.facts.persistent ? "persistent"
					 : "revoked when the memory is freed");
	if (report->passed_over[0])
		printf("not used: %s\n", report->passed_over);
	fflush(stdout);
}

static void json_facts(struct json *j)
{
	int major = 0, minor = 0;
	const char *type = NULL;
	char text[64];

	gdr_runtime_get_version(&major, &minor);
	gdr_get_mapping_type_string(sanity.facts.type, &type);
	json_start(j);
	json_string(j, "tool", tool_name);
	json_string(j, "version", BARCOPY_VERSION);
	snprintf(text, sizeof(text), "%d.%d", major, minor);
	json_string(j, "library_version", text);
	json_bool(j, "simulated", report->simulated);
	json_object(j, "gpu");
	json_int(j, "device", report->gpu.ordinal);
	json_string(j, "name", report->gpu.name);
	json_string(j, "pci", report->gpu.pci[0] ? report->gpu.pci : NULL);
	json_string(j, "libcuda", report->libcuda);
	json_end(j);
	json_string(j, "alloc", mem_kind_name[sanity.facts.kind]);
	json_string(j, "place", sanity.facts.place);
	json_string(j, "note", report->passed_over[0] ? report->passed_over : NULL);
	json_string(j, "backend", backend_name());
	json_string(j, "mapping", type);
	json_bool(j, "persistent", sanity.facts.persistent);
	json_array(j, "tests");
}

/* ---- which tests, and how they ended --------------------------------------------------------- */

static const struct sanity_test *find_test(const char *name)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct sanity_test *t = tables[i]; t->name; t++)
			if (!strcmp(t->name, name))
				return t;
	return NULL;
}

static bool wanted(const struct sanity_test *test)
{
	for (size_t i = 0; i < opt.only.count; i++)
		if (!strcmp(opt.only.text[i], test->name))
			return true;
	return !opt.only.count;
}

static void list_tests(void)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct sanity_test *t = tables[i]; t->name; t++)
			printf("%-20s %s\n", t->name, t->what);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void print_outcome(const struct sanity_test *test, enum outcome outcome, double seconds)
{
	static const char *const word[OUTCOMES] = { "ok", "FAILED", "waived" };

	printf("%-7s %s", word[outcome], test->name);
	if (outcome != PASSED)
		printf(": %s", report->text);
	if (opt.verbose) {
		printf(" (%.2f s)", seconds);
		for (char *line = strtok(report->notes, "\n"); line; line = strtok(NULL, "\n"))
			printf("\n        %s", line);
	}
	printf("\n");
	fflush(stdout);
}

static void json_outcome(struct json *j, const struct sanity_test *test, enum outcome outcome,
			 double seconds)
{
	json_object(j, NULL);
	json_string(j, "name", test->name);
	json_string(j, "result", outcome_name[outcome]);
	json_string(j, "reason", outcome == PASSED ? NULL : report->text);
	json_number(j, "seconds", seconds);
	json_array(j, "notes");
	for (char *line = strtok(report->notes, "\n"); line; line = strtok(NULL, "\n"))
		json_string(j, NULL, line);
	json_end(j);
	json_end(j);
}

static void run_all(struct json *j, unsigned int *count)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (const struct sanity_test *t = tables[i]; t->name; t++) {
			enum outcome outcome;
			double start = now_s();

			if (!wanted(t))
				continue;
			outcome = run_test(t, opt.seconds);
			count[outcome]++;
			if (opt.json)
				json_outcome(j, t, outcome, now_s() - start);
			else
				print_outcome(t, outcome, now_s() - start);
		}
	}
}

static void parse(int argc, char **argv)
{
	int major = 0, minor = 0;
	char version[64];

	gdr_runtime_get_version(&major, &minor);
	snprintf(version, sizeof(version), "%s (libgdrapi %d.%d)", BARCOPY_VERSION, major, minor);
	opts_parse(&tool, NULL, 0, version, argc, argv);
	for (size_t i = 0; i < opt.only.count; i++)
		if (!find_test(opt.only.text[i]))
			tool_fail("-t %s: there is no such test; -l lists them", opt.only.text[i]);
	sim_enter(opt.sim_dir, argv);
}

int main(int argc, char **argv)
{
	static const struct sanity_test probe_test = { .name = "probe",
						       .run = probe,
						       .bare = true };
	unsigned int count[OUTCOMES] = { 0 };
	struct json j;

	parse(argc, argv);
	if (opt.list) {
		list_tests();
		return TOOL_OK;
	}
	report_make();
	switch (run_test(&probe_test, opt.seconds)) {
	case PASSED:
		break;
	case WAIVED: /* it has said what is missing */
		return TOOL_CANNOT;
	default:
		tool_fail("%s", report->text);
	}
	sanity.facts = report->facts;
	sanity.facts.kernel_pins = sanity_kernel_pins();
	if (opt.json)
		json_facts(&j);
	else
		print_facts();
	run_all(&j, count);
	if (opt.json) {
		json_end(&j);
		for (int i = 0; i < OUTCOMES; i++)
			json_uint(&j, outcome_name[i], count[i]);
		json_finish(&j, stdout);
	} else {
		printf("%u passed, %u failed, %u waived\n", count[PASSED], count[FAILED],
		       count[WAIVED]);
	}
	return count[FAILED] ? TOOL_FAIL : count[PASSED] ? TOOL_OK : TOOL_CANNOT;
}
