/* SPDX-License-Identifier: MIT */
/* A function in a process of its own, and its end in words; see isolate.h. */
#include "isolate.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"

struct job {
	void (*fn)(void *arg);
	void *arg;
};

static void in_child(void *p)
{
	const struct job *job = p;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	job->fn(job->arg);
	/* Ended without exit(): what drivers do there is not asked for here. */
}

bool isolate(void (*fn)(void *arg), void *arg, unsigned int seconds, char *why, size_t size)
{
	struct job job = { fn, arg };
	int status = 0;
	enum child_end how = child_run(in_child, &job, seconds, &status);

	why[0] = '\0';
	if (how == CHILD_STUCK)
		snprintf(why, size, "not finished after %u s and cannot be ended", seconds);
	else if (how == CHILD_KILLED || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
		snprintf(why, size, "not finished after %u s", seconds);
	else if (WIFSIGNALED(status))
		snprintf(why, size, "ended by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) != CHILD_RETURNED)
		snprintf(why, size, "ended with exit status %d", WEXITSTATUS(status));
	return !why[0];
}
