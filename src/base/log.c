/* SPDX-License-Identifier: MIT */
/* See log.h. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/env.h"

/* The lowest level that is logged. */
static _Atomic int threshold = GDRI_LOG_ERROR + 1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_env(void)
{
	const char *level = gdri_env("GDRCOPY_LOG_LEVEL");
	int lowest = GDRI_LOG_ERROR;

	if (!gdri_env("GDRCOPY_ENABLE_LOGGING"))
		return;
	if (level && level[0] >= '1' && level[0] <= '4' && !level[1])
		lowest = level[0] - '0';
	atomic_store_explicit(&threshold, lowest, memory_order_relaxed);
}

void gdri_log_init(void)
{
	pthread_once(&once, read_env);
}

void gdri_log(enum gdri_log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "", "DBG", "INFO", "WARN", "ERR" };
	char text[1280];
	va_list ap;

	if ((int)level < atomic_load_explicit(&threshold, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "GDRCOPY %s: %s\n", names[level], text);
}
