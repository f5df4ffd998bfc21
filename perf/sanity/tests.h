/* SPDX-License-Identifier: MIT */
/* The tests by name. It must not know what they share. */
#ifndef PERF_SANITY_TESTS_H
#define PERF_SANITY_TESTS_H

#include <stdbool.h>

struct sanity_test {
	const char *name; /* NULL ends a table */
	const char *what; /* one line for -l */
	void (*run)(void);
	bool bare; /* neither CUDA nor the library is open yet */
};

/* The tables, in the order in which they are run. */
extern const struct sanity_test sanity_basic[], sanity_calls[], sanity_mapping[],
	sanity_arguments[], sanity_invalidation[], sanity_process[], sanity_pass_fd[],
	sanity_threads[], sanity_memory[], sanity_leaks[];

#endif
