/* SPDX-License-Identifier: MIT */
/* See progress.h. */
#include "progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "exit.h"

static struct {
	bool on, drawn;
	size_t done, all;
	time_t start, tick; /* of the first step; of the last line */
	time_t end; /* estimated; 0: not known */
	char what[128];
} line;

static time_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

void progress_begin(bool wanted)
{
	const char *term = getenv("TERM");

	line.on = wanted && term && *term && strcmp(term, "dumb") && isatty(STDERR_FILENO);
	line.start = now_s();
	tool_before_text = progress_hide;
}

/* With the terminal's TOSTOP a process of the background would be stopped by writing. */
static bool in_foreground(void)
{
	return tcgetpgrp(STDERR_FILENO) == getpgrp();
}

static void draw(void)
{
	struct winsize size = { 0 };
	char text[256];
	int n;

	if (!in_foreground())
		return;
	line.tick = now_s();
	n = snprintf(text, sizeof(text), "%s: %s", tool_name, line.what);
	if (line.all > 1)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ": %zu of %zu", line.done,
			      line.all);
	if (line.end)
		snprintf(text + n, sizeof(text) - (size_t)n, ", %lld s left",
			 line.end > line.tick ? (long long)(line.end - line.tick) : 0);
	/* one row: a line that wraps could not be removed */
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
		size.ws_col = 80;
	fflush(stdout);
	fprintf(stderr, "\r\033[K%.*s", size.ws_col - 1, text);
	line.drawn = true;
}

void progress_at(size_t done, size_t all, const char *what, ...)
{
	va_list ap;

	if (!line.on)
		return;
	va_start(ap, what);
	vsnprintf(line.what, sizeof(line.what), what, ap);
	va_end(ap);
	tool_plain(line.what);
	line.done = done;
	line.all = all;
	line.end = 0;
	if (done && all > done) {
		time_t spent = now_s() - line.start;

		line.end = now_s() + (time_t)((double)spent * (double)(all - done) / (double)done +
					      0.5);
	}
	draw();
}

void progress_hide(void)
{
	if (line.drawn)
		fputs("\r\033[K", stderr);
	line.drawn = false;
}

void progress_tick(void)
{
	if (line.drawn && now_s() != line.tick)
		draw();
}
