/* SPDX-License-Identifier: MIT */
/* A function in a process of its own; see isolate.h. */
#include "doctor/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/exit.h"

#define RETURNED 93 /* exit status of a child whose function came back */
#define GRACE_S	 3 /* how much later than its alarm a child is given up */

void *isolate_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		tool_fail("out of memory: %zu bytes", size);
	return p;
}

void isolate_shared_free(void *p, size_t size)
{
	munmap(p, size);
}

static _Noreturn void in_child(void (*fn)(void *), void *arg, unsigned int seconds, int out,
			       pid_t parent, const sigset_t *mask)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setpgid(0, 0); /* so that its own children can be ended with it */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	sigprocmask(SIG_SETMASK, mask, NULL);
	signal(SIGALRM, SIG_DFL);
	alarm(seconds);
	dup2(null, 0);
	dup2(out >= 0 ? out : null, 1);
	dup2(out >= 0 ? out : null, 2);
	fn(arg);
	_exit(RETURNED); /* what drivers do at exit is not asked for here */
}

/* Waits without reaping: false if the child does not end within `seconds`. */
static bool wait_for(pid_t pid, const sigset_t *sigchld, unsigned int seconds)
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
	}
}

/* The last line in the file, or "". */
static void last_line(int fd, char *line, size_t size)
{
	char text[1024];
	off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	off_t from = end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0;
	ssize_t n = end > 0 ? pread(fd, text, sizeof(text) - 1, from) : 0;
	char *start;

	line[0] = '\0';
	while (n > 0 && (text[n - 1] == '\n' || !text[n - 1]))
		n--;
	if (n <= 0)
		return;
	text[n] = '\0';
	start = memrchr(text, '\n', (size_t)n);
	snprintf(line, size, "%.*s", (int)size - 1, start ? start + 1 : text);
}

static void explain(int status, unsigned int seconds, int out, char *why, size_t size)
{
	char line[512];
	size_t n;

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(why, size, "not finished after %u s", seconds);
	else if (WIFSIGNALED(status))
		snprintf(why, size, "ended by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(why, size, "ended with exit status %d", WEXITSTATUS(status));
	last_line(out, line, sizeof(line));
	n = strlen(why);
	if (line[0] && n < size)
		snprintf(why + n, size - n, "; its last words: %s", line);
}

bool isolate(void (*fn)(void *arg), void *arg, unsigned int seconds, char *why, size_t why_size)
{
	int out = memfd_create("words", MFD_CLOEXEC), status = 0;
	sigset_t sigchld, before;
	pid_t parent = getpid(), pid;
	bool ended;

	why[0] = '\0';
	sigemptyset(&sigchld);
	sigaddset(&sigchld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &sigchld, &before);
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		tool_fail("fork: %s", strerror(errno));
	if (!pid)
		in_child(fn, arg, seconds, out, parent, &before);
	setpgid(pid, pid); /* whoever comes first */
	ended = wait_for(pid, &sigchld, seconds + GRACE_S);
	kill(-pid, SIGKILL); /* not reaped yet: the number is still this group's */
	if (!ended && !wait_for(pid, &sigchld, GRACE_S)) {
		snprintf(why, why_size,
			 "not finished after %u s and cannot be ended: the kernel's "
			 "log may tell why",
			 seconds);
	} else {
		waitpid(pid, &status, 0);
		if (!ended)
			snprintf(why, why_size, "not finished after %u s", seconds);
		else if (!WIFEXITED(status) || WEXITSTATUS(status) != RETURNED)
			explain(status, seconds, out, why, why_size);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (out >= 0)
		close(out);
	return !why[0];
}
