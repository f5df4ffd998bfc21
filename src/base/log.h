/* SPDX-License-Identifier: MIT */
/*
 * Log messages: to the function set by barcopy_set_log_fn(), else to stderr if GDRCOPY_ENABLE_LOGGING
 * is set, from GDRCOPY_LOG_LEVEL (1 debug .. 4 error, default 4) up. Nothing is logged by copies.
 */
#ifndef GDRI_LOG_H
#define GDRI_LOG_H

#include "barcopy.h"

/* Cheap when nobody listens: one relaxed load. */
void gdri_log(barcopy_log_level_t level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Reads the environment; the first call decides, later ones do nothing. */
void gdri_log_init(void);

/* See barcopy_set_log_fn(). */
void gdri_log_set_fn(barcopy_log_fn fn, void *arg);

#endif
