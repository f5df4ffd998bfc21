/* SPDX-License-Identifier: MIT */
/* Whether a mapping can be read, asked without the risk of a signal. Knows no backend. */
#ifndef GDRI_PROBE_H
#define GDRI_PROBE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether one word in every 2 MiB of [map, map + length), and its last one, can be loaded. A
 * driver that makes its page-table entries on fault, 2 MiB at a time, has made them all then.
 */
bool gdri_probe_range(const void *map, size_t length);

#endif
