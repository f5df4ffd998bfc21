/* SPDX-License-Identifier: MIT */
/* Options by table; see opts.h. */
#include "opts.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exit.h"

#define MAX_OPTS  40
#define LONG_BASE 256 /* getopt's value for an option is this plus its index: never a letter */

/* Decimal, or hexadecimal with 0x. */
static int base_of(const char *text)
{
	return text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
}

int opts_parse_size(const char *text, size_t *size)
{
	unsigned long long v;
	unsigned int shift = 0;
	char *end;

	if (!isdigit((unsigned char)*text)) /* strtoull would take blanks and signs */
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, base_of(text));
	if (errno)
		return -ERANGE;
	switch (*end) {
	case 'k':
	case 'K':
		shift = 10;
		break;
	case 'm':
	case 'M':
		shift = 20;
		break;
	case 'g':
	case 'G':
		shift = 30;
		break;
	case '\0':
		break;
	default:
		return -EINVAL;
	}
	if (*end && end[1])
		return -EINVAL;
	if (v > (SIZE_MAX >> shift))
		return -ERANGE;
	*size = (size_t)v << shift;
	return 0;
}

static _Noreturn void usage_error(void)
{
	fprintf(stderr, "Try '%s --help'.\n", tool_name);
	exit(tool_fail_status);
}

/* "-s" or "--json": as the user would name it. */
static const char *display_name(const struct opt *o)
{
	static char text[64];

	if (o->letter)
		snprintf(text, sizeof(text), "-%c", o->letter);
	else
		snprintf(text, sizeof(text), "--%s", o->name);
	return text;
}

static void check_range(const struct opt *o, const char *text, unsigned long long v)
{
	if (v < o->min || (o->max && v > o->max)) {
		if (o->max)
			tool_note("%s %s: must be %llu to %llu", display_name(o), text, o->min,
				  o->max);
		else
			tool_note("%s %s: must be at least %llu", display_name(o), text, o->min);
		usage_error();
	}
}

static void set_size(const struct opt *o, const char *text)
{
	size_t v;
	int rc = opts_parse_size(text, &v);

	if (rc) {
		tool_note("%s %s: %s", display_name(o), text,
			  rc == -ERANGE ? "too large" : "not a size (a number, then K, M or G)");
		usage_error();
	}
	check_range(o, text, v);
	*(size_t *)o->value = v;
}

static void set_count(const struct opt *o, const char *text)
{
	char *end = NULL;
	long v = 0;

	errno = 0;
	if (isdigit((unsigned char)*text))
		v = strtol(text, &end, base_of(text));
	if (!end || *end || errno) {
		tool_note("%s %s: %s", display_name(o), text, errno ? "too large" : "not a number");
		usage_error();
	}
	check_range(o, text, (unsigned long long)v);
	*(long *)o->value = v;
}

static void set_choice(const struct opt *o, const char *text)
{
	char list[256] = "";
	int i;

	for (i = 0; o->choice[i]; i++) {
		if (!strcmp(text, o->choice[i])) {
			*(int *)o->value = i;
			return;
		}
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? ", " : "",
			 o->choice[i]);
	}
	tool_note("%s %s: must be one of %s", display_name(o), text, list);
	usage_error();
}

static void add_text(const struct opt *o, const char *text)
{
	struct opt_texts *list = o->value;

	if (list->count == sizeof(list->text) / sizeof(list->text[0])) {
		tool_note("%s %s: given too often", display_name(o), text);
		usage_error();
	}
	list->text[list->count++] = text;
}

static void set_value(const struct opt *o, const char *text)
{
	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)o->value = true;
		break;
	case OPT_SIZE:
		set_size(o, text);
		break;
	case OPT_COUNT:
		set_count(o, text);
		break;
	case OPT_CHOICE:
		set_choice(o, text);
		break;
	case OPT_TEXT:
		*(const char **)o->value = text;
		break;
	case OPT_TEXTS:
		add_text(o, text);
		break;
	}
}

#define HELP_COLUMN 30

