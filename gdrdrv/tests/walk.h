/* SPDX-License-Identifier: MIT */
/* The walks of t_walk.c as steps on one mapping, for t_pairs.c. */
#ifndef WALK_H
#define WALK_H

#include <stdbool.h>

#define WALK_STEPS 6

struct walk_sequence {
	unsigned int n;
	unsigned int steps[WALK_STEPS]; /* numbers of walks */
	bool touched; /* else no entry yet */
	bool freed; /* ends by a free of the memory, which revokes it, else by an unpin */
};

/* Called in the process that takes the steps. */
struct walk_hooks {
	void (*begin)(void);
	void (*step_begins)(void);
	void (*step_ended)(void);
};

extern const unsigned int nr_walks;
const char *walk_name(unsigned int walk);
/* Whether it takes 100 ms and more. */
bool walk_is_slow(unsigned int walk);

/*
 * Takes the steps in a process of its own. A step may fail or be refused; what must hold after it
 * is that each access ends, that no byte is another, and that no entry stays after the end. Prints
 * what does not hold. Returns the exit code; *lacking: one of the calls is not in this kernel.
 */
int walk_sequence(const struct walk_sequence *sequence, const struct walk_hooks *hooks,
		  bool *lacking);
void walk_print(const struct walk_sequence *sequence);

#endif
