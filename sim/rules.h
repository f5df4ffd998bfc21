/* SPDX-License-Identifier: MIT */
/*
 * Rules of the form "name:2=ENOMEM,other:*=7": which call of a name fails, and with what; and the
 * counters of the calls. "name=7" means every call; a rule for "name" is also one for "name_v2". A
 * text that is no rule aborts: it would make a test that cannot fail. The caller holds a lock.
 */
#ifndef SIM_RULES_H
#define SIM_RULES_H

enum { RULES_MAX = 64, RULES_NAMES = 256, RULES_NAME = 64, RULES_REVOKE = -(1 << 20) };

struct rules {
	int sign; /* -1: a value that is a number, not the name of an errno, is kept negative */
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
	char failed[RULES_NAME]; /* the last call that was made to fail; "": none */
};

/* Replaces the rules; `since` is 0 then. NULL: none. */
void rules_set(struct rules *r, const char *spec);
/* Counts a call of a name, and of a name within it unless that is NULL. The value to fail with, or 0. */
int rules_call(struct rules *r, const char *name, const char *detailed);
/* The same of a call that cannot fail. */
void rules_pass(struct rules *r, const char *name);
/* Calls of a name; NULL: of all. */
struct rules_counter rules_calls(const struct rules *r, const char *name);

#endif
