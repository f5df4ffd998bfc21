/* SPDX-License-Identifier: MIT */
/* See counters.h. */
#include "base/counters.h"

#include "base/process.h"

struct gdri_counters gdri_of_process;
atomic_bool gdri_copies_counted;

void gdri_count(struct gdri_counters *counters, enum gdri_counter what, uint64_t n)
{
	atomic_fetch_add_explicit(&gdri_of_process.n[what], n, memory_order_relaxed);
	if (counters)
		atomic_fetch_add_explicit(&counters->n[what], n, memory_order_relaxed);
}

static void after_fork(void)
{
	for (int i = 0; i < GDRI_COUNTERS; i++)
		atomic_store_explicit(&gdri_of_process.n[i], 0, memory_order_relaxed);
}

GDRI_IN_CHILD(after_fork);
