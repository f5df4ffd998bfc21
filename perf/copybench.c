// SPDX-License-Identifier: MIT
/*
 * copybench: compares the library's copies with every implementation, with GDRCopy 2.6's copies and
 * with CUDA's, on one buffer in one process. src/copy/plan.c and docs/performance.md use its figures.
 * For developers: not installed.
 */
#include <stdio.h>

#include "common/exit.h"
#include "common/progress.h"
#include "copybench/setup.h"

static const char *const section_choice[] = { "all",   "read",	 "write",   "edges", "vectors",
					      "flags", "engine", "threads", NULL };
static void (*const sections[])(void) = { read_section,	   write_section, edges_section,
					  vectors_section, flags_section, engine_section,
					  threads_section };

static int section;

static const struct opt options[] = {
	{ 's', "section", OPT_CHOICE, &section, "NAME", "one section only (all)", 0, 0,
	  section_choice },
	{ 'n', "rounds", OPT_COUNT, &st.rounds, "N", "rounds; a figure is their median (15)", 1,
	  MAX_ROUNDS, NULL },
	{ 'm', "max", OPT_SIZE, &st.max, "SIZE", "largest copy (16M)", 64, 32 << 20, NULL },
};

static const struct tool tool = {
	"copybench",
	"Compares the library's copies with other implementations and with CUDA's.",
	"  Each round measures all columns of a line and begins with another column. The JSON\n"
	"  document has the medians and the quartiles, as perf/tables.py --show prints them. The\n"
	"  first column is the public call; `again` repeats it, so a smaller difference than that\n"
	"  between these two means nothing. Columns named after implementations use the same "
	"fences but no\n"
	"  entry point. `baseline` is GDRCopy 2.6's copy with its own fences, `b.fenced` its "
	"reads\n"
	"  with the library's fences. `engine` is the public call with the copy engine for every\n"
	"  size. `.pin` uses page-locked instead of pageable host memory. The copies walk through\n"
	"  the mapping: no line is read twice in a row.",
	options,
	.count = sizeof(options) / sizeof(options[0]),
};

int main(int argc, char **argv)
{
	bool asked;

	bench_options(&st.b, &tool, argc, argv);
	asked = st.b.json;
	st.b.json = true; /* its only form */
	setup_start();
	progress_begin(!asked);
	bench_json(&st.b, &st.json);
	json_int(&st.json, "rounds", st.rounds);
	json_array(&st.json, "tables");
	for (int s = 0; s < (int)COUNT(sections); s++)
		if (!section || section - 1 == s) {
			st.section = section ? 0 : (size_t)s;
			st.sections = section ? 1 : COUNT(sections);
			sections[s]();
		}
	progress_hide();
	json_end(&st.json);
	json_finish(&st.json, stdout);
	setup_stop();
	return TOOL_OK;
}
