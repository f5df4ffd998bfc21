/* SPDX-License-Identifier: MIT */
/* One test in one process; see run.h. It must not know what is tested. */
#include "sanity/run.h"

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

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct series {
	struct run *list;
	size_t count;
	struct report *reports;
	_Atomic size_t *begun; /* of them, as the tool sees it too */
};

static void run_here(const struct sanity_test *test)
{
	double start = now_s();
	sigjmp_buf waived;

	report_waived = &waived;
	if (!sigsetjmp(waived, 1)) {
		test->run();
		atomic_store(&report->returned, 1);
	}
	report_waived = NULL;
	report->seconds = now_s() - start;
}

static void several_in_child(void *arg)
{
	struct series *s = arg;
	size_t i = *s->begun;

	tool_on_end = report_cannot;
	report = s->reports + i;
	sanity.facts = *s->list[i].facts;
	sanity_open();
	for (; i < s->count; i++) {
		report = s->reports + i;
		sanity.facts = *s->list[i].facts;
		atomic_store(s->begun, i + 1);
		run_here(s->list[i].test);
	}
	sanity_close();
	exit(TOOL_OK);
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

static enum outcome not_finished(enum child_end end, long seconds)
{
	snprintf(report->text, sizeof(report->text), "not finished after %ld s%s", seconds,
		 end == CHILD_STUCK ? " and cannot be ended: look at the kernel's log" : "");
	return FAILED;
}

void run_in_one(struct run *list, size_t count, long seconds)
{
	_Atomic size_t *begun = mmap(NULL, sizeof(*begun), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct series s = { list, count, report, begun };

	report_clear(); /* the look at the memory used it */
	if (begun == MAP_FAILED)
		tool_fail("no memory for %zu tests: %s", count, strerror(errno));
	for (size_t done = 0; done < count;) {
		int status = 0;
		enum child_end end =
			child_run(several_in_child, &s, (unsigned int)seconds, &status);
		size_t last = *begun > done ? *begun : done + 1; /* it may have ended before one */

		for (; done < last; done++) {
			bool over = done + 1 < count || (WIFEXITED(status) && !WEXITSTATUS(status));

			report = s.reports + done;
			list[done].outcome = report->returned && over ? PASSED
					     : report->said	      ? report->outcome
					     : end == CHILD_ENDED     ? judge(status, seconds)
								      : not_finished(end, seconds);
		}
		*begun = done;
	}
	report = s.reports;
	munmap(begun, sizeof(*begun));
}

enum outcome run_test(const struct sanity_test *test, long seconds)
{
	struct sanity_test copy = *test;
	double start = now_s();
	enum child_end end;
	int status = 0;

	report_clear();
	end = child_run(in_child, &copy, (unsigned int)seconds, &status);
	report->seconds = now_s() - start;
	return end == CHILD_ENDED ? judge(status, seconds) : not_finished(end, seconds);
}
