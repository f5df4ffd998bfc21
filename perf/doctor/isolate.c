/* SPDX-License-Identifier: MIT */
/* A function in a process of its own; see isolate.h. */
#include "doctor/isolate.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/child.h"
#include "common/exit.h"

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

struct job {
	void (*fn)(void *arg);
	void *arg;
	int out; /* where its words go, or -1 */
};

static void in_child(void *p)
{
	const struct job *job = p;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(null, 0);
	dup2(job->out >= 0 ? job->out : null, 1);
	dup2(job->out >= 0 ? job->out : null, 2);
	job->fn(job->arg);
	/* Ended without exit(): what drivers do there is not asked for here. */
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
	struct job job = { fn, arg, memfd_create("words", MFD_CLOEXEC) };
	int status = 0;

	why[0] = '\0';
	switch (child_run(in_child, &job, seconds, &status)) {
	case CHILD_ENDED:
		if (!WIFEXITED(status) || WEXITSTATUS(status) != CHILD_RETURNED)
			explain(status, seconds, job.out, why, why_size);
		break;
	case CHILD_KILLED:
		snprintf(why, why_size, "not finished after %u s", seconds);
		break;
	case CHILD_STUCK:
		snprintf(why, why_size,
			 "not finished after %u s and cannot be ended: the kernel's "
			 "log may tell why",
			 seconds);
		break;
	}
	if (job.out >= 0)
		close(job.out);
	return !why[0];
}
