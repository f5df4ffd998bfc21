/* SPDX-License-Identifier: MIT */
/* --sim DIR; see sim.h. It must not know CUDA or libgdrapi. */
#include "sim.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exit.h"

/* Set by the first process for the second: the directory of --sim. */
#define GUARD "GDRCOPY_TOOL_SIM"

/* Sets NAME to "FIRST:SECOND", where each of the two may be empty. */
static void set_path(const char *name, const char *first, const char *second)
{
	size_t need = strlen(first) + strlen(second) + 2;
	char *text = tool_calloc(need, 1);

	snprintf(text, need, "%s%s%s", first, *first && *second ? ":" : "", second);
	if (setenv(name, text, 1))
		tool_fail("--sim: %s", strerror(errno));
	free(text);
}

static const char *old_value(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

void sim_enter(const char *dir, char **argv)
{
	char real[PATH_MAX], file[PATH_MAX + 32], self[PATH_MAX];
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
	if (!strcmp(old_value(GUARD), real))
		return;
	/* not "/proc/self/exe" itself: under valgrind that would be valgrind */
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		tool_fail("--sim: /proc/self/exe: %s", strerror(errno));
	self[n] = '\0';
	set_path("LD_LIBRARY_PATH", real, old_value("LD_LIBRARY_PATH"));
	set_path(GUARD, real, "");
	/* the stand-ins of NVIDIA's nodes, if the directory has them; GDRSIM_RM=absent removes them */
	snprintf(file, sizeof(file), "%s/libnvidia_node.so", real);
	if (!access(file, R_OK))
		set_path("LD_PRELOAD", old_value("LD_PRELOAD"), file);
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
