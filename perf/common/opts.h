/* SPDX-License-Identifier: MIT */
/*
 * Options by table: the tables give the parsing, its checks and the text of --help. A bad option
 * ends the tool with exit 1. It must not know what the options do.
 */
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
	OPT_TEXTS /* struct opt_texts: may be given again and again */
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

struct tool {
	const char *name;
	const char *purpose; /* one line */
	const char *method; /* how it measures; lines separated by \n; NULL: none */
	const struct opt *opt;
	size_t count;
};

/*
 * Parses the options of `tool`, then those of `common`, and answers --help and --version.
 * Sets tool_name, and tool_guard_output(). `version` is printed by --version.
 */
void opts_parse(const struct tool *tool, const struct opt *common, size_t common_count,
		const char *version, int argc, char **argv);

/*
 * For a tool whose exit status means something else than enum tool_exit; before opts_parse().
 * `failure` is that of a bad option and of tool_fail(), `text` the paragraph of --help: "Exit status:",
 * then a line "  N  meaning" for each.
 */
void opts_exit_status(int failure, const char *text);

/*
 * The last paragraph of --help; before opts_parse(). Lines "  COMMAND", each with "      MEANING"
 * below it; a test runs the commands.
 */
void opts_examples(const char *text);

/* "64K", "0x10000" -> 65536. 0, or -EINVAL, or -ERANGE. */
int opts_parse_size(const char *text, size_t *size);

#endif
