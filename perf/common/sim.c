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

/* Set for the second process: the directory it was started for. */
#define GUARD "GDRCOPY_TOOL_SIM"

/* NVIDIA's nodes of that machine, where the directory has them; GDRSIM_RM=absent takes them away. */
static void preload_nodes(const char *dir)
{
	const char *old = getenv("LD_PRELOAD");
	char file[PATH_MAX + 32], *text;
	size_t need;

	snprintf(file, sizeof(file), "%s/libnvidia_node.so", dir);
	if (access(file, R_OK))
		return;
	need = strlen(file) + (old ? strlen(old) : 0) + 2;
	text = tool_calloc(need, 1);
	snprintf(text, need, "%s%s%s", old ? old : "", old && *old ? ":" : "", file);
	if (setenv("LD_PRELOAD", text, 1))
		tool_fail("--sim: %s", strerror(errno));
}

void sim_enter(const char *dir, char **argv)
{
	const char *guard = getenv(GUARD), *old = getenv("LD_LIBRARY_PATH");
	char real[PATH_MAX], file[PATH_MAX + 32], self[PATH_MAX];
	size_t need;
	ssize_t n;
	char *path;

	if (!dir)
		return;
	if (!realpath(dir, real))
		tool_fail("--sim %s: %s", dir, strerror(errno));
	/* Where it would be taken for two paths, or for something to fill in: ld.so(8). */
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

	need = strlen(real) + (old ? strlen(old) : 0) + 2;
	path = tool_calloc(need, 1);
	snprintf(path, need, "%s%s%s", real, old && *old ? ":" : "", old ? old : "");
	/* not "/proc/self/exe" itself: under valgrind that would be valgrind */
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		tool_fail("--sim: /proc/self/exe: %s", strerror(errno));
	self[n] = '\0';
	if (setenv("LD_LIBRARY_PATH", path, 1) || setenv(GUARD, real, 1))
		tool_fail("--sim: %s", strerror(errno));
	preload_nodes(real);
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
