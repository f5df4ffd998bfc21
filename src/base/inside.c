/* SPDX-License-Identifier: MIT */
/* See inside.h. */
#include "base/inside.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

static _Thread_local unsigned int depth __attribute__((tls_model("initial-exec")));
static _Thread_local int cancel_state __attribute__((tls_model("initial-exec")));
static _Atomic(void (*)(void)) deferred;

void gdri_inside_enter(void)
{
	if (!depth++)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
}

void gdri_inside_leave(void)
{
	void (*fn)(void);

	/* The thread is still inside: what fn's own calls defer runs in the next turn. */
	while (depth == 1 && atomic_load_explicit(&deferred, memory_order_relaxed) &&
	       (fn = atomic_exchange(&deferred, NULL)))
		fn();
	if (!--depth)
		pthread_setcancelstate(cancel_state, NULL);
}

bool gdri_is_inside(void)
{
	return depth != 0;
}

void gdri_inside_defer(void (*fn)(void))
{
	atomic_store(&deferred, fn);
}
