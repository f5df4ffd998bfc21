/* SPDX-License-Identifier: MIT */
/* The summary at exit: GDRCOPY_STATS. See stats.h. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "barcopy.h"
#include "base/process.h"
#include "core/stats.h"

struct text {
	char *s;
	size_t room, length;
};

static __attribute__((format(printf, 2, 3))) void add(struct text *t, const char *fmt, ...)
{
	size_t room = t->room - t->length;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->s + t->length, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->length += (size_t)n < room ? (size_t)n : room - 1;
}

static void add_size(struct text *t, const char *label, const uint64_t n[4])
{
	add(t, "  %-10s %14" PRIu64 " %18" PRIu64 " %14" PRIu64 " %18" PRIu64 "\n", label, n[0],
	    n[1], n[2], n[3]);
}

static void add_copies(struct text *t, const barcopy_stats_t *s)
{
	static const char *const labels[BARCOPY_STATS_SIZES] = { "4 B",	   "16 B",   "64 B",
								 "256 B",  "1 KiB",  "4 KiB",
								 "16 KiB", "64 KiB", "256 KiB",
								 "1 MiB",  "4 MiB",  "more" };
	uint64_t total[4] = { 0 };

	add(t, "  %-10s %14s %18s %14s %18s\n", "size up to", "copies to", "bytes to",
	    "copies from", "bytes from");
	for (int i = 0; i < BARCOPY_STATS_SIZES; i++) {
		uint64_t n[4] = { s->to.copies[i], s->to.bytes[i], s->from.copies[i],
				  s->from.bytes[i] };

		for (int k = 0; k < 4; k++)
			total[k] += n[k];
		if (n[0] || n[2])
			add_size(t, labels[i], n);
	}
	add_size(t, "total", total);
}

size_t gdri_stats_summary(const barcopy_stats_t *s, char *text, size_t room)
{
	struct text t = { text, room, 0 };

	add(&t, "GDRCOPY STATS: process %ld (%s)\n", (long)getpid(), program_invocation_short_name);
	add(&t,
	    "  pins %" PRIu64 ", unpinned %" PRIu64 "; maps %" PRIu64 ", unmapped %" PRIu64
	    "; revoked %" PRIu64 "\n",
	    s->pins, s->unpins, s->maps, s->unmaps, s->revoked);
	add(&t,
	    "  registration caches: hits %" PRIu64 ", misses %" PRIu64 ", evictions %" PRIu64 "\n",
	    s->cache_hits, s->cache_misses, s->cache_evictions);
	add(&t, "  copy engine: copies %" PRIu64 ", fallbacks %" PRIu64 "\n", s->engine_copies,
	    s->engine_fallbacks);
	add(&t, "  words: put %" PRIu64 ", got %" PRIu64 ", waited for %" PRIu64 "\n", s->puts,
	    s->gets, s->waits);
	add_copies(&t, s);
	if (s->uncounted)
		add(&t, "  not counted for lack of memory: %" PRIu64 "\n", s->uncounted);
	return t.length;
}

/* To standard error, whatever it is by now: a reader that went away must not end the program. */
static void put(const char *text, size_t length)
{
	struct timespec none = { 0, 0 };
	sigset_t pipe, former, pending;
	bool was_pending;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	was_pending = sigismember(&pending, SIGPIPE) == 1;
	pthread_sigmask(SIG_BLOCK, &pipe, &former);
	while (length) {
		ssize_t n = write(STDERR_FILENO, text, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		text += n;
		length -= (size_t)n;
	}
	if (!was_pending)
		while (sigtimedwait(&pipe, NULL, &none) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &former, NULL);
}

__attribute__((destructor)) static void at_exit(void)
{
	barcopy_stats_t stats = { .struct_size = sizeof(stats) };
	char text[4096];

	if (!gdri_process_tag() || !gdri_stats_asked_for())
		return;
	gdri_stats_of_process(&stats);
	put(text, gdri_stats_summary(&stats, text, sizeof(text)));
}
