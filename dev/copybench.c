// SPDX-License-Identifier: MIT
/*
 * copybench: the library's copies beside every implementation, GDRCopy 2.6's way and CUDA's own copies, on one
 * buffer in one process. What src/copy/tune.h and docs/performance.md say rests on its output.
 * For developers: not installed.
 */
#include <stdio.h>

#include "common/exit.h"
#include "copybench/sections.h"
#include "copybench/setup.h"

static const char *const section_choice[] = { "all",   "read", "write",	 "edges",   "vectors",
					      "flags", "call", "engine", "threads", NULL };
static void (*const sections[])(void) = { read_section,	   write_section,  edges_section,
					  vectors_section, flags_section,  call_section,
					  engine_section,  threads_section };

static int section;

static const struct opt options[] = {
	{ 's', "section", OPT_CHOICE, &section, "NAME", "one section only (all)", 0, 0,
	  section_choice },
	{ 'n', "rounds", OPT_COUNT, &st.rounds, "N", "rounds that medians are taken of (15)", 1,
	  MAX_ROUNDS, NULL },
	{ 'm', "max", OPT_SIZE, &st.max, "SIZE", "largest copy (16M)", 64, 32 << 20, NULL },
	{ 0, "host", OPT_FLAG, &st.host_only, NULL,
	  "no GPU: on cached host memory, which shows what the\ninstructions cost and no more", 0,
	  0, NULL },
};

static const struct tool tool = {
	"copybench",
	"Measures the library's copies and every other way of copying.",
	"  The columns of a line are measured in turn, round by round, each round beginning with "
	"another,\n"
	"  and the median of the rounds is shown, in --json its quartiles too: nanoseconds a copy. "
	"The first\n"
	"  column is the public call; `again` is the same once more, so what lies within their "
	"distance is\n"
	"  level. Columns of implementations go without the entry point, with the same fences. "
	"`baseline`\n"
	"  has fences of its own, `b.fenced` its reads between the library's. `engine`: the public "
	"call where\n"
	"  the copy engine has everything; .pin: page-locked host memory instead of pageable. "
	"Copies walk\n"
	"  through the mapping, so that no line is read twice in a row.",
	options,
	sizeof(options) / sizeof(options[0]),
};

int main(int argc, char **argv)
{
	bench_options(&st.b, &tool, argc, argv);
	setup_start();
	if (st.b.json) {
		if (st.host_only)
			json_start(&st.json);
		else
			bench_json(&st.b, &st.json);
		json_int(&st.json, "rounds", st.rounds);
		json_array(&st.json, "tables");
	}
	for (int s = 0; s < (int)COUNT(sections); s++)
		if (!section || section - 1 == s)
			sections[s]();
	if (st.b.json) {
		json_end(&st.json);
		json_finish(&st.json, stdout);
	}
	setup_stop();
	return TOOL_OK;
}
