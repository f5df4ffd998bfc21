/* SPDX-License-Identifier: MIT */
/*
 * The entry points for statistics: the switch, and the numbers of a handle, a context or the
 * process. See stats.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/ctx.h"
#include "base/env.h"
#include "base/error.h"
#include "barcopy.h"
#include "core/handle.h"
#include "cache/cache.h"
#include "core/counters.h"
#include "core/stats.h"
#include "core/tally.h"

/* How much of the caller's struct we may write: what both sides know. */
_Static_assert(sizeof(barcopy_stats_t) == 512, "size of the first barcopy_stats_t");

struct gdri_events gdri_process_events;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one switch at a time */
static _Atomic bool on;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool asked_for; /* by the environment, and so is a summary */

bool gdri_stats_on(void)
{
	return atomic_load_explicit(&on, memory_order_relaxed);
}

static void set(bool count)
{
	pthread_mutex_lock(&lock);
	/* First the switch: handles whose memory is made from now on look at it themselves. */
	atomic_store_explicit(&on, count, memory_order_relaxed);
	gdri_handles_count(count);
	pthread_mutex_unlock(&lock);
}

static void read_env(void)
{
	if (!gdri_env_true("GDRCOPY_STATS"))
		return;
	set(true);
	atomic_store_explicit(&asked_for, true, memory_order_relaxed);
}

bool gdri_stats_asked_for(void)
{
	return atomic_load_explicit(&asked_for, memory_order_relaxed);
}

void gdri_stats_init(void)
{
	pthread_once(&once, read_env);
}

void gdri_stats_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	gdri_tally_after_fork();
	gdri_events_clear(&gdri_process_events);
}

int barcopy_set_stats(uint32_t flags)
{
	if (flags & ~(uint32_t)BARCOPY_STATS_COPIES)
		return -gdri_fail(EINVAL, "unknown bits in flags 0x%x of barcopy_set_stats", flags);
	/* The environment comes first, so that it does not undo the call at a later open. */
	gdri_stats_init();
	set(flags & BARCOPY_STATS_COPIES);
	return 0;
}

void gdri_stats_fill(barcopy_stats_t *stats, const struct gdri_events *events,
		     const struct gdri_tally_sum *sum)
{
	static const struct {
		size_t offset;
		enum gdri_event event;
	} fields[] = {
		{ offsetof(barcopy_stats_t, pins), GDRI_EVENT_PIN },
		{ offsetof(barcopy_stats_t, unpins), GDRI_EVENT_UNPIN },
		{ offsetof(barcopy_stats_t, maps), GDRI_EVENT_MAP },
		{ offsetof(barcopy_stats_t, unmaps), GDRI_EVENT_UNMAP },
		{ offsetof(barcopy_stats_t, revoked), GDRI_EVENT_REVOKED },
		{ offsetof(barcopy_stats_t, engine_copies), GDRI_EVENT_ENGINE_COPY },
		{ offsetof(barcopy_stats_t, engine_fallbacks), GDRI_EVENT_ENGINE_FALLBACK },
		{ offsetof(barcopy_stats_t, cache_hits), GDRI_EVENT_CACHE_HIT },
		{ offsetof(barcopy_stats_t, cache_misses), GDRI_EVENT_CACHE_MISS },
		{ offsetof(barcopy_stats_t, cache_evictions), GDRI_EVENT_CACHE_EVICTION },
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		uint64_t n = gdri_events_get(events, fields[i].event);

		memcpy((char *)stats + fields[i].offset, &n, sizeof(n));
	}
	stats->flags = gdri_stats_on() ? BARCOPY_STATS_COPIES : 0;
	stats->uncounted = gdri_tally_uncounted();
	stats->puts = sum->words[GDRI_TALLY_PUT];
	stats->gets = sum->words[GDRI_TALLY_GET];
	stats->waits = sum->words[GDRI_TALLY_WAIT];
	memcpy(stats->to.copies, sum->copies[GDRI_TALLY_TO], sizeof(stats->to.copies));
	memcpy(stats->to.bytes, sum->bytes[GDRI_TALLY_TO], sizeof(stats->to.bytes));
	memcpy(stats->from.copies, sum->copies[GDRI_TALLY_FROM], sizeof(stats->from.copies));
	memcpy(stats->from.bytes, sum->bytes[GDRI_TALLY_FROM], sizeof(stats->from.bytes));
}

static int of_handle(struct gdri_ctx *ctx, gdr_mh_t h, barcopy_stats_t *stats)
{
	struct gdri_tally_sum sum = { .words = { 0 } };
	struct gdri_handle *handle;
	int rc = gdri_handle_lock(ctx, h, &handle);

	if (rc)
		return rc;
	gdri_tally_read(handle->slot.index, &sum);
	gdri_stats_fill(stats, handle->region->mapped ? &handle->pin.events : &handle->region->pin.events,
			&sum);
	gdri_handle_unlock(handle);
	return 0;
}

static void of_context(struct gdri_ctx *ctx, barcopy_stats_t *stats)
{
	struct gdri_tally_sum sum;

	pthread_mutex_lock(&ctx->lock);
	sum = ctx->past;
	for (struct gdri_handle *handle = ctx->handles; handle; handle = handle->next)
		gdri_tally_read(handle->slot.index, &sum);
	gdri_stats_fill(stats, &ctx->events, &sum);
	for (struct gdri_cache *cache = ctx->caches; cache; cache = cache->next)
		stats->cache_hits += gdri_cache_hits(cache);
	pthread_mutex_unlock(&ctx->lock);
}

void gdri_stats_of_process(barcopy_stats_t *stats)
{
	struct gdri_tally_sum sum = { .words = { 0 } };

	gdri_tally_read_all(&sum);
	gdri_stats_fill(stats, &gdri_process_events, &sum);
	stats->cache_hits += gdri_cache_hits_of_all();
}

int barcopy_get_stats(gdr_t g, gdr_mh_t handle, barcopy_stats_t *stats)
{
	struct gdri_ctx *ctx;
	int rc;

	if (!stats)
		return -gdri_fail(EINVAL, "stats is NULL");
	if (stats->struct_size < sizeof(*stats))
		return -gdri_fail(EINVAL, "stats->struct_size is %zu, not sizeof(barcopy_stats_t)",
				  stats->struct_size);
	if (!g) {
		if (handle.h)
			return -gdri_fail(EINVAL, "a handle is asked about in its context");
		gdri_stats_of_process(stats);
		return 0;
	}
	rc = gdri_ctx_get(g, &ctx);
	if (rc)
		return -rc;
	if (handle.h)
		rc = of_handle(ctx, handle, stats);
	else
		of_context(ctx, stats);
	gdri_ctx_put(ctx);
	return -rc;
}
