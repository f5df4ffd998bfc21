/* SPDX-License-Identifier: MIT */
/*
 * Which tests are run, and on which kind of memory: by their own names, and by those that GDRCopy's
 * sanity has for what they cover. It must not know how a test is run.
 */
#ifndef PERF_SANITY_NAMES_H
#define PERF_SANITY_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/json.h"
#include "common/opts.h"
#include "sanity/tests.h"

struct chosen {
	const struct sanity_test *test;
	int kind; /* a mem_kind or ALLOC_ANY */
};

/*
 * The tests of these names, all if there are none, in the order of the tables and once for each kind;
 * `kind` is that of names that do not choose. quick: those that can be run in one process, in little
 * time. Allocated, ends with a NULL test. A name that is none
 * ends the tool.
 */
struct chosen *names_choose(const struct opt_texts *only, int kind, bool quick);

/* Every name, with what it stands for. */
void names_print(void);
void names_json(struct json *j);

#endif
