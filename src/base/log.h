/* SPDX-License-Identifier: MIT */
/*
 * Log messages go to stderr if GDRCOPY_ENABLE_LOGGING is set, from the level GDRCOPY_LOG_LEVEL up
 * (1 debug to 4 error, the default). Copies log nothing.
 */
#ifndef GDRI_LOG_H
#define GDRI_LOG_H

/* As in GDRCOPY_LOG_LEVEL. */
enum gdri_log_level { GDRI_LOG_DEBUG = 1, GDRI_LOG_INFO, GDRI_LOG_WARN, GDRI_LOG_ERROR };

/* Costs one relaxed load where nothing is logged. */
void gdri_log(enum gdri_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Reads the environment; the first call decides, later ones do nothing. */
void gdri_log_init(void);

#endif
