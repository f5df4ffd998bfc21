/* SPDX-License-Identifier: MIT */
/*
 * Chooses the tests and their kinds of memory by name: a test's own, or the one that GDRCopy's sanity has
 * for what the test covers. It must not know how a test is run.
 */
#ifndef PERF_SANITY_NAMES_H
#define PERF_SANITY_NAMES_H

#include "common/json.h"
#include "common/opts.h"
#include "sanity/tests.h"

/*
 * The tests of these names, all if there are none, in the order of the tables and once for each kind;
 * `kind` is that of names that do not choose. quick: only tests that can share one process. Allocated;
 * ends with a NULL test. An unknown name ends the tool.
 */
struct chosen *names_choose(const struct opt_texts *only, int kind, bool quick);

/* Every name with its meaning. */
void names_print(void);
void names_json(struct json *j);

#endif
