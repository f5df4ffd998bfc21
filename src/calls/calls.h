/* SPDX-License-Identifier: MIT */
/*
 * What the entry points share. Each checks its arguments, finds the object, calls, and turns -errno into
 * the positive errno of the interface; nothing else does that.
 */
#ifndef GDRI_CALLS_H
#define GDRI_CALLS_H

#include <errno.h>

#include "barcopy.h"
#include "base/error.h"
#include "cache/cache.h"
#include "core/ctx.h"
#include "core/handle.h"

/* The errno of `call` with the context g held as ctx, or why g cannot be. */
#define GDRI_WITH(g, ctx, call)                  \
	__extension__({                          \
		struct gdri_ctx *ctx;            \
		int rc_ = gdri_ctx_get(g, &ctx); \
		if (!rc_) {                      \
			rc_ = (call);            \
			gdri_ctx_put(ctx);       \
		}                                \
		-rc_;                            \
	})

/* The same; made again while it is short of room on a GPU and the context's caches give way. */
#define GDRI_WITH_ROOM(g, ctx, device, size, call)                                               \
	GDRI_WITH(g, ctx, __extension__({                                                        \
			  int room_rc_;                                                          \
			  do                                                                     \
				  room_rc_ = (call);                                             \
			  while (room_rc_ && gdri_caches_give_way(ctx, room_rc_, device, size)); \
			  room_rc_;                                                              \
		  }))

static inline int gdri_null(const char *what)
{
	return -gdri_fail(EINVAL, "%s is NULL", what);
}

/* The structs that grow at their end (base/sized.h): their sizes when they were first published. */
enum {
	FIRST_COPY_OPTIONS = 32,
	FIRST_BAR_INFO = 32,
	FIRST_CACHE_OPTIONS = 40,
	FIRST_CACHE_STATS = 72,
	FIRST_STATS = 152,
	FIRST_QUEUE_OPTIONS = 16
};

_Static_assert(sizeof(barcopy_copy_options_t) >= FIRST_COPY_OPTIONS &&
		       sizeof(barcopy_bar_info_t) >= FIRST_BAR_INFO &&
		       sizeof(barcopy_cache_options_t) >= FIRST_CACHE_OPTIONS &&
		       sizeof(barcopy_cache_stats_t) >= FIRST_CACHE_STATS &&
		       sizeof(barcopy_stats_t) >= FIRST_STATS,
	       "they only grow");

/*
 * Why a copy through that window is refused: EINVAL, or EACCES for a write through a read-only map, whose
 * window for writes has no end. By value: a window whose address is taken would not stay in registers.
 */
__attribute__((cold)) int gdri_explain_window(struct gdri_window w, const void *map_ptr,
					      const void *host_ptr, size_t size);

void gdri_count_copies(struct gdri_counters *counters, enum gdri_access access, uint64_t n,
		       uint64_t bytes);

/* Whoever opens a context calls it, so that a static library brings the summary at exit too. */
void gdri_stats_init(void);

void gdri_stats_summary(const barcopy_stats_t *stats, struct gdri_text *text);

#endif
