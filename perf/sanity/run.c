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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/exit.h"

#define GRACE_S 5 /* how much later than its alarm a test is given up */

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

static _Noreturn void in_child(const struct sanity_test *test, const sigset_t *mask, long seconds)
{
	setpgid(0, 0); /* so that its children can be ended with it */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	signal(SIGALRM, SIG_DFL);
	alarm((unsigned int)seconds);
	if (!test->bare)
		sanity_open();
	test->run();
	sanity_close();
	atomic_store(&report->returned, 1);
	exit(TOOL_OK); /* what CUDA and the library do at exit belongs to the test */
}

/* Waits for the process to end without reaping it: false if it does not within `seconds`. */
static bool wait_for(pid_t pid, const sigset_t *sigchld, long seconds)
{
	struct timespec now, end;
	siginfo_t info;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds;
	for (;;) {
		struct timespec slice = { .tv_nsec = 200000000 };

		info.si_pid = 0;
		if (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid)
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > end.tv_sec)
			return false;
		sigtimedwait(sigchld, NULL, &slice);
	}
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
	sigset_t sigchld, before;
	pid_t pid;
	int status = 0;
	bool ended;

	report->said = report->returned = report->noted = 0;
	memset(report->text, 0, sizeof(report->text));
	memset(report->notes, 0, sizeof(report->notes));
	sigemptyset(&sigchld);
	sigaddset(&sigchld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &sigchld, &before);
	fflush(NULL); /* or the child's exit would print it again */
	pid = fork();
	if (pid < 0)
		tool_fail("fork: %s", strerror(errno));
	if (!pid)
		in_child(test, &before, seconds);
	setpgid(pid, pid); /* whoever comes first */
	ended = wait_for(pid, &sigchld, seconds + GRACE_S);
	/* not reaped yet, so that the number is still this group's */
	kill(-pid, SIGKILL);
	if (!ended && !wait_for(pid, &sigchld, GRACE_S)) {
		snprintf(report->text, sizeof(report->text),
			 "not finished after %ld s and cannot be ended: look at the kernel's log",
			 seconds);
		sigprocmask(SIG_SETMASK, &before, NULL);
		return FAILED;
	}
	waitpid(pid, &status, 0);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return judge(status, seconds);
}
