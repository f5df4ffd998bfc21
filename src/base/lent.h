/* SPDX-License-Identifier: MIT */
/*
 * A list of things that are lent to one thread each and never freed. A thread that ends leaves its
 * thing as it is, for the next one that asks, so there are only as many as there were threads
 * at one time, and whoever looks through the list needs no lock. It knows nothing of what it lends:
 * a thing has a struct gdri_lent as its first member.
 */
#ifndef GDRI_LENT_H
#define GDRI_LENT_H

#include <stdatomic.h>
#include <stdbool.h>

struct gdri_lent {
	struct gdri_lent *next; /* constant once it is in the list */
	_Atomic bool taken;
};

/* Its first thing may be given statically. */
typedef _Atomic(struct gdri_lent *) gdri_lent_list;

/*
 * One that nobody has, or what make() gives (its gdri_lent not yet set); NULL if that gives NULL.
 * What its last user wrote is seen. No lock but make()'s own; any thread.
 */
struct gdri_lent *gdri_lent_take(gdri_lent_list *list, void *(*make)(void));

/* It is the next one's. The caller has done with it. */
void gdri_lent_give_back(struct gdri_lent *lent);

#endif
