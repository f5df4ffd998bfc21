/* SPDX-License-Identifier: MIT */
/* What stats.c has beside its entry point. */
#ifndef GDRI_STATS_H
#define GDRI_STATS_H

#include "barcopy.h"
#include "base/error.h"

/* Whoever opens a context calls it, so that a static library brings the summary too. */
void gdri_stats_init(void);

void gdri_stats_summary(const barcopy_stats_t *stats, struct gdri_text *text);

#endif
