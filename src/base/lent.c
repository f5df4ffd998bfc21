/* SPDX-License-Identifier: MIT */
/* See lent.h. */
#include "base/lent.h"

#include <stddef.h>

struct gdri_lent *gdri_lent_take(gdri_lent_list *list, void *(*make)(void))
{
	struct gdri_lent *l = atomic_load_explicit(list, memory_order_acquire);

	for (; l; l = l->next)
		if (!atomic_load_explicit(&l->taken, memory_order_relaxed) &&
		    !atomic_exchange_explicit(&l->taken, true, memory_order_acquire))
			return l;
	l = make();
	if (!l)
		return NULL;
	atomic_init(&l->taken, true);
	l->next = atomic_load_explicit(list, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(list, &l->next, l, memory_order_release,
						      memory_order_relaxed))
		;
	return l;
}

void gdri_lent_give_back(struct gdri_lent *lent)
{
	atomic_store_explicit(&lent->taken, false, memory_order_release);
}
