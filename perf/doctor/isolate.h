/* SPDX-License-Identifier: MIT */
/*
 * A function in a process of its own: what it calls may crash, hang or end the process without
 * ending the doctor. It must not know what is run.
 */
#ifndef DOCTOR_ISOLATE_H
#define DOCTOR_ISOLATE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Runs fn(arg) in a child; what it prints is not shown. True if it returned. Otherwise false, and in
 * `why` the signal, the time-out or the exit status, and the last line that it printed. A child that
 * cannot even be killed is left behind.
 */
bool isolate(void (*fn)(void *arg), void *arg, unsigned int seconds, char *why, size_t why_size);

/* Memory that a child shares with this process, filled with zeroes. */
void *isolate_shared(size_t size);
void isolate_shared_free(void *p, size_t size);

#endif
