/* SPDX-License-Identifier: MIT */
/*
 * Preloaded under a tool, it answers for the NUMA node of every PCI device: the number in the
 * environment variable NUMA_NODE.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FILE *fopen(const char *path, const char *mode)
{
	FILE *(*real)(const char *, const char *);
	const char *node = getenv("NUMA_NODE");
	size_t n = strlen(path);
	void *p;

	if (node && n > 10 && !strcmp(path + n - 10, "/numa_node"))
		return fmemopen((void *)(size_t)node, strlen(node), "r");
	p = dlsym(RTLD_NEXT, "fopen");
	if (!p)
		abort();
	memcpy(&real, &p, sizeof(p));
	return real(path, mode);
}
