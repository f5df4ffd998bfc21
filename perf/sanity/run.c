/* SPDX-License-Identifier: MIT */
/* Tests in a process of their own; see tests.h. It must not know what is tested. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "common/child.h"
#include "common/exit.h"
#include "sanity/tests.h"

struct series {
	struct chosen *list;
	size_t count;
	struct report *reports;
	_Atomic size_t *begun; /* tests; shared with the tool */
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void play(const struct sanity_test *test)
{
	double start = now_s();
	sigjmp_buf waived;

	report_waived = &waived;
	if (!sigsetjmp(waived, 1)) {
		if (test->run)
			test->run();
		else
			scene_play(test);
		atomic_store(&report->returned, 1);
	}
	report_waived = NULL;
	report->seconds = now_s() - start;
}

static void in_child(void *arg)
{
	struct series *s = arg;
	size_t i = *s->begun;

	tool_on_end = report_cannot; /* the text of tool_cannot() is the test's reason */
	report = s->reports + i;
	sanity.facts = *s->list[i].facts;
	if (!s->list[i].test->bare)
		sanity_open();
	for (; i < s->count; i++) {
		report = s->reports + i;
		sanity.facts = *s->list[i].facts;
		atomic_store(s->begun, i + 1);
		play(s->list[i].test);
	}
	sanity_close();
	exit(TOOL_OK); /* the exit handlers of CUDA and the library belong to the last test */
}

/* The outcome of a test that neither returned nor gave a reason. */
static enum outcome failed(enum child_end end, int status, long seconds)
{
	size_t size = sizeof(report->text);

	if (end == CHILD_STUCK)
		snprintf(report->text, size,
			 "not finished after %ld s and cannot be ended: look at the kernel's log",
			 seconds);
	else if (end == CHILD_KILLED || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
		snprintf(report->text, size, "not finished after %ld s", seconds);
	else if (WIFSIGNALED(status))
		snprintf(report->text, size, "ended by a signal: %s%s", strsignal(WTERMSIG(status)),
			 report->returned ? ", at exit" : "");
	else
		snprintf(report->text, size, "ended with exit status %d (see standard error)",
			 WEXITSTATUS(status));
	return FAILED;
}

void run_tests(struct chosen *list, size_t count, long seconds)
{
	_Atomic size_t *begun = mmap(NULL, sizeof(*begun), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct series s = { list, count, report, begun };

	if (begun == MAP_FAILED)
		tool_fail("no memory for %zu tests: %s", count, strerror(errno));
	for (size_t done = 0; done < count;) {
		double start = now_s();
		int status = 0;
		enum child_end end = child_run(in_child, &s, (unsigned int)seconds, &status);
		bool good = end == CHILD_ENDED && WIFEXITED(status) && !WEXITSTATUS(status);
		size_t last = *begun > done ? *begun : done + 1; /* it may have ended before one */

		for (; done < last; done++) {
			report = s.reports + done;
			if (report->returned && (done + 1 < count || good))
				list[done].outcome = PASSED;
			else
				list[done].outcome = report->has_reason
							     ? report->outcome
							     : failed(end, status, seconds);
			if (!report->seconds)
				report->seconds = now_s() - start;
		}
		*begun = done;
	}
	report = s.reports;
	munmap(begun, sizeof(*begun));
}
