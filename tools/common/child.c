/* SPDX-License-Identifier: MIT */
/* See child.h. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exit.h"
#include "progress.h"

#define GRACE_S 4 /* from a child's alarm to its kill, and from that to giving it up */

static _Noreturn void in_child(void (*fn)(void *), void *arg, unsigned int seconds, pid_t parent,
			       const sigset_t *mask)
{
	setpgid(0, 0); /* its own children are killed with it */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	sigprocmask(SIG_SETMASK, mask, NULL);
	signal(SIGALRM, SIG_DFL);
	alarm(seconds);
	fn(arg);
	_exit(CHILD_RETURNED);
}

/* Waits without reaping: false if the child does not end within `seconds`. */
static bool ends_within(pid_t pid, const sigset_t *sigchld, unsigned int seconds)
{
	struct timespec now, end;
	siginfo_t info;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += (time_t)seconds;
	for (;;) {
		struct timespec slice = { .tv_nsec = 100000000 };

		info.si_pid = 0;
		if (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid)
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > end.tv_sec)
			return false;
		sigtimedwait(sigchld, NULL, &slice);
		progress_tick();
	}
}

enum child_end child_run(void (*fn)(void *arg), void *arg, unsigned int seconds, int *status)
{
	enum child_end end = CHILD_ENDED;
	sigset_t sigchld, before;
	pid_t parent = getpid(), pid;

	sigemptyset(&sigchld);
	sigaddset(&sigchld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &sigchld, &before);
	/* if the parent left SIGCHLD ignored, the kernel would reap, and waitid() see no end */
	signal(SIGCHLD, SIG_DFL);
	fflush(NULL); /* or the child's exit would print it again */
	pid = fork();
	if (pid < 0)
		tool_fail("fork: %s", strerror(errno));
	if (!pid)
		in_child(fn, arg, seconds, parent, &before);
	setpgid(pid, pid); /* here and in the child: no matter which runs first */
	if (!ends_within(pid, &sigchld, seconds + GRACE_S))
		end = CHILD_KILLED;
	kill(-pid, SIGKILL); /* before the child is reaped: the number is still this group's */
	if (end == CHILD_KILLED && !ends_within(pid, &sigchld, GRACE_S))
		end = CHILD_STUCK;
	else
		waitpid(pid, status, 0);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return end;
}

struct job {
	void (*fn)(void *arg);
	void *arg;
};

static void silent(void *p)
{
	const struct job *job = p;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	job->fn(job->arg); /* ends by _exit(): no driver's exit handler runs */
}

void child_why(enum child_end end, int status, unsigned int seconds, char *why, size_t size)
{
	if (end == CHILD_STUCK)
		snprintf(why, size, "not finished after %u s and cannot be ended", seconds);
	else if (end == CHILD_KILLED || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
		snprintf(why, size, "not finished after %u s", seconds);
	else if (WIFSIGNALED(status))
		snprintf(why, size, "ended by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(why, size, "ended with exit status %d", WEXITSTATUS(status));
}

bool child_isolate(void (*fn)(void *arg), void *arg, unsigned int seconds, char *why, size_t size)
{
	struct job job = { fn, arg };
	int status = 0;
	enum child_end end = child_run(silent, &job, seconds, &status);

	why[0] = '\0';
	if (end == CHILD_ENDED && WIFEXITED(status) && WEXITSTATUS(status) == CHILD_RETURNED)
		return true;
	child_why(end, status, seconds, why, size);
	return false;
}
