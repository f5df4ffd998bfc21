/* SPDX-License-Identifier: MIT */
/* The strict JSON reader: what it takes, what it refuses and in which line, and that no text harms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "doctor/json_read.h"

static struct jvalue *read_text(const char *text, char *why)
{
	return json_read(text, strlen(text), why, 128);
}

static void takes(void)
{
	static const struct {
		const char *text;
		enum jtype type;
	} good[] = {
		{ "null", J_NULL },
		{ " true ", J_BOOL },
		{ "\t\r\nfalse", J_BOOL },
		{ "0", J_INTEGER },
		{ "-0", J_INTEGER },
		{ "9223372036854775807", J_INTEGER },
		{ "1e3", J_NUMBER },
		{ "-0.5E-2", J_NUMBER },
		{ "9223372036854775808", J_NUMBER },
		{ "\"\"", J_STRING },
		{ "[]", J_ARRAY },
		{ "[ [ ] , { } ]", J_ARRAY },
		{ "{}", J_OBJECT },
		{ "{\"\":1}", J_OBJECT },
	};
	char why[128];

	for (size_t i = 0; i < COUNT(good); i++) {
		struct jvalue *v = read_text(good[i].text, why);

		ck_assert_msg(v, "%s: %s", good[i].text, why);
		ck_assert_int_eq(v->type, good[i].type);
		json_read_free(v);
	}
}

static void values(void)
{
	char why[128];
	struct jvalue *v = read_text("{\"a\": [1, -2.5, \"x\\n\\u00e9\\ud83d\\ude00\\/\\\"\"],\n"
				     " \"b\": {\"c\": true}, \"d\": null}",
				     why);
	const struct jvalue *a, *b;

	ck_assert_msg(v, "%s", why);
	a = json_member(v, "a");
	ck_assert_ptr_nonnull(a);
	ck_assert_int_eq(a->child->integer, 1);
	ck_assert_double_eq(a->child->number, 1);
	ck_assert_double_eq(a->child->next->number, -2.5);
	ck_assert_str_eq(a->child->next->next->string, "x\n\xc3\xa9\xf0\x9f\x98\x80/\"");
	ck_assert_ptr_null(a->child->next->next->next);
	b = json_member(v, "b");
	ck_assert_int_eq(b->line, 2);
	ck_assert(json_member(b, "c")->boolean);
	ck_assert_int_eq(json_member(v, "d")->type, J_NULL);
	ck_assert_ptr_null(json_member(v, "e"));
	ck_assert_ptr_null(json_member(a, "a"));
	json_read_free(v);
}

static void refuses(void)
{
	static const char *const bad[] = {
		"",
		" ",
		"nul",
		"True",
		"01",
		"-",
		"+1",
		".5",
		"1.",
		"1e",
		"1e+",
		"0x1",
		"NaN",
		"Infinity",
		"'a'",
		"\"",
		"\"\\\"",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\u12g4\"",
		"\"\\ud800\"",
		"\"\\ud800x\"",
		"\"\\ud800\\u0041\"",
		"\"\\udc00\"",
		"\"\\u0000\"",
		"\"\x01\"",
		"\"\n\"",
		"\"\x80\"",
		"\"\xc0\x80\"",
		"\"\xc3\"",
		"\"\xe0\x80\x80\"",
		"\"\xed\xa0\x80\"",
		"\"\xf5\x80\x80\x80\"",
		"\"\xf4\x90\x80\x80\"",
		"[",
		"[1",
		"[1,",
		"[1,]",
		"[,1]",
		"[1 2]",
		"[1}",
		"{",
		"{\"a\"",
		"{\"a\":",
		"{\"a\":1",
		"{\"a\":1,",
		"{\"a\":1,}",
		"{a:1}",
		"{1:1}",
		"{\"a\" 1}",
		"{\"a\":1 \"b\":2}",
		"{\"a\":1,\"a\":2}",
		"{\"a\":1]",
		"1 1",
		"[] []",
		"{}x",
		"//\n1",
		"\xef\xbb\xbf{}",
		"1111111111111111111111111111111111111111111111111111111111111111111",
	};
	char why[128];

	for (size_t i = 0; i < COUNT(bad); i++) {
		struct jvalue *v = read_text(bad[i], why);

		ck_assert_msg(!v, "taken: %s", bad[i]);
		ck_assert_ptr_nonnull(strstr(why, "line "));
	}
	/* a NUL is no blank */
	ck_assert_ptr_null(json_read("1\0", 2, why, sizeof(why)));
	ck_assert_ptr_null(json_read("\"a\0b\"", 5, why, sizeof(why)));
	ck_assert_ptr_null(read_text("{\n\"a\": 1,\n\"b\": x}", why));
	ck_assert_str_eq(why, "line 3: not a value");
}

static void depth(void)
{
	char text[4 * JSON_READ_DEPTH], why[128];
	struct jvalue *v;

	memset(text, '[', JSON_READ_DEPTH);
	memset(text + JSON_READ_DEPTH, ']', JSON_READ_DEPTH);
	v = json_read(text, 2 * JSON_READ_DEPTH, why, sizeof(why));
	ck_assert_msg(v, "%s", why);
	json_read_free(v);
	memset(text, '[', JSON_READ_DEPTH + 1);
	memset(text + JSON_READ_DEPTH + 1, ']', JSON_READ_DEPTH + 1);
	ck_assert_ptr_null(json_read(text, 2 * JSON_READ_DEPTH + 2, why, sizeof(why)));
	ck_assert_str_eq(why, "line 1: nested too deep");
	/* a hundred thousand of them need no stack */
	{
		char *many = malloc(100000);

		memset(many, '[', 100000);
		ck_assert_ptr_null(json_read(many, 100000, why, sizeof(why)));
		free(many);
	}
}

/* Bytes of a good text changed, cut, doubled, in a buffer that ends where the text does. */
static void mutations(void)
{
	static const char seed[] =
		"{\"format\": 1, \"gpu\": [{\"name\": \"\\u00e9\\ud83d\\ude00 \xc3\xa9\", "
		"\"x\": -1.5e3, \"y\": [true, false, null, []]}], \"cpus\": \"0-3\"}";
	static const char pieces[] = "\"\\{}[]:,u0eE+-.\x80\xc3\xf0\xed\0\n tn";
	unsigned long long random = 20261121;
	int rounds = unit_quick() ? 20000 : 200000, taken = 0;

	for (int i = 0; i < rounds; i++) {
		size_t size = sizeof(seed) - 1;
		int changes = 1 + (int)(unit_random(&random) % 4);
		char *text, why[128];
		struct jvalue *v;

		if (unit_random(&random) % 4 == 0)
			size = unit_random(&random) % size;
		text = malloc(size ? size : 1); /* exactly: what reads beyond it is found */
		memcpy(text, seed, size);
		while (size && changes--)
			text[unit_random(&random) % size] =
				unit_random(&random) % 2
					? pieces[unit_random(&random) % (sizeof(pieces) - 1)]
					: (char)unit_random(&random);
		v = json_read(text, size, why, sizeof(why));
		taken += v != NULL;
		json_read_free(v);
		free(text);
	}
	/* both happen: else the changes test nothing */
	ck_assert_int_gt(taken, rounds / 100);
	ck_assert_int_lt(taken, rounds);
}

static const struct unit_test tests[] = {
	{ "takes", takes, NULL }, { "values", values, NULL },	    { "refuses", refuses, NULL },
	{ "depth", depth, NULL }, { "mutations", mutations, NULL },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "doctor_json_read", tests, COUNT(tests));
}
