/* SPDX-License-Identifier: MIT */
/*
 * One call fails inside a call of the library, once: of CUDA, of the resource manager, of the
 * system, or of the gdrdrv node. The model draws it (faults.c), attack_faults.c takes each in turn.
 */
#ifndef MODEL_FAULT_H
#define MODEL_FAULT_H

#include <stdbool.h>

enum fault { FAULT_CUDA, FAULT_RM, FAULT_SYSTEM, FAULT_NODE, FAULTS };

/* What such a call can give, up to a 0, and the library's errno for it. */
enum { FAULT_RESULTS = 6, FAULT_NODE_CALLS = 4 };
struct fault_result {
	int result, err;
};
extern const struct fault_result fault_results[FAULTS][FAULT_RESULTS];
extern const char *const fault_names[FAULTS];

/*
 * The nth call from now on (1: the next) of this thread gives that result. FAULT_NODE: the next call
 * with the nth of FAULT_NODE_CALLS names does, in every thread; beyond them none.
 */
void fault_arm(enum fault where, unsigned long n, int result);
/* Nothing fails any more. Returns the name of the call that has failed, until the next call; or NULL. */
const char *fault_disarm(void);

/* Whether the comment of that call in its header names this errno. */
bool errno_documented(const char *call, int err);
/* Does the call end something: a handle, memory, a mapping, a cache, a queue, a context? */
bool is_end(const char *call);

#endif
