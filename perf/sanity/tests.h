/* SPDX-License-Identifier: MIT */
/* The tests by name. It must not know what they share. */
#ifndef PERF_SANITY_TESTS_H
#define PERF_SANITY_TESTS_H

#include <stdbool.h>
#include <stddef.h>

#include "sanity/report.h"

struct sanity_test {
	const char *name; /* NULL ends a table */
	const char *what; /* one line for -l */
	void (*run)(void); /* NULL: the scripts are the test */
	bool bare; /* neither CUDA nor the library is open when it begins */
	const char *script, *child; /* scene.h; `child` may be NULL */
};

/* clang-format off */
#define TEST(name, what) { #name, what, name, false, NULL, NULL }
#define SCENE(name, what, bare, script, child) { name, what, NULL, bare, script, child }
#define END_OF_TESTS { NULL, NULL, NULL, false, NULL, NULL }
/* clang-format on */

/* The tables, in the order in which they are run. */
extern const struct sanity_test sanity_basic[], sanity_calls[], sanity_mapping[],
	sanity_arguments[], sanity_memory[], sanity_scenes[], sanity_threads[], sanity_leaks[];

/* A test that is run. */
struct chosen {
	const struct sanity_test *test;
	int kind; /* of memory: a mem_kind or ALLOC_ANY */
	const struct sanity_facts *facts; /* of that memory */
	enum outcome outcome;
};

#endif
