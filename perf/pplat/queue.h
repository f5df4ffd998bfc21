/* SPDX-License-Identifier: MIT */
/*
 * Queues (barcopy_queue.h) beside what a program would do without them. It must not know how the library
 * writes or polls.
 */
#ifndef PERF_PPLAT_QUEUE_H
#define PERF_PPLAT_QUEUE_H

#include "pplat/flags.h"

/* Measures on what pplat_open() made, compares every answer, and prints the rows or adds them to `j`. */
void pplat_queue(struct pplat *p, struct json *j);

#endif
