/* SPDX-License-Identifier: MIT */
/* A table of options gives the parser, its checks and --help. A bad option ends the tool. */
#ifndef PERF_OPTS_H
#define PERF_OPTS_H

#include <stdbool.h>
#include <stddef.h>

enum opt_kind {
	OPT_FLAG, /* bool, set to true */
	OPT_SIZE, /* size_t, bytes, also 0x..., with an optional K, M or G (powers of 1024) */
	OPT_COUNT, /* long, also 0x... */
	OPT_CHOICE, /* int, index into the `choice` list */
	OPT_TEXT, /* const char * */
	OPT_TEXTS /* struct opt_texts: one text for each time it is given */
};

struct opt_texts {
	const char *text[64];
	size_t count;
};

struct opt {
	char letter; /* 0: no short form */
	const char *name;
	enum opt_kind kind;
	void *value;
	const char *arg; /* its name in --help; not for OPT_FLAG */
	const char *help; /* lines separated by \n */
	unsigned long long min, max; /* OPT_SIZE, OPT_COUNT; max 0: no limit */
	const char *const *choice; /* OPT_CHOICE: ends with NULL */
};

/* clang-format off */
#define OPTION_FLAG(letter, name, value, help) \
	{ letter, name, OPT_FLAG, value, NULL, help, 0, 0, NULL }
#define OPTION_SIZE(letter, name, value, help, min, max) \
	{ letter, name, OPT_SIZE, value, "SIZE", help, min, max, NULL }
#define OPTION_COUNT(letter, name, value, help, min, max) \
	{ letter, name, OPT_COUNT, value, "N", help, min, max, NULL }
#define OPTION_CHOICE(letter, name, value, arg, help, choice) \
	{ letter, name, OPT_CHOICE, value, arg, help, 0, 0, choice }
/* Options that several tools have. */
#define OPTION_DEVICE(value) OPTION_COUNT('d', "device", value, "CUDA device (0)", 0, 1 << 20)
#define OPTION_ALLOC(value) \
	OPTION_CHOICE('a', "alloc", value, "KIND", \
		      "cuMemAlloc, cuMemCreate or cuMemHostAlloc. Without it the\n" \
		      "tool does what programs do: cuMemAlloc through gdr_open(),\n" \
		      "and exit status 2 where either is refused; on an integrated\n" \
		      "GPU the first of the three that can be mapped", mem_kind_name)
#define OPTION_JSON(value) OPTION_FLAG(0, "json", value, "one JSON document on standard output")
#define OPTION_SIM(value) \
	{ 0, "sim", OPT_TEXT, value, "DIR", \
	  "run on the stand-in libraries in DIR, without a GPU", 0, 0, NULL }
/* clang-format on */

struct tool {
	const char *name;
	const char *purpose; /* one line */
	const char *method; /* how it measures; lines separated by \n; NULL: none */
	const struct opt *opt;
	size_t count;
	const char *examples; /* lines "  COMMAND", which a test runs, "      MEANING"; or NULL */
	/* Of a tool with other exit statuses: "Exit status:", then a line "  N  meaning" for each. A
	 * bad option and tool_fail() end it with `failure`. */
	const char *exit_text;
	int failure;
};

/* Parses both tables, answers --help and --version, sets tool_name, calls tool_guard_output(). */
void opts_parse(const struct tool *tool, const struct opt *common, size_t common_count, int argc,
		char **argv);

#endif
