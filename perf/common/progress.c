/* SPDX-License-Identifier: MIT */
/* The progress line; see progress.h. */
#include "progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "words.h"

static bool shown;

void progress_show(const char *what, size_t size)
{
	if (!isatty(STDERR_FILENO))
		return;
	fflush(stdout);
	fprintf(stderr, "\r\033[K%s: %zu byte%s ...", what, size, plural(size));
	fflush(stderr);
	shown = true;
}

void progress_clear(void)
{
	if (!shown)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	shown = false;
}
