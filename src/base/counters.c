/* SPDX-License-Identifier: MIT */
/* See counters.h. */
#include "base/process.h"
#include "base/counters.h"

#include <pthread.h>

#include "base/env.h"

struct gdri_counters gdri_of_process;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool copies;

void gdri_count(struct gdri_counters *counters, enum gdri_counter what, uint64_t n)
{
	atomic_fetch_add_explicit(&gdri_of_process.n[what], n, memory_order_relaxed);
	if (counters)
		atomic_fetch_add_explicit(&counters->n[what], n, memory_order_relaxed);
}

void gdri_counters_clear(struct gdri_counters *counters)
{
	for (int i = 0; i < GDRI_COUNTERS; i++)
		atomic_store_explicit(&counters->n[i], 0, memory_order_relaxed);
}

static void read_env(void)
{
	copies = gdri_env_true("GDRCOPY_STATS");
}

bool gdri_copies_counted(void)
{
	pthread_once(&once, read_env);
	return copies;
}

static void after_fork(void)
{
	gdri_counters_clear(&gdri_of_process);
}

GDRI_IN_CHILD(after_fork);
