/* SPDX-License-Identifier: MIT */
/* Options by table; see opts.h. */
#include "opts.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "barcopy.h"
#include "exit.h"

#define MAX_OPTS    40
#define LONG_BASE   256 /* getopt's value for an option is this plus its index: never a letter */
#define HELP_COLUMN 30

/* The release of the tools and the level of the loaded library: "2.6.0 (libgdrapi 2.6)". */
static const char *opts_version(void)
{
	static char text[64];
	int major = 0, minor = 0;

	gdr_runtime_get_version(&major, &minor);
	snprintf(text, sizeof(text), "%s (libgdrapi %d.%d)", BARCOPY_VERSION, major, minor);
	return text;
}

static _Noreturn void usage_error(void)
{
	fprintf(stderr, "Try '%s --help'.\n", tool_name);
	exit(tool_fail_status);
}

/* "-s SIZE: REASON" or "--json: REASON", and the end. */
static _Noreturn __attribute__((format(printf, 3, 4))) void
bad_value(const struct opt *o, const char *value, const char *fmt, ...)
{
	char reason[320], letter[2] = { o->letter, '\0' };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	tool_note("%s%s %s: %s", o->letter ? "-" : "--", o->letter ? letter : o->name, value,
		  reason);
	usage_error();
}

/* Decimal, or hexadecimal with 0x; a size may have a unit: "64K" is 65536. */
static void set_number(const struct opt *o, const char *text)
{
	static const char units[] = "kKmMgG";
	bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	unsigned long long v, most = o->kind == OPT_SIZE ? SIZE_MAX : LONG_MAX;
	const char *unit = NULL;
	unsigned int shift = 0;
	char *end;

	errno = 0;
	v = strtoull(text, &end, is_hex ? 16 : 10);
	if (o->kind == OPT_SIZE && *end)
		unit = strchr(units, *end);
	if (unit)
		shift = 10 * ((unsigned int)(unit - units) / 2 + 1);
	if (!isdigit((unsigned char)*text) ||
	    end[unit != NULL]) /* strtoull() takes blanks and signs */
		bad_value(o, text,
			  o->kind == OPT_SIZE ? "not a size (a number, then K, M or G)"
					      : "not a number");
	if (errno || v > most >> shift)
		bad_value(o, text, "too large");
	v <<= shift;
	if (o->max && (v < o->min || v > o->max))
		bad_value(o, text, "must be %llu to %llu", o->min, o->max);
	if (v < o->min)
		bad_value(o, text, "must be at least %llu", o->min);
	if (o->kind == OPT_SIZE)
		*(size_t *)o->value = (size_t)v;
	else
		*(long *)o->value = (long)v;
}

static void set_choice(const struct opt *o, const char *text)
{
	char list[256] = "";

	for (int i = 0; o->choice[i]; i++) {
		if (!strcmp(text, o->choice[i])) {
			*(int *)o->value = i;
			return;
		}
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? ", " : "",
			 o->choice[i]);
	}
	bad_value(o, text, "must be one of %s", list);
}

static void set_value(const struct opt *o, const char *text)
{
	struct opt_texts *list = o->value; /* OPT_TEXTS */

	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)o->value = true;
		break;
	case OPT_SIZE:
	case OPT_COUNT:
		set_number(o, text);
		break;
	case OPT_CHOICE:
		set_choice(o, text);
		break;
	case OPT_TEXT:
		*(const char **)o->value = text;
		break;
	case OPT_TEXTS:
		if (list->count == ARRAY_SIZE(list->text))
			bad_value(o, text, "given too often");
		list->text[list->count++] = text;
		break;
	}
}

/* One option of --help; every line of its text begins at the help column. */
static void print_opt(char letter, const char *name, const char *arg, const char *help)
{
	char left[80], first[8] = "    ";

	if (letter)
		snprintf(first, sizeof(first), "-%c, ", letter);
	snprintf(left, sizeof(left), "  %s--%s%s%s", first, name, arg ? " " : "", arg ? arg : "");
	printf("%-*s", HELP_COLUMN, left);
	if (strlen(left) > HELP_COLUMN - 2)
		printf("\n%*s", HELP_COLUMN, "");
	for (; *help; help++) {
		putchar(*help);
		if (*help == '\n')
			printf("%*s", HELP_COLUMN, "");
	}
	putchar('\n');
}

static const char exit_text[] =
	"Exit status:\n"
	"  0  success\n"
	"  1  a failure: a wrong byte, a call that failed, a bad option, or output that could\n"
	"     not be written\n"
	"  2  gdr_open() fails here, no GPU memory was reached, or the machine lacks something\n"
	"     else that is needed; the message names it";

static void print_help(const struct tool *tool, const struct opt *const *all, size_t count)
{
	bool sizes = false;

	printf("Usage: %s [options]\n%s\n\nOptions:\n", tool->name, tool->purpose);
	for (size_t i = 0; i < count; i++) {
		print_opt(all[i]->letter, all[i]->name, all[i]->arg, all[i]->help);
		sizes |= all[i]->kind == OPT_SIZE;
	}
	print_opt('h', "help", NULL, "this text");
	print_opt(0, "version", NULL, "versions of the tool and of the library");
	if (sizes)
		printf("\nSizes are in bytes and take K, M or G (1024, 1024^2, 1024^3); numbers "
		       "may be\nhexadecimal (0x20000).\n");
	if (tool->method)
		printf("\nMethod:\n%s\n", tool->method);
	printf("\n%s\n", tool->exit_text ? tool->exit_text : exit_text);
	if (tool->examples)
		printf("\nExamples:\n%s\n", tool->examples);
}

void opts_parse(const struct tool *tool, const struct opt *common, size_t common_count, int argc,
		char **argv)
{
	const struct opt *all[MAX_OPTS];
	struct option longs[MAX_OPTS + 3] = { { 0 } };
	char shorts[2 * MAX_OPTS + 2];
	size_t count = tool->count + common_count, used = 0, i;
	int c;

	tool_name = tool->name;
	if (tool->exit_text)
		tool_fail_status = tool->failure;
	tool_guard_output();
	if (count > MAX_OPTS)
		tool_fail("more than %d options", MAX_OPTS);
	for (i = 0; i < count; i++) {
		const struct opt *o = i < tool->count ? &tool->opt[i] : &common[i - tool->count];
		bool has_arg = o->kind != OPT_FLAG;

		all[i] = o;
		longs[i] = (struct option){ o->name, has_arg, NULL, LONG_BASE + (int)i };
		if (o->letter)
			shorts[used++] = o->letter;
		if (o->letter && has_arg)
			shorts[used++] = ':';
	}
	longs[count] = (struct option){ "help", 0, NULL, 'h' };
	longs[count + 1] = (struct option){ "version", 0, NULL, 'V' };
	shorts[used++] = 'h';
	shorts[used] = '\0';

	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		switch (c) {
		case 'h':
			print_help(tool, all, count);
			exit(TOOL_OK);
		case 'V':
			printf("%s %s\n", tool->name, opts_version());
			exit(TOOL_OK);
		case '?':
			usage_error();
		}
		for (i = 0; c != LONG_BASE + (int)i && c != all[i]->letter;)
			i++;
		set_value(all[i], optarg);
	}
	if (optind < argc) {
		tool_note("%s: not an option", argv[optind]);
		usage_error();
	}
}
