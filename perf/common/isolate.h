/* SPDX-License-Identifier: MIT */
/*
 * A function in a process of its own, with its end put into words: what it calls may crash, hang or end
 * the process without ending the tool. It must not know what is run.
 */
#ifndef PERF_ISOLATE_H
#define PERF_ISOLATE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Runs fn(arg) in a child; what it prints is not shown. True if it returned. Otherwise false, with the
 * signal, the time-out or the exit status in `why`. A child that cannot even be killed is left behind.
 */
bool isolate(void (*fn)(void *arg), void *arg, unsigned int seconds, char *why, size_t size);

#endif
