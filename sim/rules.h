/* SPDX-License-Identifier: MIT */
/*
 * Rules of the form "name:2=ENOMEM,other:*=7": which call of a name fails, and with what; and
 * counters of calls. "name=7" means every call; a rule for "name" also covers "name_v2". A text
 * that is no rule aborts, since the test could not fail. Thread-safe, also in signal handlers and
 * forked children.
 */
#ifndef SIM_RULES_H
#define SIM_RULES_H

#include <stdbool.h>

enum { RULES_MAX = 64, RULES_NAMES = 256, RULES_NAME = 64, RULES_REVOKE = -(1 << 20) };

struct rules {
	const char *variable; /* of the environment, with rules until others are set; or NULL */
	int sign; /* -1: a value that is a number, not the name of an errno, is kept negative */
	bool is_set;
	struct {
		char name[RULES_NAME];
		unsigned long number; /* 0: every call */
		int value; /* RULES_REVOKE: REVOKE */
	} rules[RULES_MAX];
	struct rules_counter {
		char name[RULES_NAME];
		unsigned long calls, since; /* since: since the rules were set */
	} counters[RULES_NAMES];
	struct rules_counter all;
	unsigned int count, names;
	unsigned long nth; /* 1: the next call of any name fails, 0: none */
	int nth_value;
	char failed[RULES_NAME]; /* the last call that failed by a rule; "": none */
};

/* Replaces the rules, and sets `since` to 0. NULL: none. */
void rules_set(struct rules *r, const char *spec);
/* The nth call from now on fails; 0: none. Clears `failed`. */
void rules_fail_nth(struct rules *r, unsigned long n, int value);
/* Counts a call of a name, and of `detailed` if not NULL: the value to fail with, or 0. */
int rules_call(struct rules *r, const char *name, const char *detailed);
/* Counts a call that cannot fail. */
void rules_pass(struct rules *r, const char *name);
/* Calls of a name; NULL: of all. */
struct rules_counter rules_calls(const struct rules *r, const char *name);

#endif
