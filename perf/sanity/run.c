/* SPDX-License-Identifier: MIT */
/* One test in one process; see run.h. It must not know what is tested. */
#include "sanity/run.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/child.h"
#include "common/exit.h"
#include "sanity/sanity.h"

static void in_child(void *arg)
{
	const struct sanity_test *test = arg;

	tool_on_end = report_cannot; /* what tool_cannot() says is this test's reason */
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

	report_clear();
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
