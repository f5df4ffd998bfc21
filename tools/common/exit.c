/* SPDX-License-Identifier: MIT */
/* Messages and the ends of a tool; see exit.h. */
#include "exit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *tool_name = "gdrcopy";
void (*tool_before_text)(void);
int tool_fail_status = TOOL_FAIL;
void (*tool_on_end)(const char *text, int status);

#define TEXT_SIZE 4096

static bool ended; /* by tool_end(): its status stands */

int tool_utf8_length(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	int n = s[0] < 0x80		       ? 1
		: s[0] >= 0xc2 && s[0] <= 0xdf ? 2
		: (s[0] & 0xf0) == 0xe0	       ? 3
		: s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
					       : 0;

	for (int i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* overlong forms, surrogates, above U+10FFFF */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

bool tool_is_control(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	return *s < 0x20 || *s == 0x7f || (*s == 0xc2 && s[1] < 0xa0);
}

void tool_clean(char *text)
{
	char *to = text;
	int n;

	for (; *text; text += n) {
		n = tool_utf8_length(text);
		if (!n || (tool_is_control(text) && *text != '\n' && *text != '\t')) {
			n = n ? n : 1;
			*to++ = '?';
			continue;
		}
		memmove(to, text, (size_t)n);
		to += n;
	}
	*to = '\0';
}

static void say(char *text, const char *lead, const char *fmt, va_list ap)
{
	vsnprintf(text, TEXT_SIZE, fmt, ap);
	tool_clean(text);
	if (tool_before_text)
		tool_before_text();
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

void tool_plain(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
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

/* Or a node of the GPU driver gets the number, and printf() writes there. A write must fail. */
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

/* ---- --sim ---------------------------------------------------------------------------- */

/* Set by the first process for the second: the directory of --sim. */
#define GUARD "GDRCOPY_TOOL_SIM"

/* Puts `path` before or behind the paths that the variable NAME has. */
static void add_path(const char *name, const char *path, bool before)
{
	const char *old = getenv(name);
	char *text = NULL;

	if (old && *old && asprintf(&text, "%s:%s", before ? path : old, before ? old : path) < 0)
		tool_fail("out of memory");
	if (setenv(name, text ? text : path, 1))
		tool_fail("--sim: %s", strerror(errno));
	free(text);
}

void sim_enter(const char *dir, char **argv)
{
	char real[PATH_MAX], file[PATH_MAX + 32], self[PATH_MAX];
	const char *guard = getenv(GUARD);
	ssize_t n;

	if (!dir)
		return;
	if (!realpath(dir, real))
		tool_fail("--sim %s: %s", dir, strerror(errno));
	/* LD_LIBRARY_PATH would split it or expand it: ld.so(8) */
	if (strpbrk(real, ":; \t\n$"))
		tool_fail(
			"--sim %s: the loader takes no path with a colon, a semicolon, a blank or "
			"a dollar sign",
			dir);
	snprintf(file, sizeof(file), "%s/libcuda.so.1", real);
	if (access(file, R_OK))
		tool_fail("--sim %s: no libcuda.so.1 there", dir);
	if (guard && !strcmp(guard, real))
		return;
	/* not "/proc/self/exe" itself: under valgrind that would be valgrind */
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		tool_fail("--sim: /proc/self/exe: %s", strerror(errno));
	self[n] = '\0';
	add_path("LD_LIBRARY_PATH", real, true);
	if (setenv(GUARD, real, 1))
		tool_fail("--sim: %s", strerror(errno));
	/* NVIDIA's nodes, if the directory has stand-ins of them; GDRSIM_RM=absent removes them */
	snprintf(file, sizeof(file), "%s/libnvidia_node.so", real);
	if (!access(file, R_OK))
		add_path("LD_PRELOAD", file, false);
	execv(self, argv);
	tool_fail("--sim: %s: %s", self, strerror(errno));
}

void sim_check(const char *dir, const char *path)
{
	char real_dir[PATH_MAX], real_file[PATH_MAX], want[PATH_MAX + 32];

	if (!dir)
		return;
	if (!realpath(dir, real_dir))
		tool_fail("--sim %s: %s", dir, strerror(errno));
	snprintf(want, sizeof(want), "%s/libcuda.so.1", real_dir);
	if (!realpath(path, real_file) || !realpath(want, real_dir) || strcmp(real_dir, real_file))
		tool_fail("--sim %s: the loader took %s instead; is LD_PRELOAD in the way?", dir,
			  path);
}
