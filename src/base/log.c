/* SPDX-License-Identifier: MIT */
/* See log.h. */
#include "base/process.h"
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/env.h"

/*
 * threshold: lowest level anybody listens to; LEVEL_NONE: nobody. env_threshold holds what the
 * environment asked for, so that a removed function restores it. sink is under sink_lock: held
 * for reading while it runs, so that gdri_log_set_fn() returns only when the former one is done.
 */
enum { LEVEL_NONE = BARCOPY_LOG_ERROR + 1 };

static _Atomic int threshold = LEVEL_NONE;
static int env_threshold = LEVEL_NONE;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_rwlock_t sink_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct {
	barcopy_log_fn fn;
	void *arg;
} sink;

static void read_env(void)
{
	const char *level = gdri_env("GDRCOPY_LOG_LEVEL");

	if (!gdri_env("GDRCOPY_ENABLE_LOGGING"))
		return;
	env_threshold = BARCOPY_LOG_ERROR;
	if (level && level[0] >= '1' && level[0] <= '4' && !level[1])
		env_threshold = level[0] - '0';
	atomic_store_explicit(&threshold, env_threshold, memory_order_relaxed);
}

void gdri_log_init(void)
{
	pthread_once(&once, read_env);
}

void gdri_log(barcopy_log_level_t level, const char *fmt, ...)
{
	static const char *const names[] = { "", "DBG", "INFO", "WARN", "ERR" };
	char text[1280];
	va_list ap;

	if ((int)level < atomic_load_explicit(&threshold, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);

	pthread_rwlock_rdlock(&sink_lock);
	if (sink.fn)
		sink.fn(sink.arg, level, text);
	/* Asked again: the function that listened may have been taken away meanwhile. */
	else if ((int)level >= atomic_load_explicit(&threshold, memory_order_relaxed))
		fprintf(stderr, "GDRCOPY %s: %s\n", names[level], text);
	pthread_rwlock_unlock(&sink_lock);
}

void gdri_log_set_fn(barcopy_log_fn fn, void *arg)
{
	gdri_log_init();
	pthread_rwlock_wrlock(&sink_lock);
	sink.fn = fn;
	sink.arg = arg;
	atomic_store_explicit(&threshold, fn ? BARCOPY_LOG_DEBUG : env_threshold,
			      memory_order_relaxed);
	pthread_rwlock_unlock(&sink_lock);
}

static void after_fork(void)
{
	pthread_rwlock_init(&sink_lock, NULL);
}

GDRI_IN_CHILD(after_fork);
