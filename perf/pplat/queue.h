/* SPDX-License-Identifier: MIT */
/* Compares queues (barcopy_queue.h) with the alternatives of a program that does not use them. */
#ifndef PERF_PPLAT_QUEUE_H
#define PERF_PPLAT_QUEUE_H

#include "pplat/pplat.h"

/* Call after pplat_open(). Measures, compares every answer, and prints the lines or adds them to `j`. */
void pplat_queue(struct pplat *p, struct json *j);

#endif
