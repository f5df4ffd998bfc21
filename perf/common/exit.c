/* SPDX-License-Identifier: MIT */
/* Messages and the ends of a tool; see exit.h. */
#include "exit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *tool_name = "gdrcopy";
int tool_fail_status = TOOL_FAIL;
void (*tool_on_end)(const char *text, int status);

#define TEXT_SIZE 4096

static bool ended; /* by tool_end(): its status stands */

static void say(char *text, const char *lead, const char *fmt, va_list ap)
{
	vsnprintf(text, TEXT_SIZE, fmt, ap);
	fflush(stdout);
	/* one write, so that the lines of several processes do not mix */
	fprintf(stderr, "%s: %s%s\n", tool_name, lead, text);
}

void tool_end(const char *lead, int status, const char *fmt, ...)
{
	void (*fn)(const char *, int) = tool_on_end;
	char text[TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	say(text, lead, fmt, ap);
	va_end(ap);
	ended = true;
	tool_on_end = NULL; /* fn may fail too */
	if (fn)
		fn(text, status);
	exit(status);
}

void tool_note(const char *fmt, ...)
{
	char text[TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	say(text, "", fmt, ap);
	va_end(ap);
}

static pid_t guarded; /* a child that exits does not judge its parent's output */

static void check_output(void)
{
	const char *why = "not everything could be written";
	int fd;

	if (ended || getpid() != guarded)
		return;
	if (fflush(stdout)) {
		why = strerror(errno);
	} else if (!ferror(stdout)) {
		/* some file systems report a full disk only at close() */
		fd = dup(STDOUT_FILENO);
		if (fd < 0 || !close(fd))
			return;
		why = strerror(errno);
	}
	fprintf(stderr, "%s: standard output: %s\n", tool_name, why);
	_exit(tool_fail_status);
}

/*
 * The next open() takes the lowest free number: without this, printf() would write into a node of the
 * GPU driver. /dev/null is opened for reading, so that what is printed fails and is noticed.
 */
static void fill_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			tool_fail("/dev/null, for descriptor %d: %s", fd, strerror(errno));
}

void tool_guard_output(void)
{
	fill_standard_descriptors();
	guarded = getpid();
	if (atexit(check_output))
		tool_fail("out of memory");
}

void *tool_calloc(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size ? size : 1);

	if (!p)
		tool_fail("out of memory: %zu x %zu bytes", count, size);
	return p;
}

void *tool_alloc_pages(size_t size)
{
	void *p = NULL;

	if (posix_memalign(&p, 4096, size ? size : 1))
		tool_fail("out of memory: %zu bytes", size);
	return p;
}

void *tool_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		tool_fail("out of memory: %zu bytes", size);
	return p;
}
