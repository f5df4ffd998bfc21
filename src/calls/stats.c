/* SPDX-License-Identifier: MIT */
/* Statistics: the entry point that reads the counters, and the summary at exit (GDRCOPY_STATS). */
#include "calls/calls.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/env.h"
#include "base/struct_size.h"

_Static_assert(offsetof(barcopy_stats_t, waits) - offsetof(barcopy_stats_t, copies_to) ==
			       (GDRI_COUNT_WAIT - GDRI_COUNT_COPIES_TO) * sizeof(uint64_t) &&
		       offsetof(barcopy_stats_t, copies_to) - offsetof(barcopy_stats_t, pins) ==
			       GDRI_COUNT_COPIES_TO * sizeof(uint64_t),
	       "a field for each counter, in the same order");

static void fill(barcopy_stats_t *s, const struct gdri_counters *c)
{
	uint64_t *field = (uint64_t *)((char *)s + offsetof(barcopy_stats_t, pins));

	s->flags = gdri_copies_counted ? BARCOPY_STATS_COPIES : 0;
	for (int i = 0; i < GDRI_COUNTERS; i++)
		field[i] = atomic_load_explicit(&c->n[i], memory_order_relaxed);
}

static void of_process(barcopy_stats_t *stats)
{
	fill(stats, &gdri_of_process);
	stats->cache_hits += gdri_cache_hits_of_all();
}

static void of_context(struct gdri_ctx *ctx, barcopy_stats_t *stats)
{
	const struct gdri_cache *cache;

	pthread_mutex_lock(&ctx->lock);
	fill(stats, &ctx->counters);
	LIST_FOREACH(cache, &ctx->caches, link)
		stats->cache_hits += gdri_cache_hits(cache);
	pthread_mutex_unlock(&ctx->lock);
}

int barcopy_get_stats(gdr_t g, barcopy_stats_t *stats)
{
	struct gdri_ctx *ctx = NULL;
	barcopy_stats_t now;
	int rc = !stats ? gdri_null("stats") : g ? gdri_ctx_get(g, &ctx) : 0;

	if (rc)
		return gdri_out(rc);
	if (ctx) {
		of_context(ctx, &now);
		gdri_ctx_put(ctx, 0);
	} else {
		of_process(&now);
	}
	return gdri_out(gdri_struct_out(&now, sizeof(now), FIRST_STATS, stats));
}

void gdri_stats_summary(const barcopy_stats_t *s, struct gdri_text *text)
{
	char name[256];

	snprintf(name, sizeof(name), "%s", program_invocation_short_name);
	gdri_plain(name);
	gdri_text_add(text,
		      "GDRCOPY STATS: process %ld (%s)\n"
		      "  pins %" PRIu64 ", unpinned %" PRIu64 "; maps %" PRIu64
		      ", unmapped %" PRIu64 "; revoked %" PRIu64 "\n"
		      "  registration caches: hits %" PRIu64 ", misses %" PRIu64
		      ", evictions %" PRIu64 "\n"
		      "  copy engine: copies %" PRIu64 ", fallbacks %" PRIu64 "\n"
		      "  copies to the GPU: %" PRIu64 ", bytes %" PRIu64 "\n"
		      "  copies from the GPU: %" PRIu64 ", bytes %" PRIu64 "\n"
		      "  words: put %" PRIu64 ", got %" PRIu64 ", waited for %" PRIu64 "\n",
		      (long)getpid(), name, s->pins, s->unpins, s->maps,
		      s->unmaps, s->revoked, s->cache_hits, s->cache_misses, s->cache_evictions,
		      s->engine_copies, s->engine_fallbacks, s->copies_to, s->bytes_to,
		      s->copies_from, s->bytes_from, s->puts, s->gets, s->waits);
}

/*
 * The file that has the number of standard error. A program may give it to a file of data, which
 * may even get the inode's number, of a file that was removed: that differs in its birth. The first
 * open notes the birth, where copies are counted: a sandbox may end a process that calls statx().
 */
static struct stat at_load;
static struct statx_timestamp birth;
static bool known, has_birth;

__attribute__((constructor)) void gdri_stats_note_stderr(void)
{
	known = !fstat(STDERR_FILENO, &at_load);
	has_birth = false; /* of another file, where the tests call this again */
}

/* Not of a file system that keeps none. glibc has statx() from 2.28 on, wheels run on 2.17. */
static bool get_birth(struct statx_timestamp *t)
{
	struct statx x = { .stx_mask = 0 };

	if (syscall(SYS_statx, STDERR_FILENO, "", AT_EMPTY_PATH, STATX_BTIME, &x) ||
	    !(x.stx_mask & STATX_BTIME))
		return false;
	*t = x.stx_btime;
	return true;
}

static bool is_as_at_load(void)
{
	struct statx_timestamp now_born;
	struct stat now;

	if (!known || fstat(STDERR_FILENO, &now) || now.st_dev != at_load.st_dev ||
	    now.st_ino != at_load.st_ino)
		return false;
	return !has_birth || (get_birth(&now_born) && now_born.tv_sec == birth.tv_sec &&
			      now_born.tv_nsec == birth.tv_nsec);
}

void gdri_stats_init(void)
{
	gdri_copies_counted = gdri_env_true("GDRCOPY_STATS");
	has_birth = gdri_copies_counted && is_as_at_load() && get_birth(&birth);
}

__attribute__((destructor)) static void at_exit(void)
{
	struct gdri_text text = { .len = 0 };
	barcopy_stats_t stats;
	sigset_t pipe;

	/* A forked child that has opened no context has no process tag. */
	if (!gdri_process_tag() || !gdri_copies_counted || !is_as_at_load())
		return;
	of_process(&stats);
	gdri_stats_summary(&stats, &text);
	/* A reader that has gone must not end the program. */
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, NULL);
	while (write(STDERR_FILENO, text.s, text.len) < 0 && errno == EINTR)
		;
}
