/* SPDX-License-Identifier: MIT */
/* The tests by name; see sanity.h. */
#include <stdio.h>
#include <string.h>

#include "common/exit.h"
#include "sanity/sanity.h"

static const struct sanity_test *const tables[] = {
	sanity_basic, sanity_calls, sanity_mapping, sanity_scenes, sanity_load,
};
enum { QUICK_TABLES = 3 }; /* the first ones, whose tests can share one process */

/* Names of GDRCopy 2.6 (tests/sanity.cpp) without their suffix, and a test that covers the same. */
static const struct alias {
	const char *name, *test;
} aliases[] = {
	{ "basic_v2", "basic" },
	{ "basic_v2_forcepci", "force_pcie" },
	{ "basic_with_tokens", "tokens" },
	{ "basic_unaligned_mapping", "unaligned" },
	{ "basic_small_buffers_mapping", "small_buffers" },
	{ "basic_child_thread_pins_buffer", "threads_pin" },
	{ "data_validation", "basic" },
	{ "data_validation", "offsets" },
	{ "data_validation", "pointer" },
	{ "data_validation_v2", "basic" },
	{ "data_validation_v2", "offsets" },
	{ "data_validation_v2", "pointer" },
	{ "data_validation_v2_forcepci", "force_pcie" },
	{ "data_validation_mix_mappings", "two_types" },
	{ "invalidation_access_after_gdr_close", "access_after_close" },
	{ "invalidation_access_after_free", "access_after_free" },
	{ "invalidation_two_mappings", "free_one_of_two" },
	{ "invalidation_fork_access_after_free", "free_in_parent" },
	{ "invalidation_fork_after_gdr_map", "fork_access" },
	{ "invalidation_fork_child_gdr_map_parent", "fork_calls" },
	{ "invalidation_fork_map_and_free", "free_in_child" },
	{ "invalidation_fork_child_gdr_pin_parent_with_tokens", "fork_open" },
	{ "invalidation_unix_sock_shared_fd_gdr_pin_buffer", "fd_calls" },
	{ "invalidation_unix_sock_shared_fd_gdr_map", "fd_calls" },
	{ "leakage_pin_pages_fork", "leaks" },
	{ "leakage_pin_pages_fork", "kernel_pins" },
	{ "attributes_sanity", "attributes" },
};

/* Suffixes of any name, and the memory that they choose. */
static const struct {
	const char *text;
	enum mem_kind kind;
} suffixes[] = {
	{ "_cumemalloc", MEM_ALLOC },
	{ "_vmmalloc", MEM_CREATE },
};

/* The length of a name without its suffix, whose kind goes to *kind. */
static size_t stem_length(const char *name, int *kind)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		size_t n = strlen(suffixes[i].text);

		if (length > n && !strcmp(name + length - n, suffixes[i].text)) {
			*kind = (int)suffixes[i].kind;
			return length - n;
		}
	}
	return length;
}

static bool is_stem(const char *name, size_t length, const char *of)
{
	return strlen(of) == length && !strncmp(name, of, length);
}

/* `name`, without its suffix, stands for the test. */
static bool means(const char *name, size_t length, const struct sanity_test *test)
{
	if (is_stem(name, length, test->name))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++)
		if (is_stem(name, length, aliases[i].name) && !strcmp(aliases[i].test, test->name))
			return true;
	return false;
}

static bool is_wanted(const struct opt_texts *only, const struct sanity_test *test, int kind,
		      int usual)
{
	if (!only->count)
		return kind == usual;
	for (size_t i = 0; i < only->count; i++) {
		int own = usual;
		size_t length = stem_length(only->text[i], &own);

		/* -a is stronger than a suffix */
		if (usual != ALLOC_ANY)
			own = usual;
		if (own == kind && means(only->text[i], length, test))
			return true;
	}
	return false;
}

static void check_name(const char *name)
{
	int kind;
	size_t length = stem_length(name, &kind);

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct sanity_test *t = tables[i]; t->name; t++)
			if (means(name, length, t))
				return;
	tool_fail("-t %s: there is no such test; -l lists them", name);
}

struct chosen *names_choose(const struct opt_texts *only, int kind, bool quick)
{
	size_t used = quick ? QUICK_TABLES : ARRAY_SIZE(tables);
	size_t n = 0, most = 1;
	struct chosen *list;

	for (size_t i = 0; i < only->count; i++)
		check_name(only->text[i]);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct sanity_test *t = tables[i]; t->name; t++)
			most += MEM_KINDS + 1;
	list = tool_calloc(most, sizeof(*list));
	for (int k = ALLOC_ANY; k < MEM_KINDS; k++)
		for (size_t i = 0; i < used; i++)
			for (const struct sanity_test *t = tables[i]; t->name; t++)
				if (is_wanted(only, t, k, kind))
					list[n++] = (struct chosen){ t, k, NULL, FAILED };
	return list;
}

void names_print(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct sanity_test *t = tables[i]; t->name; t++)
			printf("%-20s %s\n", t->name, t->what);
	printf("\nGDRCopy's names; each name may end with _cumemalloc or _vmmalloc\n");
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++)
		printf("%s: %s\n", aliases[i].name, aliases[i].test);
}
