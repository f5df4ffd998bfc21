/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the library core share: a table of tests run by Check. A test with an
 * environment runs in a process of its own, started anew: for what is read only once (the loaded
 * libraries, the simulated machine, the log level). It knows nothing of what is tested.
 */
#ifndef TEST_COMMON_UNIT_H
#define TEST_COMMON_UNIT_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/random.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct unit_test {
	const char *name;
	void (*fn)(void);
	/* NULL: this process (Check's fork of it). Else a fresh one with these "NAME=value" words,
	 * separated by blanks; may be "". A value may begin with $SIM, the stand-ins' directory. */
	const char *env;
	const void *arg; /* unit_arg of the row */
	bool bare; /* without unit_before() and unit_after() */
	int rows; /* run as often, each in a process of its own, with unit_row from 0 on; 0: once */
};

extern int unit_row;
extern const void *unit_arg;

/*
 * Runs them all, then prints `N passed, N failed, N skipped`; the value for main to return. With
 * argv[1], the name of a test: runs that one in this process, for a debugger; argv[2]: its row.
 */
int unit_main(char **argv, const char *suite, const struct unit_test *tests, size_t count);

/* Further arguments: what main does first, such as node_start(argv) or unit_before = start. */
#define UNIT_MAIN(suite, tests, ...)                                \
	int main(int argc, char **argv)                             \
	{                                                           \
		(void)argc;                                         \
		__VA_ARGS__;                                        \
		return unit_main(argv, suite, tests, COUNT(tests)); \
	}

/* Called before and after each test, in its process; set before unit_main(). */
extern void (*unit_before)(void);
extern void (*unit_after)(void);

/* Counts the running test as skipped, prints why, and returns from it. */
#define SKIP(why)               \
	do {                    \
		unit_skip(why); \
		return;         \
	} while (0)
void unit_skip(const char *why);

/* True under user-mode emulation, which lacks what the test needs: the test is skipped. */
bool test_emulator_lacks(const char *test, const char *what);

/* GDRCOPY_TEST_QUICK: under a sanitizer or valgrind, do less of the same. */
bool unit_quick(void);

/* A new directory in $TMPDIR, or in /tmp; the caller removes it. */
enum { UNIT_DIR = 128 };
void unit_temp_dir(char dir[UNIT_DIR]);
void unit_remove_dir(const char *dir);

/* What fn() writes to stderr, at most 4 KiB of it; valid until the next call. */
const char *unit_stderr_of(void (*fn)(void));

/* Starts `count` threads; the nth calls fn(arg + n * step), from n = 0. */
void unit_start(unsigned int count, void *(*fn)(void *), void *arg, size_t step);
/* Returns true once the last of them has slept for 50 ms, as in a lock; false if it has ended. */
bool unit_blocks(void);
/* Waits for all of them; a value that is not NULL if a thread returned one. */
void *unit_join(void);
void *unit_threads(unsigned int count, void *(*fn)(void *), void *arg, size_t step); /* both */

/* The signal that a store or a load there raises; 0: none. */
int unit_touch(volatile void *at, bool store);

/* Exit status of a forked child that runs fn(arg) and exits with its value; 128 + signal. */
int unit_in_child(int (*fn)(void *), void *arg);

#endif
