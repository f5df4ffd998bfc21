/* SPDX-License-Identifier: MIT */
/* A progress line for long runs, on a terminal only. It must not know what progresses. */
#ifndef PERF_PROGRESS_H
#define PERF_PROGRESS_H

#include <stddef.h>

/* Replaces the line by "what: size"; nothing unless stderr is a terminal. */
void progress_show(const char *what, size_t size);

/* Wipes the line, before other output. */
void progress_clear(void);

#endif
