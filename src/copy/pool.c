// SPDX-License-Identifier: MIT
/*
 * The worker pool. A job is cut at page boundaries of the mapping, so that no line and no word is
 * shared; whoever is there takes the next piece, the caller too, so a worker that wakes up late
 * costs nothing. The caller waits only for pieces that somebody has begun.
 *
 * Order. A worker's loads come after everything that the caller has observed: the caller's view is
 * handed over under the lock, and the worker's own fence stands before its first load. A worker's
 * stores are behind its own fence when it reports, so what the caller stores after that comes after
 * them. Both are the fences of copy.c, once per worker and job.
 */
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/process.h"
#include "rows.h"
#include "fence.h"
#include "tune.h"
#include "word.h"

struct job {
	const struct gdri_copy_plan *plan;
	uint8_t *dst;
	const uint8_t *src;
	size_t size;
	bool to; /* the mapping */
};

struct gdri_copy_pool {
	pthread_mutex_t user; /* held by the thread whose job it is */
	pthread_mutex_t lock; /* all of the following, save `next` */
	pthread_cond_t wake; /* a job, or stop */
	pthread_cond_t done; /* active is 0 */
	bool open; /* the job takes helpers */
	bool stop;
	unsigned int places; /* for helpers that the job still has */
	_Atomic uint64_t number; /* of the job: a worker takes part once; written under the lock */
	_Atomic unsigned int active; /* workers inside the job; likewise */
	_Atomic unsigned int looking; /* workers that look for a job without sleeping */
	/* Constant after gdri_copy_pool_tune(). */
	unsigned int write_helpers, spin_ns;
	size_t wake_min; /* bytes of a write that a worker is woken for */
	struct job job; /* written with active 0 and open false, read by those inside */
	_Atomic size_t
		next; /* first byte that nobody has taken, from the page of the mapping's side on */
	unsigned int workers;
	pthread_t thread[GDRI_POOL_MAX_THREADS - 1];
	/* Of shared ones, under pools_lock. */
	LIST_ENTRY(gdri_copy_pool) link;
	unsigned int refs;
	int node;
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER; /* the innermost */
static LIST_HEAD(, gdri_copy_pool) pools = LIST_HEAD_INITIALIZER(pools);

/* Takes piece after piece until there is none. */
static void share(struct gdri_copy_pool *pool)
{
	const struct job *job = &pool->job;
	size_t piece = job->to ? GDRI_POOL_PIECE_TO : GDRI_POOL_PIECE_FROM;
	size_t skip = (uintptr_t)(job->to ? job->dst : job->src) % piece;
	bool any = false;

	for (;;) {
		size_t at = atomic_fetch_add_explicit(&pool->next, piece, memory_order_relaxed);
		size_t from = at > skip ? at - skip : 0;
		size_t to = at + piece - skip;

		if (from >= job->size)
			break;
		to = to < job->size ? to : job->size;
		if (!any && !job->to)
			gdri_fence_before_read(job->plan->fences);
		any = true;
		if (job->to)
			gdri_move_to(job->plan, job->dst + from, job->src + from, to - from);
		else
			gdri_move_from(job->plan, job->dst + from, job->src + from, to - from);
	}
	if (any && job->to)
		gdri_fence_after_write(job->plan->fences);
	else if (any)
		gdri_fence_after_read(job->plan->fences);
}

/* Looks for a job after the one `seen` for a moment: a program that copies once copies again. */
static void look(struct gdri_copy_pool *pool, uint64_t seen)
{
	uint64_t until = gdri_now_ns() + pool->spin_ns;

	atomic_fetch_add_explicit(&pool->looking, 1, memory_order_relaxed);
	while (atomic_load_explicit(&pool->number, memory_order_relaxed) == seen &&
	       gdri_now_ns() < until)
		gdri_relax();
	atomic_fetch_sub_explicit(&pool->looking, 1, memory_order_relaxed);
}

static void *work(void *arg)
{
	struct gdri_copy_pool *pool = arg;
	uint64_t seen = 0;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		while (!pool->stop && !(pool->open && pool->number != seen && pool->places))
			pthread_cond_wait(&pool->wake, &pool->lock);
		if (pool->stop)
			break;
		seen = pool->number;
		pool->places--;
		pool->active++;
		pthread_mutex_unlock(&pool->lock);
		share(pool);
		pthread_mutex_lock(&pool->lock);
		if (!--pool->active)
			pthread_cond_signal(&pool->done);
		if (!pool->spin_ns)
			continue;
		pthread_mutex_unlock(&pool->lock);
		look(pool, seen);
		pthread_mutex_lock(&pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Opens the job to its helpers and wakes as many as are wanted and not awake. */
static void open_job(struct gdri_copy_pool *pool, const struct job *job)
{
	unsigned int helpers = pool->workers, most = helpers, awake;

	if (job->to)
		most = job->size < pool->wake_min ? 1 : pool->write_helpers;
	helpers = helpers < most ? helpers : most;
	pthread_mutex_lock(&pool->lock);
	pool->job = *job;
	atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
	pool->places = helpers;
	pool->open = true;
	pool->number++;
	awake = atomic_load_explicit(&pool->looking, memory_order_relaxed);
	for (; awake < helpers; awake++)
		pthread_cond_signal(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
}

/* Nobody else comes in; waits for those who are inside. */
static void close_job(struct gdri_copy_pool *pool)
{
	uint64_t until;

	pthread_mutex_lock(&pool->lock);
	pool->open = false;
	pthread_mutex_unlock(&pool->lock);
	if (pool->spin_ns)
		for (until = gdri_now_ns() + pool->spin_ns; pool->active && gdri_now_ns() < until;)
			gdri_relax();
	pthread_mutex_lock(&pool->lock);
	while (pool->active)
		pthread_cond_wait(&pool->done, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

/*
 * The job by everybody; false if another thread has the workers, or if it is smaller than what waking one
 * is worth and none is awake.
 */
static bool run(struct gdri_copy_pool *pool, const struct job *job)
{
	int cancel;

	if (job->to && job->size < pool->wake_min &&
	    !atomic_load_explicit(&pool->looking, memory_order_relaxed))
		return false;
	if (pthread_mutex_trylock(&pool->user))
		return false;
	/* The waits below are no places for the caller's thread to end at: locks are held. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	open_job(pool, job);
	share(pool);
	close_job(pool);
	pthread_mutex_unlock(&pool->user);
	pthread_setcancelstate(cancel, NULL);
	return true;
}

void gdri_copy_pool_copy(struct gdri_copy_pool *pool, const struct gdri_copy_plan *plan, void *dst,
			 const void *src, size_t size, bool to)
{
	struct job job = { plan, dst, src, size, to };

	if (run(pool, &job))
		return;
	if (to)
		gdri_copy_to(plan, dst, src, size);
	else
		gdri_copy_from(plan, dst, src, size);
}

/* The CPUs of a node that this thread may run on; false if there is no telling. */
static bool node_cpus(int node, cpu_set_t *cpus)
{
	char path[64];
	cpu_set_t allowed;
	unsigned int first, last;
	FILE *file;
	int got;

	if (node < 0 || sched_getaffinity(0, sizeof(allowed), &allowed))
		return false;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	file = fopen(path, "re");
	if (!file)
		return false;
	CPU_ZERO(cpus);
	/* "0-3,8-11" */
	while ((got = fscanf(file, "%u-%u", &first, &last)) >= 1) {
		for (last = got == 2 ? last : first; first <= last && first < CPU_SETSIZE; first++)
			if (CPU_ISSET(first, &allowed))
				CPU_SET(first, cpus);
		if (fgetc(file) != ',')
			break;
	}
	fclose(file);
	return CPU_COUNT(cpus) > 0;
}

static const int own_signals[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP };

int gdri_copy_pool_new(struct gdri_copy_pool **out, unsigned int threads, int node)
{
	struct gdri_copy_pool *pool;
	sigset_t all, former;
	pthread_attr_t attr;
	cpu_set_t cpus;
	int err = 0;

	if (threads < 2 || threads > GDRI_POOL_MAX_THREADS)
		return -EINVAL;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	if (pthread_attr_init(&attr)) {
		free(pool);
		return -ENOMEM;
	}
	pool->node = node;
	gdri_copy_pool_tune(pool, GDRI_POOL_WRITE_HELPERS, GDRI_POOL_SPIN_NS, GDRI_POOL_MIN_TO);
	pthread_mutex_init(&pool->user, NULL);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->wake, NULL);
	pthread_cond_init(&pool->done, NULL);
	if (node_cpus(node, &cpus))
		err = pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	/*
	 * The program's signals are for the program's threads, save those that this thread's own
	 * instructions raise: blocked, they end the process without its handler.
	 */
	sigfillset(&all);
	for (size_t i = 0; i < sizeof(own_signals) / sizeof(own_signals[0]); i++)
		sigdelset(&all, own_signals[i]);
	pthread_sigmask(SIG_SETMASK, &all, &former);
	while (!err && pool->workers < threads - 1) {
		err = pthread_create(&pool->thread[pool->workers], &attr, work, pool);
		pool->workers += !err;
	}
	pthread_sigmask(SIG_SETMASK, &former, NULL);
	pthread_attr_destroy(&attr);
	if (err) {
		gdri_copy_pool_free(pool);
		return -err;
	}
	*out = pool;
	return 0;
}

void gdri_copy_pool_tune(struct gdri_copy_pool *pool, unsigned int write_helpers,
			 unsigned int spin_ns, size_t wake_min)
{
	pool->wake_min = wake_min;
	pool->write_helpers = write_helpers;
	pool->spin_ns = spin_ns;
}

void gdri_copy_pool_free(struct gdri_copy_pool *pool)
{
	int cancel;

	if (!pool)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned int i = 0; i < pool->workers; i++)
		pthread_join(pool->thread[i], NULL);
	pthread_cond_destroy(&pool->done);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->lock);
	pthread_mutex_destroy(&pool->user);
	free(pool);
	pthread_setcancelstate(cancel, NULL);
}

int gdri_copy_pool_get(struct gdri_copy_pool **out, unsigned int threads, int node)
{
	struct gdri_copy_pool *pool;
	int rc = 0;

	pthread_mutex_lock(&pools_lock);
	LIST_FOREACH(pool, &pools, link)
		if (pool->workers == threads - 1 && pool->node == node)
			break;
	if (!pool) {
		rc = gdri_copy_pool_new(&pool, threads, node);
		if (!rc)
			LIST_INSERT_HEAD(&pools, pool, link);
	}
	if (!rc) {
		pool->refs++;
		*out = pool;
	}
	pthread_mutex_unlock(&pools_lock);
	return rc;
}

void gdri_copy_pool_put(struct gdri_copy_pool *pool)
{
	bool last;

	if (!pool)
		return;
	pthread_mutex_lock(&pools_lock);
	last = !--pool->refs;
	if (last)
		LIST_REMOVE(pool, link);
	pthread_mutex_unlock(&pools_lock);
	if (last)
		gdri_copy_pool_free(pool);
}

static void after_fork(void)
{
	pthread_mutex_init(&pools_lock, NULL);
	LIST_INIT(&pools);
}

GDRI_IN_CHILD(after_fork);
