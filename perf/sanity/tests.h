/* SPDX-License-Identifier: MIT */
/* The tests, how they are chosen, the memory that they run on, and how they are run. */
#ifndef PERF_SANITY_TESTS_H
#define PERF_SANITY_TESTS_H

#include "common/opts.h"
#include "sanity/report.h"
#include "sanity/sanity.h"

struct sanity_test {
	const char *name; /* NULL ends a table */
	const char *what; /* one line for -l */
	void (*run)(void); /* NULL: the scripts are the test */
	bool bare; /* neither CUDA nor the library is open when it begins */
	const char *script, *child; /* see scene_play(); `child` may be NULL */
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

/*
 * names.c: the tests of these names (a test's own, or that of GDRCopy's sanity for what the test covers),
 * all if there are none, in the order of the tables and once for each kind; `kind` is that of names that
 * do not choose. quick: only tests that can share one process. Allocated; ends with a NULL test. An
 * unknown name ends the tool.
 */
struct chosen *names_choose(const struct opt_texts *only, int kind, bool quick);
/* Every name with its meaning. */
void names_print(void);

/*
 * run.c: runs a bare test, or several that are not bare, in one process, for at most `seconds` in all. A
 * crash or a hang is the failure of that test. One that fails ends the process, and the next goes on in
 * another. Sets the outcomes; the rest of test i is in report[i].
 */
void run_tests(struct chosen *list, size_t count, long seconds);

/*
 * scene.c: plays the scripts of a test. A script is a list of steps, "make b, free b, unmap b EINVAL": a
 * verb, the buffer that it acts on (b or other), and the errno that it must give if that is not 0. "start"
 * forks the child, which plays the second script; "signal" and "wait" let the two take turns.
 */
void scene_play(const struct sanity_test *test);

struct probe {
	int device;
	int kind; /* a mem_kind or ALLOC_ANY */
	const char *sim_dir; /* NULL: the installed driver */

	struct sanity_facts facts; /* the rest is filled in */
	struct gpu gpu;
	bool simulated;
	char libcuda[1024];
	char passed_over[2048]; /* kinds of memory that cannot be pinned here, and why */
};

/*
 * probe.c: finds the memory that the tests run on, in a process of its own, like a test. WAIVED: no such
 * memory exists here; stderr and *report have the reason.
 */
enum outcome probe_run(struct probe *p, long seconds);

#endif
