/* SPDX-License-Identifier: MIT */
/*
 * A worker pool for large copies: several cores have more line buffers than one. Opt-in: nothing
 * here runs, and no thread exists, unless a pool has been asked for. It knows nothing of handles.
 *
 * Fork: a child has none of the threads. It must not use or free its parent's pools; the library
 * answers EACCES to every call of a child on its parent's handles, so it cannot.
 */
#ifndef GDRI_COPY_POOL_H
#define GDRI_COPY_POOL_H

#include <stdbool.h>

#include "copy.h"

#define GDRI_POOL_MAX_THREADS 64

struct gdri_copy_pool;

/*
 * Makes a pool of `threads` - 1 workers (2 to 64 threads, the caller's is one of them), kept to the
 * CPUs of NUMA node `node` that this process may use, where that is known; -1: anywhere. Returns 0
 * or -EINVAL, -ENOMEM, -EAGAIN. No copy may be under way when it is freed.
 */
int gdri_copy_pool_new(struct gdri_copy_pool **pool, unsigned int threads, int node);
void gdri_copy_pool_free(struct gdri_copy_pool *pool);

/* One for all who want as many threads on the same node, until the last has put it. Likewise. */
int gdri_copy_pool_get(struct gdri_copy_pool **pool, unsigned int threads, int node);
void gdri_copy_pool_put(struct gdri_copy_pool *pool);

/*
 * For measurements, while no copy is under way: how many workers help with a write, how long a worker
 * looks for the next job before it sleeps, and from which size on a write wakes one. tune.h has what is
 * right.
 */
void gdri_copy_pool_tune(struct gdri_copy_pool *pool, unsigned int write_helpers,
			 unsigned int spin_ns, size_t wake_min);

/*
 * As gdri_copy_to() (to: the mapping is dst) or gdri_copy_from(), by a plan that hands nothing over. While
 * another thread's copy has the workers, the caller copies alone; a write for which it is not worth to
 * wake one is shared if one is awake.
 */
void gdri_copy_pool_copy(struct gdri_copy_pool *pool, const struct gdri_copy_plan *plan, void *dst,
			 const void *src, size_t size, bool to);

#endif
