/* SPDX-License-Identifier: MIT */
/* What the entry points share: 0 or -errno, of which gdri_out() makes the public errno. */
#ifndef GDRI_CALLS_H
#define GDRI_CALLS_H

#include "cache/cache.h"
#include "core/ctx.h"
#include "core/handle.h"

static inline int gdri_out(int rc)
{
	return -rc;
}

static inline int gdri_null(const char *what)
{
	return gdri_fail(EINVAL, "%s is NULL", what);
}

/* The first published sizes of the structs that grow at their end (base/struct_size.h). */
enum {
	FIRST_COPY_OPTIONS = 32,
	FIRST_BAR_INFO = 32,
	FIRST_CACHE_OPTIONS = 32,
	FIRST_CACHE_STATS = 72,
	FIRST_STATS = 152,
	FIRST_QUEUE_OPTIONS = 16,
	FIRST_PORT_OPTIONS = 40
};

_Static_assert(sizeof(barcopy_copy_options_t) >= FIRST_COPY_OPTIONS &&
		       sizeof(barcopy_bar_info_t) >= FIRST_BAR_INFO &&
		       sizeof(barcopy_cache_options_t) >= FIRST_CACHE_OPTIONS &&
		       sizeof(barcopy_cache_stats_t) >= FIRST_CACHE_STATS &&
		       sizeof(barcopy_stats_t) >= FIRST_STATS,
	       "they only grow");

/* Why the window [start, end) refuses a copy. Scalars: a struct would not stay in registers. */
__attribute__((cold)) int gdri_explain_window(uintptr_t start, uintptr_t end, const void *map_ptr,
					      const void *host_ptr, size_t size);

void gdri_count_copies(struct gdri_counters *counters, enum gdri_access access, uint64_t n,
		       uint64_t bytes);

/* Called by the first open, so that a static library links the summary at exit too. */
void gdri_stats_init(void);

void gdri_stats_summary(const barcopy_stats_t *stats, struct gdri_text *text);
/* At the library's load: the summary goes to the file that standard error is now. */
void gdri_stats_note_stderr(void);

#endif
