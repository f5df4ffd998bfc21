/* SPDX-License-Identifier: MIT */
/* One test in one process; see run.h. It must not know what is tested. */
#include "sanity/run.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/child.h"
#include "common/exit.h"

struct report *report;

void report_make(void)
{
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (report == MAP_FAILED)
		tool_fail("no memory for a report: %s", strerror(errno));
}

/* The first one to speak is heard: what follows are consequences. */
static void say(enum outcome outcome, const char *place, const char *fmt, va_list ap)
{
	int n;

	if (atomic_exchange(&report->said, 1))
		return;
	report->outcome = outcome;
	n = snprintf(report->text, sizeof(report->text), "%s", place);
	vsnprintf(report->text + n, sizeof(report->text) - (size_t)n, fmt, ap);
}

void sanity_fail(const char *file, int line, const char *fmt, ...)
{
	const char *slash = strrchr(file, '/');
	char place[128];
	va_list ap;

	snprintf(place, sizeof(place), "%.80s:%d: ", slash ? slash + 1 : file, line);
	va_start(ap, fmt);
	say(FAILED, place, fmt, ap);
	va_end(ap);
	_exit(TOOL_FAIL);
}

void sanity_waive(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(WAIVED, "", fmt, ap);
	va_end(ap);
	_exit(TOOL_CANNOT);
}

bool sanity_has_failed(void)
{
	return atomic_load(&report->said);
}

void sanity_note(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	size_t n;
	int at;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	n = strlen(line);
	line[n++] = '\n';
	/* each writer has its own stretch; the last byte stays 0 */
	at = atomic_fetch_add(&report->noted, (int)n);
	if ((size_t)at + n < sizeof(report->notes))
		memcpy(report->notes + at, line, n);
}

static void in_child(void *arg)
{
	const struct sanity_test *test = arg;

	if (!test->bare)
		sanity_open();
	test->run();
	sanity_close();
	atomic_store(&report->returned, 1);
	exit(TOOL_OK); /* what CUDA and the library do at exit belongs to the test */
}

static enum outcome judge(int status, long seconds)
{
	size_t size = sizeof(report->text);

	if (WIFEXITED(status) && WEXITSTATUS(status) == TOOL_OK && report->returned)
		return PASSED;
	if (WIFEXITED(status) && report->said)
		return report->outcome;
	if (WIFEXITED(status) && WEXITSTATUS(status) == TOOL_CANNOT && !report->text[0]) {
		snprintf(report->text, size, "cannot run here (standard error says why)");
		return WAIVED;
	}
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(report->text, size, "not finished after %ld s", seconds);
	else if (WIFSIGNALED(status))
		snprintf(report->text, size, "ended by a signal: %s%s", strsignal(WTERMSIG(status)),
			 report->returned ? ", at exit" : "");
	else
		snprintf(report->text, size, "ended with exit status %d (see standard error)",
			 WEXITSTATUS(status));
	return FAILED;
}

enum outcome run_test(const struct sanity_test *test, long seconds)
{
	struct sanity_test copy = *test;
	int status = 0;

	report->said = report->returned = report->noted = 0;
	memset(report->text, 0, sizeof(report->text));
	memset(report->notes, 0, sizeof(report->notes));
	switch (child_run(in_child, &copy, (unsigned int)seconds, &status)) {
	case CHILD_ENDED:
		return judge(status, seconds);
	case CHILD_KILLED:
		snprintf(report->text, sizeof(report->text), "not finished after %ld s", seconds);
		break;
	case CHILD_STUCK:
		snprintf(report->text, sizeof(report->text),
			 "not finished after %ld s and cannot be ended: look at the kernel's log",
			 seconds);
		break;
	}
	return FAILED;
}