/* Prints `text` with every line after the first indented to the help column. */
static void print_indented(const char *text)
{
	for (; *text; text++) {
		putchar(*text);
		if (*text == '\n')
			printf("%*s", HELP_COLUMN, "");
	}
	putchar('\n');
}

static void print_opt(char letter, const char *name, const char *arg, const char *help)
{
	char left[80];

	if (letter)
		snprintf(left, sizeof(left), "  -%c, --%s%s%s", letter, name, arg ? " " : "",
			 arg ? arg : "");
	else
		snprintf(left, sizeof(left), "      --%s%s%s", name, arg ? " " : "",
			 arg ? arg : "");
	if (strlen(left) > HELP_COLUMN - 2)
		printf("%s\n%*s", left, HELP_COLUMN, "");
	else
		printf("%-*s", HELP_COLUMN, left);
	print_indented(help);
}

static const char *exit_text =
	"Exit status:\n"
	"  0  all right\n"
	"  1  a failure: a wrong byte, a call that failed, a bad option, or output that could\n"
	"     not be written\n"
	"  2  no GPU memory was reached, or the machine lacks something else that is needed;\n"
	"     the message says what";
static const char *examples_text;

void opts_exit_status(int failure, const char *text)
{
	tool_fail_status = failure;
	exit_text = text;
}

void opts_examples(const char *text)
{
	examples_text = text;
}

static bool takes_size(const struct opt *const *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (all[i]->kind == OPT_SIZE)
			return true;
	return false;
}

static void print_help(const struct tool *tool, const struct opt *const *all, size_t count)
{
	size_t i;

	printf("Usage: %s [options]\n%s\n\nOptions:\n", tool->name, tool->purpose);
	for (i = 0; i < count; i++)
		print_opt(all[i]->letter, all[i]->name, all[i]->arg, all[i]->help);
	print_opt('h', "help", NULL, "this text");
	print_opt(0, "version", NULL, "versions of the tool and of the library");
	if (takes_size(all, count))
		printf("\nSizes are in bytes and take K, M or G (1024, 1024^2, 1024^3); numbers "
		       "may be\n"
		       "hexadecimal (0x20000).\n");
	if (tool->method)
		printf("\nMethod:\n%s\n", tool->method);
	printf("\n%s\n", exit_text);
	if (examples_text)
		printf("\nExamples:\n%s\n", examples_text);
}

void opts_parse(const struct tool *tool, const struct opt *common, size_t common_count,
		const char *version, int argc, char **argv)
{
	const struct opt *all[MAX_OPTS];
	struct option longs[MAX_OPTS + 3] = { { 0 } };
	char shorts[2 * MAX_OPTS + 2];
	size_t count = 0, used = 0, i;
	int c;

	tool_name = tool->name;
	tool_guard_output();
	if (tool->count + common_count > MAX_OPTS)
		tool_fail("more than %d options", MAX_OPTS);
	for (i = 0; i < tool->count; i++)
		all[count++] = &tool->opt[i];
	for (i = 0; i < common_count; i++)
		all[count++] = &common[i];

	for (i = 0; i < count; i++) {
		bool has_arg = all[i]->kind != OPT_FLAG;

		longs[i] = (struct option){ all[i]->name, has_arg, NULL, LONG_BASE + (int)i };
		if (all[i]->letter)
			shorts[used++] = all[i]->letter;
		if (all[i]->letter && has_arg)
			shorts[used++] = ':';
	}
	longs[count] = (struct option){ "help", 0, NULL, 'h' };
	longs[count + 1] = (struct option){ "version", 0, NULL, 'V' };
	shorts[used++] = 'h';
	shorts[used] = '\0';

	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (c == 'h') {
			print_help(tool, all, count);
			exit(TOOL_OK);
		}
		if (c == 'V') {
			printf("%s %s\n", tool->name, version);
			exit(TOOL_OK);
		}
		if (c == '?')
			usage_error();
		for (i = 0; i < count; i++)
			if (c == LONG_BASE + (int)i || (c == all[i]->letter && c))
				break;
		set_value(all[i], optarg);
	}
	if (optind < argc) {
		tool_note("%s: not an option", argv[optind]);
		usage_error();
	}
}
